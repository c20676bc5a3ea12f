#include "scenarios/plan/sample.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>

#include "kernels/roofline.hpp"
#include "parallel/lower.hpp"
#include "scenarios/plan/pass_schedule.hpp"
#include "scenarios/prediction.hpp"
#include "sim/base/ensure.hpp"
#include "sim/memory/allocator_options.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::int32_t units_told_apart = 3;  // first, between, last

// The layer in an operator's name: "layers.3.mlp.fc1"; -1: none.
std::int32_t layer_in(std::string_view label) {
  constexpr std::string_view prefix = "layers.";
  if (!label.starts_with(prefix)) return -1;
  std::int32_t layer = -1;
  std::from_chars(label.data() + prefix.size(), label.data() + label.size(), layer);
  return layer;
}

// How large the block of a request can be: one that is left whole may be larger by as much as is not cut off.
std::int64_t largest_block(Bytes requested) {
  const Bytes size = block_size(requested);
  return (size + (pool_of(size) == PoolKind::Large ? AllocatorOptions::small_limit : Bytes{0})).count();
}

struct Changes {
  std::vector<std::int64_t> lower, upper;  // by op
};

Changes changes_of(const Program& program) {
  Changes changes{flat_changes(program), std::vector<std::int64_t>(program.ops.size(), 0)};
  std::vector<std::int64_t> size(static_cast<std::size_t>(program.buffers), 0);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (const auto* alloc = std::get_if<Alloc>(&program.ops[i]))
      changes.upper[i] = size[alloc->buffer.index()] = largest_block(alloc->size);
    else if (const auto* free = std::get_if<Free>(&program.ops[i]))
      changes.upper[i] = -size[free->buffer.index()];
  }
  return changes;
}

Effects effects_of(const Changes& changes, std::size_t from, std::size_t to) {
  return {effect_of(std::span(changes.lower).subspan(from, to - from)),
          effect_of(std::span(changes.upper).subspan(from, to - from))};
}

// The job that is lowered: a stage with the chunk, and those around it.
struct SmallJob {
  Scenario scenario;
  std::int32_t stage = 0;
};

SmallJob small_job(const Scenario& scenario, ChunkKind kind, std::int32_t layers) {
  SmallJob job{scenario, 0};
  Layout& layout = job.scenario.layout;
  layout = Layout{.tensor = layout.tensor, .sequence_parallel = layout.sequence_parallel};
  if (kind != ChunkKind::Only) {
    // The stages of four run ahead by 3, 2, 1 and 0 micro-batches.
    layout.pipeline = 4;
    job.stage = kind == ChunkKind::First ? 0 : kind == ChunkKind::Middle ? 1 : 3;
    layout.stage_layers = {1, 1, 1, 1};
    layout.stage_layers[static_cast<std::size_t>(job.stage)] = layers;
  }
  job.scenario.model.layers = kind == ChunkKind::Only ? layers : layers + 3;
  job.scenario.gpus = layout.world_size();
  job.scenario.train.steps = 2;
  job.scenario.train.global_batch = (kind == ChunkKind::Only ? 3 : 7) * job.scenario.train.micro_batch;
  return job;
}

// Cuts the passes of the last step.
class WindowCutter {
 public:
  WindowCutter(const Program& program, std::int32_t step, std::int32_t first_layer, std::span<const LayerRun> runs,
               const Device& device)
      : program_(program),
        changes_(changes_of(program)),
        device_(device),
        step_(step),
        first_layer_(first_layer),
        runs_(runs) {
    for (const std::string& label : program.labels) layer_of_label_.push_back(layer_in(label));
  }

  std::vector<Window> windows() {
    std::size_t i = 0;
    for (; i < program_.ops.size(); ++i) {
      const auto* mark = std::get_if<Mark>(&program_.ops[i]);
      if (mark == nullptr || mark->step != step_) continue;
      if (mark->micro_batch < 0) {
        if (in_passes_) break;
        continue;
      }
      if (!in_passes_) begin_ = i;
      in_passes_ = true;
      enter(i, *mark);
    }
    close_piece(i);
    close_window();
    return std::move(windows_);
  }
  [[nodiscard]] std::size_t begin() const { return begin_; }  ///< op: of the first pass

 private:
  // A window is a run of marks of one micro-batch. Where its backward pass follows its forward pass at once, the first
  // backward mark parts them.
  void enter(std::size_t op, const Mark& mark) {
    const bool turns =
        mark.micro_batch == micro_batch_ && is_forward(window_.kind) && mark.phase == Phase::Backward && fresh_;
    if (mark.micro_batch != micro_batch_ || turns) {
      close_piece(op);
      close_window();
      micro_batch_ = mark.micro_batch;
      fresh_ = !turns && !seen_[micro_batch_];
      seen_[micro_batch_] = true;
      if (fresh_) ++in_flight_;
      window_ = {fresh_ ? ActionKind::Forward : ActionKind::Backward, in_flight_ - 1, {}};
      if (!fresh_) --in_flight_;
    }
    std::int32_t run = -1, unit = 0;
    std::tie(run, unit) = place_of(layer_of_label_[mark.label.index()]);
    if (run == piece_.run && unit == piece_.unit) return;
    close_piece(op);
    piece_.run = run;
    piece_.unit = unit;
  }

  [[nodiscard]] std::pair<std::int32_t, std::int32_t> place_of(std::int32_t layer) const {
    if (layer < 0) return {-1, 0};
    std::int32_t within = layer - first_layer_;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const std::int32_t all = runs_[r].unit * runs_[r].times;
      if (within < all) return {static_cast<std::int32_t>(r), within / runs_[r].unit};
      within -= all;
    }
    return {-1, 0};
  }

  void close_piece(std::size_t op) {
    if (micro_batch_ >= 0 && op > from_) {
      piece_.effects = effects_of(changes_, from_, op);
      piece_.ops = timed_ops(program_, from_, op, device_);
      window_.pieces.push_back(piece_);
    }
    from_ = op;
    piece_ = {};
  }
  void close_window() {
    if (micro_batch_ >= 0) windows_.push_back(std::move(window_));
    window_ = {};
  }

  const Program& program_;
  Changes changes_;
  const Device& device_;
  std::int32_t step_, first_layer_;
  std::span<const LayerRun> runs_;
  std::vector<std::int32_t> layer_of_label_;
  std::vector<Window> windows_;
  Window window_;
  Piece piece_;
  std::size_t from_ = 0, begin_ = 0;
  std::map<std::int32_t, bool> seen_;
  std::int32_t micro_batch_ = -1, in_flight_ = 0;
  bool fresh_ = false;  // no backward mark of this window's micro-batch so far
  bool in_passes_ = false;
};

// Where the passes of a step begin in a program without them: at the second mark of the step.
std::size_t passes_place(const Program& program, std::int32_t step) {
  int marks = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const auto* mark = std::get_if<Mark>(&program.ops[i]);
    if (mark != nullptr && mark->step == step && ++marks == 2) return i;
  }
  ensure(false, "a step has marks before and after its passes");
  return 0;
}

}  // namespace

Effects then(const Effects& first, const Effects& second) {
  return {then(first.lower, second.lower), then(first.upper, second.upper)};
}

Effects effects_of(const Program& program, std::size_t from, std::size_t to) {
  return effects_of(changes_of(program), from, to);
}

std::vector<TimedOp> timed_ops(const Program& program, std::size_t from, std::size_t to, const Device& device) {
  std::vector<TimedOp> ops;
  for (std::size_t i = from; i < to; ++i) {
    const Op& op = program.ops[i];
    TimedOp timed;
    if (const auto* o = std::get_if<Launch>(&op)) {
      timed.duration = kernel_time(program[o->kernel], device);
      timed.aside = o->stream.value != 0;
    } else if (const auto* c = std::get_if<Collective>(&op)) {
      timed = {TimedOp::Kind::Transfer, c->kind, c->stream.value != 0, 0, c->comm, c->size, {}};
    } else if (const auto* r = std::get_if<Record>(&op)) {
      timed.kind = TimedOp::Kind::Signal;
      timed.aside = r->stream.value != 0;
      timed.event = r->event.value;
    } else if (const auto* w = std::get_if<Wait>(&op)) {
      timed.kind = TimedOp::Kind::Await;
      timed.aside = w->stream.value != 0;
      timed.event = w->event.value;
    } else {
      continue;
    }
    ops.push_back(timed);
  }
  return ops;
}

std::vector<LayerRun> layer_runs(std::int32_t layers, const Recomputation& recompute) {
  if (recompute.kind != Recompute::Full) return {{1, layers}};
  if (recompute.method == RecomputeMethod::Block) {
    const std::int32_t again = std::min(layers, recompute.layers);
    return {{1, again}, {1, layers - again}};
  }
  const std::int32_t group = std::min(recompute.layers, std::max(layers, 1));
  return {{group, layers / group}, {1, layers % group > 0 ? 1 : 0}};
}

std::int32_t layers_of(std::span<const LayerRun> runs) {
  std::int32_t layers = 0;
  for (const LayerRun& run : runs) layers += run.unit * run.times;
  return layers;
}

std::vector<LayerRun> sampled(std::vector<LayerRun> runs) {
  for (LayerRun& run : runs) run.times = std::min(run.times, units_told_apart);
  return runs;
}

ChunkSample sample(const Scenario& scenario, ChunkKind kind, const std::vector<LayerRun>& runs) {
  const SmallJob job = small_job(scenario, kind, layers_of(runs));
  const Scenario& s = job.scenario;
  const Runtime runtime = runtime_of(s);
  const ModelGraph graph = build_model(s.model, graph_options_of(s));
  const LoweringInput input{graph, s.layout, s.train, runtime};
  const Role role{{.tensor = 0, .data = 0, .pipeline = job.stage}, {}};
  const Program program = lower_role(input, role), state = lower_state(input, role);

  ChunkSample made;
  WindowCutter cutter(program, s.train.steps, job.stage, runs, s.cluster.device);
  made.windows = cutter.windows();
  const Effects with = effects_of(program, 0, cutter.begin());
  const Effects without = effects_of(state, 0, passes_place(state, s.train.steps));
  made.caches = {{with.lower.net - without.lower.net, {}}, {with.upper.net - without.upper.net, {}}};
  for (const Op& op : program.ops) {
    const auto* exchange = std::get_if<Exchange>(&op);
    if (exchange == nullptr) continue;
    std::vector<Bytes> sizes(static_cast<std::size_t>(program.buffers));
    for (const Op& other : program.ops)
      if (const auto* alloc = std::get_if<Alloc>(&other)) sizes[alloc->buffer.index()] = alloc->size;
    made.boundary = sizes[program[exchange->transfers].front().buffer.index()];
    break;
  }
  return made;
}

}  // namespace tidemark::scenarios
