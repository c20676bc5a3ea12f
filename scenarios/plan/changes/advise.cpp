#include "scenarios/plan/changes/advise.hpp"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/quantity.hpp"
#include "scenarios/plan/changes/changes.hpp"
#include "scenarios/plan/evaluate.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/plan/same_job.hpp"
#include "scenarios/predict/prediction.hpp"
#include "sim/base/in_parallel.hpp"

namespace tidemark::scenarios {
namespace {

/// Which value each axis has; 0 where nothing is changed.
using Values = std::vector<std::size_t>;

bool contains(const Values& large, const Values& small) {
  for (std::size_t a = 0; a < large.size(); ++a)
    if (small[a] != 0 && small[a] != large[a]) return false;
  return true;
}

// Every choice of so many axes, and of a new value for each, that holds none of those that are enough.
class Choices {
 public:
  Choices(const Space& space, const std::vector<Values>& enough) : space_(space), enough_(enough) {}

  std::vector<Values> of(std::size_t axes) && {
    now_.assign(space_.axes.size(), 0);
    choose(0, axes);
    return std::move(sets_);
  }

 private:
  void choose(std::size_t axis, std::size_t left) {
    if (left == 0) {
      if (std::none_of(enough_.begin(), enough_.end(), [&](const Values& small) { return contains(now_, small); }))
        sets_.push_back(now_);
      return;
    }
    if (axis + left > space_.axes.size()) return;
    choose(axis + 1, left);
    for (std::size_t v = 1; v < space_.axes[axis].values.size(); ++v) {
      now_[axis] = v;
      choose(axis + 1, left - 1);
    }
    now_[axis] = 0;
  }

  const Space& space_;
  const std::vector<Values>& enough_;
  Values now_;
  std::vector<Values> sets_;
};

std::int64_t number_of(const Space& space, const Values& values) {
  std::int64_t number = 0;
  for (std::size_t a = 0; a < values.size(); ++a)
    number = number * static_cast<std::int64_t>(space.axes[a].values.size()) + static_cast<std::int64_t>(values[a]);
  return number;
}

// What a candidate comes to; nothing where it is none, or is rejected or cannot be judged.
std::optional<Evaluated> simulated(Evaluator& evaluator, std::int64_t candidate) {
  const Screened screened = evaluator.screen(candidate, 1, 1);
  if (screened.survivors.empty()) return std::nullopt;
  Evaluated e = evaluator.allocate(screened.survivors.front(), {});
  if (e.verdict == Evaluated::Verdict::Fits && !e.timed) e = evaluator.time(e.found);
  if (e.verdict == Evaluated::Verdict::Failed) return std::nullopt;
  return e;
}

std::vector<std::string> texts(const Space& space, const Values& values) {
  std::vector<std::string> changes;
  for (std::size_t a = 0; a < values.size(); ++a) {
    if (values[a] == 0) continue;
    const Axis& axis = space.axes[a];
    changes.push_back(fmt::format("{}: {} -> {}", axis.name, axis.values[0].text, axis.values[values[a]].text));
  }
  return changes;
}

Remedy remedy(const Space& space, std::size_t of_training, const Values& values, const Found& found) {
  const auto its = values.begin() + static_cast<std::ptrdiff_t>(of_training);
  return {texts(space, values), std::any_of(its, values.end(), [](std::size_t v) { return v != 0; }), found};
}

bool only_hosts_lack(const Evaluated& e) {
  return e.verdict == Evaluated::Verdict::DoesNotFit && e.miss.lacks <= Bytes{} && e.miss.host_lacks > Bytes{};
}

std::size_t changes_in(const Values& values) {
  return values.size() - static_cast<std::size_t>(std::count(values.begin(), values.end(), std::size_t{0}));
}

std::optional<Scenario> job_of(const Space& space, const Values& values) {
  const auto made = candidate(space, number_of(space, values));
  const auto* scenario = std::get_if<Scenario>(&made);
  return scenario == nullptr ? std::nullopt : std::optional(same_job(*scenario));
}

// Sets of changes that say one thing in several words (more layers recomputed than a stage has) count once.
class Twins {
 public:
  Twins(const Space& space, const std::vector<Values>& enough) : space_(space), enough_(enough) {}

  /// Whether a set that does it was there before in other words, or is another set in other words that holds a smaller
  /// one that does it.
  bool has(const Values& values, const Found& found) {
    const std::optional<Scenario> job = job_of(space_, values);
    const Values axes = axes_of(values);
    const bool known = std::any_of(reported_.begin(), reported_.end(), [&](const PredictionDetail& reported) {
      return reported.job == job || (reported.axes == axes && reported.figures == found.figures);
    });
    if (known || is_larger(values, job)) return true;
    reported_.push_back({job, axes, found.figures});
    return false;
  }

 private:
  struct PredictionDetail {
    std::optional<Scenario> job;
    Values axes;
    Figures figures;
  };

  static Values axes_of(const Values& values) {
    Values changed;
    for (std::size_t a = 0; a < values.size(); ++a)
      if (values[a] != 0) changed.push_back(a);
    return changed;
  }

  [[nodiscard]] bool is_larger(const Values& values, const std::optional<Scenario>& job) const {
    Values other = values;
    for (const std::size_t a : axes_of(values)) {
      for (std::size_t v = 1; v < space_.axes[a].values.size(); ++v) {
        other[a] = v;
        const auto smaller = [&](const Values& small) {
          return changes_in(small) < changes_in(other) && contains(other, small);
        };
        if (v != values[a] && std::any_of(enough_.begin(), enough_.end(), smaller) && job_of(space_, other) == job)
          return true;
      }
      other[a] = values[a];
    }
    return false;
  }

  const Space& space_;
  const std::vector<Values>& enough_;
  std::vector<PredictionDetail> reported_;
};

// To need so much less is to fit with so much more headroom. What is merely kept in the cache gives way by itself.
void ask_for_free_memory(Bytes free, const Scenario& scenario, Advice& advice) {
  const Bytes target = std::max(advice.required - free, Bytes{1});
  const Bytes headroom = scenario.cluster.device.capacity - target;
  Space with = advice.space;
  with.axes = {{"headroom", {{"", {{{"runtime", "headroom"}, {text(headroom), {}}}}}}}};
  advice.space.base = with.document(0);
}

std::vector<std::optional<Evaluated>> tried(Evaluator& evaluator, const Space& space, const std::vector<Values>& sets,
                                            std::size_t changes, const PlanProgress& progress) {
  std::vector<std::optional<Evaluated>> found(sets.size());
  std::mutex reporting;
  std::int64_t done = 0;
  in_parallel(0, sets.size(), [&](std::size_t i) {
    found[i] = simulated(evaluator, number_of(space, sets[i]));
    const std::lock_guard lock(reporting);
    if (progress)
      progress(fmt::format("trying {} changes at once", changes), ++done, static_cast<std::int64_t>(sets.size()));
  });
  return found;
}

// Those that leave the training as it is first, then those of few changes.
void sort_remedies(std::vector<Remedy>& remedies) {
  std::sort(remedies.begin(), remedies.end(), [](const Remedy& a, const Remedy& b) {
    if (a.changes_training != b.changes_training) return b.changes_training;
    return a.changes.size() != b.changes.size() ? a.changes.size() < b.changes.size() : better(a.found, b.found);
  });
}

bool trains_the_same(const std::vector<Remedy>& remedies) {
  return std::ranges::any_of(remedies, [](const Remedy& its) { return !its.changes_training; });
}

}  // namespace

Advice advise(TomlTable document, const std::filesystem::path& file, const ScenarioFolders& folders,
              const AdviseOptions& options, const PlanProgress& progress) {
  Advice advice;
  const Scenario scenario = resolved_scenario(scenario_of(document, file, folders));
  const Prediction now = predict(scenario);
  advice.now = figures_of(now);
  advice.required = now.most_required().required.upper;
  advice.lacks = memory_shortfall(scenario, advice.required);
  advice.host_lacks = host_memory_shortfall(scenario, advice.now);
  advice.space = {file.stem().string(), std::move(document), folders, {}, {}};
  Space& space = advice.space;
  space.files = files_of(space.base, file, folders);
  if (options.free) {
    ask_for_free_memory(*options.free, scenario, advice);
  } else if (fits(scenario, advice.now)) {
    advice.fits = true;
    return advice;
  }
  Changes changes = changes_of(space.base, scenario);
  const std::size_t of_training = changes.of_job.size();
  space.axes = std::move(changes.of_job);
  std::move(changes.of_training.begin(), changes.of_training.end(), std::back_inserter(space.axes));

  Evaluator evaluator(space);
  // Bounds do not know what is on hosts: where they know the rest, it is tried in small sets only, each in full.
  constexpr std::size_t most_with_hosts = 2;
  const bool bounded = Bounder::has_bounds(scenario);
  const auto offload =
      static_cast<std::size_t>(std::ranges::find(space.axes, "offload", &Axis::name) - space.axes.begin());
  const auto is_too_large = [&](const Values& set) {
    return bounded && offload < set.size() && set[offload] != 0 && changes_in(set) > most_with_hosts;
  };
  std::vector<Values> enough, too_much;
  Twins twins(space, enough);
  constexpr std::size_t most = 3;
  for (std::size_t count = 1; count <= std::min(options.most_changes.value_or(most), space.axes.size()); ++count) {
    if (!options.most_changes && trains_the_same(advice.remedies)) {
      advice.not_tried = count;
      break;
    }
    std::vector<Values> sets = Choices(space, enough).of(count);
    std::erase_if(sets, is_too_large);
    const std::vector<std::optional<Evaluated>> found = tried(evaluator, space, sets, count, progress);
    advice.tried += static_cast<std::int64_t>(sets.size());
    for (std::size_t i = 0; i < sets.size(); ++i) {
      if (!found[i]) continue;
      if (found[i]->verdict == Evaluated::Verdict::Fits) {
        const Found& its = found[i]->found;
        if (!twins.has(sets[i], its)) advice.remedies.push_back(remedy(space, of_training, sets[i], its));
        enough.push_back(sets[i]);
      } else if (advice.host_lacks <= Bytes{} && only_hosts_lack(*found[i]) &&
                 std::none_of(too_much.begin(), too_much.end(),
                              [&](const Values& small) { return contains(sets[i], small); })) {
        advice.for_hosts.push_back({texts(space, sets[i]), found[i]->miss.host_lacks});
        too_much.push_back(sets[i]);
      }
    }
  }
  sort_remedies(advice.remedies);
  return advice;
}

}  // namespace tidemark::scenarios
