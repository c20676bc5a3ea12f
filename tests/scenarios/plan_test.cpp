#include "scenarios/plan/plan.hpp"

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>

#include "scenarios/io/input_error.hpp"
#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/io/toml_text.hpp"
#include "scenarios/plan/space.hpp"
#include "scenarios/prediction.hpp"
#include "scenarios/report/plan_text.hpp"

namespace tidemark {
namespace {

const std::filesystem::path source = TIDEMARK_SOURCE_DIR;
const ScenarioFolders folders{source / "scenarios/examples", source / "scenarios"};

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

/// Some values of a list, at least one, in order.
std::vector<std::string> some(std::mt19937& random, const std::vector<std::string>& values, std::size_t most) {
  std::vector<std::string> chosen = values;
  const std::size_t keep = random() % 2 == 0 ? values.size() : 1 + random() % std::min(most, values.size());
  while (chosen.size() > keep) chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(random() % chosen.size()));
  return chosen;
}

SmallSpace small_space(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<std::string>& values) { return values[random() % values.size()]; };
  SmallSpace space;
  const std::string layers = pick({"2", "4", "6"});
  space.top = fmt::format(
      "model = \"models/{}.json\"\ncluster = \"clusters/{}.toml\"\ngpus = {}\nmodel_override.num_hidden_layers = {}\n",
      pick({"llama-3.1-8b", "qwen2.5-7b", "llama-2-7b"}),
      pick({"rtx-4090-24g", "a100-sxm-40g", "h100-sxm-80g", "rtx-3080-10g"}), pick({"4", "8", "16"}), layers);
  space.train = fmt::format(
      "sequence_length = {}\nglobal_batch = {}\ncross_entropy = \"te\"\nhidden_dropout = 0.0\nattention_dropout = "
      "0.0\n",
      pick({"1024", "2048", "4096"}), pick({"16", "32"}));
  space.axes = {{"layout.tensor", some(random, {"1", "2", "4"}, 3)},
                {"layout.pipeline", some(random, {"1", "2", "4"}, 2)},
                {"layout.sequence_parallel", some(random, {"false", "true"}, 2)},
                {"layout.sharding", some(random, {"\"none\"", "\"zero1\""}, 2)},
                {"train.micro_batch", some(random, {"1", "2", "3"}, 2)}};
  if (random() % 2 == 0) space.axes.push_back({"layout.chunks", some(random, {"1", "2"}, 2)});
  if (random() % 2 == 0) space.axes.push_back({"train.recompute", some(random, {"\"none\"", "\"full\""}, 2)});
  if (random() % 3 == 0) space.axes.push_back({"train.gradient_dtype", {"\"fp32\"", "\"bf16\""}});
  if (random() % 3 == 0) space.axes.push_back({"layout.order", {"\"tp-cp-ep-dp-pp\"", "\"tp-cp-ep-pp-dp\""}});
  return space;
}

/// One that fits, as `predict` says it.
struct Fitting {
  std::string text;
  Bytes upper;
  double throughput = 0;
};

/// Every combination through `predict`, by itself: no bound, no sharing, no order of ours.
std::vector<Fitting> brute_force(const SmallSpace& space) {
  std::vector<Fitting> found;
  std::vector<std::size_t> at(space.axes.size(), 0);
  for (;;) {
    const std::string text = space.scenario_text(at);
    try {
      const Prediction p = predict(parse_scenario(text, "one.toml", folders));
      if (p.fits) found.push_back({text, p.highest().memory.peak_device_upper, p.step.tokens_per_s_per_device});
    } catch (const InputError&) {
      // No layout.
    }
    std::size_t a = 0;
    while (a < at.size() && ++at[a] == space.axes[a].second.size()) at[a++] = 0;
    if (a == at.size()) return found;
  }
}

Space space_of(const SmallSpace& small) { return space_of(parse_toml(small.space_text(), "small"), "small", folders); }

using Point = std::pair<std::int64_t, double>;  // bytes, throughput

TEST(Plan, FindsTheWinnerAndTheFrontThatBruteForceFinds) {
  int with_answers = 0;
  for (std::uint32_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    const SmallSpace small = small_space(seed);
    const std::vector<Fitting> all = brute_force(small);
    const Plan found = plan(space_of(small), {});
    ASSERT_EQ(found.best.empty(), all.empty());
    if (all.empty()) continue;
    ++with_answers;

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
  EXPECT_GE(with_answers, 12);
}

TEST(Plan, CountsEveryCombinationOnce) {
  const Plan found = plan(space_of(small_space(3)), {});
  std::int64_t dropped = 0;
  for (const auto& [reason, count] : found.dropped) dropped += count;
  EXPECT_EQ(found.combinations, dropped + found.candidates);
}

TEST(Plan, SaysTheSameWhateverTheNumberOfThreads) {
  const auto with_threads = [&](std::size_t threads) {
    const oneapi::tbb::global_control limit(oneapi::tbb::global_control::max_allowed_parallelism, threads);
    std::string all;
    for (std::uint32_t seed = 1; seed <= 6; ++seed) {
      const Space space = space_of(small_space(seed));
      const Plan found = plan(space, {});
      all += plan_text(space, found) + plan_json(space, found) + plan_csv(space, found);
    }
    return all;
  };
  EXPECT_EQ(with_threads(1), with_threads(2));
}

TEST(Space, ACandidateWrittenAsAFileIsTheCandidate) {
  int read = 0;
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    const Space space = space_of(small_space(seed));
    for (std::int64_t i = 0; i < space.size(); ++i) {
      const auto made = candidate(space, i);
      const auto* scenario = std::get_if<Scenario>(&made);
      if (scenario == nullptr) continue;
      Scenario again = settled(parse_scenario(toml_text(space.document(i)), "again.toml", folders));
      again.name = scenario->name;
      EXPECT_EQ(again, *scenario);
      ++read;
    }
  }
  EXPECT_GT(read, 50);
}

TEST(Space, AnAxisTakesAListOfValues) {
  const std::string text = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 16
[space.layout]
tensor = 4
)";
  try {
    (void)space_of(parse_toml(text, "bad.toml"), "bad.toml", folders);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "bad.toml:9:10: error: the axis layout.tensor takes a list of values, not 4\n"
                 "  hint: such as tensor = [4]");
  }
}

TEST(Space, TwoAxesDoNotSetOneKey) {
  const std::string text = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 16
[space]
layout.tensor = [1, 2]
both = [{layout.tensor = 1, layout.pipeline = 2}]
)";
  EXPECT_THROW((void)space_of(parse_toml(text, "bad.toml"), "bad.toml", folders), InputError);
}

}  // namespace
}  // namespace tidemark
