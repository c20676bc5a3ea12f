#include <string>

#include <gtest/gtest.h>

#include "scenarios/environment/environment.hpp"
#include "tests/scenarios/one_job.hpp"

// Switches, environment and versions of a runtime.

namespace tidemark::tests::switches_reader_test {
namespace {

using namespace literals;
using namespace one_job;

TEST(SwitchesReader, SettingsOfTheAllocatorAreThoseOfPyTorch) {
  EXPECT_EQ(with("[runtime]", "allocator = \"expandable_segments:True,max_split_size_mb:128\""), "no problem");
  EXPECT_EQ(with("[runtime]", "allocator = \"expandable_segments:true\""),
            "job.toml:19:13: error: character 21: Expected 'True' or 'False' at index 2 in ConfigTokenizer but got "
            "'true'\n  hint: capitalized, as Python writes them");
  EXPECT_EQ(with_variable("PYTORCH_CUDA_ALLOC_CONF = \"expandable_segments:True\""), "no problem");
  EXPECT_EQ(
      with_variable("PYTORCH_ALLOC_CONF = \"backend:cudaMallocAsync\""),
      "job.toml:21:22: error: character 9: backend:cudaMallocAsync is not modelled: its pool is the driver's, with "
      "rules of its own\n  hint: leave it out for the native allocator");
  EXPECT_EQ(with("[runtime]",
                 "allocator = \"max_split_size_mb:64\"\n"
                 "environment.PYTORCH_ALLOC_CONF = \"max_split_size_mb:128\""),
            "job.toml:19:13: error: allocator = \"max_split_size_mb:64\", and the environment says "
            "\"max_split_size_mb:128\"\n  hint: leave one of them out");
}

TEST(SwitchesReader, SwitchesThatRepeatAKeyHaveToAgree) {
  EXPECT_EQ(
      with_switch(
          "tensor-model-parallel-size = 8\npipeline-model-parallel-size = 4\nsequence-parallel = true\n"
          "use-distributed-optimizer = true\nmicro-batch-size = 1\nglobal-batch-size = 128\nseq-length = 8192\n"
          "bf16 = true\nfp16 = false\naccumulate-allreduce-grads-in-fp32 = true\noptimizer = \"adam\"\n"
          "cross-entropy-loss-fusion = true\ncross-entropy-fusion-impl = \"te\"\nattention-backend = \"auto\"\n"
          "num-layers = 80\nhidden-size = 8192\nffn-hidden-size = 28672\nnum-attention-heads = 64\n"
          "group-query-attention = true\nnum-query-groups = 8\nkv-channels = 128\nrotary-percent = 1.0\nvocab-size = "
          "128256\n"
          "make-vocab-size-divisible-by = 128\nuntie-embeddings-and-output-weights = true\nadd-qkv-bias = false\n"
          "disable-bias-linear = true\nswiglu = true\nnormalization = \"RMSNorm\"\nposition-embedding-type = \"rope\"\n"
          "hidden-dropout = 0.0\nattention-dropout = 0\ncontext-parallel-size = 1\noverlap-grad-reduce = false\n"
          "no-create-attention-mask-in-dataloader = true\ntransformer-impl = \"transformer_engine\"\n"
          "use-mcore-models = true\nlr = 1e-4\ntokenizer-type = \"HuggingFaceTokenizer\""),
      "no problem");
  EXPECT_EQ(with_switch("tensor-model-parallel-size = 4"),
            "job.toml:21:30: error: tensor-model-parallel-size = 4 disagrees with tensor in [layout]\n  hint: leave it "
            "out, or set 8");
  EXPECT_EQ(with_switch("use-distributed-optimizer = false"),
            "job.toml:21:29: error: use-distributed-optimizer = false disagrees with sharding in [layout]\n  hint: "
            "leave it out, or set true");
  EXPECT_EQ(with_switch("normalization = \"LayerNorm\""),
            "job.toml:21:17: error: normalization = \"LayerNorm\" disagrees with the model's normalization\n  hint: "
            "leave it out, or set \"RMSNorm\"");
  EXPECT_EQ(with_switch("tokenizer-type = \"NullTokenizer\""),
            "job.toml:21:18: error: tokenizer-type = \"NullTokenizer\" adds a token to the vocabulary, and the model "
            "has none added\n"
            "  hint: set vocabulary_extra = 1 in [model_override]");
}

TEST(SwitchesReader, ASwitchAgreesWithWhatWasAskedForNotWithWhatMegatronMakesOfIt) {
  const std::string one_rank = edited({{"tensor = 8", "tensor = 1"}});
  EXPECT_EQ(problems_of(one_rank + "[runtime.switches]\nsequence-parallel = true"), "no problem");
}

TEST(SwitchesReader, SwitchesThatAreUnknownOrNotModelledAreRefused) {
  EXPECT_EQ(
      with_switch("tp-comm-overlap-rs-dgrad = true"),
      "job.toml:21:28: error: tp-comm-overlap-rs-dgrad = true: reducing parts of an input's gradient while the next "
      "is made is not modelled yet\n  hint: leave it out, or set false");
  EXPECT_EQ(with_switch("num-experts = 8"),
            "job.toml:21:15: error: num-experts = 8 disagrees with the model's number of experts\n  hint: leave it "
            "out, or set 0");
  EXPECT_EQ(with_switch("use-distributed-optimiser = true"),
            "job.toml:21:29: error: \"use-distributed-optimiser\" is not a flag of Megatron's that is known here\n"
            "  hint: did you mean use-distributed-optimizer?");
  EXPECT_EQ(with_switch("\"\" = 1"),
            "job.toml:21:6: error: \"\" is not a flag of Megatron's that is known here\n  hint: leave it out, if it "
            "does not change memory");
}

TEST(SwitchesReader, EnvironmentVariablesAreUnderstoodHarmlessOrRefused) {
  EXPECT_EQ(with_variable("OMP_NUM_THREADS = 4\nTORCH_NCCL_AVOID_RECORD_STREAMS = 1\nNCCL_DEBUG = "
                          "\"INFO\"\nPYTORCH_CUDA_ALLOC_CONF = \"\"\nCUDA_MODULE_LOADING = \"LAZY\""),
            "no problem");
  EXPECT_EQ(with_variable("CUBLAS_WORKSPACE_CONFIG = \"4096:8\""),
            "job.toml:21:27: error: CUBLAS_WORKSPACE_CONFIG = \"4096:8\" is not :SIZE:COUNT, once or more often, SIZE "
            "in KiB\n"
            "  hint: such as \":4096:8\" or \":4096:2:16:8\"");
  EXPECT_EQ(with_variable("NCCL_BUFFSIZE = \"8388608\""), "no problem");
  EXPECT_EQ(with_variable("NVTE_FLASH_ATTN = \"0\""),
            "job.toml:21:19: error: NVTE_FLASH_ATTN = \"0\": Megatron-LM sets it to 1 for attention = \"auto\", and "
            "rejects other values\n  hint: leave it out, or set attention = \"fused\" in [train]");
  EXPECT_EQ(with_variable("NVTE_FUSED_ATTN = \"1\""), "no problem");
  EXPECT_EQ(with_variable("NVTE_NO_SUCH_THING_HERE = \"0\""),
            "job.toml:21:27: error: \"NVTE_NO_SUCH_THING_HERE\" is not modelled yet\n  hint: leave it out, if it does "
            "not change memory");
  EXPECT_EQ(with_variable("CUDA_MODULE_LOADING = \"EAGER\""),
            "job.toml:21:23: error: CUDA_MODULE_LOADING = \"EAGER\" is not modelled yet\n  hint: leave it out, or set "
            "\"LAZY\"");
  EXPECT_EQ(with_variable("OMP_NUM_THREADS = 1.5"), "job.toml:21:19: error: OMP_NUM_THREADS takes a text, not 1.5");
}

TEST(Environment, CublasWorkspaceGrammar) {
  for (const char* good : {":4096:8", ":4096:2:16:8", ":16:8", ":0:0"})
    EXPECT_TRUE(is_cublas_workspace_config(good)) << good;
  for (const char* bad : {"", ":", ":4096", ":4096:", "4096:8", ":4096:8:", ":4096:8:16", ":-1:8", ": 4096:8",
                          ":4096:8 ", ":a:b", ":99999999999999999999:8", ":1073741824:1073741824"}) {
    EXPECT_FALSE(is_cublas_workspace_config(bad)) << bad;
  }
}

TEST(SwitchesReader, VersionsAreReleaseNumbers) {
  EXPECT_EQ(with("[runtime]", "versions = {megatron = \"core_r0.14\"}"),
            "job.toml:19:24: error: megatron = \"core_r0.14\" is not a version\n  hint: such as \"0.14\"");
  EXPECT_EQ(
      with("[runtime]", "versions = {torch = 2.9}"),
      "job.toml:19:21: error: torch takes a text between quotes, not 2.9\n  hint: between quotes: torch = \"...\"");
}

// Of core 0.12 to 0.19: megatron/training/arguments.py, and the fields of core's configurations, which become flags
// from 0.16 on. Each is read, repeats what something else says, changes nothing, or is refused with its reason.
TEST(Switches, EveryFlagOfExpertsLatentsContextsAndFurtherTokensIsKnown) {
  for (const char* flag : {"activation-func-clamp-value",
                           "cache-mla-latents",
                           "context-parallel-size",
                           "cp-comm-type",
                           "delay-wgrad-compute",
                           "ep-overlap-early-attn-memory-release",
                           "expert-gtp-weight-remat-size",
                           "expert-model-parallel-size",
                           "expert-tensor-parallel-num-weight-shards",
                           "expert-tensor-parallel-size",
                           "glu-linear-offset",
                           "hierarchical-context-parallel-sizes",
                           "hybrid-context-parallel",
                           "kv-lora-rank",
                           "max-seqlen-per-dp-cp-rank",
                           "mla-down-proj-fusion",
                           "moe-apply-probs-on-input",
                           "moe-aux-loss-coeff",
                           "moe-deepep-num-sms",
                           "moe-enable-deepep",
                           "moe-enable-routing-replay",
                           "moe-expert-capacity-factor",
                           "moe-expert-rank-capacity-factor",
                           "moe-extended-tp",
                           "moe-ffn-hidden-size",
                           "moe-flex-dispatcher-backend",
                           "moe-flex-dispatcher-num-sms",
                           "moe-grouped-gemm",
                           "moe-hybridep-num-blocks-permute",
                           "moe-hybridep-num-blocks-unpermute",
                           "moe-hybridep-num-sms",
                           "moe-hybridep-num-sms-preprocessing",
                           "moe-hybridep-pad-uneven-dispatch-inputs",
                           "moe-input-jitter-eps",
                           "moe-latent-size",
                           "moe-layer-freq",
                           "moe-layer-recompute",
                           "moe-mlp-glu-interleave-size",
                           "moe-ncclep-static-shape",
                           "moe-ncclep-zero-copy",
                           "moe-pad-expert-input-to-capacity",
                           "moe-pad-experts-for-cuda-graph-inference",
                           "moe-paged-stash",
                           "moe-paged-stash-buffer-size-factor-cpu",
                           "moe-paged-stash-buffer-size-factor-cuda",
                           "moe-paged-stash-page-size",
                           "moe-per-layer-logging",
                           "moe-permute-fusion",
                           "moe-permute-fusion-into-hybridep",
                           "moe-router-bias-update-rate",
                           "moe-router-dtype",
                           "moe-router-enable-expert-bias",
                           "moe-router-force-biased",
                           "moe-router-force-load-balancing",
                           "moe-router-fusion",
                           "moe-router-group-topk",
                           "moe-router-load-balancing-type",
                           "moe-router-num-groups",
                           "moe-router-padding-for-fp8",
                           "moe-router-padding-for-quantization",
                           "moe-router-pre-softmax",
                           "moe-router-quantile-balancing-ema",
                           "moe-router-score-function",
                           "moe-router-topk",
                           "moe-router-topk-limited-devices",
                           "moe-router-topk-scaling-factor",
                           "moe-shared-expert-gate",
                           "moe-shared-expert-glu-interleave-size",
                           "moe-shared-expert-intermediate-size",
                           "moe-shared-expert-overlap",
                           "moe-single-grouped-bias",
                           "moe-single-grouped-weight",
                           "moe-token-dispatcher-type",
                           "moe-token-drop-policy",
                           "moe-token-dropping",
                           "moe-upcycling-granularity",
                           "moe-use-legacy-grouped-gemm",
                           "moe-use-upcycling",
                           "moe-z-loss-coeff",
                           "mscale",
                           "mscale-all-dim",
                           "mtp-detach-heads",
                           "mtp-hybrid-override-pattern",
                           "mtp-loss-scaling-factor",
                           "mtp-num-layers",
                           "mtp-standalone",
                           "mtp-use-repeated-layer",
                           "multi-latent-attention",
                           "no-rope-freq",
                           "num-experts",
                           "overlap-dispatch-backward-with-experts-wgrad",
                           "overlap-moe-expert-parallel-comm",
                           "q-lora-rank",
                           "qk-clip",
                           "qk-clip-alpha",
                           "qk-clip-threshold",
                           "qk-head-dim",
                           "qk-l2-norm",
                           "qk-layernorm",
                           "qk-pos-emb-head-dim",
                           "quick-geglu",
                           "recompute-activations",
                           "recompute-granularity",
                           "recompute-method",
                           "recompute-modules",
                           "recompute-num-layers",
                           "rope-type",
                           "rotary-scaling-factor",
                           "softmax-type",
                           "use-fused-weighted-squared-relu",
                           "use-grouped-gemm-for-dense-mlp",
                           "use-grouped-gemm-for-shared-expert",
                           "v-head-dim",
                           "window-attn-skip-freq",
                           "window-size"})
    EXPECT_EQ(with_switch(std::string(flag) + " = \"?\"").find("is not a flag of Megatron's"), std::string::npos)
        << flag;
}

TEST(Switches, FlagsOfExpertsSayWhatTheModelSays) {
  const std::string deepseek =
      "model = \"models/deepseek-v2-lite.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 1\n"
      "[model_override]\nnum_hidden_layers = 3\n[train]\nsequence_length = 1024\nmicro_batch = 1\n[runtime]\nname = "
      "\"megatron\"\n"
      "[runtime.switches]\n";
  const std::string agreeing = R"flags(moe-layer-freq = "([0]*1+[1]*2)"
moe-router-score-function = "softmax"
moe-router-pre-softmax = true
moe-router-topk-scaling-factor = 1.0
moe-router-enable-expert-bias = false
rope-type = "yarn"
moe-z-loss-coeff = 0.001
moe-token-drop-policy = "probs"
moe-deepep-num-sms = 20
)flags";
  EXPECT_EQ(problems_of(deepseek + agreeing), "no problem");
  for (const char* flag :
       {"moe-layer-freq = 1", "moe-router-score-function = \"sigmoid\"", "moe-router-topk-scaling-factor = 2.5",
        "moe-router-enable-expert-bias = true", "rope-type = \"rope\""})
    EXPECT_NE(problems_of(deepseek + flag).find("disagrees with the model's"), std::string::npos) << flag;
  EXPECT_EQ(problems_of(deepseek + "moe-router-load-balancing-type = [\"seq_aux_loss\", \"aux_loss\"]\n"
                                   "moe-aux-loss-coeff = [0, 0.1]"),
            "no problem");
  for (const char* flag :
       {"moe-input-jitter-eps = 0.001", "moe-router-fusion = true", "moe-shared-expert-overlap = true"})
    EXPECT_NE(problems_of(deepseek + flag).find("not modelled"), std::string::npos) << flag;
}

}  // namespace
}  // namespace tidemark::tests::switches_reader_test
