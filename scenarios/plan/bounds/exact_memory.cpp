#include "scenarios/plan/bounds/exact_memory.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "parallel/job/mesh.hpp"
#include "parallel/lowering/lower.hpp"
#include "scenarios/formats/internal_error.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/predict/allocator_events.hpp"
#include "scenarios/predict/events_replay.hpp"
#include "scenarios/predict/measured/measured_ranges.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/predict/upper_ends/deferred_frees.hpp"
#include "scenarios/predict/upper_ends/rerun_batches.hpp"
#include "scenarios/predict/upper_ends/worst_case_routing.hpp"
#include "scenarios/scenario/cpu_offload.hpp"
#include "sim/base/ensure.hpp"
#include "sim/clock/summary.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/calls.hpp"
#include "sim/program/verify.hpp"
#include "topology/route/cost.hpp"

namespace tidemark::scenarios {
namespace {

void add(Bytes allocated, Bytes device, Bytes upper, Figures& figures) {
  figures.allocated = std::max(figures.allocated, allocated);
  figures.device = std::max(figures.device, device);
  figures.device_upper = std::max(figures.device_upper, upper);
}

// A role's memory with frees at once, and at the next sync where other streams borrow its blocks.
struct BothEnds {
  EventsRecord at_once;
  std::optional<EventsRecord> deferred;
};
using RunWithin =
    std::function<EventsRecord(Bytes capacity, const AllocatorOptions&, const DriverCosts&, CrossStreamFrees)>;

// What a role's memory is judged by, besides its program.
struct Judged {
  JudgedDevice device;
  Bytes headroom;
  Bytes batches;  // that outlive their passes
  [[nodiscard]] Bytes room() const { return device.capacity - headroom - batches; }
};

// One role at one price, within the device where that matters.
void add(const BothEnds& record, const DriverCosts& costs, const Judged& by, const RunWithin& run_within,
         Figures& figures) {
  const EventsRecord& whole = record.at_once;
  Bytes device = whole.device(costs), allocated = whole.allocated;
  if (device > by.device.capacity) {
    // The allocator gives its cache back before it gives up, so a full device need not be the end.
    const EventsRecord limited = run_within(by.device.capacity, by.device.allocator, costs, CrossStreamFrees::AtOnce);
    figures.completed &= !limited.out_of_memory;
    if (!limited.out_of_memory) std::tie(device, allocated) = std::tuple(limited.device(costs), limited.allocated);
  }
  std::optional<Bytes> late;
  if (record.deferred) late = record.deferred->device_upper(costs);
  const RunOn run = [&](Bytes capacity, const DriverCosts& its, CrossStreamFrees cross_stream) -> LimitedRun {
    const EventsRecord limited = run_within(capacity, without_limit(by.device.allocator), its, cross_stream);
    return {!limited.out_of_memory, limited.drivers_come_first, limited.same_on};
  };
  const Bytes more = unexplained(by.device.unexplained, whole.allocated);
  const RequiredMemory required =
      required_memory(whole.unlimited(costs, late), costs, by.room() - more, Require::Room, run);
  add(allocated, device, required.upper + by.batches + more, figures);
}

}  // namespace

std::shared_ptr<const BuiltModel> SharedModels::model_of(const Model& model, const ModelOptions& options) {
  const ModelKey key{model, options};
  const std::lock_guard lock(mutex_);
  for (const auto& [its, built] : known_)
    if (its == key) return built;
  known_.emplace_back(key, std::make_shared<const BuiltModel>(build_model(key.model, key.options)));
  return known_.back().second;
}

namespace {

std::optional<StateEvents> state_of(const LoweringInput& input, const Role& role) {
  std::optional<Program> program = lower_state(input, role);
  if (!program) return std::nullopt;
  std::optional<RankEvents> events = events_of({std::move(*program), {}});
  if (!events) return std::nullopt;
  return std::move(events->state);
}

// What is apart from the state of the role's program.
std::optional<StageEvents> passes_apart(const LoweringInput& input, const Role& role, const RepeatingProgram& program) {
  std::optional<RankEvents> events = events_of(program);
  if (!events) return std::nullopt;
  const std::optional<StateEvents> alone = state_of(input, role);
  if (!alone || !same_state(events->state, events->passes, *alone)) return std::nullopt;
  return std::move(events->passes);
}

// Whether roles run the same passes, as their framework says, is seen in the first and the last of them.
bool share_passes(const LoweringInput& input, std::span<const Role> roles) {
  if (roles.size() < 2) return true;
  const auto shortest = [&](const Role& role) { return passes_apart(input, role, {lower_shortest(input, role), {}}); };
  return shortest(roles.front()) == shortest(roles.back());
}

// The roles that share its passes, which come together.
std::span<const Role> with_its_passes(std::span<const Role> roles, std::size_t role) {
  const auto elsewhere = [&](const Role& r) { return r.passes != roles[role].passes; };
  const auto here = roles.begin() + static_cast<std::ptrdiff_t>(role);
  const auto first = std::find_if(std::make_reverse_iterator(here), roles.rend(), elsewhere).base();
  return {first, std::find_if(here, roles.end(), elsewhere)};
}

// What ranks of a role pay, and whether a run of theirs, as far as it has come, leaves anything to win.
class Watch {
 public:
  /// `room` is what the role's device is judged by.
  Watch(std::vector<const DriverCosts*> costs, Bytes capacity, Bytes room, const Dominated& dominated)
      : costs_(std::move(costs)), capacity_(capacity), room_(room), requested_(&dominated), driver_(costs_.size()) {}

  /// The next change of a record's epochs. False where nothing more is to be seen: a device that would be full has to
  /// be looked at by itself, and what is dominated need not be.
  bool goes_on(const EventsRecord& record, std::size_t epoch, Bytes reserved) {
    if (full_ || dominated_) return false;
    for (; seen_ <= epoch; ++seen_) {
      const EventsRecord::Epoch& its = record.epochs[seen_];
      for (std::size_t p = 0; p < costs_.size(); ++p) {
        const auto take = [&](const Estimate& e) {
          driver_[p].central += e.bytes;
          driver_[p].upper += e.high;
        };
        if (its.resource)
          take(costs_[p]->of(*its.resource));
        else if (its.comm.valid())
          take(costs_[p]->of(its.comm));
      }
    }
    Bytes upper;
    for (const Driver& driver : driver_) {
      full_ |= driver.central + reserved > capacity_;
      upper = std::max(upper, driver.upper + reserved);
    }
    dominated_ = !full_ && *requested_ && (*requested_)(std::min(upper, room_));
    return !full_ && !dominated_;
  }
  [[nodiscard]] bool dominated() const { return dominated_; }
  void begin_again() { *this = Watch(std::move(costs_), capacity_, room_, *requested_); }

 private:
  struct Driver {
    Bytes central, upper;
  };
  std::vector<const DriverCosts*> costs_;
  Bytes capacity_, room_;
  const Dominated* requested_;
  std::vector<Driver> driver_;
  std::size_t seen_ = 0;  // epochs
  bool full_ = false, dominated_ = false;
};

}  // namespace

// The runs of a candidate's roles, as far as anyone asked.
struct ExactMemory::Runs {
  Runs(const Scenario& its, SharedModels& models)
      : scenario(its),
        runtime(runtime_of(scenario)),
        built(models.model_of(scenario.model, model_options_of(scenario))),
        options(without_limit(allocator_options_of(scenario))),
        roles(parallel::roles(input())),
        by_role(roles.size()) {
    Workload shortest;
    std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> known;
    for (std::size_t r = 0; r < roles.size(); ++r) {
      first_like_.push_back(roles[r].sizes ? known.try_emplace({roles[r].passes, *roles[r].sizes}, r).first->second
                                           : r);
      if (r == 0 || roles[r].passes != roles[r - 1].passes)
        shortest.programs.push_back(lower_shortest(input(), roles[r]));
      program_of_role.push_back(static_cast<std::int32_t>(shortest.programs.size()) - 1);
    }
    calls = calls_of(shortest).programs;
  }

  [[nodiscard]] LoweringInput input() const { return {*built, scenario.layout, scenario.train, runtime}; }

  /// How far a role's run has come: what its epochs were at each change, and as they are.
  struct Run {
    struct Change {
      std::size_t epoch = 0;
      Bytes reserved;
    };
    std::vector<Change> changes;  ///< with frees at once
    BothEnds record;
    bool has_cross_stream_uses = false;  ///< other streams borrow blocks of its passes
    bool asks_the_clock = false;         ///< as Job::asks_the_clock
  };

  /// The first role that has the same memory.
  [[nodiscard]] std::size_t first_like(std::size_t role) const { return first_like_[role]; }

  /// The run of a role with frees at once, as far as `watch` goes along. Nothing where its state and its stage's passes
  /// are not apart.
  std::optional<Run>& run(std::size_t role, Watch& watch) {
    std::optional<Run>& its = by_role[role];
    std::optional<StateEvents> state;
    if (!its && !(state = its_state(role))) return its;
    if (!its) its = run_of_one_alike(role, *state);
    if (its)
      for (const Run::Change& change : its->changes)
        if (!watch.goes_on(its->record.at_once, change.epoch, change.reserved)) break;
    if (watch.dominated() || (its && its->record.at_once.complete)) return its;
    its.reset();
    const std::optional<StageEvents>& stage = passes_of(role);
    if (!stage || (!state && !(state = its_state(role)))) return its;
    watch.begin_again();
    Run whole;
    const MayStop may_stop = [&](const EventsRecord& record) {
      whole.changes.push_back({record.epochs.size() - 1, record.epochs.back().reserved});
      watch.goes_on(record, whole.changes.back().epoch, whole.changes.back().reserved);
      return watch.dominated();
    };
    whole.record.at_once = replay_events(*state, *stage, options, may_stop);
    whole.has_cross_stream_uses = stage->has_cross_stream_uses;
    whole.asks_the_clock = std::ranges::any_of(
        stage->used_by, [&](std::int32_t stream) { return StreamId{stream} != prompt_stream(runtime); });
    its = std::move(whole);
    return its;
  }

  /// Of a role that has run: from its first op, and to the end.
  [[nodiscard]] EventsRecord run_again(std::size_t role, CrossStreamFrees cross_stream) {
    return replay_events(*its_state(role), *passes_of(role), options, {}, {cross_stream, launch_queue_of(scenario)});
  }
  [[nodiscard]] EventsRecord run_within(std::size_t role, const AllocatorOptions& allocator, Bytes capacity,
                                        const DriverCosts& costs, const EventFrees& frees) {
    return replay_events(*its_state(role), *passes_of(role), allocator, costs, capacity, frees);
  }

  const Scenario scenario;
  const Runtime runtime;
  const std::shared_ptr<const BuiltModel> built;
  const AllocatorOptions options;
  const std::vector<Role> roles;
  std::vector<Program> calls;                 ///< of roles that share passes, and so talk to the same groups
  std::vector<std::int32_t> program_of_role;  ///< of `calls`

  std::mutex mutex;  ///< of what follows
  std::vector<std::optional<Run>> by_role;

 private:
  // Those of all roles that share them or, where they differ by what each one launches, the role's own.
  const std::optional<StageEvents>& passes_of(std::size_t role) {
    const std::int32_t number = roles[role].passes;
    const std::span<const Role> sharing = with_its_passes(roles, role);
    const auto [shared, unknown] = shared_.try_emplace(number, true);
    if (unknown) shared->second = share_passes(input(), sharing);
    const Role& shown = shared->second ? sharing.front() : roles[role];
    if (passes_are_of_ == &shown) return passes_;
    passes_are_of_ = &shown;
    passes_ = passes_apart(input(), shown, lower_repeating(input(), shown));
    return passes_;
  }
  [[nodiscard]] std::optional<StateEvents> its_state(std::size_t role) const { return state_of(input(), roles[role]); }

  // A run of the same state and the same passes.
  std::optional<Run> run_of_one_alike(std::size_t role, const StateEvents& state) {
    const auto shared = shared_.find(roles[role].passes);
    if (shared != shared_.end() && !shared->second) return std::nullopt;
    if (std::exchange(states_go_with_, roles[role].passes) != roles[role].passes) states_.clear();
    for (const auto& [other, its] : states_)
      if (its == state) return by_role[other];
    states_.emplace_back(role, state);
    return std::nullopt;
  }

  std::vector<std::size_t> first_like_;                      // by role
  std::map<std::int32_t, bool> shared_;                      // by number of passes
  std::optional<StageEvents> passes_;                        // the latest
  const Role* passes_are_of_ = nullptr;                      // of `roles`
  std::optional<std::int32_t> states_go_with_;               // by number of passes
  std::vector<std::pair<std::size_t, StateEvents>> states_;  // by role, those with the same passes that differ
};

namespace {

// What the ranks of each role pay, where ranks stand as the scenario has them.
std::vector<std::vector<const DriverCosts*>> costs_by_role(const Costs& costs, const std::vector<Role>& roles) {
  std::vector<std::vector<const DriverCosts*>> by_role;
  for (const Role& role : roles) {
    std::set<std::int32_t> entries;
    for (const Rank rank : role.ranks) entries.insert(costs.entry_of_rank[rank.index()]);
    by_role.emplace_back();
    for (const std::int32_t entry : entries) by_role.back().push_back(&costs.entries[static_cast<std::size_t>(entry)]);
  }
  return by_role;
}

}  // namespace

namespace {

// The scenario with the tokens that upper ends hold; nothing where routing leaves nothing open.
std::optional<Scenario> worst_case_scenario(const Scenario& scenario) {
  std::optional<Train> train = worst_case(scenario);
  if (!train) return std::nullopt;
  Scenario more = scenario;
  more.train = std::move(*train);
  return more;
}

}  // namespace

// Upper ends hold the tokens that come beyond those that are stated, too (worst_case_routing.hpp).
ExactMemory::Answer ExactMemory::of(const Scenario& scenario, const Dominated& dominated) {
  const auto in_full = [&]() -> Answer { return {whole_figures(scenario)}; };
  std::optional<Answer> answer = as_stated(scenario, dominated);
  if (!answer) return in_full();
  const std::optional<Scenario> more = worst_case_scenario(scenario);
  if (!more || answer->dominated || (dominated && !fits(scenario, answer->figures))) return *answer;
  // Upper ends are of each rank alone: no job has them all, and none could be run.
  const std::optional<Answer> beyond = as_stated(*more, dominated);
  if (!beyond) return in_full();
  answer->figures.device_upper = std::max(answer->figures.device_upper, beyond->figures.device_upper);
  answer->dominated = beyond->dominated;
  return *answer;
}

std::optional<ExactMemory::Answer> ExactMemory::as_stated(const Scenario& scenario, const Dominated& dominated) {
  const AllocatorOptions options = allocator_options_of(scenario);
  if (options.memory_limit()) return std::nullopt;  // cached blocks go before the device is full
  if (cpu_offload(scenario.runtime).any()) return std::nullopt;
  const auto runs =
      known_.get(memory_key(scenario), [&](const Scenario& key) { return std::make_shared<Runs>(key, models_); });
  const LoweringInput input{*runs->built, scenario.layout, scenario.train, runs->runtime};
  const std::vector<Role> all = roles(input);
  ensure(all.size() == runs->roles.size(), "where ranks stand does not change what they do");

  Workload calls;
  calls.communicators = communicators_of(input).table;
  calls.programs = runs->calls;
  calls.program_of_rank.resize(static_cast<std::size_t>(scenario.layout.world_size()));
  for (std::size_t r = 0; r < all.size(); ++r)
    for (const Rank rank : all[r].ranks) calls.program_of_rank[rank.index()] = runs->program_of_role[r];
  const Costs costs = cost(calls, scenario.cluster, nccl_settings(scenario.runtime));
  const auto its_costs = costs_by_role(costs, all);

  Answer answer;
  answer.figures.completed = true;
  const JudgedDevice device = judged_device(scenario);
  const std::lock_guard lock(runs->mutex);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const Judged by{device, scenario.runtime.headroom,
                    rerun_batches_bytes(scenario, runs->runtime, all[r].first.pipeline)};
    Watch watch(its_costs[r], device.capacity, by.room(), dominated);
    const std::size_t first = runs->first_like(r);
    std::optional<Runs::Run>& run = runs->run(first, watch);
    if (watch.dominated()) return Answer{answer.figures, true};
    if (!run) return std::nullopt;
    // What frees at once show is no more than what later ones do, and so was worth looking at first.
    if (run->has_cross_stream_uses && !run->record.deferred)
      run->record.deferred = runs->run_again(first, CrossStreamFrees::AtNextSync);
    answer.asks_the_clock |= run->asks_the_clock;
    const RunWithin run_within = [&](Bytes capacity, const AllocatorOptions& allocator, const DriverCosts& within,
                                     CrossStreamFrees cross_stream) {
      return runs->run_within(first, allocator, capacity, within, {cross_stream, device.queue});
    };
    for (const DriverCosts* entry : its_costs[r]) add(run->record, *entry, by, run_within, answer.figures);
    if (!dominated) continue;
    if (dominated(answer.figures.device_upper)) return Answer{answer.figures, true};
    if (!fits(scenario, answer.figures)) break;
  }
  return answer;
}

Figures exact_memory(const Scenario& scenario, SharedModels& models) {
  return ExactMemory(models).of(scenario).figures;
}

namespace {

std::optional<Duration> simulated_step(const Scenario& scenario) {
  const Job job(scenario, Job::Steps::Last);
  const Trace trace = simulate_time(job);
  if (std::holds_alternative<Deadlock>(trace.outcome)) return std::nullopt;
  return last_step(trace);
}

}  // namespace

Figures whole_figures(const Scenario& scenario) {
  return figures_of(predict(scenario, {}, {.reported = PredictionDetail::Figures}));
}

std::optional<Duration> ExactTime::step(const Scenario& scenario) {
  const Scenario key = time_key(scenario);
  const auto known = known_.get(key, [](const Scenario&) { return std::make_shared<Known>(); });
  const std::lock_guard lock(known->mutex);
  if (!std::exchange(known->requested, true)) known->step = simulated_step(key);
  return known->step;
}

void add_exact_time(const Scenario& scenario, Figures& figures) {
  figures.step = ExactTime().step(scenario).value();
  figures.throughput = tokens_per_s_per_device(scenario, figures.step);
}

}  // namespace tidemark::scenarios
