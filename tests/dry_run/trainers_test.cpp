// Trainers of frameworks as they are launched: torchtitan's, TRL's, DeepSpeed's, LitGPT's. Each where the Python that
// TIDEMARK_TORCH_PYTHON names has it, and says so where not.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/dry_run/dry_run_fixture.hpp"

namespace tidemark::tests::trainers_test {
namespace {

using nlohmann::json;

class Trainers : public DryRunWithTorch {
 protected:
  [[nodiscard]] bool has(const std::string& modules) const {
    const std::string find =
        "import importlib.util, sys; sys.exit(any(importlib.util.find_spec(m) is None for m in "
        "sys.argv[1:]))";
    return std::system(("cd / && " + python_ + " -c '" + find + "' " + modules + " > /dev/null 2>&1").c_str()) == 0;
  }
  // A program beside that Python.
  [[nodiscard]] std::string program(const std::string& name) const {
    const std::string python = python_.substr(1, python_.size() - 2);
    return "'" + (std::filesystem::path(python).parent_path() / name).string() + "'";
  }
  // Three steps of the first rank, of which the last repeats the second in what is allocated; what is reserved may
  // still grow.
  [[nodiscard]] json rank_of(const std::string& arguments) const {
    const DrySaid said = run("--rank 0 --json answer.json -- " + arguments);
    EXPECT_EQ(said.code, 0) << said.out << said.err;
    if (said.code != 0) return nullptr;
    json rank = json::parse(content(folder_ / "answer.json")).at("ranks").at(0);
    EXPECT_EQ(rank.at("steps").size(), 3U);
    for (const char* when : {"peak", "after"})
      for (const char* what : {"allocated_bytes", "requested_bytes"})
        EXPECT_EQ(rank.at("steps").at(1).at(when).at(what), rank.at("steps").at(2).at(when).at(what)) << when << what;
    return rank;
  }
  static std::int64_t after_last_step(const json& rank) {
    return rank.at("steps").back().at("after").at("allocated_bytes").get<std::int64_t>();
  }
  static bool shards_over_all(const json& rank, std::size_t ranks) {
    for (const json& group : rank.at("groups"))
      if (group.at("ranks").size() == ranks && group.at("shards").get<bool>()) return true;
    return false;
  }
};

// torchtitan's own trainer and its debug model, of which eight ranks have an eighth each.
TEST_F(Trainers, Torchtitan) {
  if (!has("torchtitan")) GTEST_SKIP() << "that Python has no torchtitan";
  script("job.toml", R"(
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "Llama-3.1-8B"
[training]
local_batch_size = 2
seq_len = 512
steps = 10
dataset = "c4"
)");
  const json rank =
      rank_of(python_ + " -m torch.distributed.run --nproc-per-node 8 -m torchtitan.train --job.config_file job.toml");
  if (rank.is_null()) return;
  EXPECT_TRUE(shards_over_all(rank, 8));
  EXPECT_GT(after_last_step(rank), 0);
}

// Experts on four ranks each: how many tokens go there the host asks the device.
TEST_F(Trainers, TorchtitansExperts) {
  if (!has("torchtitan")) GTEST_SKIP() << "that Python has no torchtitan";
  script("job.toml", R"(
[model]
name = "deepseek_v3"
flavor = "debugmodel"
hf_assets_path = "DeepSeek-V2-Lite"
[training]
local_batch_size = 2
seq_len = 512
steps = 10
dataset = "c4"
[parallelism]
expert_parallel_degree = 4
)");
  const std::string launch =
      python_ + " -m torch.distributed.run --nproc-per-node 4 -m torchtitan.train --job.config_file job.toml";
  const json even = rank_of(launch);
  if (even.is_null()) return;
  const std::string said = even.at("stood_in").dump();
  EXPECT_NE(said.find("tokens that a router sends to experts: as many for each"), std::string::npos) << said;
  const DrySaid first = run("--rank 0 --routing 8,1,1,1,1,1,1,1 --json answer.json -- " + launch);
  ASSERT_EQ(first.code, 0) << first.out << first.err;
  const auto peak = [](const json& rank) {
    return rank.at("steps").back().at("peak").at("allocated_bytes").get<std::int64_t>();
  };
  EXPECT_GT(peak(json::parse(content(folder_ / "answer.json")).at("ranks").at(0)), peak(even)) << "of its own experts";
}

TEST_F(Trainers, Trl) {
  if (!has("trl transformers datasets")) GTEST_SKIP() << "that Python has no trl";
  const json rank = rank_of(program("trl") +
                            " sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name trl-lib/Capybara "
                            "--output_dir trained --max_length 256 --per_device_train_batch_size 1");
  if (rank.is_null()) return;
  // Weights and two moments.
  EXPECT_GE(after_last_step(rank), 3 * 2 * 494032768LL);
}

TEST_F(Trainers, DeepSpeed) {
  if (!has("deepspeed")) GTEST_SKIP() << "that Python has no deepspeed";
  script("train.py", R"(
import argparse, deepspeed, torch
parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--local_rank", type=int)
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(8)])
engine, *_ = deepspeed.initialize(args=parser.parse_args(), model=model, model_parameters=model.parameters())
for _ in range(9):
    loss = engine(torch.zeros(16, 1024, device=engine.device, dtype=torch.bfloat16)).float().square().mean()
    engine.backward(loss)
    engine.step()
)");
  script("ds.json", R"({"train_micro_batch_size_per_gpu": 16, "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": true}}, "zero_optimization": {"stage": 2}})");
  const json rank = rank_of(program("deepspeed") + " --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json");
  if (rank.is_null()) return;
  constexpr std::int64_t elements = 8LL * 1024 * 1024;
  // 16-bit weights, and an eighth of the fp32 ones and of their moments.
  EXPECT_GE(after_last_step(rank), elements * 2 + 3 * elements * 4 / 8);
  EXPECT_LT(after_last_step(rank), elements * 2 + 3 * elements * 4);
}

TEST_F(Trainers, LitGPT) {
  if (!has("litgpt")) GTEST_SKIP() << "that Python has no litgpt";
  ASSERT_EQ(std::system(("cd '" + folder_.string() + "' && " + python_ +
                         " '" TIDEMARK_SOURCE_DIR "/tests/dry_run/litgpt_checkpoint.py' > made 2>&1")
                            .c_str()),
            0)
      << content(folder_ / "made");
  const json rank = rank_of("TORCHDYNAMO_DISABLE=1 " + program("litgpt") +
                            " finetune_full checkpoint --data JSON --data.json_path rows.json "
                            "--data.val_split_fraction 0.1 --train.micro_batch_size 2 --train.global_batch_size 2 "
                            "--train.max_seq_length 256 --devices 1 --out_dir trained");
  if (rank.is_null()) return;
  constexpr std::int64_t elements = 14067712;  // pythia-14m's
  // Weights and two moments, in fp32.
  EXPECT_GE(after_last_step(rank), 3 * 4 * elements);
}

}  // namespace
}  // namespace tidemark::tests::trainers_test
