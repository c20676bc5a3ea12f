#include "scenarios/plan/plan.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/internal_error.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/plan/bounds/exact_memory.hpp"
#include "scenarios/plan/bounds/pack.hpp"
#include "scenarios/plan/detail/task_texts.hpp"
#include "scenarios/plan/evaluate.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/plan/front.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/plan/tasks.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/text/plan_text.hpp"
#include "tests/scenarios/small_space.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::plan_test {
namespace {

using namespace literals;

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
  const std::string layers = pick({"2", "4"});
  space.top = fmt::format(
      "model = \"models/{}.json\"\ncluster = \"clusters/{}.toml\"\ngpus = {}\nmodel_override.num_hidden_layers = {}\n",
      pick({"llama-3.1-8b", "qwen2.5-7b", "llama-2-7b"}),
      pick({"rtx-4090-24g", "a100-sxm-40g", "h100-sxm-80g", "rtx-3080-10g"}), pick({"4", "8"}), layers);
  space.train = fmt::format(
      "sequence_length = {}\nglobal_batch = {}\ncross_entropy = \"te\"\nhidden_dropout = 0.0\nattention_dropout = "
      "0.0\n",
      pick({"1024", "2048", "4096"}), "16");
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

/// Small spaces by their seeds, one a test: brute force takes a while where sanitizers watch.
class SmallSpaces : public testing::TestWithParam<std::uint32_t> {
 protected:
  void expect_answers(const std::vector<Fitting>& all) const {
    const std::set<std::uint32_t> without_answers{2, 5, 17, 20};
    EXPECT_EQ(all.empty(), without_answers.contains(GetParam()));
  }
};
class SmallSpacesWithSettings : public SmallSpaces {};

TEST_P(SmallSpaces, FindsTheWinnerAndTheFrontThatBruteForceFinds) {
  const SmallSpace small = small_space(GetParam());
  const std::vector<Fitting> all = brute_force(small);
  expect_as_by_brute_force(plan(space_of(small), {}), all);
  expect_answers(all);
}
INSTANTIATE_TEST_SUITE_P(Plan, SmallSpaces, testing::Range(1U, 25U, seed_step()));

// What divides experts, and what divides sequences.
SmallSpace small_space_of_parts(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<std::string>& values) { return values[random() % values.size()]; };
  SmallSpace space;
  const bool experts = seed % 3 != 0;
  space.top = fmt::format(
      "model = \"models/{}.json\"\ncluster = \"clusters/{}.toml\"\ngpus = 8\nmodel_override.num_hidden_layers = {}\n",
      experts ? pick({"deepseek-v2-lite", "mixtral-8x7b", "qwen3-30b-a3b"}) : pick({"llama-3.1-8b", "qwen2.5-7b"}),
      experts ? pick({"h100-sxm-80g", "h200-sxm-141g"}) : pick({"a100-sxm-40g", "h100-sxm-80g"}),
      experts ? "2" : pick({"2", "4"}));
  space.train = fmt::format(
      "sequence_length = {}\nmicro_batch = 1\nglobal_batch = 16\ncross_entropy = \"te\"\nhidden_dropout = 0.0\n"
      "attention_dropout = 0.0\n",
      pick({"512", "1024"}));
  space.axes = {{"layout.pipeline", some(random, {"1", "2"}, 2)},
                {"layout.sequence_parallel", {"true"}},
                {"layout.tensor", {"1", "2"}},
                {"layout.context", some(random, {"1", "2"}, 2)},
                {"layout.sharding", some(random, {"\"none\"", "\"zero1\""}, 2)}};
  if (experts) {
    space.axes.push_back({"layout.expert", some(random, {"1", "2", "4"}, 3)});
    space.axes.push_back({"layout.expert_tensor", {"1", "2"}});
    const std::vector<std::pair<std::string, std::vector<std::string>>> switches{
        {"moe-permute-fusion", {"false", "true"}},
        {"moe-router-load-balancing-type", {"\"aux_loss\"", "\"seq_aux_loss\""}},
        {"moe-aux-loss-coeff", {"0.0", "0.01"}}};
    const auto& [name, values] = switches[seed / 2 % switches.size()];
    space.axes.push_back({"runtime.switches." + name, values});
    if (random() % 2 == 0) space.axes.push_back({"moe.imbalance", {"1.0", "1.5"}});
    if (random() % 2 == 0) space.axes.push_back({"moe.capacity_factor", {"1.0", "1.5"}});
  } else {
    space.axes.push_back({"layout.context_kind", {"\"p2p\"", "\"all_gather\"", "\"a2a\""}});
  }
  if (random() % 2 == 0) space.axes.push_back({"train.recompute", some(random, {"\"none\"", "\"full\""}, 2)});
  return space;
}

class SmallSpacesOfParts : public testing::TestWithParam<std::uint32_t> {};

TEST_P(SmallSpacesOfParts, FindTheWinnerAndTheFrontThatBruteForceFinds) {
  const SmallSpace small = small_space_of_parts(GetParam());
  const std::vector<Fitting> all = brute_force(small);
  EXPECT_FALSE(all.empty());
  const Plan found = plan(space_of(small), {});
  EXPECT_EQ(found.tiers.unbounded, 0);
  expect_as_by_brute_force(found, all);
}
// Not the first by push: it takes 30 s, and the other two there 11 s together.
INSTANTIATE_TEST_SUITE_P(Plan, SmallSpacesOfParts, testing::Range(every_case() ? 1U : 5U, 10U, seed_step()));

// The axes that are asked for by name, written out for brute force.
TEST_P(SmallSpacesWithSettings, FindsTheSameWithTheAllocatorsSettings) {
  const SmallSpace small = small_space(GetParam());
  SmallSpace whole = small;
  whole.axes.push_back({"runtime.allocator", {"\"\"", "\"expandable_segments:True\""}});
  const std::vector<Fitting> all = brute_force(whole);
  const Space space = space_of(small, {"allocator"});
  EXPECT_EQ(space.size(), 2 * space_of(small).size());
  expect_as_by_brute_force(plan(space, {}), all);
  expect_answers(all);
}
INSTANTIATE_TEST_SUITE_P(Plan, SmallSpacesWithSettings, testing::Values(2U, 4U, 8U, 12U));

TEST(Plan, FindsTheSameWithAllRuntimes) {
  SmallSpace small;
  small.top =
      "model = \"models/qwen2.5-7b.json\"\ncluster = \"clusters/a100-sxm-40g.toml\"\ngpus = 4\n"
      "model_override.num_hidden_layers = 2\n";
  small.train = "sequence_length = 1024\nglobal_batch = 8\nhidden_dropout = 0.0\nattention_dropout = 0.0\n";
  small.axes = {{"layout.tensor", {"1", "2"}}, {"train.micro_batch", {"1", "2"}}};
  SmallSpace whole = small;
  std::vector<std::string> names;
  for (const RuntimeKind& kind : runtimes())
    if (kind.id != RuntimeId::TorchTitan) names.push_back(fmt::format("\"{}\"", kind.name));
  const auto others = static_cast<std::int64_t>(names.size()) - 1;
  whole.axes.push_back({"runtime.name", names});
  const std::vector<Fitting> all = brute_force(whole);
  const Plan found = plan(space_of(small, {"runtime"}), {});
  const auto fitting = [&](const char* runtime) {
    return std::count_if(all.begin(), all.end(), [&](const Fitting& f) { return f.text.find(runtime) != f.text.npos; });
  };
  EXPECT_EQ(fitting("megatron"), 4);
  EXPECT_EQ(fitting("pytorch"), 1);                    // it cuts no layers, and fits at upper ends with one sequence
  EXPECT_EQ(found.tiers.unbounded, 2 * (others - 1));  // DeepSpeed is asked for by its stage, which is left out
  EXPECT_EQ(found.dropped.at("tensor: plain PyTorch cuts no layers"), 2 * others);
  expect_as_by_brute_force(found, all);
}

// Sharded runtimes and their own axes run in full: sharding, groups, prefetching, recomputation, micro-batches.
TEST(Plan, FindsTheSameAmongShardedRuntimes) {
  SmallSpace small;
  small.top =
      "model = \"models/qwen2.5-7b.json\"\ncluster = \"clusters/a100-sxm-40g.toml\"\ngpus = 4\n"
      "model_override.num_hidden_layers = 2\n";
  small.train = "sequence_length = 1024\nglobal_batch = 8\nhidden_dropout = 0.0\nattention_dropout = 0.0\n";
  small.axes = {{"runtime.name", {"\"fsdp2\"", "\"fsdp\""}},
                {"layout.sharding", {"\"none\"", "\"zero2\"", "\"zero3\""}},
                {"train.recompute", {"\"none\"", "\"full\""}},
                {"train.micro_batch", {"1", "2"}}};
  const std::vector<Fitting> all = brute_force(small);
  const Plan found = plan(space_of(small), {});
  EXPECT_GT(all.size(), 0u);
  EXPECT_EQ(found.tiers.unbounded, 20);
  expect_as_by_brute_force(found, all);
}

// Whole runs of two winners go wrong: one makes programs that are not sound, one deadlocks.
TEST(Plan, CandidatesThatCannotBeJudgedDoNotEndTheSearch) {
  const Space space = space_of(small_space(3));
  const std::vector<Found> sound = plan(space, {}).best;
  ASSERT_GT(sound.size(), 2u);
  const auto is = [&](std::size_t place, const Scenario& s) {
    return std::get<Scenario>(candidate(space, sound[place].candidate)) == s;
  };
  const auto whole_run = [&](const Scenario& s) {
    if (is(0, s)) throw InternalError(s.name, {"op 7: free b3: b3 is already freed"});
    Figures figures = whole_figures(s);
    figures.deadlocks = is(1, s);
    return figures;
  };
  const Plan found = plan(space, {}, *thread_runner(task_function(std::make_shared<Evaluator>(space, whole_run))));
  ASSERT_EQ(found.failed.size(), 2u);
  EXPECT_EQ(found.tiers.failed, 2);
  EXPECT_EQ(found.failed[0].candidate, sound[0].candidate);
  EXPECT_NE(found.failed[0].why.find("op 7"), std::string::npos);
  EXPECT_EQ(found.failed[1].candidate, sound[1].candidate);
  EXPECT_NE(found.failed[1].why.find("deadlocks"), std::string::npos);
  EXPECT_EQ(found.best.front(), sound[2]);
  EXPECT_TRUE(found.disagreements.empty());
  EXPECT_NE(plan_text(space, found).find("2  cannot be judged"), std::string::npos);
  std::int64_t dropped = 0;
  for (const auto& [reason, count] : found.dropped) dropped += count;
  EXPECT_EQ(found.combinations, dropped + found.candidates);
}

// Found by whole runs of all candidates, and what no other beats of it.
std::vector<Found> whole_front(const Space& space, const WholeRun& run) {
  std::vector<Found> all;
  for (std::int64_t c = 0; c < space.size(); ++c) {
    const auto made = candidate(space, c);
    const auto* scenario = std::get_if<Scenario>(&made);
    if (scenario == nullptr) continue;
    const Figures figures = run(*scenario);
    if (fits(*scenario, figures)) all.push_back({c, figures, {}, {}});
  }
  return pareto_front(all);
}

std::set<std::pair<std::int64_t, double>> points_of(const std::vector<Found>& front) {
  std::set<std::pair<std::int64_t, double>> points;
  for (const Found& f : front) points.insert({f.figures.device_upper.count(), f.figures.throughput});
  return points;
}

// Interleaved schedules hold what they send, by the clock, and here far more than without it.
TEST(Plan, LooksAgainAtWhatWasBeatenByWhatHoldsMoreByTheClock) {
  SmallSpace small;
  small.top =
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
      "model_override.num_hidden_layers = 8\nruntime.versions = { megatron = \"0.13\", torch = \"2.7\" }\n";
  small.train =
      "sequence_length = 1024\nglobal_batch = 32\ncross_entropy = \"te\"\nhidden_dropout = 0.0\nattention_dropout = "
      "0.0\n";
  small.axes = {{"layout.chunks", {"1", "2"}},
                {"layout.pipeline", {"2", "4"}},
                {"layout.tensor", {"1", "2"}},
                {"train.micro_batch", {"1", "2"}},
                {"train.recompute", {"\"none\"", "\"full\""}}};
  const Space space = space_of(small);
  SharedModels models;
  int asking = 0;
  const auto holds_more = [&](const Scenario& s) {
    Figures figures = whole_figures(s);
    if (s.layout.chunks > 1) figures.device_upper += 8_GiB;
    return figures;
  };
  for (std::int64_t c = 0; c < space.size(); ++c) {
    const auto made = candidate(space, c);
    if (const auto* s = std::get_if<Scenario>(&made)) asking += ExactMemory(models).of(*s).asks_the_clock ? 1 : 0;
  }
  ASSERT_GT(asking, 4);
  const std::vector<Found> before = whole_front(space, whole_figures), expected = whole_front(space, holds_more);
  const auto beaten_before = [&](const Found& f) {
    return !points_of(before).contains({f.figures.device_upper.count(), f.figures.throughput}) &&
           std::get<Scenario>(candidate(space, f.candidate)).layout.chunks == 1;
  };
  ASSERT_TRUE(std::ranges::any_of(expected, beaten_before)) << "some come back";
  const Plan found =
      plan(space, {.top = 1}, *thread_runner(task_function(std::make_shared<Evaluator>(space, holds_more))));
  EXPECT_EQ(points_of(found.front), points_of(expected));
  EXPECT_EQ(found.best.front().figures.throughput, expected.front().figures.throughput);
  EXPECT_TRUE(found.disagreements.empty());
}

// The whole run of the winner takes twice as long as was said.
TEST(Plan, WhatAWholeRunContradictsIsBelievedOfNone) {
  const Space space = space_of(small_space(3));
  const Plan sound = plan(space, {});
  ASSERT_GT(sound.best.size(), 1u);
  const auto winner = std::get<Scenario>(candidate(space, sound.best.front().candidate));
  const auto whole_run = [&](const Scenario& s) {
    Figures figures = whole_figures(s);
    if (s == winner) figures.step = 2 * figures.step, figures.throughput /= 2;
    return figures;
  };
  const auto search = [&](std::int64_t most_in_full) {
    return plan(space, {.most_in_full = most_in_full},
                *thread_runner(task_function(std::make_shared<Evaluator>(space, whole_run))));
  };
  const Plan all = search(1000), some = search(1);
  EXPECT_TRUE(all.all_in_full);
  EXPECT_FALSE(some.all_in_full);
  for (const Plan& found : {all, some}) {
    EXPECT_EQ(found.disagreements, std::vector{sound.best.front().candidate});
    EXPECT_EQ(found.best.front().candidate, sound.best[1].candidate);
    for (const Found& f : found.best)
      if (f.candidate == sound.best.front().candidate) {
        EXPECT_EQ(f.figures.step, 2 * sound.best.front().figures.step);
      }
  }
  EXPECT_NE(plan_text(space, some).find("1 came out otherwise, which is a bug"), std::string::npos);
}

TEST(Plan, ListsOneOfThoseThatComeToTheSameInAHundredColumns) {
  SmallSpace small;
  small.top =
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
      "model_override.num_hidden_layers = 4\nruntime.headroom = \"3 GiB\"\n";
  small.train =
      "sequence_length = 1024\nglobal_batch = 16\ncross_entropy = \"te\"\nhidden_dropout = 0.0\nattention_dropout = "
      "0.0\n";
  small.axes = {{"layout.order", {"\"tp-cp-ep-dp-pp\"", "\"tp-cp-ep-pp-dp\""}},
                {"layout.pipeline", {"2"}},
                {"layout.tensor", {"1", "2"}},
                {"layout.sharding", {"\"none\"", "\"zero1\""}},
                {"train.recompute", {"\"none\"", "\"full\""}},
                {"train.gradient_dtype", {"\"fp32\"", "\"bf16\""}},
                {"train.micro_batch", {"1", "2"}}};
  const Space space = space_of(small);
  const Plan found = plan(space, {});
  EXPECT_EQ(found.best.size(), 10);
  for (const Found& a : found.best)
    for (const Found& b : found.best)
      if (a.candidate != b.candidate) {
        EXPECT_NE(std::tuple(a.figures.device_upper, a.figures.allocated, a.figures.device),
                  std::tuple(b.figures.device_upper, b.figures.allocated, b.figures.device))
            << a.candidate << ' ' << b.candidate;
      }
  const std::string text = brief_text(space, found);
  EXPECT_NE(text.find("\n  3.00 GiB must stay free on every device"), std::string::npos) << text;
  EXPECT_NE(text.find("unfilled"), std::string::npos);
  EXPECT_EQ(text.find("allocated"), std::string::npos);
  for (const std::size_t columns : {100u, 80u, 60u}) {
    std::istringstream lines(brief_text(space, found, columns));
    // Sentences are broken where they are printed; what is beside a row would go on below the wrong column.
    for (std::string line; std::getline(lines, line);)
      if (columns == 100 || line.starts_with("  #") || line.starts_with("     ")) {
        EXPECT_LE(line.size(), columns) << line;
      }
  }
}

TEST(Plan, CountsEveryCombinationOnce) {
  const Plan found = plan(space_of(small_space(3)), {});
  std::int64_t dropped = 0;
  for (const auto& [reason, count] : found.dropped) dropped += count;
  EXPECT_EQ(found.combinations, dropped + found.candidates);
}

// Where tensors are not cut, sequence_parallel says nothing new.
TEST(Plan, CombinationsThatRepeatOthersAreNoCandidates) {
  SmallSpace small = small_space(3);
  small.axes = {{"layout.tensor", {"1", "2"}}, {"layout.sequence_parallel", {"false", "true"}}};
  small.train += "micro_batch = 1\n";
  EXPECT_EQ(plan(space_of(small), {}).candidates, 3);
}

// Long passes of wide layers, whose steps bounds know to a hundredth.
SmallSpace space_of_long_passes() {
  SmallSpace small;
  small.top =
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
      "model_override.num_hidden_layers = 4\n";
  small.train =
      "sequence_length = 8192\nglobal_batch = 16\ncross_entropy = \"te\"\nhidden_dropout = 0.0\n"
      "attention_dropout = 0.0\n";
  small.axes = {{"layout.tensor", {"1", "2", "4"}},
                {"layout.pipeline", {"1", "2"}},
                {"layout.sharding", {"\"none\"", "\"zero1\""}},
                {"train.micro_batch", {"1", "2"}},
                {"train.recompute", {"\"none\"", "\"full\""}}};
  return small;
}

TEST(Plan, TimesWhatMemoryHasNotBeatenOnceBoundsOfTimeAreNear) {
  const SmallSpace small = space_of_long_passes();
  const Space space = space_of(small);
  std::mutex mutex;
  std::map<TaskKind, std::int64_t> tasks;
  const auto counted = [&, run = task_function(space)](const std::string& task) {
    TaskKind kind{};
    Unpack(task) >> kind;
    {
      const std::lock_guard lock(mutex);
      ++tasks[kind];
    }
    return run(task);
  };
  const Plan found = plan(space, {.top = 1}, *thread_runner(counted));
  EXPECT_GT(found.tiers.beaten, 0);
  EXPECT_LT(tasks[TaskKind::Time], tasks[TaskKind::Allocate]);
  expect_as_by_brute_force(found, brute_force(small));
}

// Those too that lack more than every near miss.
TEST(Plan, DecidesEveryCandidateOnce) {
  SmallSpace small;
  small.top =
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/rtx-3080-10g.toml\"\ngpus = 4\n"
      "model_override.num_hidden_layers = 4\n";
  small.train = "sequence_length = 1024\nglobal_batch = 16\nhidden_dropout = 0.0\nattention_dropout = 0.0\n";
  small.axes = {{"layout.sharding", {"\"zero1\"", "\"none\""}},
                {"train.micro_batch", {"1", "2", "4"}},
                {"train.recompute", {"\"none\"", "\"full\""}}};
  const Plan found = plan(space_of(small), {.top = 1});
  EXPECT_TRUE(found.best.empty());
  EXPECT_EQ(found.candidates, 12);
  EXPECT_EQ(found.tiers.bounded_rejected + found.tiers.allocator_rejected, found.candidates);
}

class Threads : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Threads, SayTheSameWhateverTheirNumber) {
  const auto with_threads = [&](std::size_t threads) {
    const oneapi::tbb::global_control limit(oneapi::tbb::global_control::max_allowed_parallelism, threads);
    const Space space = space_of(small_space(GetParam()));
    const Plan found = plan(space, {});
    return plan_text(space, found) + plan_json(space, found) + plan_csv(space, found);
  };
  EXPECT_EQ(with_threads(1), with_threads(2));
}
INSTANTIATE_TEST_SUITE_P(Plan, Threads, testing::Range(1U, 7U));

// 1F1B and interleaved schedules use their links more or less at once, and share all else.
TEST(Plan, SaysTheSameOfACandidateWhereverItStands) {
  const std::vector<std::string> schedules{"{layout.schedule = \"1f1b\"}",
                                           "{layout.schedule = \"interleaved\", layout.chunks = 2}"};
  const auto found = [&](std::size_t first) {
    const Space space = space_of(parse_toml(fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 8
[layout]
tensor = 2
pipeline = 4
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 8
cross_entropy = "te"
[space]
schedule = [{}, {}]
)",
                                                        schedules[first], schedules[1 - first]),
                                            "small"),
                                 "small", folders);
    std::vector<Found> all = plan(space, {}).best;
    for (Found& f : all)
      f.candidate = f.candidate == 0 ? static_cast<std::int64_t>(first) : 1 - static_cast<std::int64_t>(first);
    std::sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return a.candidate < b.candidate; });
    return all;
  };
  const std::vector<Found> one = found(0), other = found(1);
  ASSERT_EQ(one.size(), 2);
  ASSERT_EQ(other.size(), 2);
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].figures, other[i].figures);
    EXPECT_EQ(one[i].step_low, other[i].step_low);
    EXPECT_EQ(one[i].step_high, other[i].step_high);
  }
}

TEST(Space, ACandidateWrittenAsAFileIsTheCandidate) {
  int read = 0;
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    const Space space = space_of(small_space(seed));
    for (std::int64_t i = 0; i < space.size(); ++i) {
      const auto made = candidate(space, i);
      const auto* scenario = std::get_if<Scenario>(&made);
      if (scenario == nullptr) continue;
      Scenario again = resolved_scenario(parse_scenario(toml_text(space.document(i)), "again.toml", folders));
      again.name = scenario->name;
      EXPECT_EQ(again, *scenario);
      ++read;
    }
  }
  EXPECT_GT(read, 50);
}

TEST(Space, CandidatesKeepTheirNumbersUnderAxesAskedForByName) {
  const SmallSpace small = small_space(4);
  const Space space = space_of(small), with = space_of(small, {"allocator", "runtime"});
  ASSERT_EQ(with.size(), 2 * std::ssize(runtimes()) * space.size());
  for (std::int64_t i = 0; i < space.size(); ++i) {
    const auto one = candidate(space, i), same = candidate(with, i);
    ASSERT_EQ(one.index(), same.index());
    if (std::holds_alternative<Scenario>(one)) {
      EXPECT_EQ(std::get<Scenario>(one), std::get<Scenario>(same));
    }
  }
}

TEST(Space, BothRuntimesKeepWhatTheBaseSaysOfItsLoss) {
  SmallSpace small = small_space(1);
  small.axes = {{"train.micro_batch", {"1"}}, {"layout.tensor", {"1"}}};
  const Space space = space_of(small, {"runtime"});
  const auto megatron = candidate(space, 0), pytorch = candidate(space, 1);
  EXPECT_EQ(std::get<Scenario>(megatron).train.cross_entropy, CrossEntropy::TransformerEngine);
  EXPECT_EQ(std::get<Scenario>(pytorch).runtime.name, "pytorch");
  EXPECT_EQ(std::get<Scenario>(pytorch).train.cross_entropy, CrossEntropy::Unfused);
}

TEST(Space, AnAxisAskedForByNameIsKnownAndNotThereYet) {
  SmallSpace small = small_space(1);
  const auto refused = [&](const std::string& name) {
    try {
      (void)space_of(small, {name});
      return std::string();
    } catch (const InputError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refused("alocator"),
            "--with: error: there is no axis \"alocator\"\n  hint: allocator, runtime or offload would do");
  small.axes.push_back({"runtime.allocator", {"\"\""}});
  EXPECT_EQ(refused("allocator"),
            "--with: error: allocator would set runtime.allocator, and so does the axis runtime.allocator\n"
            "  hint: leave --with allocator out, or that axis");
  EXPECT_EQ(refused("runtime"), "");
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

// "bad.toml" is a job of 8 GPUs with these lines below [space], from line 9 on.
std::string wrong_with_axes(const std::string& axes) {
  const std::string text = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 16
[space]
)" + axes;
  try {
    (void)space_of(parse_toml(text, "bad.toml"), "bad.toml", folders);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(Space, WhatNoCombinationMakesRightIsAnError) {
  EXPECT_EQ(wrong_with_axes("layout.tensr = [1, 2]"),
            "bad.toml:9:17: error: unknown key \"tensr\" in [layout]\n  hint: did you mean tensor?");
  EXPECT_EQ(wrong_with_axes("layout.tensor = [1, \"2\"]"),
            "bad.toml:9:21: error: tensor takes a whole number, not \"2\"\n  hint: without the quotes: tensor = 2");
  EXPECT_EQ(wrong_with_axes("a = [{layout.tensor = 1}, {train.recompute = \"fool\"}]"),
            "bad.toml:9:46: error: recompute = \"fool\" is not known\n"
            "  hint: \"none\", \"full\" or \"selective\" would do");
  EXPECT_EQ(wrong_with_axes("layout.tensor = [1, 2, 2]"),
            "bad.toml:9:24: error: the axis layout.tensor has 2 twice\n  hint: leave one of them out");
  EXPECT_EQ(wrong_with_axes("layout.tensor = [1, 2]\n[x]\ny = 1").substr(0, 35),
            "bad.toml:10:2: error: unknown key \"");
}

TEST(Space, WhatSomeCombinationMakesRightIsDroppedWhereItIsWrong) {
  EXPECT_EQ(wrong_with_axes("layout.tensor = [1, 3]"), "") << "divides no heads";
  EXPECT_EQ(wrong_with_axes("layout.chunks = [1, 2]\nlayout.pipeline = [1, 2]"), "");
  EXPECT_EQ(wrong_with_axes("runtime.name = [\"megatron\", \"pytorch\"]\nruntime.switches.foreach = [true, false]"),
            "");
  EXPECT_EQ(wrong_with_axes("train.recompute = [\"none\", \"selective\"]\ntrain.recompute_modules = [[], [\"mlp\"]]"),
            "");
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
}  // namespace tidemark::tests::plan_test
