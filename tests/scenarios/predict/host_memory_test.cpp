// Jobs that keep tensors on their hosts: what nodes hold, and who judges it.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/plan/bounds/exact_memory.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/predict/nccl_host_memory.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/explanation.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "scenarios/report/timeline.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::host_memory_test {
namespace {

using namespace literals;

std::string job(const std::string& offload, const std::string& runtime = "name = \"fsdp2\"") {
  return R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 16
[model_override]
num_hidden_layers = 4
[train]
sequence_length = 1024
micro_batch = 1
[offload]
)" + offload +
         "\n[runtime]\n" + runtime + "\n";
}
Scenario scenario_of(const std::string& text) { return parse_scenario(text, "job.toml", folders); }
std::string problems(const std::string& text) {
  try {
    (void)scenario_of(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}

const std::string parameters = "parameters = \"cpu\"";

TEST(HostMemory, OfANodeIsWhatItsRanksHold) {
  const Prediction p = predict(scenario_of(job(parameters)));
  Bytes of_first_node, of_all;
  for (const RankGroup& group : p.groups)
    for (const Rank rank : group.ranks) (rank.value < 8 ? of_first_node : of_all) += group.memory.host.bytes;
  EXPECT_EQ(p.fullest_node.bytes, std::max(of_first_node, of_all));
  EXPECT_TRUE(p.fits);
  // Four bytes of every parameter, pinned, four of its gradient, and eight of AdamW's moments, of one and a half
  // billion.
  const Bytes whole = 16 * Bytes{p.parameters};
  EXPECT_GT(of_first_node + of_all, whole);
  EXPECT_LT(of_first_node + of_all, whole + whole / 2);
  for (const RankGroup& group : p.groups) {
    const MemoryRecord& m = group.memory;
    EXPECT_EQ(m.host.composition.total(), m.host.bytes);
    EXPECT_LE(m.host.bytes, m.pinned.peak + m.pageable.peak);
    EXPECT_GT(m.host.composition[Category::OptimizerMoments], 2 * m.host.composition[Category::Gradients] - 1_MiB);
  }
}

TEST(HostMemory, ThatIsTooSmallIsWhereAJobEnds) {
  Scenario s = scenario_of(job(parameters));
  const Prediction p = predict(s);
  s.cluster.host.memory = p.fullest_node.upper;
  EXPECT_TRUE(predict(s).fits);
  s.cluster.host.memory = p.fullest_node.bytes - Bytes{1};
  const Prediction too_small = predict(s);
  EXPECT_FALSE(too_small.fits);
  EXPECT_EQ(prediction_text(too_small).substr(0, 38), "no, it does not fit: the host of node ");
  EXPECT_EQ(prediction_text(too_small).find("device lacks"), std::string::npos);
  s.cluster.device.capacity = too_small.most_required().required.upper * 98 / 100;
  const std::string neither = prediction_text(predict(s));
  EXPECT_LT(neither.find(", and the fullest device lacks "), neither.find('\n')) << "one does not hide the other";
  const nlohmann::json json = nlohmann::json::parse(prediction_json(too_small));
  EXPECT_EQ(json["outcome"], "out_of_memory");
  EXPECT_EQ(json["failure"]["host_of_node"], p.fullest_node.node);
  EXPECT_EQ(json["failure"]["phase"], "optimizer_step");
  EXPECT_EQ(json["host"]["fullest_node_bytes"], p.fullest_node.bytes.count());
  // The planner says the same.
  SharedModels models;
  EXPECT_FALSE(fits(s, exact_memory(s, models)));
  EXPECT_EQ(whole_figures(s), figures_of(predict(s, {}, {.reported = PredictionDetail::Figures})));
}

// What is saved in one micro-batch may be under way to the device when the next one's is saved.
TEST(HostMemory, OfPinnedBlocksMayBeMoreWhileTheyAreCopied) {
  const auto saved = [](const std::string& pinned) {
    std::string text = job("activations = \"cpu\"", "name = \"pytorch\"\nswitches = { pin_memory = " + pinned + " }");
    return predict(scenario_of(text.insert(text.find("micro_batch"), "global_batch = 32\n")));
  };
  const Prediction pinned = saved("true"), pageable = saved("false");
  const Bytes nccl = nccl_host_memory(Job(pageable.scenario)).front().high;
  EXPECT_EQ(pageable.fullest_node.upper, pageable.fullest_node.bytes + nccl);
  EXPECT_GT(pinned.fullest_node.upper, pinned.fullest_node.bytes + nccl);
  EXPECT_LE(pinned.fullest_node.upper, 2 * pinned.fullest_node.bytes + nccl);
  Scenario tight = pinned.scenario;
  tight.cluster.host.memory = pinned.fullest_node.upper - Bytes{1};
  EXPECT_FALSE(predict(tight).fits);
  EXPECT_NE(prediction_text(predict(tight)).find("a host lacks 0.00 GiB"), std::string::npos)
      << prediction_text(predict(tight)).substr(0, 200);
}

TEST(HostMemory, OfNcclIsWithinTheUpperEnd) {
  const Prediction p = predict(scenario_of(job(parameters)));
  const std::vector<Estimate> nccl = nccl_host_memory(Job(p.scenario));
  ASSERT_EQ(nccl.size(), 2);
  // Each of eight ranks has a list of work for one communicator at least; two nodes are joined by connections.
  EXPECT_GT(nccl.front().low, 8 * 1_MiB);
  EXPECT_GT(nccl.front().high, nccl.front().low);
  EXPECT_GE(p.fullest_node.upper, p.fullest_node.bytes + std::min(nccl[0].high, nccl[1].high));
  EXPECT_NE(prediction_text(p).find("hosts: NCCL 2.28 also takes "), std::string::npos);
  // A job without tensors there is not judged, and told so.
  const Prediction none = predict(scenario_of(job("")));
  EXPECT_TRUE(nccl_host_memory(Job(none.scenario)).empty());
  EXPECT_NE(none.not_modelled.front().find("NCCL"), std::string::npos);
}

TEST(HostMemory, HasATimelineAndAListOfWhatIsThereAtThePeak) {
  const Job its(scenario_of(job(parameters)));
  const Trace trace = simulate_time(its);
  const MemoryRecord memory = predict(its, trace).groups.front().memory;
  std::istringstream lines(timeline(its, trace, {.ranks = {Rank{0}}, .steps = {0, 1, 2}}, TimelineFormat::JsonLines));
  Bytes pinned, both;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json record = nlohmann::json::parse(line);
    if (record.value("record", "") != "host") continue;
    const Bytes its_pinned{record["pinned_bytes"].get<std::int64_t>()};
    pinned = std::max(pinned, its_pinned);
    both = std::max(both, its_pinned + Bytes{record["pageable_bytes"].get<std::int64_t>()});
  }
  EXPECT_EQ(pinned, memory.pinned.peak);
  EXPECT_EQ(both, memory.host.bytes);

  const nlohmann::json live = nlohmann::json::parse(live_json(its, Rank{0}, {RequestedMoment::Kind::HostPeak}));
  Bytes requested, blocks;
  for (const nlohmann::json& tensor : live["tensors"]) {
    requested += Bytes{tensor["requested_bytes"].get<std::int64_t>()};
    blocks += Bytes{tensor["block_bytes"].get<std::int64_t>()};
    EXPECT_TRUE(tensor["memory"] == "pinned" || tensor["memory"] == "pageable");
  }
  EXPECT_EQ(requested, memory.host.bytes - memory.host.composition[Category::Fragmentation]);
  EXPECT_EQ(live["host_bytes"], blocks.count());
  EXPECT_GT(blocks, requested);
  EXPECT_LE(blocks, memory.host.bytes);
  EXPECT_NE(live_text(its, Rank{0}, {RequestedMoment::Kind::HostPeak}, Detail::ByRole).find(" on the host in "),
            std::string::npos);
  const Job without(scenario_of(job("parameters = \"none\"")));
  EXPECT_THROW((void)live_text(without, Rank{0}, {RequestedMoment::Kind::HostPeak}, Detail::ByRole), InputError);
}

TEST(HostMemory, ThatNobodyStatesIsNotJudged) {
  Scenario s = scenario_of(job(parameters));
  s.cluster.host.memory = {};
  EXPECT_TRUE(predict(s).fits);
}

TEST(HostMemory, LacksNothingWhereThereIsEnough) {
  Scenario s = scenario_of(job(parameters));
  s.cluster.host.memory = 64_GiB;
  Figures figures;
  EXPECT_EQ(host_memory_shortfall(s, figures), 0_B);
  figures.host_upper = 63_GiB;
  EXPECT_EQ(host_memory_shortfall(s, figures), 0_B);
  figures.host_upper = 65_GiB;
  EXPECT_EQ(host_memory_shortfall(s, figures), 1_GiB);
}

TEST(HostMemory, OfAKindThatAJobDoesNotAskForIsZeroBesideTheOther) {
  for (const std::string pinned : {"true", "false"}) {
    const std::string runtime = "name = \"pytorch\"\nswitches = { pin_memory = " + pinned + " }";
    const Prediction p = predict(scenario_of(job("activations = \"cpu\"", runtime)));
    const MemoryRecord& memory = p.groups.front().memory;
    EXPECT_EQ((pinned == "true" ? memory.pageable : memory.pinned).peak, 0_B);
    const nlohmann::json group = nlohmann::json::parse(prediction_json(p))["groups"][0];
    EXPECT_EQ(group["peak_host_pinned_bytes"], memory.pinned.peak.count());
    EXPECT_EQ(group["peak_host_pageable_bytes"], memory.pageable.peak.count());
  }
}

TEST(HostMemory, IsNoneOfAJobThatAsksForNone) {
  const Prediction p = predict(scenario_of(job("parameters = \"none\"")));
  EXPECT_EQ(p.fullest_node.bytes, 0_B);
  EXPECT_FALSE(nlohmann::json::parse(prediction_json(p)).contains("host"));
}

TEST(HostMemory, IsAskedForWhereItIsKnown) {
  EXPECT_EQ(problems(job(parameters + "\noptimizer = \"cpu\"")), "no problem");
  EXPECT_EQ(problems(job("parameters = \"none\"\noptimizer = \"none\"\nactivations = \"none\"")), "no problem");
  EXPECT_EQ(problems(job(parameters + "\noptimizer = \"none\"")),
            "job.toml:11:13: error: optimizer = \"none\": PyTorch has it where the parameters are\n"
            "  hint: leave it out");
  EXPECT_EQ(problems(job(parameters, "name = \"fsdp\"")), "no problem");
  EXPECT_EQ(problems(job(parameters, "name = \"torchtitan\"")), "no problem");
  EXPECT_EQ(problems(job("activations = \"cpu\"", "name = \"pytorch\"\nswitches = { pin_memory = true }")),
            "no problem");
  EXPECT_EQ(problems(job(parameters, "name = \"fsdp\"\n[layout]\nsharding = \"none\"")),
            "job.toml:9:1: error: offload: parameters that are not sharded (NO_SHARD) stay on the device here\n"
            "  hint: \"zero3\" or \"zero2\" would do");
  std::string twice = job(parameters, "name = \"fsdp\"\nswitches = { sync_each_batch = true }");
  EXPECT_EQ(problems(twice), "no problem");
  twice.insert(twice.find("micro_batch"), "global_batch = 32\n");
  EXPECT_EQ(problems(twice),
            "job.toml:14:12: error: switches: with sync_each_batch, CPUOffload keeps only the last micro-batch's "
            "gradients\n  hint: leave sync_each_batch out");
  EXPECT_NE(problems(job(parameters, "name = \"pytorch\"")).find("job.toml:10:14: error: "), std::string::npos);
  EXPECT_NE(problems(job("activations = \"cpu\"")).find("job.toml:10:15: error: "), std::string::npos);
  EXPECT_NE(problems(job("parameters = \"nvme\"")).find("job.toml:10:14: error: "), std::string::npos);
  EXPECT_EQ(problems(job("parameters = \"none\"", "name = \"fsdp2\"\nswitches = { pin_memory = true }")).substr(0, 63),
            "job.toml:13:27: error: pin_memory: nothing is on the host\n  hin");
}

}  // namespace
}  // namespace tidemark::tests::host_memory_test
