// The timeline in Chrome's trace format: parsed back, and held against the timeline's own records.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/timeline.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::chrome_trace_test {
namespace {

using nlohmann::json;

// Interleaved, so that messages go both ways and on several streams.
constexpr std::string_view interleaved_job = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 16
[model_override]
num_hidden_layers = 8
[layout]
tensor = 2
sequence_parallel = true
pipeline = 4
chunks = 2
schedule = "interleaved"
sharding = "zero1"
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 8
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "megatron"
)";

const Job& job() {
  static const Job the_job(parse_scenario(interleaved_job, "interleaved.toml", folders));
  return the_job;
}
const Trace& trace() {
  static const Trace the_trace = simulate_time(job());
  return the_trace;
}

TimelineQuery everything(std::vector<Rank> ranks) { return {.ranks = std::move(ranks), .steps = {0, 1, 2}}; }

json events(const TimelineQuery& query) {
  const json whole = json::parse(timeline(job(), trace(), query, TimelineFormat::ChromeTrace));
  EXPECT_EQ(whole["displayTimeUnit"], "ms");
  return whole["traceEvents"];
}

std::vector<json> records(const TimelineQuery& query) {
  std::istringstream lines(timeline(job(), trace(), query));
  std::vector<json> found;
  for (std::string line; std::getline(lines, line);) found.push_back(json::parse(line));
  return found;
}

// Exact: times are written with six decimals, one for each picosecond.
std::int64_t picoseconds(const json& microseconds) { return std::llround(microseconds.get<double>() * 1e6); }

std::pair<int, int> track_of(const json& e) { return {e["pid"].get<int>(), e["tid"].get<int>()}; }

const std::vector<Rank> one_of_each_stage{Rank{0}, Rank{4}, Rank{8}, Rank{12}};

TEST(ChromeTrace, EveryTrackRunsForwardWithoutOverlaps) {
  std::map<std::pair<int, int>, std::int64_t> ends;
  std::set<std::pair<int, int>> named;
  const json all = events(everything(one_of_each_stage));
  for (const json& e : all)
    if (e["ph"] == "M" && e["name"] == "thread_name") named.insert(track_of(e));
  for (const json& e : all) {
    if (e["ph"] != "X") continue;
    const std::pair<int, int> track = track_of(e);
    EXPECT_TRUE(named.contains(track)) << e;
    EXPECT_FALSE(e["name"].get<std::string>().empty()) << e;
    const std::int64_t begin = picoseconds(e["ts"]);
    EXPECT_GE(begin, ends[track]) << e;
    ends[track] = begin + picoseconds(e["dur"]);
  }
  for (const Rank rank : one_of_each_stage) {
    EXPECT_TRUE(ends.contains({rank.value, 1})) << "a host track";
    EXPECT_TRUE(ends.contains({rank.value, 10})) << "a compute stream";
  }
}

TEST(ChromeTrace, HasTheSpansOfTheTimeline) {
  const TimelineQuery query = everything(one_of_each_stage);
  std::multiset<std::tuple<int, int, std::int64_t, std::int64_t, std::string>> expected, found;
  for (const json& r : records(query))
    if (r.contains("record") && r["record"] == "span")
      expected.emplace(r["rank"].get<int>(), r["stream"].get<int>(), r["begin_ps"].get<std::int64_t>(),
                       r["end_ps"].get<std::int64_t>(), r["kind"].get<std::string>());
  for (const json& e : events(query))
    if (e["ph"] == "X" && e["cat"] != "host")
      found.emplace(e["pid"].get<int>(), e["tid"].get<int>() - 10, picoseconds(e["ts"]),
                    picoseconds(e["ts"]) + picoseconds(e["dur"]), e["cat"].get<std::string>());
  EXPECT_EQ(found, expected);
  EXPECT_GT(found.size(), 1000u);
}

TEST(ChromeTrace, CountersAreTheTimelinesSums) {
  const TimelineQuery query = everything({Rank{0}, Rank{12}});
  // The last value of each instant, and the highest of all.
  std::map<std::pair<int, std::int64_t>, std::map<std::string, std::int64_t>> expected;
  std::map<int, std::int64_t> peaks;
  std::map<int, std::map<std::string, std::int64_t>> by_category;
  for (const json& r : records(query)) {
    if (!r.contains("record") || (r["record"] != "memory" && r["record"] != "driver" && r["record"] != "state"))
      continue;
    const int rank = r["rank"];
    auto& now = expected[{rank, r["time_ps"]}];
    now["allocated"] = r["allocated_bytes"];
    now["reserved"] = r["reserved_bytes"];
    now["device"] = r["reserved_bytes"].get<std::int64_t>() + r["driver_bytes"].get<std::int64_t>();
    peaks[rank] = std::max(peaks[rank], now["allocated"]);
    if (r["record"] == "memory")
      by_category[rank][r["category"]] += (r["event"] == "alloc" ? 1 : -1) * r["block_bytes"].get<std::int64_t>();
  }
  std::map<int, std::map<std::string, std::int64_t>> now;
  std::map<int, std::int64_t> highest, time;
  std::map<int, json> parts;
  const auto settle = [&](int rank) {
    const auto there = expected.find({rank, time[rank]});
    if (there == expected.end()) return;
    EXPECT_EQ(now[rank], there->second) << rank << " at " << time[rank];
  };
  for (const json& e : events(query)) {
    if (e["ph"] != "C") continue;
    const int rank = e["pid"];
    const std::int64_t at = picoseconds(e["ts"]);
    EXPECT_GE(at, time[rank]);
    if (at != time[rank]) settle(rank);
    time[rank] = at;
    if (e["name"] == "by category") {
      parts[rank] = e["args"];
      continue;
    }
    now[rank][e["name"]] = e["args"]["bytes"];
    highest[rank] = std::max(highest[rank], now[rank]["allocated"]);
  }
  for (const int rank : {0, 12}) {
    settle(rank);
    EXPECT_EQ(highest[rank], peaks[rank]);
    std::int64_t sum = 0;
    for (const auto& [category, bytes] : by_category[rank]) {
      EXPECT_EQ(parts[rank][category], bytes) << category;
      sum += bytes;
    }
    EXPECT_EQ(sum, now[rank]["allocated"]);
  }
}

// Each flow begins in a span of the sender and ends in one of the receiver.
void expect_matched_flows(const std::vector<Rank>& ranks, std::size_t least) {
  struct End {
    int pid = -1, tid = -1;
    std::int64_t at = 0;
  };
  std::map<std::int64_t, End> starts, ends;
  std::map<std::pair<int, int>, std::vector<std::pair<std::int64_t, std::int64_t>>> exchanges;
  for (const json& e : events(everything(ranks))) {
    if (e["ph"] == "X" && e["cat"] == "exchange")
      exchanges[track_of(e)].push_back({picoseconds(e["ts"]), picoseconds(e["ts"]) + picoseconds(e["dur"])});
    if (e["ph"] != "s" && e["ph"] != "f") continue;
    auto& side = e["ph"] == "s" ? starts : ends;
    EXPECT_TRUE(side.try_emplace(e["id"], End{e["pid"], e["tid"], picoseconds(e["ts"])}).second) << e;
  }
  EXPECT_GE(starts.size(), least);
  EXPECT_EQ(starts.size(), ends.size());
  const auto in_a_span = [&](const End& end) {
    const auto& spans = exchanges[{end.pid, end.tid}];
    return std::any_of(spans.begin(), spans.end(),
                       [&](const auto& s) { return s.first <= end.at && end.at < s.second; });
  };
  for (const auto& [id, start] : starts) {
    ASSERT_TRUE(ends.contains(id)) << id;
    EXPECT_NE(start.pid, ends[id].pid);
    EXPECT_LE(start.at, ends[id].at);
    EXPECT_TRUE(in_a_span(start)) << id;
    EXPECT_TRUE(in_a_span(ends[id])) << id;
  }
}

TEST(ChromeTrace, EveryMessageBetweenShownRanksIsAnArrow) {
  // Two steps of four micro-batches through eight chunks: 4 * 7 messages forward and as many back.
  expect_matched_flows(one_of_each_stage, 2 * 2 * 4 * 7);
}
TEST(ChromeTrace, RanksThatStandForOthersHaveArrowsToo) {
  expect_matched_flows({Rank{0}, Rank{6}, Rank{9}, Rank{13}}, 1);  // not in one pipeline
  if (every_case()) expect_matched_flows({Rank{0}, Rank{1}, Rank{2}, Rank{4}, Rank{5}, Rank{8}, Rank{12}}, 1);
  expect_matched_flows({Rank{3}}, 0);
}

TEST(ChromeTrace, SameInputGivesSameBytes) {
  const TimelineQuery query{.ranks = {Rank{0}}, .steps = {2}};
  EXPECT_EQ(timeline(job(), trace(), query, TimelineFormat::ChromeTrace),
            timeline(job(), trace(), query, TimelineFormat::ChromeTrace));
}

}  // namespace
}  // namespace tidemark::tests::chrome_trace_test
