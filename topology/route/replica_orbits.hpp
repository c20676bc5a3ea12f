#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/clock/symmetry.hpp"
#include "sim/program/workload.hpp"
#include "topology/collective.hpp"
#include "topology/fabric.hpp"
#include "topology/namespace.hpp"

// Which ranks and links of a job are one orbit: can be exchanged so that the job stays what it is. Along one axis of
// its mesh, say the data-parallel one, a job is made of replicas: the ranks at a coordinate (at several, where a node
// holds several), the nodes that they fill, and all that these do among themselves.
//
//   axis      0         1         2         3
//   stage 0   node 0    node 1    node 2    node 3       group of a tensor-parallel axis: in one replica
//   stage 1   node 4    node 5    node 6    node 7       group of this axis: spans all replicas
//             replica   replica   replica   replica      messages between stages: in one replica
//             |__ block of leaf 0 _|__ block of leaf 1 _|
//
// Replicas are alike but for what refines them: prices, and how collectives that span all of them load them, because
// trees have roots and rings have ends. Each has a signature, a 64-bit hash of all that. Replicas of one signature can
// be exchanged where they hang on the same leaf switches, and so can blocks of replicas that fill whole leaves, if
// their replicas have the same signatures one by one. One rank of each
// orbit, the quotient, is what folding refines into classes.

namespace tidemark::topology {

class ReplicaOrbits {
 public:
  /// Cuts along the axis; nothing where groups, messages, nodes or the number of ranks do not allow it. `messages`: by
  /// CommSlot, whether ranks send there.
  [[nodiscard]] static std::optional<ReplicaOrbits> along(const GroupAxis& axis, const Workload& workload,
                                                          const Fabric& fabric, const std::vector<bool>& messages);

  /// Whether groups of the communicator reach over all replicas; else each is inside one.
  [[nodiscard]] bool spanned(CommSlot comm) const { return spanned_[comm.index()]; }
  /// Of the first replica.
  [[nodiscard]] std::vector<Rank> first_ranks() const;
  /// Nodes so far apart belong to one replica.
  [[nodiscard]] std::int32_t period() const { return run_ / fabric_->node.devices * replicas_; }

  /// Ranks of different numbers are not alike.
  void refine(std::span<const std::int32_t> number_of_rank);
  /// Links of different loads are not alike: those of a plan, moved on by so many nodes.
  void refine(const CollectivePlan& plan, std::int32_t nodes);

  /// Of all told so far.
  [[nodiscard]] Symmetry symmetry() const;
  /// By LinkId: the size of its orbit; 0 where it is not the first of it.
  [[nodiscard]] std::vector<std::int32_t> link_orbits() const;

 private:
  explicit ReplicaOrbits(const Fabric& fabric) : fabric_(&fabric) {}

  struct Counts {
    std::vector<std::int32_t> of;      // by replica: how many it stands for, 0: none
    std::vector<std::int32_t> first;   // by replica: the one that stands for it
    std::vector<std::int32_t> blocks;  // by block of replicas: as `of`
  };
  [[nodiscard]] Counts counts() const;
  [[nodiscard]] std::uint64_t leaves_of(std::int32_t replica) const;

  // Where the links of a type are: those of a unit, a replica or a block of replicas, lie side by side, `run` of them,
  // and `units` such runs after each other.
  struct Runs {
    std::int32_t first = 0, last = 0;  // LinkIds
    std::int32_t run = 1, units = 1;
    bool leaves = false;
  };
  [[nodiscard]] Runs runs(LinkType type) const;

  const Fabric* fabric_;
  std::int32_t run_ = 1;       // ranks of a replica, side by side
  std::int32_t replicas_ = 1;  // such runs make up the axis
  std::int32_t blocks_ = 1;    // of replicas; what is on one leaf is in one of them, if there are several
  std::int32_t rounds_ = 1;    // times that the axis fits into the job
  std::vector<bool> spanned_;
  std::vector<std::uint64_t> signatures_;       // by replica
  std::vector<std::uint64_t> leaf_signatures_;  // by block of replicas: its leaves' links
};

}  // namespace tidemark::topology
