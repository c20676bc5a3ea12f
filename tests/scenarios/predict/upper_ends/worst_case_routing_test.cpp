// What routing leaves open before training: upper ends hold what tokens that choose for themselves bring.

#include "scenarios/predict/upper_ends/worst_case_routing.hpp"

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/execute/process_memory.hpp"
#include "parallel/lowering/lower.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "sim/memory/replay.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::worst_case_routing_test {
namespace {

const std::filesystem::path source = TIDEMARK_SOURCE_DIR;

// Eight experts on four ranks, two layers.
Scenario job(const std::string& moe, const std::string& layout = "expert = 4") {
  return parse_scenario(fmt::format(R"(model = "models/mixtral-8x7b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 4
[model_override]
num_hidden_layers = 2
hidden_size = 512
num_attention_heads = 8
num_key_value_heads = 8
intermediate_size = 1024
vocab_size = 1024
[layout]
{}
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 8
hidden_dropout = 0.0
attention_dropout = 0.0
[moe]
{}
[runtime]
name = "megatron"
)",
                                    layout, moe),
                        "job.toml", {source, source / "scenarios"});
}

TEST(WorstCaseJobs, AStepsChancesAreSharedOutOverRanksLayersAndMicroBatches) {
  const std::optional<Train> train = worst_case(job("quantile = 0.9"));
  ASSERT_TRUE(train);
  EXPECT_DOUBLE_EQ(train->routing.overload_probability.value(), 0.1 / (4 * 2 * 2));
  // Two expert groups of two.
  EXPECT_DOUBLE_EQ(worst_case(job("quantile = 0.9", "expert = 2"))->routing.overload_probability.value(),
                   0.1 / (4 * 2 * 2));
}

TEST(WorstCaseJobs, NothingIsLeftOpenWhereOneRankHasAllExpertsOrCapacityIsFilledUp) {
  EXPECT_FALSE(worst_case(job("", "expert = 1")));
  EXPECT_FALSE(worst_case(job("capacity_factor = 1.0\npad_to_capacity = true")));
  EXPECT_TRUE(worst_case(job("capacity_factor = 1.0")));
}

TEST(WorstCaseJobs, FitsIsJudgedAtTheUpperEnd) {
  Scenario scenario = job("");
  const RankGroup group = predict(scenario).highest();
  ASSERT_TRUE(group.worst_case);
  EXPECT_GT(group.of_routing, Bytes{0});
  EXPECT_GT(group.worst_case->allocated, group.memory.allocated.bytes);
  EXPECT_GE(group.memory.peak_device_upper, group.worst_case->device);
  scenario.cluster.device.capacity = group.memory.peak_device_upper;
  EXPECT_TRUE(predict(scenario).fits);
  scenario.cluster.device.capacity = group.memory.peak_device_upper - group.of_routing;
  const Prediction tight = predict(scenario);
  EXPECT_TRUE(tight.completed);
  EXPECT_FALSE(tight.fits);
}

TEST(WorstCaseJobs, WithoutRoomForChanceBothEndsAreOne) {
  for (const char* moe : {"capacity_factor = 1.0\npad_to_capacity = true", "capacity_factor = 1.0"}) {
    const RankGroup group = predict(job(moe)).highest();
    EXPECT_EQ(group.of_routing, Bytes{0}) << moe;
    const Bytes allocated = group.memory.allocated.bytes;
    EXPECT_EQ(group.worst_case ? group.worst_case->allocated : allocated, allocated) << moe;
  }
}

TEST(WorstCaseJobs, JsonSaysBothEndsWhereTheyDiffer) {
  EXPECT_NE(prediction_json(predict(job(""))).find("\"with_more_tokens\": {\n    \"peak_allocated_bytes\": "),
            std::string::npos);
  EXPECT_EQ(prediction_json(predict(job("", "expert = 1"))).find("with_more_tokens"), std::string::npos);
}

TEST(WorstCaseJobs, TextSaysHowExpertsAreSharedOut) {
  EXPECT_NE(prediction_text(predict(job(""))).find(", expert 4"), std::string::npos);
  EXPECT_NE(prediction_text(predict(job("", "expert = 1"))).find(", expert 1"), std::string::npos);
}

// One rank with all experts gets no more than all choices.
TEST(WorstCaseJobs, TextSaysLoadsOfOneRankAsTheyAreSimulated) {
  const auto says = [](const std::string& layout, std::string_view what) {
    return prediction_text(predict(job("imbalance = 1.5", layout))).find(what) != std::string::npos;
  };
  EXPECT_TRUE(says("expert = 4", "the first rank of experts gets 1.5 times its equal share"));
  EXPECT_TRUE(says("expert = 1", "all experts are chosen equally often"));
}

// Some 512 programs, of which a factor for the fullest rank would leave 128, and as long as any may be. How much they
// take is asked of the refusal.
TEST(WorstCaseJobs, AFactorIsNamedWhereItsProgramsFit) {
  const auto refused = [](std::int64_t micro_batches) -> std::string {
    Scenario large = job("imbalance = { dirichlet = 20, seed = 1 }");
    large.gpus = 512;
    large.layout.data = large.layout.expert = 8;
    large.layout.pipeline = 64;
    large.model.layers = LayerList(64, {.mlp = *large.model.experts()});
    large.train.global_batch = 8 * micro_batches;
    try {
      static_cast<void>(Job(large));
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  constexpr std::int64_t most = 100'000;
  const std::string longest = refused(most);
  ASSERT_EQ(longest.find("make a program of more than"), std::string::npos) << longest;
  const std::size_t take = longest.find("take some ");
  if (take == std::string::npos) GTEST_SKIP() << "the longest programs fit into this machine's memory";
  const std::int64_t needed = std::stoll(longest.substr(take + 10)) * 1'000'000'000;
  const std::int64_t there = execute::available_memory().count();
  EXPECT_NE(refused(most * 2 * (there / 1'000'000) / (needed / 1'000'000)).find("imbalance = 1.2"), std::string::npos);
  if (needed < 6 * there) GTEST_SKIP() << "the longest programs of a factor fit into this machine's memory";
  EXPECT_EQ(longest.find("imbalance"), std::string::npos) << longest;
  EXPECT_NE(longest.find("fewer micro-batches"), std::string::npos) << longest;
}

// ---- sampled routings

// Of the job's tokens, how many choose each expert of a layer: two different ones each, the first as stated, the second
// as stated among the others.
std::vector<std::int64_t> sampled(std::mt19937_64& random, std::int64_t tokens, std::size_t experts) {
  std::vector<std::int64_t> counts(experts);
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::size_t first = random() % experts, other = random() % (experts - 1);
    ++counts[first];
    ++counts[other < first ? other : other + 1];
  }
  return counts;
}

// Programs of routings as they might come, the same in every micro-batch, which is the worst of them.
TEST(WorstCaseJobs, TheIntervalCoversProgramsOfSampledRoutings) {
  const Scenario scenario = resolved_scenario(job("quantile = 0.9"));
  const Job outline(scenario);
  const auto peak_of = [&](const Train& train, const Role& role) {
    return replay(lower_role({outline.built, scenario.layout, train, outline.runtime}, role),
                  outline.costs.entries.front(), {})
        .allocated.bytes;
  };
  ASSERT_EQ(outline.roles.size(), 1u) << "all ranks get the same";
  const Role& role = outline.roles.front();
  const Bytes central = peak_of(scenario.train, role), upper = peak_of(*worst_case(scenario), role);
  EXPECT_LT(upper.count(), central.count() * 11 / 10);

  std::mt19937_64 random(5);
  int steps = 0, within = 0, above_central = 0;
  for (; steps < 100; ++steps) {
    Train train = scenario.train;
    ListedLoads loads;
    for (int layer = 0; layer < 2; ++layer) loads.of_layers.push_back(sampled(random, 4 * 1024, 8));
    train.routing.loads = loads;
    Bytes highest;
    for (std::int32_t rank = 0; rank < 4; ++rank) {
      const Coordinates place{.data = rank};
      highest = std::max(highest, peak_of(train, {place, {rank_at(scenario.layout, place)}}));
    }
    within += highest <= upper ? 1 : 0;
    above_central += highest > central ? 1 : 0;
  }
  EXPECT_GE(within, steps * 9 / 10);
  EXPECT_GT(above_central, steps / 2) << "of four ranks, one nearly always gets more than its share";
}

}  // namespace
}  // namespace tidemark::tests::worst_case_routing_test
