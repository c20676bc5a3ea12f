#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/clock/folding.hpp"
#include "sim/program/workload.hpp"
#include "topology/cluster.hpp"
#include "topology/collective.hpp"
#include "topology/route/replica_orbits.hpp"

namespace tidemark::topology {

/// How the transfers of a workload go over a cluster. Rank r runs on device r. Groups that lie alike on the nodes take
/// alike ways, which are looked for once.
class Router {
 public:
  /// Of all ranks, of which the fabric has as many devices.
  Router(const Workload& workload, Fabric fabric, const CollectiveOptions& options = {});
  /// Of one rank of each orbit, where ranks can change places: those of different `kinds`, such as prices, cannot.
  Router(const Workload& workload, Fabric fabric, const std::vector<std::int32_t>& kinds,
         const CollectiveOptions& options = {});
  /// The same over the cluster's fabric, by NCCL's own settings.
  Router(const Workload& workload, const Cluster& cluster, const CollectiveOptions& options = {})
      : Router(workload, build_fabric(cluster, workload.world_size()), options) {}
  Router(const Workload& workload, const Cluster& cluster, const std::vector<std::int32_t>& kinds,
         const CollectiveOptions& options = {})
      : Router(workload, build_fabric(cluster, workload.world_size()), kinds, options) {}

  /// How a collective of a group runs. Its links are those of the flow with that way.
  struct Way {
    std::int32_t number = 0;  ///< as Traffic::Flow::way
    Algorithm algorithm = Algorithm::Ring;
    Duration latency;
    std::int64_t of = 1;  ///< a link carries weight / of x size
  };
  [[nodiscard]] Way collective(CommSlot comm, Rank leader, CollectiveKind kind, Bytes size);
  /// What an uneven collective of a group takes, and the way of its flow, whose weights are bytes.
  struct Uneven {
    std::int32_t way = 0;
    TransferCost cost;
  };
  [[nodiscard]] Uneven uneven(CommSlot comm, Rank leader, CollectiveKind kind, MatrixId matrix) const;

  /// What the workload's flows put on links, for `fold`: ranks are alike only where the links that they share are.
  [[nodiscard]] const Traffic& traffic() const { return traffic_; }

  [[nodiscard]] const Fabric& fabric() const { return fabric_; }
  [[nodiscard]] const CollectiveOptions& options() const { return options_; }

 private:
  using Call = std::pair<CollectiveKind, Bytes>;
  // What a program does with a communicator.
  struct Use {
    std::set<Call> calls;
    std::map<MatrixId, std::pair<CollectiveKind, RowId>> uneven;
    std::set<std::int32_t> sends;  // steps
    bool messages = false;
  };
  // Plans as they are for one group; others that lie like it are whole nodes away.
  struct Shape {
    Rank leader;
    std::int32_t node = 0;
    std::map<CollectiveKind, std::vector<CollectivePlan>> plans;
    struct Choice {
      std::size_t plan = 0;
      Duration latency;
    };
    std::map<Call, Choice> choices;
  };

  struct Place {
    std::int32_t node = 0;    // a group's place counts from there
    std::int32_t offset = 0;  // of its lowest device
  };
  [[nodiscard]] Place place_of(CommSlot comm, Rank leader) const;
  Shape& shape_of(CommSlot comm, Rank leader);
  const Shape::Choice& choice(Shape& shape, CommSlot comm, const Call& call);
  [[nodiscard]] const Use& use(CommSlot comm, Rank rank) const {
    return uses_[static_cast<std::size_t>(workload_.program_of_rank[rank.index()])][comm.index()];
  }

  Router(Fabric fabric, const Workload& workload, const CollectiveOptions& options);  // without flows
  void find_symmetry(const std::vector<std::int32_t>& kinds);
  void refine(ReplicaOrbits& orbits);
  void keep_firsts(const ReplicaOrbits& orbits);

  void add_flows();
  void add_flows(CommSlot comm, std::int32_t step, Rank rank);
  void add_message(CommSlot comm, std::int32_t step, Rank sender);
  void add_collectives(CommSlot comm, Rank leader, const std::set<Call>& calls);
  void add_copies();
  void add_flow(Traffic::Flow flow, const TransferCost& cost);
  void add_load(LinkId link, std::int64_t weight);
  [[nodiscard]] std::int32_t orbit_size(Rank rank) const;

  const Workload& workload_;
  CollectiveOptions options_;
  Fabric fabric_;
  std::vector<std::vector<Use>> uses_;                             // by program and slot
  std::vector<std::array<bool, 2>> copies_;                        // by program: from the device, and to it
  std::vector<std::int32_t> same_axes_;                            // by slot: the first that is like it
  std::map<std::pair<std::int32_t, std::int32_t>, Shape> shapes_;  // by slot and offset
  Traffic traffic_;
  std::vector<std::int32_t> kept_;  // by LinkId: its place in the traffic, or -1; empty: the same
  Route route_;                     // used again and again
};

}  // namespace tidemark::topology
