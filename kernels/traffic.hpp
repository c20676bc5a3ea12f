#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/folding.hpp"
#include "sim/workload.hpp"
#include "topology/cluster.hpp"
#include "topology/collective.hpp"

namespace tidemark {

/// How the transfers of a workload go over a cluster. Rank r runs on device r. Groups that lie alike on the nodes take
/// alike ways, which are looked for once.
class Router {
 public:
  Router(const Workload& workload, const Cluster& cluster, const CollectiveOptions& options = {});

  /// How a collective of a group runs. Its links are those of the flow with that way.
  struct Way {
    std::int32_t number = 0;  ///< as Traffic::Flow::way
    Algorithm algorithm = Algorithm::Ring;
    Duration latency;
    std::int64_t of = 1;  ///< a link carries weight / of x size
  };
  [[nodiscard]] Way collective(CommSlot comm, Rank leader, CollectiveKind kind, Bytes size);

  /// Every flow of the workload, for `fold`: ranks are alike only where the links that they share are.
  [[nodiscard]] const Traffic& traffic() const { return traffic_; }

  [[nodiscard]] const Fabric& fabric() const { return fabric_; }
  [[nodiscard]] const CollectiveOptions& options() const { return options_; }

 private:
  using Call = std::pair<CollectiveKind, Bytes>;
  // What a program does with a communicator.
  struct Use {
    std::set<Call> calls;
    std::set<std::int32_t> sends;  // steps
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
  [[nodiscard]] std::array<std::int32_t, link_types> shifts(std::int32_t nodes) const;

  void add_flows(CommSlot comm);
  void add_message(CommSlot comm, std::int32_t step, Rank sender);
  void add_collectives(CommSlot comm, Rank leader, const std::set<Call>& calls);

  const Workload& workload_;
  CollectiveOptions options_;
  Fabric fabric_;
  std::vector<std::vector<Use>> uses_;                             // by program and slot
  std::vector<std::int32_t> same_axes_;                            // by slot: the first that is like it
  std::map<std::pair<std::int32_t, std::int32_t>, Shape> shapes_;  // by slot and offset
  Traffic traffic_;
  Route route_;  // used again and again
};

}  // namespace tidemark
