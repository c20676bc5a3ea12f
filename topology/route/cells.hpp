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

// Where a job's ranks can change places. Along one axis of its mesh, say the data-parallel one, a job is made of cells:
// the ranks at a coordinate, their nodes, and all that these do among themselves. Cells are alike but for what tells
// them apart: prices, and how collectives that reach over all cells load them, because trees have roots and rings
// have ends. Two cells of one look can be exchanged where they hang on the same leaf switches, and so can blocks of
// cells that fill whole leaves, if the cells in them look alike one by one. Looks are 64-bit hashes, as colours in
// folding are.

namespace tidemark::topology {

class Cells {
 public:
  /// Cuts along the axis; nothing where groups, messages, nodes or the number of ranks do not allow it. `messages`: by
  /// CommSlot, whether ranks send there.
  [[nodiscard]] static std::optional<Cells> along(const GroupAxis& axis, const Workload& workload, const Fabric& fabric,
                                                  const std::vector<bool>& messages);

  /// Whether groups of the communicator reach over all cells; else each is inside one.
  [[nodiscard]] bool spanned(CommSlot comm) const { return spanned_[comm.index()]; }
  /// Of the first cell.
  [[nodiscard]] std::vector<Rank> first_ranks() const;
  /// Nodes so far apart belong to one cell.
  [[nodiscard]] std::int32_t period() const { return run_ / fabric_->node.devices * cells_; }

  /// Ranks of different numbers are not alike.
  void tell_apart(std::span<const std::int32_t> number_of_rank);
  /// Links of different loads are not alike: those of a plan, moved on by so many nodes.
  void tell_apart(const CollectivePlan& plan, std::int32_t nodes);

  /// Of all told so far.
  [[nodiscard]] Symmetry symmetry() const;
  /// By LinkId: the size of its orbit; 0 where it is not the first of it.
  [[nodiscard]] std::vector<std::int32_t> link_orbits() const;

 private:
  explicit Cells(const Fabric& fabric) : fabric_(&fabric) {}

  struct Counts {
    std::vector<std::int32_t> of;      // by cell: how many it stands for, 0: none
    std::vector<std::int32_t> first;   // by cell: the one that stands for it
    std::vector<std::int32_t> blocks;  // by block of cells: as `of`
  };
  [[nodiscard]] Counts counts() const;
  [[nodiscard]] std::uint64_t leaves_of(std::int32_t cell) const;

  // Where the links of a type are: those of a unit, a cell or a block of cells, lie side by side, `run` of them, and
  // `units` such runs after each other.
  struct Runs {
    std::int32_t first = 0, last = 0;  // LinkIds
    std::int32_t run = 1, units = 1;
    bool leaves = false;
  };
  [[nodiscard]] Runs runs(LinkType type) const;

  const Fabric* fabric_;
  std::int32_t run_ = 1;     // ranks of a cell, side by side
  std::int32_t cells_ = 1;   // such runs make up the axis
  std::int32_t blocks_ = 1;  // of cells; what is on one leaf is in one of them, if there are several
  std::int32_t rounds_ = 1;  // times that the axis fits into the job
  std::vector<bool> spanned_;
  std::vector<std::uint64_t> looks_;       // by cell
  std::vector<std::uint64_t> leaf_looks_;  // by block of cells: its leaves' links
};

}  // namespace tidemark::topology
