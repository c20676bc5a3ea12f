#include "scenarios/plan/exact_memory.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "kernels/price_time.hpp"
#include "parallel/lower.hpp"
#include "parallel/mesh.hpp"
#include "scenarios/deferred_frees.hpp"
#include "scenarios/internal_error.hpp"
#include "scenarios/outliving_batches.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/plan/tape.hpp"
#include "scenarios/prediction.hpp"
#include "sim/base/ensure.hpp"
#include "sim/clock/engine.hpp"
#include "sim/clock/summary.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/calls.hpp"
#include "sim/program/verify.hpp"
#include "topology/route/price.hpp"
#include "topology/route/traffic.hpp"

namespace tidemark::scenarios {
namespace {

// Jobs that are alike are looked at soon after each other.
constexpr std::size_t most_known = 64;

// What is known of the key among the latest, or what `make` makes.
template <class Known, class Make>
std::shared_ptr<Known> known_or_made(std::deque<std::pair<Scenario, std::shared_ptr<Known>>>& latest,
                                     const Scenario& key, Make make) {
  for (const auto& [its, known] : latest)
    if (its == key) return known;
  latest.emplace_back(key, make());
  if (latest.size() > most_known) latest.pop_front();
  return latest.back().second;
}

void add(Bytes allocated, Bytes device, Bytes upper, Figures& figures) {
  figures.allocated = std::max(figures.allocated, allocated);
  figures.device = std::max(figures.device, device);
  figures.device_upper = std::max(figures.device_upper, upper);
}

// A role's memory with frees at once, and at the next sync where other streams borrow its blocks.
struct BothEnds {
  TapeRecord at_once;
  std::optional<TapeRecord> deferred;
};
using RunWithin = std::function<TapeRecord(const DriverPrices&, BorrowedFrees)>;

// What a role's memory is judged by, besides its program.
struct Judged {
  JudgedDevice device;
  Bytes batches;  // that outlive their passes
};

// One role at one price, within the device where that matters.
void add(const BothEnds& record, const DriverPrices& prices, const Judged& by, const RunWithin& run_within,
         Figures& figures) {
  const TapeRecord& whole = record.at_once;
  Bytes device = whole.device(prices), upper = whole.device_upper(prices), allocated = whole.allocated;
  if (device > by.device.capacity) {
    // The allocator gives its cache back before it gives up, so a full device need not be the end.
    const TapeRecord limited = run_within(prices, BorrowedFrees::AtOnce);
    figures.completed &= !limited.out_of_memory;
    if (!limited.out_of_memory)
      std::tie(device, upper, allocated) =
          std::tuple(limited.device(prices), limited.device_upper(prices), limited.allocated);
  }
  if (record.deferred) {
    const auto within = [&](const DriverPrices& its) -> std::optional<Bytes> {
      const TapeRecord limited = run_within(its, BorrowedFrees::AtNextSync);
      return limited.out_of_memory ? std::nullopt : std::optional(limited.device_upper(its));
    };
    upper = upper_end(upper, prices, by.device, {[&] { return record.deferred->device_upper(prices); }, within});
  }
  add(allocated, device, upper + by.batches, figures);
}

// The same by its whole program.
void add(const RepeatingProgram& program, const DriverPrices& prices, const Judged& by, Figures& figures) {
  const auto& [capacity, allocator] = by.device;
  MemoryRecord record = replay(program, prices, {.allocator = without_limit(allocator)});
  if (record.device.bytes > capacity) {
    MemoryRecord limited = replay(program, prices, {.capacity = capacity, .allocator = allocator});
    figures.completed &= !limited.failure;
    if (!limited.failure) record = std::move(limited);
  }
  const Bytes upper = upper_end(record.peak_device_upper, prices, by.device, program);
  add(record.allocated.bytes, record.device.bytes, upper + by.batches, figures);
}

}  // namespace

std::shared_ptr<const ModelGraph> SharedGraphs::graph_of(const Model& model, const GraphOptions& options) {
  const GraphKey key{model, options};
  const std::lock_guard lock(mutex_);
  for (const auto& [its, graph] : known_)
    if (its == key) return graph;
  known_.emplace_back(key, std::make_shared<const ModelGraph>(build_model(key.model, key.options)));
  return known_.back().second;
}

// The runs of a candidate's roles, as far as anyone asked.
struct ExactMemory::Runs {
  Runs(const Scenario& its, SharedGraphs& graphs)
      : scenario(its),
        runtime(runtime_of(scenario)),
        graph(graphs.graph_of(scenario.model, graph_options_of(scenario))),
        roles(parallel::roles(input())),
        by_role(roles.size()) {
    Workload stages;
    for (std::size_t r = 0; r < roles.size(); ++r) {
      if (r == 0 || roles[r].first.pipeline != roles[r - 1].first.pipeline)
        stages.programs.push_back(lower_shortest(input(), roles[r]));
      stage_of_role.push_back(stages.programs.size() - 1);
    }
    calls = calls_of(stages).programs;
  }

  [[nodiscard]] LoweringInput input() const { return {*graph, scenario.layout, scenario.train, runtime}; }

  /// How far a role's run has come: what its epochs were at each change, and as they are.
  struct Run {
    struct Change {
      std::size_t epoch = 0;
      Bytes reserved;
    };
    std::vector<Change> changes;  ///< with frees at once
    BothEnds record;
    bool borrows = false;  ///< other streams borrow blocks of its passes
  };

  const StageTape& stage_of(std::size_t role) {
    if (!stage || stage_is_of != stage_of_role[role]) {
      stage = stage_tape(lower_repeating(input(), roles[role]));
      stage_is_of = stage_of_role[role];
    }
    return *stage;
  }

  /// The role's state, and the run of an earlier role of its stage that does the same, if there is one.
  std::pair<StateTape, std::optional<Run>> state_and_run_of(std::size_t role) {
    if (states_are_of != stage_of_role[role]) states.clear();
    states_are_of = stage_of_role[role];
    StateTape state = state_tape(input(), roles[role]);
    for (const auto& [other, its] : states)
      if (its == state) return {std::move(state), by_role[other]};
    states.emplace_back(role, state);
    return {std::move(state), std::nullopt};
  }

  const Scenario scenario;
  const Runtime runtime;
  const std::shared_ptr<const ModelGraph> graph;
  const std::vector<Role> roles;
  std::vector<Program> calls;  ///< by stage
  std::vector<std::size_t> stage_of_role;

  std::mutex mutex;  ///< of what follows
  std::vector<std::optional<Run>> by_role;
  std::optional<StageTape> stage;  ///< the latest
  std::size_t stage_is_of = 0;
  std::vector<std::pair<std::size_t, StateTape>> states;  ///< by role, those of one stage that differ
  std::size_t states_are_of = 0;
};

namespace {

// What ranks of a role pay, and whether a run of theirs, as far as it has come, leaves anything to win.
class Prospect {
 public:
  Prospect(std::vector<const DriverPrices*> prices, Bytes capacity, const OfNoInterest& of_no_interest)
      : prices_(std::move(prices)), capacity_(capacity), of_no_interest_(&of_no_interest), driver_(prices_.size()) {}

  /// The next change of a record's epochs. False where nothing more is to be seen: a device that would be full has to
  /// be looked at by itself, and what is of no interest need not be.
  bool goes_on(const TapeRecord& record, std::size_t epoch, Bytes reserved) {
    if (full_ || !of_interest_) return false;
    for (; seen_ <= epoch; ++seen_) {
      const TapeRecord::Epoch& its = record.epochs[seen_];
      for (std::size_t p = 0; p < prices_.size(); ++p) {
        const auto take = [&](const Estimate& e) {
          driver_[p].central += e.bytes;
          driver_[p].upper += e.high;
        };
        if (its.resource)
          take(prices_[p]->of(*its.resource));
        else if (its.comm.valid())
          take(prices_[p]->of(its.comm));
      }
    }
    Bytes upper;
    for (const Driver& driver : driver_) {
      full_ |= driver.central + reserved > capacity_;
      upper = std::max(upper, driver.upper + reserved);
    }
    if (!full_ && *of_no_interest_ && (*of_no_interest_)(upper)) of_interest_ = false;
    return !full_ && of_interest_;
  }
  [[nodiscard]] bool of_interest() const { return of_interest_; }

 private:
  struct Driver {
    Bytes central, upper;
  };
  std::vector<const DriverPrices*> prices_;
  Bytes capacity_;
  const OfNoInterest* of_no_interest_;
  std::vector<Driver> driver_;
  std::size_t seen_ = 0;  // epochs
  bool full_ = false, of_interest_ = true;
};

}  // namespace

std::shared_ptr<ExactMemory::Runs> ExactMemory::runs_of(const Scenario& scenario) {
  const Scenario key = memory_key(scenario);
  const std::lock_guard lock(mutex_);
  return known_or_made(known_, key, [&] { return std::make_shared<Runs>(key, graphs_); });
}

ExactMemory::Answer ExactMemory::of(const Scenario& scenario, const OfNoInterest& of_no_interest) {
  const Runtime runtime = runtime_of(scenario);
  // One short program, whose passes and state are not apart; or cached blocks that go before the device is full.
  if (runtime.eager || allocator_options_of(scenario).memory_limit())
    return {figures_of(predict(scenario, {}, {.told = Told::Figures}))};
  const std::shared_ptr<Runs> runs = runs_of(scenario);
  const LoweringInput input{*runs->graph, scenario.layout, scenario.train, runtime};
  const std::vector<Role> all = roles(input);
  ensure(all.size() == runs->roles.size(), "where ranks stand does not change what they do");

  Workload stages;
  stages.communicators = communicators_of(input).table;
  stages.programs = runs->calls;
  stages.program_of_rank.resize(static_cast<std::size_t>(scenario.layout.world_size()));
  for (std::size_t r = 0; r < all.size(); ++r)
    for (const Rank rank : all[r].ranks)
      stages.program_of_rank[rank.index()] = static_cast<std::int32_t>(runs->stage_of_role[r]);
  const Prices prices = price(stages, scenario.cluster, nccl_settings(scenario.runtime));

  Answer answer;
  answer.figures.completed = true;
  const Bytes capacity = scenario.cluster.device.capacity;
  const AllocatorOptions options = allocator_options_of(scenario);
  const std::lock_guard lock(runs->mutex);
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::set<std::int32_t> entries;
    for (const Rank rank : all[r].ranks) entries.insert(prices.entry_of_rank[rank.index()]);
    std::vector<const DriverPrices*> its_prices;
    for (const std::int32_t entry : entries) its_prices.push_back(&prices.entries[static_cast<std::size_t>(entry)]);

    std::optional<Runs::Run>& run = runs->by_role[r];
    std::optional<StateTape> state;
    if (!run) std::tie(state, run) = runs->state_and_run_of(r);
    Prospect prospect(its_prices, capacity, of_no_interest);
    if (run)
      for (const Runs::Run::Change& change : run->changes)
        if (!prospect.goes_on(run->record.at_once, change.epoch, change.reserved)) break;
    if (prospect.of_interest() && (!run || !run->record.at_once.complete)) {
      if (!state) state = state_tape(runs->input(), runs->roles[r]);
      prospect = Prospect(its_prices, capacity, of_no_interest);
      Runs::Run whole;
      const EnoughSeen enough = [&](const TapeRecord& record) {
        whole.changes.push_back({record.epochs.size() - 1, record.epochs.back().reserved});
        prospect.goes_on(record, whole.changes.back().epoch, whole.changes.back().reserved);
        return !prospect.of_interest();
      };
      whole.record.at_once = run_tape(*state, runs->stage_of(r), without_limit(options), enough);
      whole.borrows = runs->stage_of(r).borrows;
      run = std::move(whole);
    }
    if (!prospect.of_interest()) return {answer.figures, false};
    // What frees at once show is no more than what later ones do, and so was worth looking at first.
    if (run->borrows && !run->record.deferred) {
      if (!state) state = state_tape(runs->input(), runs->roles[r]);
      run->record.deferred = run_tape(*state, runs->stage_of(r), without_limit(options), {}, BorrowedFrees::AtNextSync);
    }
    const RunWithin run_within = [&](const DriverPrices& within, BorrowedFrees borrowed) {
      return run_tape(state_tape(runs->input(), all[r]), runs->stage_of(r), options, within, capacity, borrowed);
    };
    const Judged by{{capacity, options}, of_outliving_batches(scenario, runtime, all[r].first.pipeline)};
    for (const DriverPrices* entry : its_prices) add(run->record, *entry, by, run_within, answer.figures);
    if (!of_no_interest) continue;
    if (of_no_interest(answer.figures.device_upper)) return {answer.figures, false};
    if (!fits(scenario, answer.figures)) break;
  }
  return answer;
}

Figures exact_memory(const Scenario& scenario, SharedGraphs& graphs) {
  return ExactMemory(graphs).of(scenario).figures;
}

namespace {

std::optional<Duration> simulated_step(const Scenario& scenario, const ModelGraph& graph) {
  const Runtime runtime = runtime_of(scenario);
  const RepeatingWorkload stages = lower_last_step({graph, scenario.layout, scenario.train, runtime});
  require_sound(scenario.name, verify(shortened(stages)));
  const Workload calls = calls_of(stages);
  const Prices prices = price(calls, scenario.cluster, nccl_settings(scenario.runtime));
  Router router(calls, scenario.cluster, prices.entry_of_rank);
  const Folding folding = fold(calls, prices.entry_of_rank, router.traffic());
  const TimePrices times = price_time(calls, folding, scenario.cluster, router);
  const Trace trace = simulate(stages, folding, times);
  if (std::holds_alternative<Deadlock>(trace.outcome)) return std::nullopt;
  return last_step(trace);
}

}  // namespace

Figures whole_figures(const Scenario& scenario) {
  constexpr PredictOptions options{.told = Told::Figures};
  const AllocatorOptions allocator = allocator_options_of(scenario);
  if (allocator.memory_limit() || runtime_of(scenario).eager) return figures_of(predict(scenario, {}, options));
  const JobOutline job(scenario);
  Figures figures;
  const Trace trace = simulate_ends(job);
  if (std::holds_alternative<Deadlock>(trace.outcome)) {
    figures.deadlocks = true;
    return figures;
  }
  figures.completed = true;
  figures.step = last_step(trace);
  figures.throughput = tokens_per_s_per_device(job.scenario, figures.step);

  const Bytes capacity = job.scenario.cluster.device.capacity;
  StageTape stage;
  std::vector<std::pair<StateTape, BothEnds>> runs;  // of a stage's other roles: many do the same
  for (std::size_t r = 0; r < job.roles.size(); ++r) {
    const Role& role = job.roles[r];
    const RepeatingProgram& program =
        job.outline.programs[static_cast<std::size_t>(job.outline.program_of_rank[role.ranks.front().index()])];
    std::set<std::int32_t> entries;
    for (const Rank rank : role.ranks) entries.insert(job.prices.entry_of_rank[rank.index()]);
    const auto price_of = [&](std::int32_t entry) -> const DriverPrices& {
      return job.prices.entries[static_cast<std::size_t>(entry)];
    };
    const Judged by{{capacity, allocator}, of_outliving_batches(job.scenario, job.runtime, role.first.pipeline)};
    if (r == 0 || role.first.pipeline != job.roles[r - 1].first.pipeline) {
      stage = {};
      runs.clear();
      for (const std::int32_t entry : entries) add(program, price_of(entry), by, figures);
      continue;
    }
    // Its passes are those of the stage's first role.
    if (stage.steps.empty()) stage = stage_tape(program);
    const StateTape state = state_tape(job.lowering(), role);
    auto known = std::find_if(runs.begin(), runs.end(), [&](const auto& run) { return run.first == state; });
    if (known == runs.end()) {
      BothEnds record{run_tape(state, stage, without_limit(allocator)), {}};
      if (stage.borrows)
        record.deferred = run_tape(state, stage, without_limit(allocator), {}, BorrowedFrees::AtNextSync);
      known = runs.insert(runs.end(), {state, std::move(record)});
    }
    const RunWithin run_within = [&](const DriverPrices& within, BorrowedFrees borrowed) {
      return run_tape(state, stage, allocator, within, capacity, borrowed);
    };
    for (const std::int32_t entry : entries) add(known->second, price_of(entry), by, run_within, figures);
  }
  return figures;
}

std::optional<Duration> ExactTime::step(const Scenario& scenario) {
  const Scenario key = time_key(scenario);
  std::shared_ptr<Known> known;
  {
    const std::lock_guard lock(mutex_);
    known = known_or_made(known_, key, [] { return std::make_shared<Known>(); });
  }
  const std::lock_guard lock(known->mutex);
  if (!std::exchange(known->asked, true))
    known->step = simulated_step(key, *graphs_.graph_of(key.model, graph_options_of(key)));
  return known->step;
}

void add_exact_time(const Scenario& scenario, SharedGraphs& graphs, Figures& figures) {
  figures.step = ExactTime(graphs).step(scenario).value();
  figures.throughput = tokens_per_s_per_device(scenario, figures.step);
}

}  // namespace tidemark::scenarios
