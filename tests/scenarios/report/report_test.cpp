#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/report/page/memory_curve.hpp"
#include "scenarios/report/page/report_page.hpp"
#include "scenarios/report/page/schedule_lane.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/scenarios/small_job.hpp"

namespace tidemark::tests::report_test {
namespace {

using nlohmann::json;

struct Predicted {
  Job job{scenario_of_text(small_job)};
  Trace trace = simulate_time(job);
  Prediction prediction = predict(job, trace);
};
const Predicted& small() {
  static const Predicted the_job;
  return the_job;
}

TEST(MemoryCurve, KeepsEveryPeakHoweverFewItsPoints) {
  for (const RankGroup& group : small().prediction.groups)
    for (const std::int32_t step : {1, 2})
      for (const std::size_t stretches : {1U, 7U, 400U}) {
        const MemoryCurve curve = memory_curve(small().job, small().trace, group, step, stretches);
        Bytes allocated, device;
        for (const MemoryCurve::Point& point : curve.points) {
          allocated = std::max(allocated, point.allocated);
          device = std::max(device, point.reserved + point.driver);
        }
        EXPECT_EQ(allocated, group.memory.peak_allocated_by_step[static_cast<std::size_t>(step)]);
        if (group.memory.device.at.mark.step == step) {
          EXPECT_EQ(device, group.memory.device.bytes);
        }
        EXPECT_LE(curve.points.size(), 3 * stretches + 3);
      }
}

TEST(MemoryCurve, WhatLivesSumsToWhatIsAllocatedAndHeldByDrivers) {
  const RankGroup& group = small().prediction.highest();
  const MemoryCurve curve = memory_curve(small().job, small().trace, group, 2, 60);
  std::vector<std::int64_t> bytes(curve.kinds.size()), tensors(curve.kinds.size());
  bool saw_peak = false;
  Instant last;
  for (const MemoryCurve::Point& point : curve.points) {
    Composition live;
    for (const MemoryCurve::Change& change : point.changes) {
      bytes[static_cast<std::size_t>(change.kind)] += change.bytes.count();
      tensors[static_cast<std::size_t>(change.kind)] += change.tensors;
    }
    for (std::size_t k = 0; k < bytes.size(); ++k) {
      live[curve.kinds[k].category] += Bytes{bytes[k]};
      EXPECT_EQ(bytes[k] > 0, tensors[k] > 0) << curve.kinds[k].name;
    }
    EXPECT_EQ(live.total(), point.allocated + point.driver);
    if (point.allocated == group.memory.allocated.bytes && !saw_peak) {
      saw_peak = true;
      live[Category::Nccl] = live[Category::Context] = Bytes{};
      EXPECT_EQ(live, group.memory.allocated.composition);
    }
    EXPECT_LE(last, point.time);
    last = point.time;
  }
  EXPECT_TRUE(saw_peak);
}

TEST(MemoryCurve, TheHighestOfEachPartOfAStepAreTheCurves) {
  const RankGroup& group = small().prediction.highest();
  const MemoryCurve curve = memory_curve(small().job, small().trace, group, 2, 100000);
  const Instant begin = curve.points.front().time, end = curve.points.back().time;
  const std::vector<Bytes> highest = highest_by_time(small().job, small().trace, group, begin, end, 50);
  EXPECT_EQ(std::ranges::max(highest), group.memory.device.bytes);
  Bytes lowest = highest.front();
  for (const MemoryCurve::Point& point : curve.points) lowest = std::min(lowest, point.reserved + point.driver);
  for (const Bytes bytes : highest) EXPECT_GE(bytes, lowest);
}

TEST(ScheduleLane, HasEveryPassOfEveryMicroBatchAndNoTwoAtOnce) {
  for (const std::int32_t rank : {0, 7}) {
    const ScheduleLane lane = schedule_lane(small().job, small().trace, Rank{rank}, 2, Duration{1});
    std::vector<std::int32_t> forward, backward;
    Instant last;
    for (const ScheduleLane::Pass& pass : lane.passes) {
      EXPECT_LE(last, pass.begin);
      EXPECT_LE(pass.busy, pass.end - pass.begin);
      last = pass.end;
      if (pass.phase == Phase::Forward) forward.push_back(pass.micro_batch);
      if (pass.phase == Phase::Backward) backward.push_back(pass.micro_batch);
    }
    EXPECT_EQ(forward, (std::vector<std::int32_t>{0, 1, 2, 3}));
    EXPECT_EQ(backward, (std::vector<std::int32_t>{0, 1, 2, 3}));
  }
}

TEST(ScheduleLane, TransfersThatItTakesTogetherMoveAsMuchAsApart) {
  const auto bytes_of = [](Duration finest) {
    Bytes sum;
    std::int32_t transfers = 0;
    for (const ScheduleLane::Traffic& run : schedule_lane(small().job, small().trace, Rank{0}, 2, finest).traffic) {
      sum += run.bytes;
      transfers += run.transfers;
    }
    return std::pair(sum, transfers);
  };
  const auto apart = bytes_of(Duration{0});
  EXPECT_GT(apart.second, 20);
  EXPECT_EQ(bytes_of(Duration{picoseconds_per_second}), apart);
}

TEST(Report, SaysWhatThePredictionSays) {
  const ReportOrigin origin{"1.2.3", "tidemark report small.toml", "small.toml", small_job};
  const json data = json::parse(report_json(small().job, small().trace, small().prediction, origin));
  EXPECT_EQ(data["schema"], "tidemark.report/1");
  EXPECT_EQ(data["answer"], small().prediction.fits);
  EXPECT_EQ(data["stages"].size(), 2);
  EXPECT_EQ(data["prediction"]["groups"].size(), small().prediction.groups.size());
  std::int64_t ranks = 0;
  for (std::size_t i = 1; i < data["heat"]["runs"].size(); i += 2) ranks += data["heat"]["runs"][i].get<std::int64_t>();
  EXPECT_EQ(ranks, 8);
  std::int64_t reserved = 0, most = 0;
  for (const json& step : data["stages"][0]["memory"]["reserved_kib"])
    most = std::max(most, reserved += step.get<std::int64_t>());
  EXPECT_EQ(most, small().prediction.highest().memory.peak_reserved.count() / 1024);
}

std::string problem_of(const std::string& record) {
  try {
    (void)report_of_record(record, {"1.2.3", "tidemark report r.json", "r.json", ""});
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(Report, AnswersAsTheRecordDoes) {
  const auto report = [](const char* record) { return report_of_record(record, {"1.2.3", "tidemark", "r.json", ""}); };
  const Report study = report(
      R"({"schema":"tidemark.capacity/1","study":"s","largest":"train.micro_batch","limits":[{"largest":null}]})");
  EXPECT_FALSE(study.answer);
  EXPECT_EQ(study.verdict, "no: not even the smallest train.micro_batch fits\n");
  const Report plan =
      report(R"({"schema":"tidemark.plan/1","space":"s","candidates":7,"best":[{"tokens_per_s_per_device":12.4}]})");
  EXPECT_TRUE(plan.answer);
  EXPECT_EQ(plan.verdict, "yes: the best of 7 candidates makes 12 tokens/s per device\n");
  EXPECT_EQ(json::parse(plan.data)["record"]["candidates"], 7);
  const Report comparison =
      report(R"({"schema":"tidemark.comparison/1","scenario":"s","agrees":false,"tolerance":0.02})");
  EXPECT_FALSE(comparison.answer);
  EXPECT_EQ(comparison.verdict, "no, they differ by more than 2 %\n");
}

TEST(Report, SaysOfWhatThereIsNone) {
  EXPECT_NE(problem_of("[1").find("r.json: error: this is no JSON of Tidemark"), std::string::npos);
  EXPECT_NE(problem_of("{}").find("it has no schema"), std::string::npos);
  EXPECT_NE(problem_of(R"({"schema":"tidemark.prediction/1"})").find("there is no report of tidemark.prediction/1"),
            std::string::npos);
  EXPECT_NE(problem_of(R"({"schema":"tidemark.plan/1"})").find("the file lacks parts that tidemark.plan/1 has"),
            std::string::npos);
}

TEST(Report, LaysSeveralBesideEachOtherAndSaysWhetherAllFit) {
  const Report beside = report_beside({R"({"title":"a","answer":true})", R"({"title":"b","answer":false})"},
                                      {"1.2.3", "tidemark", "a.toml, b.toml", ""});
  EXPECT_FALSE(beside.answer);
  EXPECT_EQ(beside.verdict, "no, 1 of 2 fit\n");
  EXPECT_EQ(beside.title, "a, b");
}

TEST(Report, IsOneFileThatNothingInItsDataCanBreak) {
  const std::string page = report_page("a <b> & c", R"({"text":"</script><!-- {{charts}} {{script}}"})");
  EXPECT_NE(page.find("<title>a &lt;b> &amp; c</title>"), std::string::npos);
  EXPECT_NE(page.find(R"({"text":"\u003c/script>\u003c!-- {{charts}} {{script}}"})"), std::string::npos);
  for (const char* outside : {"src=\"", "<link", "@import", "url("})
    EXPECT_EQ(page.substr(0, page.find("<script>")).find(outside), std::string::npos) << outside;
  EXPECT_LT(page.size(), std::size_t{2} << 20);
}

}  // namespace
}  // namespace tidemark::tests::report_test
