#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "scenarios/formats/json_table.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/scenario/zero_keys.hpp"
#include "tests/namespace.hpp"

// What DeepSpeed is told: [runtime.switches], and a ds_config.json that [runtime] names.

namespace tidemark::tests::zero_reader_test {
namespace {

const std::filesystem::path source = TIDEMARK_SOURCE_DIR;

// A scenario's folder with a ds_config.json in it.
class DsConfigFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Scenario read(const std::string& ds_config, const std::string& layout = "", const std::string& train = "",
                const std::string& switches = "") const {
    std::ofstream(folder_ / "ds.json") << ds_config;
    return parse_scenario(
        "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 16\n[layout]\n" +
            layout + "\n[train]\nsequence_length = 4096\nmicro_batch = 2\n" + train +
            "\n[runtime]\nname = \"deepspeed\"\nconfig = \"ds.json\"\n[runtime.switches]\n" + switches,
        "job.toml", {folder_, source / "scenarios"});
  }

  // With paths as they are in the folder.
  std::string problem(const std::string& ds_config, const std::string& layout = "", const std::string& train = "",
                      const std::string& switches = "") const {
    try {
      (void)read(ds_config, layout, train, switches);
    } catch (const InputError& error) {
      std::string said = error.what();
      const std::string shown = (folder_ / "").string();
      for (std::size_t at = said.find(shown); at != std::string::npos; at = said.find(shown))
        said.erase(at, shown.size());
      return said;
    }
    return {};
  }

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

TEST(JsonTable, SaysWhereThingsAre) {
  const TomlTable table =
      parse_json_table("{\n  \"b\": {\"x\": 5e8, \"no\": null},\n  \"a\": [1.5, \"t\\\"\"]\n}", "x.json");
  ASSERT_EQ(table.keys.size(), 2u);
  EXPECT_EQ(table.keys[0].name, "a");
  EXPECT_EQ(table.keys[0].value.place.line, 3);
  EXPECT_EQ(table.keys[0].value.place.column, 8);
  EXPECT_EQ(text(table.keys[0].value), "[1.5, \"t\\\"\"]");
  const auto& inner = std::get<TomlTable>(table.keys[1].value.value);
  ASSERT_EQ(inner.keys.size(), 1u);
  EXPECT_EQ(std::get<std::int64_t>(inner.keys[0].value.value), 500'000'000);
  EXPECT_EQ(inner.keys[0].value.place.line, 2);
  EXPECT_EQ(inner.keys[0].value.place.column, 14);
}

TEST_F(DsConfigFile, SaysStageSizesAndPrecision) {
  const Scenario s = read(R"({
  "train_batch_size": "auto",
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 1,
  "gradient_clipping": 1.0,
  "bf16": {"enabled": true},
  "zero_optimization": {
    "stage": 3,
    "overlap_comm": false,
    "reduce_bucket_size": 5e7,
    "stage3_prefetch_bucket_size": "auto",
    "stage3_max_live_parameters": 1e8,
    "sub_group_size": 1e9
  },
  "steps_per_print": 10
})");
  EXPECT_EQ(s.layout.sharding, Sharding::Zero3);
  EXPECT_EQ(s.train.precision, DType::BF16);
  const ZeroBehavior& zero = s.runtime.eager.zero;
  EXPECT_EQ(zero.reduce_bucket, 50'000'000);
  EXPECT_EQ(zero.prefetch_bucket, 50'000'000);
  EXPECT_EQ(zero.max_live, 100'000'000);
  EXPECT_FALSE(zero.overlaps);
  EXPECT_GT(zero.clipping, 0);
}

TEST_F(DsConfigFile, AStageOverlapsOnlyWhereItIsTheThird) {
  EXPECT_TRUE(read(R"({"zero_optimization": {"stage": 3}})").runtime.eager.zero.overlaps);
  EXPECT_FALSE(read(R"({"zero_optimization": {"stage": 2}})").runtime.eager.zero.overlaps);
}

// groups._create_zero_param_parallel_group takes as many as there are.
TEST_F(DsConfigFile, SecondaryPartsAreOfNeighbours) {
  const auto neighbours = [&](const std::string& requested) {
    return read(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": )" + requested + "}}")
        .runtime.eager.zero.secondary_ranks;
  };
  EXPECT_EQ(neighbours("8"), 8);
  EXPECT_EQ(neighbours("64"), 16);
  EXPECT_EQ(neighbours("0"), 1);
}

TEST_F(DsConfigFile, DeepSpeedsOwnAdamIsOneKernel) {
  const std::string zero = R"("zero_optimization": {"stage": 2}})";
  EXPECT_EQ(read(R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, )" + zero).runtime.eager.optimizer,
            OptimizerKernels::Fused);
  EXPECT_EQ(read(R"({"optimizer": {"type": "AdamW", "params": {"torch_adam": true}}, )" + zero).runtime.eager.optimizer,
            OptimizerKernels::Foreach);
}

TEST_F(DsConfigFile, WhatIsNotModelledIsRefusedWhereItStands) {
  EXPECT_EQ(problem("{\"zero_optimization\": {\"stage\": 3,\n  \"offload_optimizer\": {\"device\": \"disk\"}}}"),
            "ds.json:2:35: error: device = \"disk\" is not known\n  hint: \"none\", \"cpu\" or \"nvme\" would do");
  EXPECT_EQ(problem(R"({"aio": {"use_gds": true}, "zero_optimization": {"stage": 3}})"),
            "ds.json:1:21: error: use_gds = true: reading drives straight to the device is not modelled yet\n  hint: "
            "leave it "
            "out, or set false");
  EXPECT_EQ(problem(R"({"zero_optimization": {"stage": 0}})"),
            "ds.json:1:33: error: stage = 0 shards nothing: DeepSpeed without ZeRO is not modelled\n  hint: 1, 2 or 3 "
            "would do; [runtime] name = \"pytorch\" has replicas");
  EXPECT_NE(problem(R"({"zero_optimization": {"stage": 2, "zero_hpz_partition_size": 8}})")
                .find("zero_hpz_partition_size: stages 1 and 2 partition no parameters\n  hint: stage 3"),
            std::string::npos);
  EXPECT_NE(problem(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 7}})")
                .find("zero_hpz_partition_size = 7 does not divide 16 ranks\n  hint: as many as a node has"),
            std::string::npos);
  EXPECT_NE(problem(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8,
                         "offload_param": {"device": "cpu"}}})")
                .find("zero_hpz_partition_size: secondary partitions on the host (offload_param) are not modelled"),
            std::string::npos);
  EXPECT_EQ(problem(R"({"zero_optimization": {"stage": 2, "reduce_bucket_sizes": 8}})"),
            "ds.json:1:36: error: unknown key \"reduce_bucket_sizes\" in [zero_optimization]\n  hint: did you mean "
            "reduce_bucket_size?");
  EXPECT_EQ(problem(R"({"amp": {"enabled": true}, "zero_optimization": {"stage": 2}})"),
            "ds.json:1:9: error: [amp]: amp is not modelled yet\n  hint: leave it out");
}

TEST_F(DsConfigFile, GradientsOfStage1AddUpInFp32OnTheDeviceInBf16) {
  const auto reported = [&](const std::string& keys, const std::string& precision) {
    return problem(R"({"data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1)" + keys + "}}", "",
                   "precision = \"" + precision + "\"");
  };
  EXPECT_EQ(reported("", "bf16"), "");
  EXPECT_EQ(reported("", "fp16"),
            "job.toml:13:1: error: grad_accum_dtype = \"fp32\" with stage 1 in fp16 is not modelled yet\n  "
            "hint: precision = \"bf16\", stage 2, or leave it out");
  EXPECT_EQ(reported(R"(, "offload_optimizer": {"device": "cpu"})", "bf16"),
            "job.toml:13:1: error: grad_accum_dtype = \"fp32\" with stage 1 and its optimizer on the host is "
            "not modelled yet\n  hint: stage 2, or leave one of them out");
}

TEST_F(DsConfigFile, WhatIsSaidTwiceAgrees) {
  const std::string two = R"({"zero_optimization": {"stage": 2}})";
  EXPECT_EQ(problem(two, "sharding = \"zero2\""), "");
  EXPECT_EQ(problem(two, "sharding = \"zero3\""),
            "job.toml:5:12: error: sharding = \"zero3\", and \"ds.json\" has stage 2\n  hint: leave one of them out");
  EXPECT_EQ(problem(R"({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}})"),
            "job.toml:8:15: error: micro_batch = 2, and \"ds.json\" has train_micro_batch_size_per_gpu = 4\n  hint: "
            "give both "
            "the same");
  EXPECT_EQ(
      problem(R"({"gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}})", "", "global_batch = 64"),
      "job.toml:9:16: error: global_batch = 64 on 16 devices, and \"ds.json\" has gradient_accumulation_steps = "
      "4\n  hint: 128 would do");
  EXPECT_EQ(
      problem(R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 8}})", "", "", "reduce_bucket_size = 9"),
      "job.toml:13:1: error: switches: reduce_bucket_size is another in \"ds.json\"\n  hint: leave one of them out");
}

TEST_F(DsConfigFile, WhatIsOnTheHostIsPinnedUnlessTold) {
  const auto zero = [](const Scenario& s) { return s.runtime.eager.zero; };
  const Scenario both = read(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.4},
                                "offload_param": {"device": "cpu", "pin_memory": false}}})");
  EXPECT_EQ(zero(both).offload_optimizer, MemorySpace::Pinned);
  EXPECT_EQ(zero(both).offload_parameters, MemorySpace::Pageable);
  EXPECT_EQ(zero(both).offload_ratio, 0.4);
  EXPECT_TRUE(zero(both).cpu_adam);
  EXPECT_NE(scenario_json(both, -1).find(R"("offload":{"optimizer":"cpu","parameters":"cpu","activations":"none"})"),
            std::string::npos);
  EXPECT_EQ(zero(read(R"({"zero_optimization": {"stage": 2, "cpu_offload": true}})")).offload_optimizer,
            MemorySpace::Pinned);
  const Scenario torch = read(R"({"zero_force_ds_cpu_optimizer": false,
                                 "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}})");
  EXPECT_FALSE(zero(torch).cpu_adam);
  EXPECT_EQ(torch.runtime.eager.optimizer, OptimizerKernels::ForLoop);
}

TEST_F(DsConfigFile, OffloadIsSaidToStagesThatHaveIt) {
  const std::string optimizer = R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})";
  EXPECT_EQ(problem(optimizer, "", "", "\n[offload]\noptimizer = \"cpu\""), "");
  EXPECT_EQ(
      problem(optimizer, "", "", "\n[offload]\noptimizer = \"none\""),
      "job.toml:16:13: error: optimizer = \"none\", and offload_optimizer has device = \"cpu\"\n  hint: give both "
      "the same");
  EXPECT_EQ(problem(optimizer, "", "optimizer = \"sgd\""),
            "job.toml:9:13: error: on the host DeepSpeed asks for an Adam of its own (DeepSpeedCPUAdam)\n  hint: "
            "\"adamw\" would do, or zero_force_ds_cpu_optimizer = false, and PyTorch's");
  EXPECT_EQ(problem(optimizer, "", "", "\n[offload]\nparameters = \"cpu\""),
            "job.toml:13:1: error: offload_param: stages 1 and 2 keep parameters on the device\n  hint: stage 3, or "
            "leave it out");
  EXPECT_EQ(problem(optimizer, "", "", "\n[offload]\noptimizer_fraction = 0.5"),
            "job.toml:13:1: error: ratio: stages 1 and 2 offload all of the optimizer\n  hint: stage 3, or leave it "
            "out");
}

TEST_F(DsConfigFile, DrivesAreThoseOfTheCluster) {
  const std::string nvme = R"({"aio": {"block_size": 2097152, "queue_depth": 32, "intra_op_parallelism": 4},
    "zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/local", "pipeline_read": true, "buffer_count": 8},
      "offload_param": {"device": "nvme", "nvme_path": "/local", "max_in_cpu": 0, "buffer_size": 1e7}}})";
  EXPECT_EQ(problem(nvme),
            "job.toml:2:11: error: cluster: h100-sxm-80g does not say how fast its nodes' NVMe drives are\n  hint: "
            "nvme_read_bandwidth and nvme_write_bandwidth in its [host], of all drives of a node together");
  std::filesystem::create_directories(folder() / "clusters");
  std::ifstream cluster(source / "scenarios/clusters/h100-sxm-80g.toml");
  std::string said{std::istreambuf_iterator<char>(cluster), {}};
  said.insert(said.find("[node]"), "nvme_read_bandwidth = \"40 GB/s\"\nnvme_write_bandwidth = \"20 GB/s\"\n");
  std::ofstream(folder() / "clusters/h100-sxm-80g.toml") << said;
  const Scenario s = read(nvme);
  NvmeBehavior expected;
  expected.optimizer = expected.parameters = expected.pipeline_read = true;
  expected.optimizer_buffers = 8;
  expected.parameter_buffer_size = 10'000'000;
  expected.max_in_cpu = 0;
  expected.block_size = 2 << 20;
  expected.threads = 4;
  EXPECT_EQ(s.runtime.eager.zero.nvme, expected);
  const std::string json = scenario_json(s, -1);
  EXPECT_NE(json.find(R"("offload":{"optimizer":"nvme","parameters":"nvme","activations":"none"})"), std::string::npos);
  EXPECT_NE(json.find(R"("nvme_write_bandwidth":"20 GB/s")"), std::string::npos);
  EXPECT_NE(json.find(R"("pipeline_read":true)"), std::string::npos);
  EXPECT_EQ(problem(nvme, "", "", "\n[offload]\noptimizer = \"nvme\""), "");
  EXPECT_EQ(
      problem(nvme, "", "", "\n[offload]\noptimizer = \"cpu\""),
      "job.toml:16:13: error: optimizer = \"cpu\", and offload_optimizer has device = \"nvme\"\n  hint: give both "
      "the same");
  EXPECT_EQ(
      problem(R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}})"),
      "job.toml:13:1: error: offload_optimizer: stages 1 and 2 have no files on NVMe\n  hint: stage 3, or device = "
      "\"cpu\", which is what DeepSpeed does then");
}

// transformers runs torch.utils.checkpoint, which does not look at it.
TEST_F(DsConfigFile, OfItsOwnCheckpointingNothingComes) {
  const Scenario s = read(R"({"zero_optimization": {"stage": 2}, "activation_checkpointing": {
    "cpu_checkpointing": true, "partition_activations": true, "contiguous_memory_optimization": false,
    "number_checkpoints": null, "synchronize_checkpoint_boundary": false, "profile": false}})");
  EXPECT_TRUE(s.runtime.eager.zero.idle_checkpointing);
  EXPECT_EQ(problem(R"({"zero_optimization": {"stage": 2}, "activation_checkpointing": {"cpu_checkpoint": true}})"),
            "ds.json:1:66: error: unknown key \"cpu_checkpoint\" in [activation_checkpointing]\n  hint: did you mean "
            "cpu_checkpointing?");
}

TEST_F(DsConfigFile, IsJson) {
  EXPECT_EQ(problem("{\"zero_optimization\": }").substr(0, 16), "ds.json:1:23: er");
  EXPECT_EQ(problem("[]"),
            "ds.json:1:1: error: is not a JSON object\n  hint: a config.json begins with { and names its "
            "model_type");
}

}  // namespace
}  // namespace tidemark::tests::zero_reader_test
