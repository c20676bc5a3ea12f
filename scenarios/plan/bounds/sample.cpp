#include "scenarios/plan/bounds/sample.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <numeric>

#include "kernels/cost/roofline.hpp"
#include "parallel/lowering/lower.hpp"
#include "scenarios/plan/bounds/pass_schedule.hpp"
#include "scenarios/predict/prediction.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::int32_t distinct_units = 4;  // first, two alike, last

constexpr std::int32_t a_tensor = -1;  // among kinds of TimedOp

bool is_work(const TimedOp& op) {
  switch (op.kind) {
    case TimedOp::Kind::Compute:
    case TimedOp::Kind::Transfer:
    case TimedOp::Kind::Message:
      return true;
    case TimedOp::Kind::Signal:
    case TimedOp::Kind::Await:
    case TimedOp::Kind::HostAwait:
      return false;
  }
  return false;
}

// What ops from one to before another do; `ops` are those that take time.
void add_work(const Program& program, std::size_t from, std::size_t to, const std::vector<TimedOp>& ops,
              PassWork& work) {
  for (const TimedOp& op : ops)
    if (is_work(op))
      ++work.times[{static_cast<std::int32_t>(op.kind), static_cast<std::int32_t>(op.collective), op.phase,
                    op.stream.value != 0, op.kind == TimedOp::Kind::Compute ? op.duration.count() : op.size.count()}];
  for (std::size_t i = from; i < to; ++i)
    if (const auto* alloc = std::get_if<Alloc>(&program.ops[i]);
        alloc != nullptr && program.layer_of(alloc->label) >= 0)
      ++work.times[{a_tensor, static_cast<std::int32_t>(alloc->category), {}, false, alloc->size.count()}];
}

// The job that is lowered: a stage with the chunk, and those around it.
struct SmallJob {
  Scenario scenario;
  std::int32_t stage = 0;
};

SmallJob small_job(const Scenario& scenario, ChunkKind kind, const std::vector<LayerRun>& runs) {
  const std::int32_t layers = layers_of(runs);
  SmallJob job{scenario, 0};
  Layout& layout = job.scenario.layout;
  layout = layout_of_passes(layout);
  // As many replicas as experts are spread over.
  const std::int32_t ranks = layout.tensor * layout.context;
  layout.data = std::lcm(ranks, layout.expert_tensor_parallel() * layout.expert) / ranks;
  if (kind != ChunkKind::Only) {
    // First and middle run ahead by three micro-batches, as many as show that each leaves as much behind.
    layout.pipeline = kind == ChunkKind::Middle ? 5 : 4;
    job.stage = kind == ChunkKind::First ? 0 : kind == ChunkKind::Middle ? 1 : 3;
    layout.stage_layers.assign(static_cast<std::size_t>(layout.pipeline), 1);
    layout.stage_layers[static_cast<std::size_t>(job.stage)] = layers;
  }
  // Other stages have a layer each, of whichever kind.
  const LayerList& all = scenario.model.layers;
  LayerList its(job.stage, all[0]);
  for (const LayerRun& run : runs)
    for (std::int32_t t = 0; t < run.times; ++t)
      for (const LayerKind one : run.unit) its.append(1, all.kinds()[static_cast<std::size_t>(one)]);
  its.append(layout.pipeline - 1 - job.stage, all[0]);
  job.scenario.model.layers = std::move(its);
  job.scenario.gpus = layout.world_size();
  job.scenario.runtime.overlap = {};  // a matter of ranks that hold the same parameters
  job.scenario.train.steps = 2;
  job.scenario.train.global_batch = (kind == ChunkKind::Only ? 3 : 7) * job.scenario.train.micro_batch * layout.data;
  return job;
}

// Cuts the passes of a step.
class WindowCutter {
 public:
  WindowCutter(const Program& program, const WindowShape& shape, const Cluster& cluster)
      : program_(program),
        changes_(flat_changes(program)),
        by_(timed_by(program, cluster, shape.pipeline)),
        shape_(shape) {}

  std::vector<Window> windows() {
    const auto [begin, end] = passes_of(program_, shape_.step);
    from_ = begin;
    for (std::size_t i = begin; i < end; ++i)
      if (const auto* mark = std::get_if<Mark>(&program_.ops[i])) enter(i, *mark);
    close_piece(end);
    close_window();
    return std::move(windows_);
  }

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
      window_ = {fresh_ ? ActionKind::Forward : ActionKind::Backward, in_flight_ - 1, {}, {}};
      if (!fresh_) --in_flight_;
    }
    const auto [run, unit] = place_of(program_.layer_of(mark.label));
    if (run == piece_.run && unit == piece_.unit) return;
    close_piece(op);
    piece_.run = run;
    piece_.unit = unit;
  }

  [[nodiscard]] std::pair<std::int32_t, std::int32_t> place_of(std::int32_t layer) const {
    std::int32_t within = layer - shape_.first_layer;
    if (layer < 0 || within < 0) return {-1, 0};
    for (std::size_t r = 0; r < shape_.runs.size(); ++r) {
      const LayerRun& run = shape_.runs[r];
      if (within < run.layers()) return {static_cast<std::int32_t>(r), within / run.unit_layers()};
      within -= run.layers();
    }
    return {-1, 0};
  }

  void close_piece(std::size_t op) {
    if (micro_batch_ >= 0 && op > from_) {
      piece_.effect = sim::effect_of(std::span<const std::int64_t>(changes_).subspan(from_, op - from_));
      piece_.ops = shared(timed_ops(program_, from_, op, by_));
      for (std::size_t i = from_; i < op; ++i)
        if (const auto* alloc = std::get_if<Alloc>(&program_.ops[i]);
            alloc != nullptr && program_.layer_of(alloc->label) >= 0)
          piece_.made += alloc->size;
      if (!counted_[is_forward(window_.kind) ? 0 : 1]) add_work(program_, from_, op, *piece_.ops, window_.work);
      window_.pieces.push_back(std::move(piece_));
    }
    from_ = op;
    piece_ = {};
  }
  std::shared_ptr<const std::vector<TimedOp>> shared(std::vector<TimedOp> ops) {
    const auto same = std::ranges::find_if(known_, [&](const auto& its) { return *its == ops; });
    if (same != known_.end()) return *same;
    ops.shrink_to_fit();
    return known_.emplace_back(std::make_shared<const std::vector<TimedOp>>(std::move(ops)));
  }
  void close_window() {
    if (micro_batch_ >= 0) {
      counted_[is_forward(window_.kind) ? 0 : 1] = true;
      windows_.push_back(std::move(window_));
    }
    window_ = {};
  }

  const Program& program_;
  std::vector<std::int64_t> changes_;  // of live bytes, by op
  TimedBy by_;
  const WindowShape& shape_;
  std::vector<Window> windows_;
  std::vector<std::shared_ptr<const std::vector<TimedOp>>> known_;  // of all pieces
  Window window_;
  Piece piece_;
  std::size_t from_ = 0;
  std::map<std::int32_t, bool> seen_;
  std::int32_t micro_batch_ = -1, in_flight_ = 0;
  std::array<bool, 2> counted_{};  // the work of a forward window, of a backward one
  bool fresh_ = false;             // no backward mark of this window's micro-batch so far
};

// Whether a pass comes by every unit of layers once, one after the other: so that a chunk with more units of a run has
// more of what lies between the first and the last, and nothing else.
bool comes_by_each_unit(const Window& window, const std::vector<LayerRun>& runs) {
  std::vector<std::pair<std::int32_t, std::int32_t>> expected, found;
  for (std::size_t r = 0; r < runs.size(); ++r)
    for (std::int32_t u = 0; u < runs[r].times; ++u) expected.emplace_back(static_cast<std::int32_t>(r), u);
  if (!is_forward(window.kind)) std::reverse(expected.begin(), expected.end());
  for (std::size_t i = 0; i < window.pieces.size(); ++i) {
    const Piece& piece = window.pieces[i];
    if (piece.run >= 0) found.emplace_back(piece.run, piece.unit);
    const bool within = i > 0 && i + 1 < window.pieces.size() && window.pieces[i - 1].run >= 0 &&
                        window.pieces[i - 1].run == window.pieces[i + 1].run;
    if (piece.run < 0 && within && (piece.effect != Effect{} || !piece.ops->empty())) return false;
  }
  return found == expected;
}

bool units_repeat(const Window& window, const std::vector<LayerRun>& runs) {
  std::map<std::pair<std::int32_t, std::int32_t>, const Piece*> by_place;
  for (const Piece& piece : window.pieces) by_place[{piece.run, piece.unit}] = &piece;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (runs[r].times < distinct_units) continue;
    const Piece &one = *by_place.at({static_cast<std::int32_t>(r), 1}),
                &next = *by_place.at({static_cast<std::int32_t>(r), 2});
    if (one.effect != next.effect || one.ops != next.ops) return false;
  }
  return true;
}

bool is_among(CommSlot comm, const PassGroups& groups) { return std::ranges::find(groups, comm) != groups.end(); }

bool talks_to(const Window& window, const PassGroups& groups) {
  for (const Piece& piece : window.pieces)
    for (const TimedOp& op : *piece.ops)
      if ((op.kind == TimedOp::Kind::Transfer || op.kind == TimedOp::Kind::Message) && !is_among(op.comm, groups))
        return false;
  return true;
}

Bytes left_behind(const Window& window) {
  Bytes net;
  for (const Piece& piece : window.pieces) net += piece.effect.net;
  return net;
}

// The second micro-batch that runs ahead and the third: the first meets what no other does.
bool micro_batches_repeat(const std::vector<Window>& windows) {
  std::size_t ahead = 0;
  while (ahead < windows.size() && is_forward(windows[ahead].kind)) ++ahead;
  return ahead < 4 || left_behind(windows[1]) == left_behind(windows[2]);
}

std::vector<TimedOp> work_in_order(const Window& window) {
  std::vector<TimedOp> ops;
  for (const Piece& piece : window.pieces)
    std::copy_if(piece.ops->begin(), piece.ops->end(), std::back_inserter(ops), is_work);
  return ops;
}

Bytes made_in(const Window& window) {
  Bytes made;
  for (const Piece& piece : window.pieces) made += piece.made;
  return made;
}

bool passes_of_a_kind_are_alike(const std::vector<Window>& windows) {
  std::array<std::optional<std::pair<Bytes, std::vector<TimedOp>>>, 2> first;
  for (const Window& window : windows) {
    auto& its = first[is_forward(window.kind) ? 0 : 1];
    std::pair done{made_in(window), work_in_order(window)};
    if (!its)
      its = std::move(done);
    else if (*its != done)
      return false;
  }
  return true;
}

// Where the passes of a step would begin in a program without them: at the second mark of the step.
std::size_t place_of_passes(const Program& program, std::int32_t step) {
  int marks = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const auto* mark = std::get_if<Mark>(&program.ops[i]);
    if (mark != nullptr && mark->step == step && ++marks == 2) return i;
  }
  ensure(false, "a step has marks before and after its passes");
  return 0;
}

}  // namespace

Effect effect_of(const Program& program, std::size_t from, std::size_t to) {
  return sim::effect_of(std::span<const std::int64_t>(flat_changes(program)).subspan(from, to - from));
}

TimedBy timed_by(const Program& program, const Cluster& cluster, CommSlot p2p_exchanges) {
  TimedBy by{kernel_times(program, cluster), {}, {}, p2p_exchanges};
  by.second_waves = second_waves(program, cluster.device, by.kernels);
  by.buffers.resize(static_cast<std::size_t>(program.buffers));
  for (const Op& op : program.ops)
    if (const auto* alloc = std::get_if<Alloc>(&op)) by.buffers[alloc->buffer.index()] = alloc->size;
  return by;
}

namespace {

// Of ops from there on, before another mark.
Phase phase_at(const Program& program, std::size_t op) {
  while (op > 0)
    if (const auto* mark = std::get_if<Mark>(&program.ops[--op])) return mark->phase;
  return {};
}

}  // namespace

std::vector<TimedOp> timed_ops(const Program& program, std::size_t from, std::size_t to, const TimedBy& by) {
  std::vector<TimedOp> ops;
  std::vector<EventId> recorded;  // the latest last
  const auto number = [&](EventId event) {
    const auto found = std::find(recorded.rbegin(), recorded.rend(), event);
    return found == recorded.rend() ? -1 : static_cast<std::int32_t>(recorded.rend() - found) - 1;
  };
  Phase phase = phase_at(program, from);
  for (std::size_t i = from; i < to; ++i) {
    const Op& op = program.ops[i];
    TimedOp timed;
    if (const auto* o = std::get_if<Launch>(&op)) {
      timed.launched = !program[o->kernel].follows();
      timed.duration = by.kernels[o->kernel.index()];
      if (!timed.launched && timed.duration == Duration{}) continue;
      if (!by.second_waves.empty()) timed.longer = by.second_waves[o->kernel.index()];
      timed.stream = o->stream;
    } else if (const auto* c = std::get_if<Collective>(&op)) {
      timed = {TimedOp::Kind::Transfer, c->kind, c->row.valid(), true, {}, c->stream, 0, c->comm, c->size, {}};
    } else if (const auto* e = std::get_if<Exchange>(&op); e != nullptr && e->comm != by.p2p_exchanges) {
      timed = {TimedOp::Kind::Message, {}, false, true, {}, e->stream, 0, e->comm, {}, {}};
      for (const Transfer& t : program[e->transfers])
        timed.size = std::max(timed.size, t.size(by.buffers[t.buffer.index()]));
    } else if (const auto* r = std::get_if<Record>(&op)) {
      timed.kind = TimedOp::Kind::Signal;
      timed.stream = r->stream;
      recorded.push_back(r->event);
      timed.event = number(r->event);
    } else if (const auto* w = std::get_if<Wait>(&op)) {
      timed.kind = TimedOp::Kind::Await;
      timed.stream = w->stream;
      timed.event = number(w->event);
    } else if (const auto* s = std::get_if<Sync>(&op)) {
      timed.kind = TimedOp::Kind::HostAwait;
      timed.event = number(s->event);
    } else {
      if (const auto* mark = std::get_if<Mark>(&op)) phase = mark->phase;
      continue;
    }
    timed.phase = phase;
    ops.push_back(timed);
  }
  return ops;
}

std::vector<LayerRun> layer_runs(std::span<const LayerKind> layers, const Recomputation& recompute) {
  const bool full = recompute.kind == Recompute::Full;
  const auto requested = static_cast<std::size_t>(recompute.layers);
  const std::size_t group = full && recompute.method == RecomputeMethod::Uniform ? requested : 1;
  const std::size_t block = full && recompute.method == RecomputeMethod::Block ? std::min(layers.size(), requested) : 0;
  std::vector<LayerRun> runs;
  for (std::size_t first = 0, next = 0; first < layers.size(); first = next) {
    next = std::min(first + group, layers.size());
    const std::span<const LayerKind> unit = layers.subspan(first, next - first);
    const bool in_block = first < block;
    if (!runs.empty() && runs.back().in_block == in_block && std::ranges::equal(runs.back().unit, unit))
      ++runs.back().times;
    else
      runs.push_back({{unit.begin(), unit.end()}, 1, in_block});
  }
  return runs;
}

std::span<const LayerKind> kinds_of(const Stage& stage, std::span<const LayerKind> all) {
  return all.subspan(static_cast<std::size_t>(stage.first), static_cast<std::size_t>(stage.layers()));
}

std::int32_t layers_of(std::span<const LayerRun> runs) {
  std::int32_t layers = 0;
  for (const LayerRun& run : runs) layers += run.layers();
  return layers;
}

Layout layout_of_passes(const Layout& layout) {
  return {.tensor = layout.tensor,
          .sequence_parallel = layout.sequence_parallel,
          .context = layout.context,
          .context_kind = layout.context_kind,
          .context_inner = layout.context_inner,
          .expert = layout.expert,
          .expert_tensor = layout.expert_tensor};
}

PassGroups pass_groups(const Communicators& comms) {
  return {comms.tensor,     comms.user_buffers, comms.tensor_context, comms.heads,       comms.context,
          comms.neighbours, comms.expert,       comms.expert_tensor,  comms.expert_model};
}

std::vector<LayerRun> sampled(std::vector<LayerRun> runs) {
  for (LayerRun& run : runs) run.times = std::min(run.times, distinct_units);
  return runs;
}

std::int64_t times_of(const Piece& piece, const std::vector<LayerRun>& runs) {
  if (piece.run < 0 || piece.unit != 1) return 1;
  const std::int64_t all = runs[static_cast<std::size_t>(piece.run)].times;
  return all > distinct_units ? all - (distinct_units - 1) : 1;
}

void PassWork::add(const PassWork& other, std::int64_t so_often) {
  for (const auto& [what, its] : other.times) times[what] += its * so_often;
}

bool PassWork::covers(const PassWork& other) const {
  return std::all_of(other.times.begin(), other.times.end(), [&](const auto& entry) {
    const auto its = times.find(entry.first);
    return its != times.end() && its->second >= entry.second;
  });
}

std::pair<std::size_t, std::size_t> passes_of(const Program& program, std::int32_t step) {
  std::size_t begin = program.ops.size();
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const auto* mark = std::get_if<Mark>(&program.ops[i]);
    if (mark == nullptr) continue;
    const bool within = mark->step == step && mark->micro_batch >= 0;
    if (within && begin == program.ops.size()) begin = i;
    if (!within && begin < program.ops.size()) return {begin, i};
  }
  return {begin, program.ops.size()};
}

std::optional<PassWork> work_of_passes(const Program& program, std::int32_t step, const Peers& peers,
                                       const Cluster& cluster) {
  const auto [begin, end] = passes_of(program, step);
  for (std::size_t i = begin; i < end; ++i) {
    const auto* collective = std::get_if<Collective>(&program.ops[i]);
    if (collective != nullptr && is_among(collective->comm, peers.beside)) continue;
    const auto* exchange = std::get_if<Exchange>(&program.ops[i]);
    if (collective != nullptr && !is_among(collective->comm, peers.groups)) return std::nullopt;
    if (exchange != nullptr && exchange->comm != peers.pipeline && !is_among(exchange->comm, peers.groups))
      return std::nullopt;
  }
  PassWork work;
  add_work(program, begin, end, timed_ops(program, begin, end, timed_by(program, cluster, peers.pipeline)), work);
  return work;
}

std::optional<std::vector<Window>> windows_of(const Program& program, const WindowShape& shape,
                                              const Cluster& cluster) {
  std::vector<Window> windows = WindowCutter(program, shape, cluster).windows();
  for (const Window& window : windows)
    if (!comes_by_each_unit(window, shape.runs) || !units_repeat(window, shape.runs) || !talks_to(window, shape.groups))
      return std::nullopt;
  if (windows.empty() || !micro_batches_repeat(windows) || !passes_of_a_kind_are_alike(windows)) return std::nullopt;
  return windows;
}

std::optional<ChunkSample> sample(const Scenario& scenario, ChunkKind kind, const std::vector<LayerRun>& runs) {
  const SmallJob job = small_job(scenario, kind, runs);
  const Scenario& s = job.scenario;
  const Runtime runtime = runtime_of(s);
  const BuiltModel built = build_model(s.model, model_options_of(s));
  const LoweringInput input{built, s.layout, s.train, runtime};
  const Role role{{.pipeline = job.stage}, {}};
  const std::optional<Program> state = lower_state(input, role);
  if (!state) return std::nullopt;
  const Program program = unrolled(lower_last_step(input, role));
  const auto step = static_cast<std::int32_t>(s.train.steps);
  const Communicators comms = communicators_of(input);

  ChunkSample made;
  made.groups = pass_groups(comms);
  auto windows = windows_of(program, {step, job.stage, runs, made.groups, comms.pipeline}, s.cluster);
  if (!windows) return std::nullopt;
  made.windows = std::move(*windows);
  made.caches = effect_of(program, 0, passes_of(program, step).first).net -
                effect_of(*state, 0, place_of_passes(*state, step)).net;
  for (const Op& op : program.ops) {
    const auto* exchange = std::get_if<Exchange>(&op);
    if (exchange == nullptr || exchange->comm != comms.pipeline) continue;
    const BufferId crossing = program[exchange->transfers].front().buffer;
    for (const Op& other : program.ops)
      if (const auto* alloc = std::get_if<Alloc>(&other); alloc != nullptr && alloc->buffer == crossing)
        made.boundary = alloc->size;
    break;
  }
  const std::vector<Role> all = roles(input);
  const auto of_its_stage = [&](const Role& r) { return r.first.pipeline == job.stage; };
  const auto first = std::ranges::find_if(all, of_its_stage);
  made.alike = std::ranges::all_of(all, [&](const Role& r) { return !of_its_stage(r) || r.passes == first->passes; });
  return made;
}

}  // namespace tidemark::scenarios
