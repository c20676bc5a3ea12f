#include "scenarios/plan/advise.hpp"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <oneapi/tbb/parallel_for.h>

#include "scenarios/io/quantity.hpp"
#include "scenarios/plan/changes.hpp"
#include "scenarios/plan/evaluate.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/prediction.hpp"

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

// What a candidate comes to, if it fits.
std::optional<Found> simulated(Evaluator& evaluator, std::int64_t candidate) {
  const Screened screened = evaluator.screen(candidate, 1, 1);
  if (screened.survivors.empty()) return std::nullopt;
  Evaluated e = evaluator.allocate(screened.survivors.front(), {});
  if (e.verdict == Evaluated::Verdict::Fits && !e.timed) e = evaluator.time(e.found);
  if (e.verdict != Evaluated::Verdict::Fits) return std::nullopt;
  return e.found;
}

Remedy remedy(const Space& space, std::size_t of_training, const Values& values, const Found& found) {
  Remedy made{{}, false, found};
  for (std::size_t a = 0; a < values.size(); ++a) {
    if (values[a] == 0) continue;
    const Axis& axis = space.axes[a];
    made.changes.push_back(fmt::format("{}: {} -> {}", axis.name, axis.values[0].text, axis.values[values[a]].text));
    made.changes_training |= a >= of_training;
  }
  return made;
}

// Values of the same axes that come to the same figures (more layers recomputed than a stage has) count once.
bool is_another(const Space& space, const std::vector<Remedy>& remedies, const Values& values, const Found& found) {
  const auto axes_of = [](const Values& of) {
    Values changed;
    for (std::size_t a = 0; a < of.size(); ++a)
      if (of[a] != 0) changed.push_back(a);
    return changed;
  };
  return std::any_of(remedies.begin(), remedies.end(), [&](const Remedy& r) {
    return r.found.figures == found.figures && axes_of(space.values_of(r.found.candidate)) == axes_of(values);
  });
}

}  // namespace

Advice advise(TomlTable document, const std::filesystem::path& file, const ScenarioFolders& folders,
              const AdviseOptions& options, const PlanProgress& progress) {
  Advice advice;
  const Scenario scenario = settled(scenario_of(document, file, folders));
  advice.now = figures_of(predict(scenario));
  advice.lacks = lack(scenario, advice.now.device_upper);
  advice.space = {file.stem().string(), std::move(document), folders, {}, {}};
  Space& space = advice.space;
  space.files = files_of(space.base, file, folders);
  if (options.free) {
    // To hold so much less is to fit with so much more headroom.
    const Bytes target = std::max(advice.now.device_upper - *options.free, Bytes{1});
    const Bytes headroom = scenario.cluster.device.capacity - target;
    Space with = space;
    with.axes = {{"headroom", {{"", {{{"runtime", "headroom"}, {text(headroom), {}}}}}}}};
    space.base = with.document(0);
  } else if (fits(scenario, advice.now)) {
    advice.fits = true;
    return advice;
  }
  Changes changes = changes_of(space.base, scenario);
  const std::size_t of_training = changes.of_job.size();
  space.axes = std::move(changes.of_job);
  std::move(changes.of_training.begin(), changes.of_training.end(), std::back_inserter(space.axes));

  Evaluator evaluator(space);
  std::vector<Values> enough;
  for (std::size_t count = 1; count <= std::min(options.most_changes, space.axes.size()); ++count) {
    const std::vector<Values> sets = Choices(space, enough).of(count);
    std::vector<std::optional<Found>> found(sets.size());
    std::mutex reporting;
    std::int64_t done = 0;
    oneapi::tbb::parallel_for(std::size_t{0}, sets.size(), [&](std::size_t i) {
      found[i] = simulated(evaluator, number_of(space, sets[i]));
      const std::lock_guard lock(reporting);
      if (progress)
        progress(fmt::format("trying {} changes at once", count), ++done, static_cast<std::int64_t>(sets.size()));
    });
    advice.tried += static_cast<std::int64_t>(sets.size());
    for (std::size_t i = 0; i < sets.size(); ++i) {
      if (!found[i]) continue;
      if (!is_another(space, advice.remedies, sets[i], *found[i]))
        advice.remedies.push_back(remedy(space, of_training, sets[i], *found[i]));
      enough.push_back(sets[i]);
    }
  }
  std::sort(advice.remedies.begin(), advice.remedies.end(), [](const Remedy& a, const Remedy& b) {
    return a.changes_training != b.changes_training ? b.changes_training : better(a.found, b.found);
  });
  return advice;
}

}  // namespace tidemark::scenarios
