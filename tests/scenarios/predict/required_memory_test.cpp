#include "scenarios/predict/required_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/plan/bounds/exact_memory.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/sim/program/random_program.hpp"

// What a job must have of its devices, as against what its allocator keeps as long as there is room.

namespace tidemark::tests::required_memory_test {
namespace {

using namespace literals;

constexpr std::int64_t mib = std::int64_t{1} << 20;

std::string alloc(int buffer, std::int64_t size) {
  return fmt::format("alloc b{} {} temporaries s0 x\n", buffer, size);
}

RequiredMemory required(const std::string& text, const DriverCosts& costs = free_of_charge()) {
  const Program program = parse_program(text);
  const MemoryRecord record = replay(program, costs, {});
  std::optional<Bytes> late;
  if (has_cross_stream_uses(program))
    late = replay(program, costs, {.cross_stream = CrossStreamFrees::AtNextSync}).peak_device_upper;
  return required_memory(
      unlimited_memory(record, late), costs, 1024_GiB, Require::Least,
      run_of([&](const DriverCosts& priced, const ReplayOptions& options) { return replay(program, priced, options); },
             {1024_GiB, {}, {}}));
}

TEST(LeastCapacity, IsFoundToAThousandth) {
  for (const Bytes least : {20_GiB, 20_GiB + 1_MiB, 33_GiB, 59_GiB, 60_GiB}) {
    int tries = 0;
    const Bytes found = least_capacity(20_GiB, 60_GiB, [&](Bytes capacity) -> LimitedRun {
      ++tries;
      return {capacity >= least};
    });
    EXPECT_GE(found, least);
    EXPECT_LE(found, least + 62_MiB);
    EXPECT_LE(tries, 12);
  }
}

// What a rank much like it needs makes the search short, and never wrong.
TEST(LeastCapacity, IsFoundFromWhatIsExpected) {
  for (const Bytes least : {20_GiB, 20_GiB + 1_MiB, 33_GiB, 59_GiB, 60_GiB})
    for (const Bytes expected : {1_GiB, 20_GiB, 33_GiB - 20_MiB, 33_GiB, 33_GiB + 20_MiB, 60_GiB, 99_GiB}) {
      int tries = 0;
      const TryCapacity run = [&](Bytes capacity) -> LimitedRun {
        ++tries;
        EXPECT_GE(capacity, 20_GiB - 1_B);
        EXPECT_LT(capacity, 60_GiB);
        return {capacity >= least};
      };
      const Bytes found = least_capacity(20_GiB, 60_GiB, run, expected);
      EXPECT_GE(found, least);
      EXPECT_LE(found, least + 62_MiB);
      EXPECT_LE(tries, least - expected < 31_MiB && expected - least < 31_MiB ? 2 : 20)
          << least.count() << " " << expected.count();
    }
}

// One run says what devices do between what it was given and what it was refused.
TEST(LeastCapacity, TriesNoDeviceThatARunHasShown) {
  int tries = 0;
  const Bytes found = least_capacity(20_GiB, 60_GiB, [&](Bytes capacity) -> LimitedRun {
    ++tries;
    if (capacity >= 41_GiB) return {true, true, {41_GiB, Bytes{std::numeric_limits<std::int64_t>::max()}}};
    return {false, true, {20_GiB, 41_GiB}};
  });
  EXPECT_EQ(found, 41_GiB);
  EXPECT_EQ(tries, 2);
}

// Most segments are partly in use when memory is short.
TEST(LeastCapacity, TriesOnceWhereAllThatIsFilledIsNeeded) {
  int tries = 0;
  EXPECT_EQ(least_capacity(20_GiB, 60_GiB, [&](Bytes) -> LimitedRun { return {++tries > 1}; }), 60_GiB);
  EXPECT_EQ(tries, 1);
}

TEST(LeastCapacity, TriesNothingWhereWhatIsInUseFillsTheDevice) {
  EXPECT_EQ(least_capacity(60_GiB - 1_MiB, 60_GiB, [](Bytes) -> LimitedRun { throw 1; }), 60_GiB);
}

// It gets through on 31 to 33 GiB, and from 50 GiB on.
TEST(RequiredMemory, IsNoMoreThanARoomThatDoes) {
  const UnlimitedMemory unlimited{20_GiB, 20_GiB, 60_GiB, 60_GiB, {}, {}, {}};
  const RunOn run = [](Bytes capacity, const DriverCosts&, CrossStreamFrees) -> LimitedRun {
    return {(31_GiB <= capacity && capacity <= 33_GiB) || capacity >= 50_GiB, true};
  };
  const RequiredMemory small = required_memory(unlimited, free_of_charge(), 33_GiB, Require::Least, run);
  EXPECT_LE(small.bytes, 33_GiB);
  EXPECT_GE(small.bytes, 31_GiB);
  EXPECT_LE(small.bytes, small.upper);
  EXPECT_LE(small.upper, 33_GiB);
}

// Two segments of 30 MiB stay, and none of them holds 58 MiB.
TEST(RequiredMemory, IsWithoutWhatTheAllocatorWouldGiveBack) {
  const std::string text = alloc(0, 30 * mib) + alloc(1, 30 * mib) + "free b0\nfree b1\n" + alloc(2, 58 * mib);
  EXPECT_EQ(replay(parse_program(text), free_of_charge(), {}).peak_reserved, 118_MiB);
  EXPECT_GE(required(text).bytes, 60_MiB) << "two at a time";
  EXPECT_LE(required(text).bytes, 62_MiB);
}

// Half of a segment is in use when more is asked for: it stays whole.
TEST(RequiredMemory, HoldsSegmentsThatArePartlyUsed) {
  const std::string text =
      alloc(0, 60 * mib) + "free b0\n" + alloc(1, 30 * mib) + alloc(2, 58 * mib) + "free b2\nfree b1\n";
  EXPECT_GE(required(text).bytes, 118_MiB);
}

// Nobody gives back for a communicator what the allocator keeps.
TEST(RequiredMemory, OfDriversThatComeLateIsBesideTheCache) {
  DriverCosts costs = free_of_charge();
  costs.communicators[0] = {.bytes = 100_MiB, .low = 80_MiB, .high = 140_MiB, .source = "x"};
  const std::string early = "create communicator g0\n" + alloc(0, 200 * mib) + "free b0\n" + alloc(1, 210 * mib);
  const std::string late = alloc(0, 200 * mib) + "free b0\ncreate communicator g0\n" + alloc(1, 190 * mib);
  EXPECT_LE(required(early, costs).bytes, 100_MiB + 212_MiB);
  EXPECT_LE(required(early, costs).upper, 140_MiB + 212_MiB);
  EXPECT_GE(required(early, costs).upper, 140_MiB + 210_MiB);
  EXPECT_GE(required(late, costs).bytes, 100_MiB + 200_MiB);
  EXPECT_GE(required(late, costs).upper, 140_MiB + 200_MiB);
}

// The allocator waits for the other stream before it gives up.
TEST(RequiredMemory, HasNoFreesThatArePending) {
  std::string text;
  for (int i = 0; i < 8; ++i)
    text += alloc(i, 30 * mib) + fmt::format("borrow b{0} s1\nlaunch s1 copy b{0}:bool[1] ->\nfree b{0}\n", i);
  const Program program = parse_program(text);
  EXPECT_EQ(replay(program, free_of_charge(), {.cross_stream = CrossStreamFrees::AtNextSync}).peak_reserved, 240_MiB);
  EXPECT_LE(required(text).upper, 32_MiB);
}

// Mistral 7B on two A100s, whose allocator fills the device with what it keeps: it ran.
Scenario caching_job(Bytes capacity) {
  Scenario scenario = resolved_scenario(
      read_scenario(source / "tests/golden/fms_full/fms_lig_mistral7b_full_g2_bs8_foak.toml", source / "scenarios"));
  scenario.cluster.device.capacity = capacity;
  return scenario;
}

// Between what must be had and what would be held, a job gets through, and says how.
TEST(RequiredMemory, IsWhatFitsIsJudgedBy) {
  const Prediction ample = predict(caching_job(80_GiB));
  const Bytes must_have = ample.most_required().required.upper, fills = ample.highest().memory.peak_device_upper;
  ASSERT_GT(fills - must_have, 64_MiB);
  for (const RankGroup& group : ample.groups) {
    EXPECT_LE(group.required.bytes, group.required.upper);
    EXPECT_LE(group.required.upper, group.memory.peak_device_upper);
    EXPECT_GE(group.required.bytes, group.memory.allocated.bytes);
  }
  const Prediction tight = predict(caching_job(must_have));
  EXPECT_TRUE(tight.fits && tight.completed && !tight.open);
  EXPECT_EQ(tight.most_required().required.upper, must_have) << "it does not depend on what there is";
  const Prediction little = predict(caching_job(must_have - must_have / 10));
  EXPECT_FALSE(little.fits);
}

TEST(RequiredMemory, RetriesAreTold) {
  const Prediction ample = predict(caching_job(80_GiB));
  Bytes capacity;
  for (const RankGroup& group : ample.groups) capacity = std::max(capacity, group.required.bytes);
  const Prediction tight = predict(caching_job(capacity));
  EXPECT_TRUE(tight.completed);
  EXPECT_GT(tight.retries_per_step(), 0);
  EXPECT_NE(brief_text(tight, "").find("completes with"), std::string::npos);
  const auto json = nlohmann::json::parse(prediction_json(tight));
  std::int64_t most = 0;
  for (const auto& group : json["groups"]) {
    most = std::max(most, group["retries_per_step"].get<std::int64_t>());
    EXPECT_LE(group["required_device_bytes"], group["required_device_upper_bytes"]);
    EXPECT_LE(group["filled_device_bytes"], json["capacity_bytes"]);
  }
  EXPECT_EQ(most, tight.retries_per_step());
}

Scenario job(Bytes capacity) {
  Scenario scenario = resolved_scenario(parse_scenario(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 2
[model_override]
num_hidden_layers = 4
[layout]
pipeline = 2
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 4
)",
                                                       "job.toml", folders));
  scenario.cluster.device.capacity = capacity;
  return scenario;
}

// Enough at the lower ends of estimates, and not at the upper ones.
TEST(RequiredMemory, LeavesTheVerdictOpenBetweenTheEnds) {
  const Prediction ample = predict(job(80_GiB));
  const Bytes upper = ample.most_required().required.upper;
  const Prediction between = predict(job(upper - upper / 200));
  EXPECT_TRUE(between.open);
  EXPECT_FALSE(between.fits);
  const auto said = nlohmann::json::parse(prediction_json(between));
  EXPECT_EQ(said["fits"], false);
  EXPECT_EQ(said["verdict"], "cannot_say");
  EXPECT_TRUE(brief_text(between, "").starts_with("cannot say whether it fits: the fullest device lacks"));
  const Prediction no = predict(job(upper / 2));
  EXPECT_FALSE(no.open || no.fits || no.completed);
  EXPECT_EQ(nlohmann::json::parse(prediction_json(no))["verdict"], "does_not_fit");
  EXPECT_EQ(nlohmann::json::parse(prediction_json(ample))["verdict"], "fits");
}

TEST(RequiredMemory, PlanJudgesByItToo) {
  const Bytes must_have = predict(job(80_GiB)).most_required().required.upper;
  for (const Bytes capacity : {80_GiB, must_have + 100_MiB, must_have, must_have - 1_GiB}) {
    const Scenario scenario = job(capacity);
    const Prediction prediction = predict(scenario);
    SharedModels models;
    const Figures found = exact_memory(scenario, models);
    EXPECT_EQ(fits(scenario, found), prediction.fits);
    EXPECT_EQ(found.device_upper, figures_of(prediction).device_upper);
    EXPECT_EQ(whole_figures(scenario).device_upper, found.device_upper);
  }
}

}  // namespace
}  // namespace tidemark::tests::required_memory_test
