#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/built_model.hpp"
#include "parallel/layout.hpp"
#include "parallel/schedule/schedule.hpp"
#include "scenarios/scenario.hpp"
#include "sim/base/time.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/flat.hpp"
#include "sim/program/program.hpp"

// One stage of a small job, cut into windows (a pass of a micro-batch each) and these into pieces (a unit of layers
// that repeats, or what lies between):
//
//   window F0 | embedding | unit 0 | unit 1 | unit 2 | unit 3 | send |     window B0 | receive | unit 3 | ... | unit 0
//   |
//                                  ^^^^^^^^^^^^^^^^^ alike: stands for as many as there are between first and last
//
// Effects of pieces compose and units repeat, so a sample of a few layers stands for stages of any number of layers,
// and its windows for schedules of any length: where that can be seen in the sample.

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
  bool aside = false;      ///< not on the compute stream
  std::int32_t event = 0;  ///< how many were recorded before it among these ops; -1: it was recorded before them
  CommSlot comm{};
  Bytes size{};
  Duration duration{};  ///< of a kernel
  bool operator==(const TimedOp&) const = default;
};

/// Net change and highest point of live bytes over all ops from one to before another, as requests round to blocks.
[[nodiscard]] Effect effect_of(const Program& program, std::size_t from, std::size_t to);
/// `kernels`: how long those of the program take.
[[nodiscard]] std::vector<TimedOp> timed_ops(const Program& program, std::size_t from, std::size_t to,
                                             std::span<const Duration> kernels);

/// What passes do, whatever the order: each kernel, each collective and each tensor of a layer, and how often.
struct PassWork {
  using What =
      std::tuple<std::int32_t, std::int32_t, bool, std::int64_t>;  ///< kind of op, its own kind, aside, how much
  std::map<What, std::int64_t> times;
  void add(const PassWork& other, std::int64_t so_often);
  /// Whether all of that is done, as often or more.
  [[nodiscard]] bool covers(const PassWork& other) const;
  bool operator==(const PassWork&) const = default;
};

struct Piece {
  std::int32_t run = -1;  ///< index into the chunk's runs; -1: between layers
  std::int32_t unit = 0;  ///< of that run
  Effect effect;
  Bytes made;                ///< tensors of layers, freed ones too
  std::vector<TimedOp> ops;  ///< events count from 0 in each piece; -1 is one that was recorded before it
};
struct Window {
  ActionKind kind = ActionKind::Forward;
  std::int32_t others = 0;  ///< micro-batches in flight besides its own
  std::vector<Piece> pieces;
  PassWork work;  ///< of the first of its kind
};

/// What windows are cut by.
struct WindowShape {
  std::int32_t step = 1;
  std::int32_t first_layer = 0;
  std::vector<LayerRun> runs;
  CommSlot tensor;  ///< the only communicator that passes may talk to, hand-overs apart
};
/// The passes of a step, in order. Nothing where a sample of few layers and micro-batches does not stand for many:
///  - a pass comes by each unit of layers once, in their order or, going back, the other way round, with nothing
///  between;
///  - of four units the second and the third do alike;
///  - the second and the third micro-batch that run ahead leave as much behind;
///  - all passes of a kind do the same, and talk to the tensor group alone.
[[nodiscard]] std::optional<std::vector<Window>> windows_of(const Program& program, const WindowShape& shape,
                                                            const Device& device);

/// The passes of a step, all taken together; nothing where they talk to others than these two.
struct Peers {
  CommSlot tensor;    ///< in collectives
  CommSlot pipeline;  ///< in exchanges
};
[[nodiscard]] std::optional<PassWork> work_of_passes(const Program& program, std::int32_t step, const Peers& peers,
                                                     const Device& device);
/// Their first op, and the one after their last.
[[nodiscard]] std::pair<std::size_t, std::size_t> passes_of(const Program& program, std::int32_t step);

struct ChunkSample {
  std::vector<Window> windows;  ///< the passes of one step, in order
  Bytes caches;                 ///< what passes allocate once and keep
  Bytes boundary;               ///< what crosses between stages
};

/// How many units a sample has of a run of so many: enough to see first, last, and that those between are alike.
[[nodiscard]] std::vector<LayerRun> sampled(std::vector<LayerRun> runs);
/// How often a chunk with such a run does what a piece of its sample does.
[[nodiscard]] std::int64_t times_of(const Piece& piece, const std::vector<LayerRun>& runs);

/// Lowers a job of few layers that has such a chunk, with the scenario's tensor parallelism, micro-batch, recomputation
/// and everything else that passes depend on. Nothing where it does not stand for more layers and micro-batches.
[[nodiscard]] std::optional<ChunkSample> sample(const Scenario& scenario, ChunkKind kind,
                                                const std::vector<LayerRun>& runs);

}  // namespace tidemark::scenarios
