#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/scenarios/folders.hpp"

// Spaces small enough to run every combination through `predict`, and what that says beside what `plan` finds.

namespace tidemark::tests {

/// A small space: what is written before the axes, and by axis a key and its values as TOML writes them.
struct SmallSpace {
  std::string top, train;
  std::vector<std::pair<std::string, std::vector<std::string>>> axes;  // "layout.tensor"

  [[nodiscard]] std::string space_text() const {
    std::string axes_text;
    for (const auto& [key, values] : axes) axes_text += fmt::format("{} = [{}]\n", key, fmt::join(values, ", "));
    return top + "[train]\n" + train + "[space]\n" + axes_text;
  }
  [[nodiscard]] std::string scenario_text(const std::vector<std::size_t>& chosen) const {
    std::string dotted;  // dotted keys of the top come before any table
    for (std::size_t a = 0; a < axes.size(); ++a)
      if (!axes[a].first.starts_with("train."))
        dotted += fmt::format("{} = {}\n", axes[a].first, axes[a].second[chosen[a]]);
    std::string in_train;
    for (std::size_t a = 0; a < axes.size(); ++a)
      if (axes[a].first.starts_with("train."))
        in_train += fmt::format("{} = {}\n", axes[a].first.substr(6), axes[a].second[chosen[a]]);
    return top + dotted + "[train]\n" + in_train + train;
  }
};

/// One that fits, as `predict` says it.
struct Fitting {
  std::string text;
  Bytes upper;
  double throughput = 0;
};

/// Every combination through `predict`, by itself: no bound, no sharing, no order of ours.
inline std::vector<Fitting> brute_force(const SmallSpace& space) {
  std::vector<Fitting> found;
  std::vector<std::size_t> at(space.axes.size(), 0);
  for (;;) {
    const std::string text = space.scenario_text(at);
    try {
      const Prediction p =
          predict(parse_scenario(text, "one.toml", folders), {}, {.reported = PredictionDetail::Figures});
      if (p.fits) found.push_back({text, p.highest().memory.peak_device_upper, p.step.tokens_per_s_per_device});
    } catch (const InputError&) {
      // No layout.
    }
    std::size_t a = 0;
    while (a < at.size() && ++at[a] == space.axes[a].second.size()) at[a++] = 0;
    if (a == at.size()) return found;
  }
}

inline Space space_of(const SmallSpace& small, const std::vector<std::string>& with = {}) {
  return space_of(parse_toml(small.space_text(), "small"), "small", folders, with);
}

using Point = std::pair<std::int64_t, double>;  // bytes, throughput

inline void expect_as_by_brute_force(const Plan& found, const std::vector<Fitting>& all) {
  ASSERT_EQ(found.best.empty(), all.empty());
  EXPECT_TRUE(found.disagreements.empty());
  if (all.empty()) return;
  const auto best = std::max_element(all.begin(), all.end(), [](const Fitting& a, const Fitting& b) {
    return a.throughput != b.throughput ? a.throughput < b.throughput : a.upper > b.upper;
  });
  EXPECT_EQ(found.best.front().figures.throughput, best->throughput);
  EXPECT_EQ(found.best.front().figures.device_upper, best->upper);

  std::set<Point> front, theirs;
  for (const Fitting& f : all) {
    const bool beaten = std::any_of(all.begin(), all.end(), [&](const Fitting& g) {
      return g.upper <= f.upper && g.throughput >= f.throughput && (g.upper < f.upper || g.throughput > f.throughput);
    });
    if (!beaten) front.insert({f.upper.count(), f.throughput});
  }
  for (const Found& f : found.front) theirs.insert({f.figures.device_upper.count(), f.figures.throughput});
  EXPECT_EQ(theirs, front);
  EXPECT_EQ(found.front.size(), front.size());
}

}  // namespace tidemark::tests
