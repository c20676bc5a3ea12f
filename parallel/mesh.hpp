#pragma once

#include <cstdint>
#include <vector>

#include "parallel/layout.hpp"
#include "sim/base/units.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::parallel {

/// Where a rank stands on each axis of the job.
struct Coordinates {
  std::int32_t tensor = 0;
  std::int32_t data = 0;
  std::int32_t pipeline = 0;
  bool operator==(const Coordinates&) const = default;
};

/// Ranks count along the axes in the layout's order.
[[nodiscard]] Coordinates coordinates(const Layout& layout, Rank rank);
[[nodiscard]] Rank rank_at(const Layout& layout, const Coordinates& coordinates);

/// The communicators of a job, as slots of its workload. A slot is invalid where its group would have one member and
/// nobody makes a communicator for it.
struct Communicators {
  CommSlot world;      ///< start-up barrier
  CommSlot tensor;     ///< activations of tensor and sequence parallelism
  CommSlot data;       ///< gradients and parameters
  CommSlot norm;       ///< the gradient norm: all ranks with a sharded optimizer, tensor x pipeline without
  CommSlot model;      ///< what ranks that hold parts of one model agree on after each step: tensor x pipeline
  CommSlot pipeline;   ///< hand-over between stages
  CommSlot embedding;  ///< first and last stage, where they share the embedding's weight

  std::vector<Communicator> table;  ///< by slot
};

/// Whether the framework calls collectives in groups of one too. NCCL then makes a communicator, whose structures take
/// as much memory as any; nothing goes through it.
enum class Alone : std::uint8_t { Skips, Calls };

[[nodiscard]] Communicators communicators(const Layout& layout, bool tied_embeddings, Alone alone = Alone::Skips);

}  // namespace tidemark::parallel
