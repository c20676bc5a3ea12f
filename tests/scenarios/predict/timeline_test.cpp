#include "scenarios/report/timeline.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/predict/role_program.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/text/fabric_text.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/scenarios/small_job.hpp"

namespace tidemark::tests::timeline_test {
namespace {

using nlohmann::json;

Scenario scenario() { return parse_scenario(small_job, "small.toml", folders); }

const Job& job() {
  static const Job the_job(scenario());
  return the_job;
}
const Trace& trace() {
  static const Trace the_trace = simulate_time(job());
  return the_trace;
}

constexpr Rank last_rank{7};
const std::vector<std::int32_t> all_steps{0, 1, 2};

TimelineQuery everything(std::vector<Rank> ranks = {Rank{0}, Rank{2}, last_rank}) {
  return {.ranks = std::move(ranks), .steps = all_steps};
}

// Parsing takes most of these tests' time: what was parsed is kept.
const std::vector<json>& records(const std::string& text) {
  static std::map<std::string, std::vector<json>> known;
  std::vector<json>& found = known[text];
  if (!found.empty()) return found;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    found.push_back(json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return found;
}
std::vector<json> records(const TimelineQuery& query) { return records(timeline(job(), trace(), query)); }
std::vector<json> records(const TimelineQuery& query, std::string_view kind) {
  std::vector<json> found = records(query);
  std::erase_if(found, [&](const json& r) { return !r.contains("record") || r["record"] != kind; });
  return found;
}
bool is_memory(const json& record) {
  return record.contains("record") && (record["record"] == "memory" || record["record"] == "driver");
}

TEST(Timeline, BeginsWithItsSchemaAndEndsWithItsCounts) {
  const std::vector<json> all = records(everything());
  EXPECT_EQ(all.front()["schema"], "tidemark.timeline/1");
  EXPECT_EQ(all.front()["scenario"], "small");
  EXPECT_EQ(all.front()["world_size"], 8);
  EXPECT_EQ(all.front()["link_model"], "max-min");
  EXPECT_EQ(all.front()["ranks"], json({0, 2, 7}));
  EXPECT_EQ(all.front()["steps"], json(all_steps));
  EXPECT_TRUE(all.front()["categories"].is_null());
  EXPECT_EQ(all.front()["end_ps"], trace().end.since_start().count());
  EXPECT_EQ(all.back()["record"], "end");
  EXPECT_EQ(all.back()["spans"], records(everything(), "span").size());
  EXPECT_EQ(all.back()["memory_events"], std::count_if(all.begin(), all.end(), is_memory));
}

TEST(Timeline, EverySpanOfTheTraceIsThere) {
  for (const Rank rank : {Rank{0}, last_rank}) {
    const ClassTimeline its = RoleProgram(job(), job().role_of(rank)).timeline(trace(), rank);
    EXPECT_EQ(records(everything({rank}), "span").size(), its.spans.size());
  }
}

TEST(Timeline, SpansOfOneStreamDoNotOverlap) {
  std::map<std::pair<int, int>, std::int64_t> ends;
  std::set<std::string> kinds;
  for (const json& span : records(everything(), "span")) {
    std::int64_t& end = ends[{span["rank"], span["stream"]}];
    EXPECT_LE(span["ready_ps"], span["begin_ps"]);
    EXPECT_LE(span["begin_ps"], span["end_ps"]);
    EXPECT_GE(span["ready_ps"].get<std::int64_t>(), end) << span;
    end = span["end_ps"];
    kinds.insert(span["kind"]);
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"collective", "exchange", "kernel", "wait"}));
}

TEST(Timeline, SpansSayWhatTheyAreOf) {
  std::set<std::string> communicators;
  for (const json& span : records(everything(), "span")) {
    EXPECT_EQ(span.contains("kernel"), span["kind"] == "kernel") << span;
    EXPECT_EQ(span.contains("collective"), span["kind"] == "collective") << span;
    EXPECT_EQ(span.contains("event"), span["kind"] == "wait") << span;
    EXPECT_EQ(span.contains("messages"), span["kind"] == "exchange") << span;
    EXPECT_NE(span["operator"], "") << span;
    if (span.contains("communicator")) {
      communicators.insert(span["communicator"]);
      EXPECT_GT(span["bytes"], 0) << span;
    }
    // The two stages are four ranks apart.
    if (!span.contains("messages")) continue;
    for (const json& message : span["messages"]) EXPECT_EQ(message["rank"], (span["rank"].get<int>() + 4) % 8);
  }
  for (const char* name : {"tensor", "data", "pipeline"}) EXPECT_TRUE(communicators.contains(name)) << name;
}

TEST(Timeline, WhatOneRankSendsTheOtherReceives) {
  std::map<std::pair<int, int>, std::vector<std::int64_t>> sent, received;  // by sender and receiver
  for (const json& span : records(everything({Rank{0}, Rank{4}}), "span")) {
    if (span["kind"] != "exchange") continue;
    for (const json& message : span["messages"]) {
      if (message["direction"] == "send")
        sent[{span["rank"], message["rank"]}].push_back(message["bytes"]);
      else
        received[{message["rank"], span["rank"]}].push_back(message["bytes"]);
    }
  }
  EXPECT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent, received);
}

TEST(Timeline, MemoryIsThatOfTheRanksOwnReplayAtEveryEvent) {
  for (const Rank rank : {Rank{0}, Rank{2}, last_rank}) {
    const Program program = lower_role(job().lowering(), job().role_of(rank));
    std::map<std::size_t, MemorySample> samples;  // by op
    for (const MemorySample& s : memory_timeline(program, job().costs.of(rank), allocator_options_of(job().scenario)))
      samples.emplace(s.at.op, s);
    MemorySample now;
    std::size_t expected = 0, next = 0;
    for (const Op& op : program.ops)
      expected += std::holds_alternative<Alloc>(op) || std::holds_alternative<Free>(op) ||
                  std::holds_alternative<CreateDriver>(op) || std::holds_alternative<CreateCommunicator>(op);
    std::vector<json> events = records(everything({rank}));
    std::erase_if(events, [](const json& r) { return !is_memory(r); });
    EXPECT_EQ(events.size(), expected);
    for (const json& event : events) {
      for (; next <= event["op"].get<std::size_t>(); ++next)
        if (const auto sample = samples.find(next); sample != samples.end()) now = sample->second;
      ASSERT_EQ(event["allocated_bytes"], now.allocated.count()) << event;
      ASSERT_EQ(event["reserved_bytes"], now.reserved.count()) << event;
      ASSERT_EQ(event["driver_bytes"], now.driver.count()) << event;
    }
  }
}

TEST(Timeline, BlocksAddUpToWhatIsAllocated) {
  std::int64_t allocated = 0, driver = 0;
  std::map<std::string, std::int64_t> by_category;
  for (const json& r : records(everything({last_rank}))) {
    if (!r.contains("record")) continue;
    if (r["record"] == "memory") {
      EXPECT_LE(r["requested_bytes"], r["block_bytes"]);
      const std::int64_t change = r["block_bytes"].get<std::int64_t>() * (r["event"] == "alloc" ? 1 : -1);
      allocated += change;
      by_category[r["category"]] += change;
      ASSERT_EQ(r["allocated_bytes"], allocated) << r;
    } else if (r["record"] == "driver") {
      driver += r["bytes"].get<std::int64_t>();
      by_category[r["category"]] += r["bytes"].get<std::int64_t>();
      ASSERT_EQ(r["driver_bytes"], driver) << r;
    } else if (r["record"] == "state") {
      std::erase_if(by_category, [](const auto& c) { return c.second == 0; });
      EXPECT_EQ(r["by_category"], json(by_category).is_null() ? json::object() : json(by_category)) << r;
    }
  }
}

TEST(Timeline, ReachesThePredictionsPeaks) {
  const Prediction prediction = predict(job(), trace());
  const std::vector<Rank> firsts = first_ranks(prediction);
  ASSERT_EQ(firsts.size(), prediction.groups.size());
  std::map<int, std::int64_t> allocated, device, allocated_time;
  for (const json& r : records(everything(firsts))) {
    if (!is_memory(r)) continue;
    const int rank = r["rank"];
    if (r["allocated_bytes"] > allocated[rank]) {
      allocated[rank] = r["allocated_bytes"];
      allocated_time[rank] = r["time_ps"];
    }
    device[rank] =
        std::max(device[rank], r["reserved_bytes"].get<std::int64_t>() + r["driver_bytes"].get<std::int64_t>());
  }
  for (const RankGroup& group : prediction.groups) {
    const int rank = group.ranks.front().value;
    EXPECT_EQ(allocated[rank], group.memory.allocated.bytes.count());
    EXPECT_EQ(device[rank], group.memory.device.bytes.count());
    EXPECT_EQ(allocated_time[rank], group.allocated_peak_time->since_start().count());
  }
}

TEST(Timeline, ADeviceThatIsTooSmallSaysWhereItEnds) {
  Scenario small = scenario();
  small.cluster.device.capacity = predict(small).groups.front().memory.device.bytes / 2;
  const Job tight(small);
  const Prediction prediction = predict(small);
  ASSERT_TRUE(prediction.groups.front().failure.has_value());
  const std::vector<json> all = records(timeline(tight, simulate_time(tight), everything({Rank{0}})));
  EXPECT_EQ(all[1]["record"], "rank");
  EXPECT_EQ(all[1]["out_of_memory"]["op"], prediction.groups.front().failure->at.op);
  std::int64_t highest = 0;
  for (const json& r : all)
    if (is_memory(r)) highest = std::max<std::int64_t>(highest, r["allocated_bytes"]);
  EXPECT_EQ(highest, prediction.groups.front().memory.allocated.bytes.count());
  EXPECT_TRUE(records(everything({Rank{0}}))[1]["out_of_memory"].is_null());
}

TEST(Timeline, HostTimesAreTheSimulatedOnesWhereProgramsAreEqual) {
  for (const Role& role : job().roles) {
    const Rank rank = role.ranks.front();
    const RoleProgram its(job(), role);
    const Program& program = its.program();
    const Program simulated = job().program(job().program_of(role));
    const std::vector<Instant> host = its.timeline(trace(), rank).host;
    const std::vector<Instant> times = its.times(trace(), rank).host;
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    if (program == simulated) {
      EXPECT_EQ(times, host);
    }
    // Different or not: marks are the same, and so are their times.
    std::vector<Instant> marks, simulated_marks;
    for (std::size_t i = 0; i < program.ops.size(); ++i)
      if (std::holds_alternative<Mark>(program.ops[i])) marks.push_back(times[i]);
    for (std::size_t i = 0; i < simulated.ops.size(); ++i)
      if (std::holds_alternative<Mark>(simulated.ops[i])) simulated_marks.push_back(host[i]);
    EXPECT_EQ(marks, simulated_marks);
  }
}

TEST(Timeline, RanksCanBePicked) {
  const std::vector<json> both = records(everything({Rank{5}, Rank{1}, Rank{5}}));
  std::set<int> ranks;
  for (const json& r : both)
    if (r.contains("rank")) ranks.insert(r["rank"].get<int>());
  EXPECT_EQ(ranks, (std::set<int>{1, 5}));
  EXPECT_EQ(timeline(job(), trace(), everything({Rank{5}, Rank{1}, Rank{5}})),
            timeline(job(), trace(), everything({Rank{1}, Rank{5}})));
}

TEST(Timeline, StepsCanBePickedAndBeginWithTheirState) {
  const std::vector<json> all = records(everything({Rank{0}}));
  for (const int step : all_steps) {
    std::vector<json> expected = all, found = records({.ranks = {Rank{0}}, .steps = {step}});
    const auto elsewhere = [&](const json& r) { return !r.contains("step") || r["step"] != step; };
    std::erase_if(expected, elsewhere);
    std::erase_if(found, elsewhere);
    EXPECT_EQ(found, expected);
    EXPECT_EQ(found.front()["record"], "state");
  }
}

TEST(Timeline, CategoriesOfMemoryCanBePicked) {
  TimelineQuery query = everything({Rank{0}});
  const std::vector<json> all = records(query);
  query.categories = {Category::Nccl, Category::SavedActivations};
  const std::vector<json> picked = records(query);
  EXPECT_EQ(picked.front()["categories"], json({"saved_activations", "nccl"}));
  std::size_t expected = 0, found = 0, spans = 0;
  for (const json& r : all)
    if (is_memory(r) && (r["category"] == "nccl" || r["category"] == "saved_activations")) ++expected;
  for (const json& r : picked) {
    if (is_memory(r)) {
      EXPECT_TRUE(r["category"] == "nccl" || r["category"] == "saved_activations") << r;
      ++found;
    }
    if (r.contains("record") && r["record"] == "span") ++spans;
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(spans, records(everything({Rank{0}}), "span").size());
}

TEST(Timeline, SameInputGivesSameBytes) {
  const Job again(scenario());
  for (const TimelineFormat format : {TimelineFormat::JsonLines, TimelineFormat::Table})
    EXPECT_EQ(timeline(job(), trace(), everything(), format),
              timeline(again, simulate_time(again), everything(), format));
}

TEST(Timeline, TheTableHasALineForEachRecordAndAllColumns) {
  const std::string text = timeline(job(), trace(), everything(), TimelineFormat::Table);
  const std::vector<json> all = records(everything());
  const auto of_table = [](const json& r) {
    return is_memory(r) || (r.contains("record") && (r["record"] == "span" || r["record"] == "state"));
  };
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + std::count_if(all.begin(), all.end(), of_table));
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    ASSERT_EQ(std::count(text.begin() + static_cast<std::ptrdiff_t>(at),
                         text.begin() + static_cast<std::ptrdiff_t>(end), '\t'),
              20)
        << text.substr(at, end - at);
    at = end + 1;
  }
}

// Optimizer states of eight devices come and go by one bridge of their host.
TEST(LinkModel, AlphaBetaSharesNothingAndSaysSo) {
  const PredictOptions alone{.links = LinkModel::AlphaBeta};
  const Scenario offloaded = parse_scenario(
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 8\n"
      "[model_override]\nnum_hidden_layers = 4\n[layout]\ntensor = 2\nsharding = \"zero1\"\n[train]\n"
      "sequence_length = 1024\nmicro_batch = 1\nglobal_batch = 4\nhidden_dropout = 0.0\nattention_dropout = 0.0\n"
      "[runtime]\nname = \"megatron\"\n[offload]\noptimizer = \"cpu\"\n",
      "offloaded.toml", folders);
  const Prediction shared = predict(offloaded), plain = predict(offloaded, {}, alone);
  EXPECT_GT(shared.step.step, plain.step.step);
  EXPECT_GE(predict(scenario()).step.step, predict(scenario(), {}, alone).step.step);
  EXPECT_NE(shared.assumptions, plain.assumptions);
  const auto says = [](const Prediction& p, std::string_view what) {
    return std::any_of(p.assumptions.begin(), p.assumptions.end(),
                       [&](const std::string& line) { return line.find(what) != std::string::npos; });
  };
  EXPECT_TRUE(says(shared, "max-min"));
  EXPECT_TRUE(says(plain, "alpha-beta"));
  EXPECT_FALSE(says(plain, "max-min"));
  // Memory does not depend on it.
  for (std::size_t g = 0; g < shared.groups.size(); ++g) EXPECT_EQ(shared.groups[g].memory, plain.groups[g].memory);
}

TEST(FabricText, ShowsLinksBisectionRoutesAndLoad) {
  const std::string text = fabric_text(job(), last_step(trace()));
  EXPECT_TRUE(text.starts_with("h100-sxm-80g: 8 devices on 1 node of 8")) << text;
  for (const char* part :
       {"nvlink_up", "bisection: ", "  rank 0 to rank 2: 1 path, 349.6 GB/s", "node0.gpu0.nvlink_up ->", "of the step"})
    EXPECT_NE(text.find(part), std::string::npos) << part << '\n' << text;
  EXPECT_EQ(text, fabric_text(job(), last_step(trace())));
}

}  // namespace
}  // namespace tidemark::tests::timeline_test
