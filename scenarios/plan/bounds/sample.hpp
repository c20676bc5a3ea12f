#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/job/built_model.hpp"
#include "parallel/job/layout.hpp"
#include "parallel/job/mesh.hpp"
#include "parallel/job/stages.hpp"
#include "parallel/schedule/schedule.hpp"
#include "scenarios/scenario/scenario.hpp"
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

/// Layers that do the same again and again: `times` units, each of these layers.
struct LayerRun {
  std::vector<LayerKind> unit{0};
  std::int32_t times = 0;
  bool in_block = false;  ///< among the first layers of a stage, which block-wise recomputation runs again

  [[nodiscard]] std::int32_t unit_layers() const { return static_cast<std::int32_t>(unit.size()); }
  [[nodiscard]] std::int32_t layers() const { return unit_layers() * times; }
  bool operator==(const LayerRun&) const = default;
};
/// The layers of a chunk in order, as recomputation sees them.
[[nodiscard]] std::vector<LayerRun> layer_runs(std::span<const LayerKind> layers, const Recomputation& recompute);
[[nodiscard]] std::int32_t layers_of(std::span<const LayerRun> runs);
/// Those of a stage, of all of a model.
[[nodiscard]] std::span<const LayerKind> kinds_of(const Stage& stage, std::span<const LayerKind> all);

/// The groups that passes talk to, hand-overs apart: in one order for all jobs, and invalid where a job has none.
using PassGroups = std::array<CommSlot, 9>;
[[nodiscard]] PassGroups pass_groups(const Communicators& comms);

/// An op as a clock sees it.
struct TimedOp {
  enum class Kind : std::uint8_t {
    Compute,
    Transfer,  ///< a collective
    Message,
    Signal,
    Await,
    HostAwait
  };
  Kind kind = Kind::Compute;
  CollectiveKind collective = CollectiveKind::AllReduce;
  bool uneven = false;   ///< parts of members differ
  bool launched = true;  ///< by itself: not as a part of the kernel before it
  Phase phase = Phase::Forward;
  StreamId stream{0};      ///< 0: the compute stream
  std::int32_t event = 0;  ///< how many were recorded before it among these ops; -1: it was recorded before them
  CommSlot comm{};
  Bytes size{};         ///< of a message: the largest
  Duration duration{};  ///< of a kernel
  Duration longer{};    ///< at most, that it takes more beside collectives
  bool operator==(const TimedOp&) const = default;
};

/// Net change and highest point of live bytes over all ops from one to before another, as requests round to blocks.
[[nodiscard]] Effect effect_of(const Program& program, std::size_t from, std::size_t to);
/// What of a program's ops takes how long.
struct TimedBy {
  std::vector<Duration> kernels;       ///< by kernel
  std::vector<Duration> second_waves;  ///< by kernel; or nothing
  std::vector<Bytes> buffers;          ///< how large they are
  CommSlot p2p_exchanges;              ///< whose messages are left out
};
[[nodiscard]] TimedBy timed_by(const Program& program, const Cluster& cluster, CommSlot p2p_exchanges);
[[nodiscard]] std::vector<TimedOp> timed_ops(const Program& program, std::size_t from, std::size_t to,
                                             const TimedBy& by);

/// What passes do, whatever the order: each kernel, each collective and each tensor of a layer, and how often.
struct PassWork {
  using What =
      std::tuple<std::int32_t, std::int32_t, Phase, bool, std::int64_t>;  ///< kind of op, its own, aside, how much
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
  Bytes made;  ///< tensors of layers, freed ones too
  /// Events count from 0 in each piece; -1 is one that was recorded before it. Pieces that do the same share these.
  std::shared_ptr<const std::vector<TimedOp>> ops;
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
  PassGroups groups;  ///< the only ones that passes may talk to, hand-overs apart
  CommSlot pipeline;  ///< of these
};
/// The passes of a step, in order. Nothing where a sample of few layers and micro-batches does not stand for many:
///  - a pass comes by each unit of layers once, in their order or, going back, the other way round, with nothing
///  between;
///  - of four units the second and the third do alike;
///  - the second and the third micro-batch that run ahead leave as much behind;
///  - all passes of a kind do the same, and talk to those groups alone.
[[nodiscard]] std::optional<std::vector<Window>> windows_of(const Program& program, const WindowShape& shape,
                                                            const Cluster& cluster);

/// The passes of a step, all taken together; nothing where they talk to others than these.
struct Peers {
  PassGroups groups;
  CommSlot pipeline;    ///< in messages
  PassGroups beside{};  ///< in collectives that passes do not wait for, but where their step ends and begins
};
[[nodiscard]] std::optional<PassWork> work_of_passes(const Program& program, std::int32_t step, const Peers& peers,
                                                     const Cluster& cluster);
/// Their first op, and the one after their last.
[[nodiscard]] std::pair<std::size_t, std::size_t> passes_of(const Program& program, std::int32_t step);

struct ChunkSample {
  std::vector<Window> windows;  ///< the passes of one step, in order
  Bytes caches;                 ///< what passes allocate once and keep
  Bytes boundary;               ///< what crosses between stages
  PassGroups groups;            ///< what its ops call them
  bool alike = true;            ///< all ranks of the stage run these passes; else one of them does
};

/// What passes depend on of a layout, wherever their stage is.
[[nodiscard]] Layout layout_of_passes(const Layout& layout);

/// How many units a sample has of a run of so many: enough to see first, last, and that those between are alike.
[[nodiscard]] std::vector<LayerRun> sampled(std::vector<LayerRun> runs);
/// How often a chunk with such a run does what a piece of its sample does.
[[nodiscard]] std::int64_t times_of(const Piece& piece, const std::vector<LayerRun>& runs);

/// Lowers a job of few layers that has such a chunk, with the scenario's tensor, context and expert parallelism,
/// micro-batch, recomputation and everything else that passes depend on. Nothing where it does not stand for more
/// layers and micro-batches.
[[nodiscard]] std::optional<ChunkSample> sample(const Scenario& scenario, ChunkKind kind,
                                                const std::vector<LayerRun>& runs);

}  // namespace tidemark::scenarios
