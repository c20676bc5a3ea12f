#include "scenarios/predict/prediction.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "kernels/cost/cost_time.hpp"
#include "parallel/frameworks/transformers/adapters.hpp"
#include "parallel/lowering/flops.hpp"
#include "scenarios/formats/internal_error.hpp"
#include "scenarios/predict/assumptions.hpp"
#include "scenarios/predict/events_replay.hpp"
#include "scenarios/predict/measured_ranges.hpp"
#include "scenarios/predict/memory_program.hpp"
#include "scenarios/predict/nccl_host_memory.hpp"
#include "scenarios/predict/on_clock.hpp"
#include "scenarios/predict/role_program.hpp"
#include "scenarios/predict/upper_ends/deferred_frees.hpp"
#include "scenarios/predict/upper_ends/rerun_batches.hpp"
#include "scenarios/predict/upper_ends/worst_case_routing.hpp"
#include "scenarios/scenario/cpu_offload.hpp"
#include "sim/base/in_parallel.hpp"
#include "sim/clock/engine.hpp"
#include "sim/program/structure/leave_out.hpp"
#include "sim/program/structure/of_memory.hpp"
#include "sim/program/structure/shared_passes.hpp"
#include "sim/program/verify.hpp"

namespace tidemark::scenarios {
namespace {

// What the memory of ranks is held against.
struct RankRoom {
  JudgedDevice device;
  Bytes room;  // but for headroom, and for batches that outlive their passes
  Require required = Require::Least;
};

// The memory of ranks that run one program at the same prices.
RankGroup replayed(const MemoryProgram& done, bool has_cross_stream_frees, const DriverCosts& costs,
                   const RankRoom& by) {
  const Program& program = done.program;
  const JudgedDevice& device = by.device;
  const Bytes capacity = device.capacity;
  const AllocatorOptions& allocator = device.allocator;
  RankGroup group;
  group.costs = costs;
  group.memory = done.replayed(costs, {.allocator = without_limit(allocator)});
  std::optional<Bytes> late;
  if (has_cross_stream_frees)
    late = done.at_the_latest(costs, ReplayOptions{}.capacity, without_limit(allocator), device.queue);
  const UnlimitedMemory unlimited = unlimited_memory(group.memory, late);
  const RunOn run = done.run_on(device);
  // What nobody explains may be there besides, or as much less.
  group.unexplained = unexplained(device.unexplained, group.memory.allocated.bytes);
  group.unlimited_upper = unlimited.filled() + group.unexplained;
  const Bytes room = by.room - group.unexplained;
  group.required = required_memory(unlimited, costs, room, by.required, run);
  if (group.required.upper > room)
    group.fits_at_best = run(by.room + group.unexplained, at_lower_ends(costs), CrossStreamFrees::AtOnce).gets_through;
  group.required.upper += group.unexplained;
  if (group.memory.device.bytes > capacity || allocator.memory_limit()) {
    // The allocator gives its cache back before it gives up, so a full device need not be the end.
    MemoryRecord limited = done.replayed(costs, {.capacity = capacity, .allocator = allocator});
    group.failure = limited.failure;
    if (group.failure) group.failed_op = program[group.failure->at.mark.label];
    group.fits_at_best &= !group.failure || !allocator.memory_limit();
    if (!group.failure) group.memory = std::move(limited);
  }
  if (has_cross_stream_frees) {
    Bytes& upper = group.memory.peak_device_upper;
    const Bytes at_once = upper;
    const auto within = [&](const DriverCosts& its) {
      return done.at_the_latest(its, capacity, allocator, device.queue);
    };
    upper = upper_end(at_once, costs, device, {[&] { return *late; }, within});
    group.of_deferred_frees = upper - at_once;
  }
  group.memory.peak_device_upper += group.unexplained;
  // Pinned blocks are neither cut nor merged: the later they come back, the more there are.
  group.host_upper = group.memory.host.bytes;
  if (group.memory.pinned.peak > Bytes{}) {
    const ReplayOptions deferred{
        .allocator = without_limit(allocator), .cross_stream = CrossStreamFrees::AtNextSync, .queue = device.queue};
    group.host_upper = std::max(group.host_upper, done.replayed(costs, deferred).host.bytes);
  }
  group.device_peak_op = program[group.memory.device.at.mark.label];
  group.allocated_peak_op = program[group.memory.allocated.at.mark.label];
  if (group.memory.host.bytes > Bytes{}) group.host_peak_op = program[group.memory.host.at.mark.label];
  return group;
}

// What deferred frees hold by the clock is within the upper end too.
void add_frees_by_clock(const ProgramTimes& times, const MemoryProgram& done, const RankRoom& by, RankGroup& group) {
  const MemoryOf memory = done.memory();
  const JudgedDevice& device = by.device;
  Bytes& upper = group.memory.peak_device_upper;
  const Bytes at_once = upper - group.of_deferred_frees - group.of_routing - group.unexplained;
  const DeferredFrees by_clock = frees_by_clock(group.costs, device, memory, times);
  const Bytes filled = by_clock.unlimited();
  group.of_frees_by_clock =
      upper_end(at_once, group.costs, device, {[&] { return filled; }, by_clock.within}) - at_once;
  group.of_deferred_frees = std::max(group.of_deferred_frees, group.of_frees_by_clock);
  upper = at_once + group.of_deferred_frees + group.of_routing + group.unexplained;
  const Bytes room = by.room - group.unexplained, required = group.required.upper - group.unexplained;
  if (by.required == Require::Room && upper <= by.room) return;
  group.required.upper =
      required_by_clock(memory, times, group.costs, device, {room, required, filled}) + group.unexplained;
}

// What tokens bring beyond those that are stated is within the upper end too.
void add_routing(const RankGroup& worst_case, RankGroup& group) {
  Bytes& upper = group.memory.peak_device_upper;
  group.of_routing = std::max(Bytes{}, worst_case.memory.peak_device_upper - upper);
  upper += group.of_routing;
  group.worst_case = {.allocated = std::max(group.memory.allocated.bytes, worst_case.memory.allocated.bytes),
                      .reserved = std::max(group.memory.peak_reserved, worst_case.memory.peak_reserved),
                      .device = std::max(group.memory.device.bytes, worst_case.memory.device.bytes)};
  group.required.upper = std::max(group.required.upper, worst_case.required.upper);
  group.unlimited_upper = std::max(group.unlimited_upper, worst_case.unlimited_upper);
}

// A timeline says when things happen, and what frees hold by the clock.
bool has_a_timeline(const Job& job, const PredictOptions& options) {
  return options.reported != PredictionDetail::Figures || job.has_cross_stream_frees;
}

// Roles that have the same memory. One of them is replayed: that of a simulated program, where there is one.
struct SameMemory {
  const Role* replayed = nullptr;
  std::vector<Rank> ranks;  ///< of all of them, in order
};

std::vector<SameMemory> roles_of_same_memory(const Job& job) {
  std::vector<SameMemory> found;
  std::map<std::tuple<std::size_t, std::int32_t, std::int32_t>, std::size_t> known;
  for (const Role& role : job.roles) {
    const std::size_t timed_as = job.program_of(role);
    std::size_t place = found.size();
    if (role.sizes) place = known.try_emplace({timed_as, role.passes, *role.sizes}, place).first->second;
    if (place == found.size()) found.emplace_back();
    SameMemory& its = found[place];
    if (its.replayed == nullptr || &job.roles[job.role_of_program[timed_as]] == &role) its.replayed = &role;
    its.ranks.insert(its.ranks.end(), role.ranks.begin(), role.ranks.end());
  }
  for (SameMemory& its : found) std::ranges::sort(its.ranks);
  return found;
}

// Roles that run the same passes at the same places: those of one are lowered, and the others' state put around them.
struct SamePasses {
  std::vector<std::size_t> roles;  ///< index into those of the same memory; the first is a simulated one, if any is
};

std::vector<SamePasses> roles_of_same_passes(const Job& job, const std::vector<SameMemory>& all) {
  std::map<std::tuple<std::size_t, std::int32_t, std::int32_t, std::int32_t>, SamePasses> found;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Role& role = *all[i].replayed;
    const std::size_t timed_as = job.program_of(role);
    std::vector<std::size_t>& roles = found[{timed_as, role.passes, role.first.tensor, role.first.context}].roles;
    const bool is_simulated = &job.roles[job.role_of_program[timed_as]] == &role;
    roles.insert(is_simulated ? roles.begin() : roles.end(), i);
  }
  std::vector<SamePasses> listed;
  for (auto& [key, roles] : found) listed.push_back(std::move(roles));
  return listed;
}

// The role's program with as many tokens as `more` has: that of other ranks with other sizes, where there are such.
RepeatingProgram with_more_tokens(const Job& job, const Train& more, const Role& role) {
  const LoweringInput input{job.built, job.scenario.layout, more, job.runtime};
  std::optional<RepeatingProgram> its;
  if (const auto& sizes = job.sizes_of_program[job.program_of(role)]) its = sizes->as(lower_shortest(input, role));
  return its ? std::move(*its) : lower_repeating(input, role);
}

// What is lowered once for roles that run the same passes.
class PassesOfRoles {
 public:
  /// `simulated` is the program that stands for them on the clock, and `events` what that does.
  PassesOfRoles(const Job& job, const Role& first, std::size_t roles, const OnClock& clock)
      : job_(job), first_(first), clock_(clock), shown_(job, first, clock.program, clock.left_out) {
    events_ = &shown_.program() == clock.program.get() ? clock.events : RoleEvents(shown_.own_events());
    if (const std::optional<Train> train = worst_case(job.scenario)) {
      RepeatingProgram more = with_more_tokens(job, *train, first);
      worst_case_events_ = RoleEvents(events_of(more));
      worst_case_left_out_ = left_out_like_on_clock(more);
      worst_case_ = unrolled(std::move(more));
    }
    if (roles > 1) state_ = lower_state(job.lowering(), first);
    if (!state_) return;
    shared_ = SharedPasses::of(shown_.program(), *state_);
    if (worst_case_) shared_by_worst_case_ = SharedPasses::of(*worst_case_, *state_);
    const std::optional<RankEvents> alone = events_of({*state_, {}});
    shares_events_ = alone && events_.with_state(alone->state);
    shares_worst_case_events_ = alone && worst_case_events_.with_state(alone->state);
    const bool is_apart = shares_events_ && (!worst_case_ || shares_worst_case_events_);
    needs_memory_alone_ = !pins(shown_.program()) && (!job.has_cross_stream_frees || is_apart);
  }

  struct Programs {
    std::optional<RoleProgram> own;
    std::optional<Program> worst_case;
    std::vector<LeftOut> worst_case_left_out;
    RoleEvents events, worst_case_events;

    std::function<WholeMemory()> whole, worst_case_whole;

    [[nodiscard]] MemoryProgram memory() const {
      const auto of_own = [this] { return whole_memory(own->own_outline(), own->on_clock()); };
      return {own->program(), events, own->left_out(), whole ? whole : of_own};
    }
    [[nodiscard]] std::optional<MemoryProgram> worst_case_memory() const {
      if (!worst_case) return std::nullopt;
      return MemoryProgram(*worst_case, worst_case_events, worst_case_left_out, worst_case_whole);
    }
  };
  /// Of another role, as far as its memory is concerned.
  [[nodiscard]] Programs of(const Role& role) const {
    if (!shared_ || (worst_case_ && !shared_by_worst_case_)) return lowered(role);
    std::optional<Program> own_state = lower_state(job_.lowering(), role);
    if (!own_state) return lowered(role);
    const auto state = std::make_shared<const Program>(std::move(*own_state));
    require_sound(job_.scenario.name, verify(*state));
    const auto ops = needs_memory_alone_ && !pins(*state) ? SharedPasses::Ops::OfMemory : SharedPasses::Ops::All;
    std::optional<SharedPasses::Spliced> own = shared_->in(*state, ops), worst_case_program;
    if (worst_case_) worst_case_program = shared_by_worst_case_->in(*state, ops);
    if (!own || (worst_case_ && !worst_case_program)) return lowered(role);
    Programs programs;
    programs.whole = [this, state, ops] { return whole_with(*state, ops); };
    programs.worst_case_whole = []() -> WholeMemory { throw NotKnownFromFew{}; };
    programs.own.emplace(std::move(*own), shown_);
    if (worst_case_program) {
      programs.worst_case_left_out = left_out_among(worst_case_left_out_, worst_case_program->places);
      programs.worst_case = std::move(worst_case_program->program);
    }
    const RoleEvents its(events_of({*state, {}}));
    if (shares_events_) programs.events = {its.state, events_.passes};
    if (shares_worst_case_events_) programs.worst_case_events = {its.state, worst_case_events_.passes};
    return programs;
  }

  [[nodiscard]] const RoleProgram& shown() const { return shown_; }
  [[nodiscard]] MemoryProgram memory() const {
    return {shown_.program(), events_, shown_.left_out(),
            [&] { return whole_memory(outline_of_shown(), shown_.on_clock()); }};
  }
  [[nodiscard]] std::optional<MemoryProgram> worst_case_memory() const {
    if (!worst_case_) return std::nullopt;
    return MemoryProgram(*worst_case_, worst_case_events_, worst_case_left_out_, worst_case_whole_of(first_));
  }

 private:
  [[nodiscard]] const std::shared_ptr<const RepeatingProgram>& outline_of_shown() const {
    return shown_.own_outline() ? shown_.own_outline() : clock_.outline;
  }
  static WholeMemory whole_memory(std::shared_ptr<const RepeatingProgram> program,
                                  std::vector<std::uint32_t> on_clock) {
    MemoryOutline outline = of_memory(*program);
    return {std::move(program), std::move(outline), std::move(on_clock)};
  }
  // Of memory alone: the passes around another state, with all that repeats. Ops are counted as in the short program.
  [[nodiscard]] WholeMemory whole_with(const Program& state, SharedPasses::Ops ops) const {
    const RepeatingProgram& outline = *outline_of_shown();
    if (ops != SharedPasses::Ops::OfMemory) throw NotKnownFromFew{};
    std::call_once(whole_is_split_, [&] { shared_by_whole_ = SharedPasses::of(outline.rolled, *state_); });
    std::optional<SharedPasses::Spliced> its;
    if (shared_by_whole_) its = shared_by_whole_->in(state, ops);
    if (!its) throw NotKnownFromFew{};
    // What repeats is found by numbers that follow the order in which buffers are made.
    std::vector<BufferId> numbers(static_cast<std::size_t>(its->program.buffers));
    std::int32_t made = 0;
    for (Op& op : its->program.ops) {
      if (auto* alloc = std::get_if<Alloc>(&op)) alloc->buffer = numbers[alloc->buffer.index()] = BufferId{made++};
      if (auto* free = std::get_if<Free>(&op)) free->buffer = numbers[free->buffer.index()];
      if (auto* use = std::get_if<CrossStreamUse>(&op)) use->buffer = numbers[use->buffer.index()];
    }
    its->program.buffers = made;
    std::vector<Repeat> repeats = repeats_among(outline.repeats, its->places);
    std::vector<std::uint32_t> places = written_out(its->places, repeats, outline.repeats);
    if (const std::vector<std::uint32_t> of_shown = shown_.on_clock(); !of_shown.empty())
      for (std::uint32_t& place : places) place = place < of_shown.size() ? of_shown[place] : of_shown.back() + 1;
    return {nullptr, {{std::move(its->program), std::move(repeats)}, {}}, std::move(places)};
  }
  [[nodiscard]] std::vector<LeftOut> left_out_like_on_clock(RepeatingProgram& program) const {
    std::optional<std::vector<LeftOut>> its = leave_out_like(program, clock_.left_out);
    if (!its) throw NotKnownFromFew{};
    return std::move(*its);
  }
  // Lowered again once it is asked for.
  [[nodiscard]] std::function<WholeMemory()> worst_case_whole_of(const Role& role) const {
    return [this, &role] {
      const auto its =
          std::make_shared<const RepeatingProgram>(with_more_tokens(job_, *worst_case(job_.scenario), role));
      return WholeMemory{its, of_memory(*its), {}, false};
    };
  }
  Programs lowered(const Role& role) const {
    Programs programs;
    programs.worst_case_whole = worst_case_whole_of(role);
    programs.own.emplace(job_, role, clock_.program, clock_.left_out);
    programs.events = RoleEvents(programs.own->own_events());
    if (const std::optional<Train> train = worst_case(job_.scenario)) {
      RepeatingProgram more = lower_repeating({job_.built, job_.scenario.layout, *train, job_.runtime}, role);
      programs.worst_case_events = RoleEvents(events_of(more));
      programs.worst_case_left_out = left_out_like_on_clock(more);
      programs.worst_case = unrolled(std::move(more));
    }
    return programs;
  }

  // Pinned memory comes back when streams have copied it.
  static bool pins(const Program& program) {
    return std::ranges::any_of(program.ops, [](const Op& op) {
      const auto* alloc = std::get_if<Alloc>(&op);
      return alloc != nullptr && alloc->space == MemorySpace::Pinned;
    });
  }

  const Job& job_;
  const Role& first_;
  const OnClock& clock_;
  RoleProgram shown_;
  bool needs_memory_alone_ = false;  // frees come at once, or events say what comes at the latest
  std::vector<LeftOut> worst_case_left_out_;
  std::optional<Program> worst_case_, state_;
  std::optional<SharedPasses> shared_, shared_by_worst_case_;
  mutable std::once_flag whole_is_split_;
  mutable std::optional<SharedPasses> shared_by_whole_;
  RoleEvents events_, worst_case_events_;
  bool shares_events_ = false, shares_worst_case_events_ = false;
};

void replay_roles(const Job& job, const OnClock& clock, const SameMemory& same, const RoleProgram& its,
                  const MemoryProgram& memory, const std::optional<MemoryProgram>& worst_case_memory,
                  const PredictOptions& options, std::vector<RankGroup>& groups) {
  const Role& role = *same.replayed;
  const Program& program = its.program();
  const bool has_times = !clock.classes.empty();
  const bool has_cross_stream_frees = job.has_cross_stream_frees && has_cross_stream_uses(program),
             asks_the_clock = has_times && has_cross_stream_frees;
  const Bytes batches = rerun_batches_bytes(job.scenario, job.runtime, role.first.pipeline);
  const RankRoom by{judged_device(job.scenario),
                    job.scenario.cluster.device.capacity - job.scenario.runtime.headroom - batches,
                    options.reported == PredictionDetail::Whole ? Require::Least : Require::Room};

  std::map<std::int32_t, RankGroup> by_cost;
  std::map<std::int32_t, std::vector<Rank>> by_class;  // ranks of one class pay the same
  for (const Rank rank : same.ranks) by_class[job.folding.class_of_rank[rank.index()]].push_back(rank);
  for (auto& [rank_class, ranks] : by_class) {
    const std::int32_t entry = job.costs.entry_of_rank[ranks.front().index()];
    const auto [known, added] = by_cost.try_emplace(entry);
    if (added) {
      const DriverCosts& costs = job.costs.entries[static_cast<std::size_t>(entry)];
      known->second = replayed(memory, has_cross_stream_frees, costs, by);
      if (worst_case_memory)
        add_routing(replayed(*worst_case_memory, has_cross_stream_frees, costs, by), known->second);
    }
    RankGroup group = known->second;
    group.coordinates = coordinates(job.scenario.layout, ranks.front());
    group.ranks = std::move(ranks);
    if (asks_the_clock) add_frees_by_clock(its.times(clock.classes.at(rank_class)), memory, by, group);
    group.rerun_batches_bytes = batches;
    group.memory.peak_device_upper += group.rerun_batches_bytes;
    group.required.upper += group.rerun_batches_bytes;
    group.unlimited_upper = std::max(group.unlimited_upper + group.rerun_batches_bytes, group.memory.peak_device_upper);
    if (has_times) {
      const ClassTimeline& timeline = clock.classes.at(rank_class);
      group.device_peak_time = its.host_time(timeline, group.memory.device.at.op);
      group.allocated_peak_time = its.host_time(timeline, group.memory.allocated.at.op);
      group.host_peak_time = its.host_time(timeline, group.memory.host.at.op);
    }
    groups.push_back(std::move(group));
  }
}

/// Of one sequence. Backward takes twice the forward pass, and once where weights are frozen: those have no gradients.
double training_operations(const Scenario& s) {
  parallel::ForwardOperations forward = forward_operations(s.model, s.train.tokens_of_sequence());
  const double packed = static_cast<double>(s.train.sequence_length / s.train.tokens_of_sequence());
  forward.linears *= packed, forward.attention *= packed;
  if (!s.train.adapter) return 3 * forward.all();
  const auto trained = parallel::transformers::counts_of_adapted(s.model, *s.train.adapter).trained;
  return 2 * forward.linears + 3 * forward.attention +
         2 * static_cast<double>(trained) * static_cast<double>(s.train.sequence_length);
}

/// What all devices could do in a step of that length.
double peak_operations(const Scenario& s, Duration step) {
  const PeakRates& peak = s.cluster.device.peak;
  const OperationRate rate = s.train.precision == DType::BF16   ? peak.bf16
                             : s.train.precision == DType::FP16 ? peak.fp16
                                                                : peak.fp32;
  const double seconds = static_cast<double>(step.count()) / static_cast<double>(picoseconds_per_second);
  return seconds * s.gpus * static_cast<double>(rate.count());
}

StepPrediction step_of(const Job& job, const Trace& trace, const StepAccount& account, const PredictOptions& options) {
  const Scenario& s = job.scenario;
  StepPrediction found;
  found.step = last_step(trace);
  found.tokens_per_s_per_device = tokens_per_s_per_device(s, found.step);
  if (options.reported == PredictionDetail::Figures) return found;
  found.exposed.resize(job.communicators().size());
  for (std::size_t c = 0; c < account.classes.size(); ++c) {
    const double weight =
        static_cast<double>(job.folding.classes[c].size) / s.gpus / static_cast<double>(found.step.count());
    for (std::size_t slot = 0; slot < found.exposed.size(); ++slot)
      found.exposed[slot] += weight * static_cast<double>(account.classes[c].transferring[slot].count());
  }
  found.causes = cause_times(job.communicators(), job.folding, account.classes);
  found.mfu = training_operations(s) * static_cast<double>(s.train.global_batch) / peak_operations(s, found.step);
  found.hfu = hardware_utilization(job, account, found.step);
  return found;
}

// The classes that run each program.
std::vector<std::vector<std::int32_t>> classes_by_program(const Job& job) {
  std::vector<std::vector<std::int32_t>> found(job.outline.programs.size());
  for (std::size_t c = 0; c < job.folding.classes.size(); ++c)
    found[static_cast<std::size_t>(job.folding.classes[c].program)].push_back(static_cast<std::int32_t>(c));
  return found;
}

StepAccount empty_account(const Job& job) {
  return {std::vector<StepTimes>(job.folding.classes.size()), std::vector<double>(job.outline.programs.size())};
}

Bytes resident_of(const Scenario& s, const MemoryRecord& memory, Bytes taken) {
  return std::min(memory.managed, std::max(s.cluster.device.capacity - taken, Bytes{}));
}

// What NCCL takes besides is within the upper end.
NodeMemory fullest_node(const Job& job, const std::vector<RankGroup>& groups) {
  const std::int32_t devices = job.scenario.cluster.node.devices;
  std::map<std::int32_t, NodeMemory> nodes;
  for (const RankGroup& group : groups)
    for (const Rank rank : group.ranks) {
      NodeMemory& its = nodes[rank.value / devices];
      its.node = rank.value / devices;
      // What of managed memory finds no room on the device is on the host.
      const auto paged_out = [&](Bytes taken) {
        return group.memory.managed - resident_of(job.scenario, group.memory, taken);
      };
      its.bytes += group.memory.host.bytes + paged_out(group.memory.device.bytes);
      its.upper += group.host_upper + paged_out(group.memory.peak_device_upper);
      its.nvme += group.memory.nvme;
    }
  const std::vector<Estimate> nccl = nccl_host_memory(job);
  for (auto& [number, node] : nodes)
    if (!nccl.empty()) node.upper += nccl[static_cast<std::size_t>(number)].high;
  NodeMemory most = nodes.begin()->second;
  for (const auto& [number, node] : nodes) {
    const Bytes upper = std::max(most.upper, node.upper), nvme = std::max(most.nvme, node.nvme);
    if (node.bytes > most.bytes) most = node;
    most.upper = upper, most.nvme = nvme;
  }
  return most;
}

}  // namespace

Bytes Prediction::resident(const MemoryRecord& memory, Bytes rest) const { return resident_of(scenario, memory, rest); }

double tokens_per_s_per_device(const Scenario& s, Duration step) {
  const double seconds = static_cast<double>(step.count()) / static_cast<double>(picoseconds_per_second);
  return static_cast<double>(s.train.global_batch) * static_cast<double>(s.train.sequence_length) / seconds / s.gpus;
}

StepAccount account_of(const Job& job, const Trace& trace) {
  const std::vector<std::vector<std::int32_t>> classes = classes_by_program(job);
  StepAccount account = empty_account(job);
  in_parallel(0, classes.size(), [&](std::size_t p) {
    account_for(job, trace, p, on_clock(job, trace, p, classes[p], Bodies::Few), account);
  });
  return account;
}

double hardware_utilization(const Job& job, const StepAccount& account, Duration step) {
  double executed = 0;
  for (const RankClass& its : job.folding.classes)
    executed += static_cast<double>(its.size) * account.operations[static_cast<std::size_t>(its.program)];
  return executed / peak_operations(job.scenario, step);
}

void add_bounds(Prediction& prediction, std::vector<MemoryBound> bounds) {
  prediction.bounds = std::move(bounds);
  if (prediction.bounds.empty()) return;
  const Bytes room = prediction.scenario.cluster.device.capacity - prediction.scenario.runtime.headroom;
  bool fits = true;
  for (RankGroup& group : prediction.groups) {
    Bytes more;
    for (const MemoryBound& its : prediction.bounds) more += its.on(group.coordinates.pipeline);
    group.required.upper += more;
    group.memory.peak_device_upper += more;
    group.unlimited_upper += more;
    fits &= group.required.upper <= room;
  }
  if (prediction.fits && !fits) prediction.fits = false, prediction.open = true;
  const bool less = std::ranges::any_of(prediction.bounds, &MemoryBound::may_be_less);
  if (prediction.fits || prediction.open || prediction.deadlock || !less) return;
  prediction.open = prediction.open_below = true;
}

void leave_open(Prediction& prediction, std::vector<NotJudged> not_judged) {
  prediction.not_judged = std::move(not_judged);
  if (prediction.not_judged.empty()) return;
  prediction.fits = false;
  prediction.open = true;
}

Trace simulate_time(const Job& job, LinkModel links) {
  if (links == LinkModel::MaxMin) return simulate(job.outline, job.folding, job.times);
  TimeCosts times = cost_time(job.calls, job.folding, job.scenario.cluster,
                              {.algorithm = {}, .model = CollectiveCostModel::AlphaBeta});
  set_host(job, times);
  return simulate(job.outline, job.folding, times, LinkSharing::None);
}

const RankGroup& Prediction::highest() const {
  return *std::max_element(groups.begin(), groups.end(), [](const RankGroup& a, const RankGroup& b) {
    return a.memory.peak_device_upper < b.memory.peak_device_upper;
  });
}

const RankGroup& Prediction::most_required() const {
  return *std::ranges::max_element(groups, {}, [](const RankGroup& group) { return group.required.upper; });
}

Bytes Prediction::filled(const RankGroup& group) const {
  return std::min(group.memory.peak_device_upper, scenario.cluster.device.capacity);
}

std::int64_t Prediction::retries_per_step() const {
  std::int64_t most = 0;
  for (const RankGroup& group : groups) most = std::max(most, group.memory.retries_of_last_step);
  return most;
}

// Where the cluster's file says how much there is.
bool Prediction::exceeds_host() const {
  const Bytes memory = scenario.cluster.host.memory;
  return memory > Bytes{} && fullest_node.bytes > memory;
}

bool Prediction::may_exceed_host() const {
  const Bytes memory = scenario.cluster.host.memory;
  return memory > Bytes{} && fullest_node.upper > memory;
}

const RankGroup& Prediction::highest_on_host() const {
  return *std::ranges::max_element(groups, {}, [](const RankGroup& group) { return group.memory.host.bytes; });
}

Prediction predict(const Scenario& scenario, const Progress& progress, const PredictOptions& options) {
  const Job job(scenario);
  return predict(job, simulate_time(job, options.links), progress, options);
}

Prediction predict(const Job& job, const Trace& trace, const Progress& progress, const PredictOptions& options) {
  const std::vector<SameMemory> roles = roles_of_same_memory(job);
  std::vector<std::vector<RankGroup>> found(roles.size());
  std::mutex reporting;
  std::size_t done = 0;
  std::vector<std::vector<SamePasses>> by_program(job.outline.programs.size());
  for (SamePasses& its : roles_of_same_passes(job, roles))
    by_program[job.program_of(*roles[its.roles.front()].replayed)].push_back(std::move(its));
  const std::vector<std::vector<std::int32_t>> classes = classes_by_program(job);
  const bool completed = std::holds_alternative<Completed>(trace.outcome);
  const bool has_times = completed && has_a_timeline(job, options);
  StepAccount account = empty_account(job);
  const auto predict_program = [&](std::size_t program, Bodies bodies) {
    OnClock clock = on_clock(job, trace, program, has_times ? classes[program] : std::vector<std::int32_t>{}, bodies);
    if (has_times && options.reported != PredictionDetail::Figures) account_for(job, trace, program, clock, account);
    if (!job.has_cross_stream_frees)
      for (auto& [c, timeline] : clock.classes) timeline.spans = {};
    in_parallel(0, by_program[program].size(), [&](std::size_t p) {
      const std::vector<std::size_t>& its = by_program[program][p].roles;
      const PassesOfRoles passes(job, *roles[its.front()].replayed, its.size(), clock);
      in_parallel(0, its.size(), [&](std::size_t i) {
        const SameMemory& same = roles[its[i]];
        std::vector<RankGroup>& groups = found[its[i]];
        const bool is_new = std::exchange(groups, {}).empty();
        if (i == 0) {
          replay_roles(job, clock, same, passes.shown(), passes.memory(), passes.worst_case_memory(), options, groups);
        } else {
          const PassesOfRoles::Programs programs = passes.of(*same.replayed);
          replay_roles(job, clock, same, *programs.own, programs.memory(), programs.worst_case_memory(), options,
                       groups);
        }
        const std::lock_guard lock(reporting);
        if (progress && is_new) progress(++done, roles.size());
      });
    });
  };
  in_parallel(0, by_program.size(), [&](std::size_t program) {
    try {
      predict_program(program, Bodies::Few);
    } catch (const NotKnownFromFew&) {
      predict_program(program, Bodies::All);
    }
  });

  Prediction prediction;
  prediction.scenario = job.scenario;
  prediction.parameters = prediction.trained = parameter_count(job.built);
  if (const auto& adapter = job.scenario.train.adapter) {
    const auto counts = parallel::transformers::counts_of_adapted(job.scenario.model, *adapter);
    prediction.parameters = counts.all, prediction.trained = counts.trained;
  }
  prediction.communicators = job.communicators();
  prediction.deadlock = deadlock_of(job, trace);
  prediction.completed = !prediction.deadlock;
  if (prediction.completed) prediction.step = step_of(job, trace, account, options);
  for (std::vector<RankGroup>& groups : found)
    for (RankGroup& group : groups) prediction.groups.push_back(std::move(group));
  std::sort(prediction.groups.begin(), prediction.groups.end(),
            [](const RankGroup& a, const RankGroup& b) { return a.ranks.front() < b.ranks.front(); });
  const Bytes room = job.scenario.cluster.device.capacity - job.scenario.runtime.headroom;
  bool fits_at_best = !prediction.deadlock;
  for (const RankGroup& group : prediction.groups) {
    prediction.completed &= !group.failure;
    prediction.fits &= group.required.upper <= room;
    fits_at_best &= group.fits_at_best;
  }
  prediction.fullest_node = fullest_node(job, prediction.groups);
  prediction.completed &= !prediction.exceeds_host();
  prediction.fits &= prediction.completed && !prediction.may_exceed_host();
  prediction.open = !prediction.fits && fits_at_best && !prediction.exceeds_host();
  prediction.assumptions = assumptions_of(job, prediction.groups, options);
  prediction.not_modelled = {
      fmt::format("host memory that no program asks for: of the process and its libraries, of data loaders{}",
                  cpu_offload(job.scenario.runtime).any() ? "" : ", of NCCL"),
      "what comes beside training steps: saving checkpoints (copies of what is gathered, on devices or hosts), "
      "evaluation (its batches and logits), compilation and autotuning of kernels (what they try out)"};
  if (job.scenario.train.rollout)
    prediction.not_modelled.emplace_back(
        "what generation takes besides weights and cache: its activations, graphs and time; a CUDA context of the "
        "engine's "
        "own, and what its scheduler holds, where they are processes of their own");
  return prediction;
}

}  // namespace tidemark::scenarios
