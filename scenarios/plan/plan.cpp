#include "scenarios/plan/plan.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "scenarios/plan/detail/standings.hpp"
#include "scenarios/plan/detail/task_texts.hpp"
#include "scenarios/plan/evaluate.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/plan/same_job.hpp"
#include "scenarios/plan/tasks.hpp"

// Every choice here depends on results in the order of tasks, never on when they came: the answer is the same whatever
// runs them.

namespace tidemark::scenarios {
namespace {

constexpr std::int64_t in_memory = 1 << 18;  // combinations whose survivors are held at once
constexpr std::int64_t screened_together = 256;
constexpr std::size_t evaluated_together = 8;  // candidates between two looks at what was found
constexpr std::size_t checked_in_full = 8;     // of what is recommended, as long as tiers are right

// So many of them, at equal distances in throughput's order, the first and the last among them.
std::vector<Found> spread(std::vector<Found> all, std::size_t count) {
  if (all.size() <= count) return all;
  std::ranges::sort(all, better);
  std::vector<Found> some;
  for (std::size_t i = 0; i < count; ++i)
    some.push_back(std::move(all[count == 1 ? 0 : i * (all.size() - 1) / (count - 1)]));
  return some;
}

class Search {
 public:
  Search(const Space& space, const PlanOptions& options, TaskRunner& runner, const PlanProgress& progress)
      : space_(space), options_(options), runner_(runner), progress_(progress), standings_(space_, options_) {}

  Plan run() && {
    do {
      begin();
      for (std::int64_t first = 0; first < plan_.combinations; first += in_memory)
        evaluate(screen(first, std::min(in_memory, plan_.combinations - first)));
      ask_the_clock();
      plan_.tiers.beaten = std::ssize(beaten_);
    } while (!winners_run_in_full());
    plan_.best = standings_.best();
    plan_.best.resize(std::min(plan_.best.size(), options_.top));
    plan_.tie_analyses = tie_analyses_of_best();
    plan_.front = standings_.front();
    plan_.near_misses = misses_;
    return std::move(plan_);
  }

 private:
  // Without the candidates that have failed in full so far.
  void begin() {
    plan_ = {};
    plan_.combinations = space_.size();
    for (const Failed& failed : failed_in_full_) add_failed(failed);
    standings_.clear();
    misses_.clear();
    timed_.clear();
    beaten_.clear();
    asking_.clear();
    ran_whole_.clear();
    otherwise_.clear();
    corrected_ = 0;
    bounds_of_timed_ = timed_steps_ = {};
  }

  void add_failed(const Failed& failed) {
    ++plan_.tiers.failed;
    if (plan_.failed.size() < options_.top) plan_.failed.push_back(failed);
  }

  std::vector<std::string> run(const std::string& what, const std::vector<std::string>& tasks, std::int64_t before,
                               std::int64_t all) {
    std::int64_t done = 0;
    return runner_.run(tasks, [&](std::size_t, const std::string&) {
      if (progress_) progress_(what, before + ++done, all);
    });
  }

  void evaluate(std::vector<Survivor> survivors) {
    // The base itself first, so that a search that is stopped has an answer; then whoever promises most: what it keeps
    // to sets the bar.
    const std::optional<std::int64_t> own = base_among(survivors);
    std::sort(survivors.begin(), survivors.end(), [&](const Survivor& a, const Survivor& b) {
      if ((a.candidate == own) != (b.candidate == own)) return a.candidate == own;
      if (a.throughput_high != b.throughput_high) return a.throughput_high > b.throughput_high;
      return a.device_low != b.device_low ? a.device_low < b.device_low : a.candidate < b.candidate;
    });
    for (std::size_t next = 0; next < survivors.size();) {
      const Bar bar = standings_.bar();
      std::vector<Survivor> chosen;
      const std::size_t before = next;
      for (; next < survivors.size() && chosen.size() < evaluated_together; ++next)
        (bar.beats(survivors[next].device_low, survivors[next].throughput_high) ? beaten_ : chosen)
            .push_back(survivors[next]);
      const Done done{static_cast<std::int64_t>(before), std::ssize(survivors)};
      if (bounds_of_time_are_near())
        time_what_fits(std::move(chosen), bar, done);
      else
        allocate(time(std::move(chosen), done), done);
    }
  }

  // The candidate that is the base as it stands, where it is a job.
  [[nodiscard]] std::optional<std::int64_t> base_among(const std::vector<Survivor>& survivors) const {
    const std::optional<Scenario> base = base_scenario(space_);
    if (!base) return std::nullopt;
    const Scenario job = same_job(*base);
    for (const Survivor& s : survivors)
      if (same_job(std::get<Scenario>(candidate(space_, s.candidate))) == job) return s.candidate;
    return std::nullopt;
  }

  struct Done {
    std::int64_t before = 0, all = 0;
  };

  // Those that no other beats at the throughput that they have, and what the clock has said of each.
  struct Timed {
    Survivor survivor;
    Figures figures;
  };
  std::vector<Timed> time(std::vector<Survivor> chosen, const Done& done) {
    std::vector<Timed> timed;
    std::vector<std::string> tasks;
    std::vector<Survivor> requested;  // by task
    for (const Survivor& s : chosen) {
      if (s.step_high == for_ever && s.step_low == Duration{}) {  // nothing is known of it but by a whole run
        timed.push_back({s, {}});
        continue;
      }
      tasks.push_back(time_task({s.candidate, {}, s.step_low, s.step_high}));
      requested.push_back(s);
    }
    const std::vector<std::string> results = run("evaluating", tasks, done.before, done.all);
    for (std::size_t i = 0; i < requested.size(); ++i) {
      const Evaluated evaluated = evaluated_from(results[i]);
      if (evaluated.verdict != Evaluated::Verdict::Fits) {
        add(evaluated);
        continue;
      }
      note_time(evaluated.found);
      requested[i].throughput_high = evaluated.found.figures.throughput;
      timed.push_back({requested[i], evaluated.found.figures});
    }
    std::ranges::sort(timed, {},
                      [](const Timed& t) { return std::pair(-t.survivor.throughput_high, t.survivor.candidate); });
    return timed;
  }

  void allocate(const std::vector<Timed>& timed, const Done& done) {
    const Bar bar = standings_.bar();
    std::vector<std::string> tasks;
    std::vector<Timed> requested;  // by task
    for (const Timed& t : timed) {
      if (bar.beats(t.survivor.device_low, t.survivor.throughput_high)) {
        beaten_.push_back(t.survivor);
        continue;
      }
      tasks.push_back(allocate_task(t.survivor, bar));
      requested.push_back(t);
    }
    const std::vector<std::string> results = run("evaluating", tasks, done.before, done.all);
    for (std::size_t i = 0; i < requested.size(); ++i) {
      Evaluated evaluated = evaluated_from(results[i]);
      if (is_beaten(evaluated, requested[i].survivor)) continue;
      if (!evaluated.timed) set_time(requested[i].figures, evaluated);
      add_allocated(evaluated);
    }
  }

  // Where bounds say nearly how long steps take, who loses does so by its memory: that is asked first, and steps of
  // the others alone are timed.
  void time_what_fits(std::vector<Survivor> chosen, const Bar& bar, const Done& done) {
    std::vector<std::string> tasks;
    for (const Survivor& s : chosen) tasks.push_back(allocate_task(s, bar));
    const std::vector<std::string> results = run("evaluating", tasks, done.before, done.all);
    std::vector<Evaluated> allocated;
    tasks.clear();
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      Evaluated evaluated = evaluated_from(results[i]);
      if (is_beaten(evaluated, chosen[i])) continue;
      if (evaluated.timed || evaluated.verdict == Evaluated::Verdict::Failed) {
        add_allocated(evaluated);
        continue;
      }
      tasks.push_back(time_task({chosen[i].candidate, {}, chosen[i].step_low, chosen[i].step_high}));
      allocated.push_back(std::move(evaluated));
    }
    const std::vector<std::string> times = run("evaluating", tasks, done.before, done.all);
    for (std::size_t i = 0; i < allocated.size(); ++i) {
      const Evaluated timed = evaluated_from(times[i]);
      if (timed.verdict != Evaluated::Verdict::Fits) {
        add(timed);
        continue;
      }
      note_time(timed.found);
      set_time(timed.found.figures, allocated[i]);
      add_allocated(allocated[i]);
    }
  }

  bool is_beaten(const Evaluated& evaluated, Survivor survivor) {
    if (evaluated.verdict != Evaluated::Verdict::Beaten) return false;
    survivor.device_low = std::max(survivor.device_low, evaluated.found.figures.device_upper);
    beaten_.push_back(survivor);
    return true;
  }

  static void set_time(const Figures& timed, Evaluated& evaluated) {
    evaluated.found.figures.step = timed.step;
    evaluated.found.figures.throughput = timed.throughput;
    evaluated.miss.throughput = timed.throughput;
  }

  void add_allocated(const Evaluated& evaluated) {
    if (evaluated.verdict == Evaluated::Verdict::Fits && evaluated.asks_the_clock)
      asking_.insert(evaluated.found.candidate);
    add(evaluated);
  }

  // Of steps that were timed, all together. How near is near decides what is asked first, and no answer: a choice.
  void note_time(const Found& timed) {
    bounds_of_timed_ += timed.step_low;
    timed_steps_ += timed.figures.step;
  }
  [[nodiscard]] bool bounds_of_time_are_near() const {
    constexpr double near = 0.98;
    return timed_steps_ > Duration{} && seconds(bounds_of_timed_) >= near * seconds(timed_steps_);
  }

  // What devices hold by the clock takes a whole run, and may be more than was said. Only what would be recommended is
  // run; where it holds more, what it beat without that is looked at again.
  void ask_the_clock() {
    for (;;) {
      std::vector<Found> asking = standings_.recommended(standings_.best().size());
      std::erase_if(asking, [&](const Found& f) { return !asking_.contains(f.candidate); });
      if (asking.empty()) return;
      std::vector<std::string> tasks;
      for (const Found& f : asking) tasks.push_back(full_task(f.candidate));
      const std::vector<std::string> results = run("asking the clock", tasks, 0, std::ssize(tasks));
      bool otherwise = false;
      for (std::size_t i = 0; i < asking.size(); ++i) otherwise |= is_otherwise_by_clock(asking[i], results[i]);
      if (otherwise) look_again();
    }
  }

  bool is_otherwise_by_clock(const Found& said, const std::string& result) {
    asking_.erase(said.candidate);
    const auto its = std::ranges::find(timed_, said.candidate, &Found::candidate);
    const Evaluated whole = evaluated_from(result);
    Figures figures = said.figures;
    if (whole.verdict != Evaluated::Verdict::Failed) {
      const Figures& by_clock = whole.found.figures;
      figures.device_upper = std::max(figures.device_upper, by_clock.device_upper);
      figures.allocated = by_clock.allocated, figures.device = by_clock.device;
      figures.completed = by_clock.completed;
      Found known = said;
      known.figures = figures;
      compare(known, by_clock);
    }
    if (whole.verdict == Evaluated::Verdict::Fits) return std::exchange(its->figures, figures) != figures;
    timed_.erase(its);
    --plan_.tiers.timed;
    add(whole);
    return true;
  }

  // With what is known of those that were timed, once some of it is otherwise.
  void look_again() {
    standings_.clear();
    for (const Found& found : timed_) standings_.keep(found);
    const Bar bar = standings_.bar();
    std::vector<Survivor> again;
    std::erase_if(beaten_, [&](const Survivor& s) {
      const bool beaten = bar.beats(s.device_low, s.throughput_high);
      if (!beaten) again.push_back(s);
      return !beaten;
    });
    evaluate(std::move(again));
  }

  // What tiers have said of a candidate, and its whole run.
  void compare(const Found& said, const Figures& whole) {
    const bool same = whole == said.figures && said.step_low <= whole.step && whole.step <= said.step_high;
    if (!same) {
      plan_.disagreements.push_back(said.candidate);
      otherwise_[said.candidate] = whole;
    }
    ran_whole_.insert(said.candidate);
  }

  std::vector<Survivor> screen(std::int64_t first, std::int64_t count) {
    std::vector<std::string> tasks;
    for (std::int64_t at = first; at < first + count; at += screened_together)
      tasks.push_back(screen_task(at, std::min(screened_together, first + count - at), options_.top));
    std::vector<Survivor> survivors;
    const auto per_task = static_cast<std::int64_t>(screened_together);
    for (const std::string& result : run("bounding", tasks, first / per_task, plan_.combinations / per_task + 1)) {
      const Screened screened = screened_from(result);
      for (const auto& [reason, times] : screened.dropped) plan_.dropped[reason] += times;
      plan_.candidates += screened.candidates;
      plan_.tiers.bounded_rejected += screened.rejected;
      plan_.tiers.unbounded += screened.unbounded;
      std::copy_if(screened.survivors.begin(), screened.survivors.end(), std::back_inserter(survivors),
                   [&](const Survivor& s) { return !has_failed(s.candidate); });
      misses_.insert(misses_.end(), screened.nearest.begin(), screened.nearest.end());
      keep_nearest(misses_, options_.top);
    }
    return survivors;
  }

  [[nodiscard]] bool has_failed(std::int64_t candidate) const {
    return std::any_of(failed_in_full_.begin(), failed_in_full_.end(),
                       [&](const Failed& f) { return f.candidate == candidate; });
  }

  void add(const Evaluated& evaluated) {
    switch (evaluated.verdict) {
      case Evaluated::Verdict::Fits:
        ++plan_.tiers.timed;
        timed_.push_back(evaluated.found);
        standings_.keep(evaluated.found);
        break;
      case Evaluated::Verdict::DoesNotFit:
        ++plan_.tiers.allocator_rejected;
        misses_.push_back(evaluated.miss);
        keep_nearest(misses_, options_.top);
        break;
      case Evaluated::Verdict::Beaten:
        break;  // kept where it is seen
      case Evaluated::Verdict::Failed:
        add_failed(evaluated.failed);
        break;
    }
  }

  // What is recommended runs whole, without what the tiers leave out: the fastest and the smallest of it, and some
  // between; once one of them is other than its tiers say, all of it. False where some of it cannot: what it beat may
  // be the answer then.
  bool winners_run_in_full() {
    std::vector<Found> winners = standings_.recommended(1);
    const std::size_t recommended = winners.size();
    plan_.in_full = static_cast<std::int64_t>(
        std::erase_if(winners, [&](const Found& f) { return ran_whole_.contains(f.candidate); }));
    if (otherwise_.empty() && failed_in_full_.empty())
      winners = spread(std::move(winners), checked_in_full - std::min(checked_in_full, recommended - winners.size()));
    std::vector<std::string> tasks;
    for (const Found& f : winners) tasks.push_back(full_task(f.candidate));
    const std::vector<std::string> results =
        run("running winners in full", tasks, 0, static_cast<std::int64_t>(tasks.size()));
    const std::size_t failed_before = failed_in_full_.size();
    for (std::size_t i = 0; i < results.size(); ++i) {
      const Evaluated full = evaluated_from(results[i]);
      if (full.verdict == Evaluated::Verdict::Failed) {
        failed_in_full_.push_back(full.failed);
        continue;
      }
      ++plan_.in_full;
      compare(winners[i], full.found.figures);
    }
    if (failed_in_full_.size() > failed_before) return false;
    if (otherwise_.size() == corrected_) return true;
    if (plan_.candidates <= options_.most_in_full) {
      widen();
      return true;
    }
    correct();
    return winners_run_in_full();
  }

  // A tier was wrong, and candidates are too many to run them all: what is known better is told, and what is
  // recommended after that runs whole, too.
  void correct() {
    corrected_ = otherwise_.size();
    standings_.correct([&](Found& f) {
      const auto known = otherwise_.find(f.candidate);
      if (known == otherwise_.end()) return true;
      f.figures = known->second;
      return fits(std::get<Scenario>(candidate(space_, f.candidate)), f.figures);
    });
  }

  // Whether the order of the best rests on more than what their times may be off by. The candidates that
  // were beaten are left out: one that is slower by its bounds is so by the same errors.
  std::vector<TieAnalysis> tie_analyses_of_best() {
    if (plan_.best.size() < 2) return {};
    std::vector<std::string> tasks;
    for (const Found& f : plan_.best) tasks.push_back(parts_task(f.candidate, f.figures.step));
    const std::vector<std::string> results =
        run("comparing the best", tasks, 0, static_cast<std::int64_t>(tasks.size()));
    const StepParts first = parts_from(results.front());
    std::vector<TieAnalysis> tie_analyses;
    for (std::size_t i = 1; i < results.size(); ++i)
      tie_analyses.push_back(against_best(plan_.best[i], first, parts_from(results[i])));
    return tie_analyses;
  }

  // For as many tokens as the best has in a step.
  [[nodiscard]] TieAnalysis against_best(const Found& other, const StepParts& first, StepParts its) const {
    const Found& best = plan_.best.front();
    const double ratio = best.figures.throughput / other.figures.throughput;
    const auto step = static_cast<double>(best.figures.step.count());
    const double scale = step * ratio / static_cast<double>(other.figures.step.count());
    for (auto& [cause, part] : its) part.time = Duration{std::llround(static_cast<double>(part.time.count()) * scale)};
    return tie_analysis(other.candidate, Duration{std::llround(step * (ratio - 1))}, first, its);
  }

  // A tier was wrong: nothing but whole runs is believed any more.
  void widen() {
    plan_.all_in_full = true;
    timed_.clear();
    standings_.clear();
    misses_.clear();
    plan_.failed.clear();
    plan_.tiers.failed = 0;
    for (std::int64_t first = 0; first < plan_.combinations; first += screened_together) {
      const std::int64_t count = std::min(screened_together, plan_.combinations - first);
      std::vector<std::string> tasks;
      for (std::int64_t index = first; index < first + count; ++index)
        if (std::holds_alternative<Scenario>(candidate(space_, index))) tasks.push_back(full_task(index));
      for (const std::string& result : run("widening", tasks, first, plan_.combinations)) add(evaluated_from(result));
    }
  }

  const Space& space_;
  PlanOptions options_;
  TaskRunner& runner_;
  const PlanProgress& progress_;
  Plan plan_;
  Standings standings_;
  std::vector<Found> timed_;       // all of them
  std::vector<Survivor> beaten_;   // with the most that is known of their memory
  std::set<std::int64_t> asking_;  // of those timed, candidates that may hold more by the clock
  std::vector<Miss> misses_;
  std::vector<Failed> failed_in_full_;
  std::set<std::int64_t> ran_whole_;           // candidates
  std::map<std::int64_t, Figures> otherwise_;  // of those whose whole run says other than its tiers
  std::size_t corrected_ = 0;                  // of them
  Duration bounds_of_timed_, timed_steps_;     // their lower bounds, and what they take
};

}  // namespace

Plan plan(const Space& space, const PlanOptions& options, TaskRunner& runner, const PlanProgress& progress) {
  return Search(space, options, runner, progress).run();
}

Plan plan(const Space& space, const PlanOptions& options, const PlanProgress& progress) {
  const std::unique_ptr<TaskRunner> runner = thread_runner(task_function(space));
  return plan(space, options, *runner, progress);
}

}  // namespace tidemark::scenarios
