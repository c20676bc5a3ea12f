// DeepSpeed's optimizer and parameters on hosts: what these hold, by the sizes that its documents give, and how long
// Adam takes there.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/plan/bounds/exact_memory.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/explanation.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::zero_offload_test {
namespace {

Scenario job(const std::string& stage, const std::string& offload, const std::string& switches = "") {
  return parse_scenario(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 4
[layout]
sharding = ")" + stage + R"("
[train]
sequence_length = 1024
micro_batch = 1
steps = 2
[offload]
)" + offload + "\n[runtime]\nname = \"deepspeed\"\n[runtime.switches]\n" +
                            switches + "\n",
                        "job.toml", folders);
}

const std::string optimizer = "optimizer = \"cpu\"", both = optimizer + "\nparameters = \"cpu\"";

// Of all ranks, in bytes for each parameter of the model.
double held(const Prediction& p, Category category) {
  Bytes sum;
  for (const RankGroup& group : p.groups)
    sum += static_cast<std::int64_t>(group.ranks.size()) * group.memory.host.composition[category];
  return static_cast<double>(sum.count()) / static_cast<double>(p.parameters);
}

// Ren et al. 2021 (ZeRO-Offload) and Rajbhandari et al. 2021 (ZeRO-Infinity): parameters, momentum, variance and
// gradients in fp32 on the host; of stage 3 what is computed with too. DeepSpeed holds besides what gradients were
// reduced in.
TEST(ZeroOffload, HoldsTheStatesOfThePapers) {
  constexpr double close = 0.01;
  const Prediction three = predict(job("zero3", both));
  EXPECT_NEAR(held(three, Category::OptimizerMaster), 4, close);
  EXPECT_NEAR(held(three, Category::OptimizerMoments), 8, close);
  EXPECT_NEAR(held(three, Category::Gradients), 4 + 2, close);
  EXPECT_NEAR(held(three, Category::Parameters), 2, close);
  // Stages 1 and 2: at the peak every rank makes the model.
  EXPECT_GE(held(predict(job("zero2", optimizer)), Category::Parameters), 8 * 4);
}

TEST(ZeroOffload, IsTheSameToThePlanner) {
  for (const Scenario& s : {job("zero2", optimizer), job("zero3", both), job("zero3", "parameters = \"cpu\"")}) {
    EXPECT_EQ(whole_figures(s), figures_of(predict(s, {}, {.reported = PredictionDetail::Figures})));
    Scenario small = s;
    small.cluster.host.memory = predict(s).fullest_node.bytes - Bytes{1};
    SharedModels models;
    EXPECT_FALSE(fits(small, exact_memory(small, models)));
  }
}

TEST(ZeroOffload, LeavesTheDevice) {
  const auto device = [](const Scenario& s) { return predict(s).groups.front().memory.peak_reserved; };
  const Bytes none = device(job("zero2", "optimizer = \"none\"")), moved = device(job("zero2", optimizer));
  // Master and moments, an eighth of them.
  EXPECT_LT(moved, none - Bytes{predict(job("zero2", optimizer)).parameters * 12 / 8});
}

// Adam reads four numbers of four bytes and writes three; each rank has its share of the node's bandwidth.
TEST(ZeroOffload, AdamTakesTheHostsBandwidth) {
  Scenario s = job("zero2", optimizer);
  const Prediction fast = predict(s);
  const double share = static_cast<double>(s.cluster.host.memory_bandwidth.count()) / 8;
  const double adam = 28 * static_cast<double>(fast.parameters) / 8 / share;
  s.cluster.host.memory_bandwidth = Bandwidth{s.cluster.host.memory_bandwidth.count() / 2};
  const double slower = 1e-12 * static_cast<double>((predict(s).step.step - fast.step.step).count());
  EXPECT_GT(slower, adam);
  EXPECT_LT(slower, 1.5 * adam) << "besides, what was updated is cast";
}

constexpr Bandwidth gbps(std::int64_t number) { return Bandwidth{number * 1'000'000'000}; }

// Optimizer and parameters in files. Modules give up at once what they have gathered: buffers are few.
Scenario infinity() {
  Scenario s = job("zero3", both);
  ZeroBehavior& zero = s.runtime.eager.zero;
  zero.nvme.optimizer = zero.nvme.parameters = true;
  zero.nvme.max_in_cpu = 0;
  zero.sub_group_size = 100'000'000;
  zero.max_reuse = 0;
  s.cluster.host.nvme_read_bandwidth = gbps(40);
  s.cluster.host.nvme_write_bandwidth = gbps(20);
  return s;
}

// Rajbhandari et al. 2021 (ZeRO-Infinity): 16 bytes of optimizer states and gradients, 2 of parameters. What is smaller
// than 1 MiB stays.
TEST(ZeroInfinity, HoldsTheStatesOfThePaperInFiles) {
  constexpr double close = 0.05;
  const Prediction p = predict(infinity());
  const auto files = static_cast<double>(p.fullest_node.nvme.count()) / static_cast<double>(p.parameters);
  EXPECT_NEAR(files, 16 + 2, close);
  EXPECT_LT(held(p, Category::OptimizerMaster) + held(p, Category::OptimizerMoments), 12 / 2)
      << "of one sub-group, while they are made";
  const nlohmann::json json = nlohmann::json::parse(prediction_json(p));
  EXPECT_EQ(json["host"]["nvme_bytes"], p.fullest_node.nvme.count());
  EXPECT_EQ(json["groups"][0]["peak_nvme_bytes"], p.groups[0].memory.nvme.count());
  EXPECT_NE(prediction_text(p).find("in files on NVMe: "), std::string::npos);
}

// Every step reads and writes 16 bytes of each element that is updated, and parameters besides; each rank has its
// share.
TEST(ZeroInfinity, StepsTakeTheDrivesBandwidth) {
  Scenario s = infinity();
  s.runtime.eager.zero.nvme.parameters = false;
  const Prediction fast = predict(s);
  const double bytes = 16 * static_cast<double>(fast.parameters);
  s.cluster.host.nvme_read_bandwidth = gbps(20);
  const double reads = 1e-12 * static_cast<double>((predict(s).step.step - fast.step.step).count());
  EXPECT_NEAR(reads, bytes / 20e9 - bytes / 40e9, 0.02 * reads);
  s.cluster.host.nvme_read_bandwidth = gbps(40);
  s.runtime.eager.zero.nvme.pipeline_read = s.runtime.eager.zero.nvme.pipeline_write = true;
  s.runtime.eager.zero.nvme.optimizer_buffers = 12;
  EXPECT_LT(predict(s).step.step, fast.step.step);
}

TEST(ZeroInfinity, StopsWhereDeepSpeedDoes) {
  const auto stops = [](const auto& change) -> std::string {
    Scenario s = infinity();
    change(s.runtime.eager.zero);
    try {
      (void)predict(s);
    } catch (const InputError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(stops([](ZeroBehavior&) {}), "");
  EXPECT_EQ(stops([](ZeroBehavior& zero) { zero.nvme.optimizer_buffers = 3; }),
            "job: error: DeepSpeed runs out of swap buffers: 4 are asked for, and of 3 3 are free\n"
            "  hint: a larger offload_optimizer.buffer_count");
  EXPECT_NE(stops([](ZeroBehavior& zero) { zero.max_reuse = 100'000'000'000; }).find("offload_param.buffer_count"),
            std::string::npos)
      << "what stays gathered keeps its buffer";
  EXPECT_NE(stops([](ZeroBehavior& zero) { zero.nvme.parameter_buffer_size = 1'000'000; }).find("buffer_size = "),
            std::string::npos);
  EXPECT_NE(stops([](ZeroBehavior& zero) {
              zero.nvme.fast_init = true;
              zero.nvme.parameter_buffer_size = 66'000'000;
            }).find("fast_init"),
            std::string::npos);
}

TEST(ZeroOffload, IsToldTensorByTensor) {
  const Job three(job("zero3", both));
  const RequestedMoment peak{RequestedMoment::Kind::HostPeak};
  const nlohmann::json json = nlohmann::json::parse(live_json(three, Rank{0}, peak));
  std::int64_t sum = 0, pinned = 0;
  for (const auto& tensor : json["tensors"]) {
    sum += tensor["block_bytes"].get<std::int64_t>();
    if (tensor["memory"] == "pinned") ++pinned;
    EXPECT_GE(tensor["block_bytes"], tensor["requested_bytes"]);
  }
  EXPECT_EQ(sum, json["host_bytes"]);
  EXPECT_EQ(pinned, 3) << "parameters, gradients, and what they are reduced in";
  EXPECT_LT(Bytes{sum}, predict(three.scenario).groups.front().memory.host.bytes);
  EXPECT_NE(live_text(three, Rank{0}, peak, Detail::ByRole).find("of free blocks that PyTorch keeps pinned"),
            std::string::npos);
}

}  // namespace
}  // namespace tidemark::tests::zero_offload_test
