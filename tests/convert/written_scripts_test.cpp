#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/convert/recipes.hpp"

// Scripts that Megatron-LM takes, and that train the same model.

namespace tidemark::tests::written_scripts_test {
namespace {

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(WrittenScripts, SayWhatTheModelsConfigSaysAndWhatMegatronAsserts) {
  const std::string job = R"(model = "models/llama-3.1-70b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[layout]
tensor = 8
[train]
sequence_length = 4096
micro_batch = 1
)";
  const Scenario scenario = parse_scenario(job, "job.toml", {".", shipped_data()});
  const auto text_of = [](const Scenario& its, const std::string& model) {
    return written(its, Dialect::Megatron, Launcher::Torchrun, model, "clusters/h100-sxm-80g.toml", shipped_data())
        .text;
  };
  const std::string text = text_of(scenario, "models/llama-3.1-70b.json");
  for (const char* part : {"export CUDA_DEVICE_MAX_CONNECTIONS=1\n", "--max-position-embeddings 131072",
                           "--rotary-base 500000", "--use-rope-scaling"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  EXPECT_FALSE(has(text, "--norm-epsilon")) << "1e-5 is Megatron's own";
  const Scenario qwen = parse_scenario("model = \"models/qwen3-8b.json\"" + job.substr(job.find('\n')), "job.toml",
                                       {".", shipped_data()});
  EXPECT_TRUE(has(text_of(qwen, "models/qwen3-8b.json"), "--norm-epsilon 1e-06"));
  Scenario alone = scenario;
  alone.layout.tensor = 1;
  EXPECT_FALSE(has(text_of(alone, "models/llama-3.1-70b.json"), "CUDA_DEVICE_MAX_CONNECTIONS")) << "nothing asserts it";
}

TEST(WrittenScripts, FromAScriptKeepTheOriginalsFlags) {
  ConvertRequest requested;
  requested.files = {"job.sh"};
  requested.texts = {
      {"job.sh",
       "export CUDA_DEVICE_MAX_CONNECTIONS=1 NCCL_IB_SL=1 MASTER_ADDR=node0\n"
       "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 "
       "--num-attention-heads 32 --group-query-attention --num-query-groups 8 --vocab-size 128256 --swiglu "
       "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights --bf16 "
       "--position-embedding-type rope --seq-length 4096 --micro-batch-size 1 --attention-dropout 0 "
       "--hidden-dropout 0 --max-position-embeddings 8192 --rotary-base 1000000 --norm-epsilon 1e-6 "
       "--tensor-model-parallel-size 2 --lr 1.5e-4 --split 949,50,1 --save $CKPT --init-method-std 0.008\n"}};
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  const Converted converted = convert(requested);
  const Written out = written(scenario_of(converted, shipped_data()), Dialect::Megatron, Launcher::Torchrun,
                              "models/llama-3.1-8b.json", requested.cluster, shipped_data(), converted.kept);
  const std::string& text = out.text;
  const auto beside = std::ranges::find(out.remarks, RemarkKind::Beside, &Remark::kind);
  ASSERT_NE(beside, out.remarks.end());
  EXPECT_EQ(beside->what, "--data-path, --tokenizer-type, --train-iters") << "it says its learning rate";
  for (const char* part :
       {"export CUDA_DEVICE_MAX_CONNECTIONS=1\n", "export NCCL_IB_SL=1\n", "--max-position-embeddings 8192",
        "--rotary-base 1000000", "--norm-epsilon 1e-06", "--lr 0.00015", "--split 949,50,1", "--init-method-std 0.008"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
  for (const char* part : {"500000", "131072", "MASTER_ADDR", "--save"}) EXPECT_FALSE(has(text, part)) << part;
}

}  // namespace
}  // namespace tidemark::tests::written_scripts_test
