#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/graph.hpp"
#include "parallel/layout.hpp"
#include "parallel/schedule/schedule.hpp"
#include "scenarios/scenario.hpp"
#include "sim/base/time.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/flat.hpp"
#include "sim/program/program.hpp"

// One stage of a small job, cut into windows (a pass of a micro-batch each) and these into pieces (a unit of layers
// that repeats, or what lies between). Effects of pieces compose and units repeat, so a sample of a few layers stands
// for stages of any number of layers, and its windows for schedules of any length.

namespace tidemark::scenarios {

/// What a chunk of layers holds besides them.
enum class ChunkKind : std::uint8_t { Only, First, Middle, Last };

/// Layers that do the same again and again: `times` units of `unit` layers.
struct LayerRun {
  std::int32_t unit = 1;
  std::int32_t times = 0;
  bool operator==(const LayerRun&) const = default;
};
/// The layers of a chunk in order, as recomputation sees them.
[[nodiscard]] std::vector<LayerRun> layer_runs(std::int32_t layers, const Recomputation& recompute);
[[nodiscard]] std::int32_t layers_of(std::span<const LayerRun> runs);

/// An op as a clock sees it.
struct TimedOp {
  enum class Kind : std::uint8_t { Compute, Transfer, Signal, Await };
  Kind kind = Kind::Compute;
  CollectiveKind collective = CollectiveKind::AllReduce;
  bool aside = false;  ///< not on the compute stream
  std::int32_t event = 0;
  CommSlot comm{};
  Bytes size{};
  Duration duration{};  ///< of a kernel
};

/// Net change and highest point of live bytes: as requests round to blocks, and as the largest blocks could be that the
/// allocator gives for them.
struct Effects {
  Effect lower, upper;
};
[[nodiscard]] Effects then(const Effects& first, const Effects& second);
/// Of all ops from one to before another.
[[nodiscard]] Effects effects_of(const Program& program, std::size_t from, std::size_t to);
[[nodiscard]] std::vector<TimedOp> timed_ops(const Program& program, std::size_t from, std::size_t to,
                                             const Device& device);

struct Piece {
  std::int32_t run = -1;  ///< index into the chunk's runs; -1: between layers
  std::int32_t unit = 0;  ///< of that run
  Effects effects;
  std::vector<TimedOp> ops;
};
struct Window {
  ActionKind kind = ActionKind::Forward;
  std::int32_t others = 0;  ///< micro-batches in flight besides its own
  std::vector<Piece> pieces;
};

struct ChunkSample {
  std::vector<Window> windows;  ///< the passes of one step, in order
  Effects caches;               ///< net: what passes allocate once and keep
  Bytes boundary;               ///< what crosses between stages
};

/// How many units a sample has of a run of so many: enough to tell first, last and those between.
[[nodiscard]] std::vector<LayerRun> sampled(std::vector<LayerRun> runs);

/// Lowers a job of few layers that has such a chunk, with the scenario's tensor parallelism, micro-batch, recomputation
/// and everything else that passes depend on.
[[nodiscard]] ChunkSample sample(const Scenario& scenario, ChunkKind kind, const std::vector<LayerRun>& runs);

}  // namespace tidemark::scenarios
