#include "scenarios/predict/measured/measured_ranges.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/report/memory_range.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// How far measured runs may be from what is told, by those of other runtimes.

namespace tidemark::tests::measured_ranges_test {
namespace {

using namespace literals;

constexpr MeasuredFigure allocated = MeasuredFigure::Allocated;

// Two runtimes: one off by 1, 2, ... 9 per mille, one by 20.
const std::string few = [] {
  std::string text = "# figure, runtime, releases, device, row, share\n";
  for (int i = 1; i <= 9; ++i)
    text += fmt::format("allocated\tnear\tnear 1\tsmall\trow {}\t{}0.00{}\n", i, i % 2 ? "" : "-", i);
  return text + "allocated\tfar\tfar 2\tlarge\ta\t-0.02\nreserved\tfar\tfar 2\tlarge\ta\t0.05\n";
}();

TEST(MeasuredRanges, AreAsWideAsRowsOfOtherRuntimesAreOff) {
  const std::vector<MeasuredRow> rows = parse_measured_rows(few);
  ASSERT_EQ(rows.size(), 11U);
  const MeasuredRange far = range_of(allocated, "far", rows), near = range_of(allocated, "near", rows);
  EXPECT_DOUBLE_EQ(far.share, 0.009) << "its own row has no part in it";
  EXPECT_DOUBLE_EQ(far.coverage, 0.9);
  EXPECT_EQ(far.rows, 9);
  EXPECT_DOUBLE_EQ(near.share, 0.02);
  EXPECT_DOUBLE_EQ(near.coverage, 0.5);
  EXPECT_DOUBLE_EQ(range_of(allocated, "new", rows).share, 0.02);
  EXPECT_EQ(range_of(MeasuredFigure::Reserved, "far", rows).rows, 0);
  EXPECT_EQ(range_of(MeasuredFigure::Reserved, "far", rows).share, 0);
}

TEST(MeasuredRanges, OfManyRowsLeaveTheFarthestOut) {
  std::vector<MeasuredRow> rows;
  for (int i = 1; i <= 299; ++i) rows.push_back({allocated, "many", "1", "d", "r", 1e-4 * i});
  const MeasuredRange range = range_of(allocated, "other", rows);
  EXPECT_DOUBLE_EQ(range.share, 1e-4 * 297);
  EXPECT_DOUBLE_EQ(range.coverage, 0.99);
}

TEST(MeasuredRanges, AreHeldToTheRuntimesOwnRows) {
  const std::vector<MeasuredRow> rows = parse_measured_rows(few);
  const RowsOfRuntime near = own_rows(allocated, "near", "small", rows),
                      far = own_rows(allocated, "far", "small", rows);
  EXPECT_EQ(near.rows, 9);
  EXPECT_EQ(near.on_device, 9);
  EXPECT_EQ(near.within, 9);
  EXPECT_EQ(far.rows, 1);
  EXPECT_EQ(far.on_device, 0);
  EXPECT_EQ(far.within, 0);
  EXPECT_EQ(far.devices, std::vector<std::string_view>{"large"});
}

Scenario job(const std::string& cluster, const std::string& runtime) {
  return scenario_of_text(fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/{}.toml"
gpus = 1
[model_override]
num_hidden_layers = 2
[train]
sequence_length = 2048
micro_batch = 1
global_batch = 1
[runtime]
name = "{}"
)",
                                      cluster, runtime));
}

// Nobody's runs under DeepSpeed are among them, and no Megatron's on an H800.
TEST(MeasuredRanges, SayWhatTheyAreNotCalibratedFor) {
  Scenario sharded = job("h100-sxm-80g", "megatron");
  sharded.runtime.name = "deepspeed";
  EXPECT_EQ(not_calibrated(sharded), "allocated memory, reserved memory, time of deepspeed");
  EXPECT_EQ(not_calibrated(job("b200-sxm-180g", "megatron")), "");
  const std::string elsewhere = "allocated memory, reserved memory, time of megatron on NVIDIA H800";
  EXPECT_EQ(not_calibrated(job("h800-sxm-80g", "megatron")), elsewhere);
  const Prediction prediction = predict(job("h800-sxm-80g", "megatron"));
  EXPECT_NE(brief_text(prediction, "").find("not calibrated for " + elsewhere), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(prediction_json(prediction))["calibration"]["not_calibrated_for"], elsewhere);
  EXPECT_NE(std::ranges::find(prediction.assumptions, "not calibrated for " + elsewhere), prediction.assumptions.end());
}

// What is not explained is in what must be had, and in what the verdict leaves open.
TEST(MeasuredRanges, AreInWhatIsJudged) {
  Scenario scenario = job("b200-sxm-180g", "megatron");
  const Prediction ample = predict(scenario);
  const RankGroup& group = ample.most_required();
  const double share = range_of(allocated, "megatron").share;
  ASSERT_GT(share, 0);
  EXPECT_EQ(group.unexplained, unexplained(share, group.memory.allocated.bytes));
  const MemoryRange range = allocated_range(group, scenario);
  EXPECT_EQ(range.high, group.memory.allocated.bytes + group.unexplained);
  EXPECT_EQ(range.low, group.memory.allocated.bytes - group.unexplained);
  EXPECT_GE(group.required.upper, group.required.bytes + group.unexplained);
  EXPECT_LE(group.required.upper, group.memory.peak_device_upper);
  const auto json = nlohmann::json::parse(prediction_json(ample));
  EXPECT_EQ(json["groups"][0]["peak_allocated_range_bytes"][1], range.high.count());
  EXPECT_EQ(json["calibration"]["allocated"]["share"], share);

  scenario.cluster.device.capacity = group.required.upper;
  EXPECT_TRUE(predict(scenario).fits);
  scenario.cluster.device.capacity = group.required.upper - group.unexplained / 2;
  const Prediction tight = predict(scenario);
  EXPECT_FALSE(tight.fits);
  EXPECT_TRUE(tight.open && tight.completed);
}

}  // namespace
}  // namespace tidemark::tests::measured_ranges_test
