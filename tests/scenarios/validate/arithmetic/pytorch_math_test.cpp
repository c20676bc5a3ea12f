// Plain PyTorch's programs, with real numbers: what replicas compute is what one rank computes of all their sequences.

#include <algorithm>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "tests/scenarios/validate/arithmetic/math_case.hpp"

namespace tidemark::tests::pytorch_math_test {
namespace {

const std::string grouped = "num_key_value_heads = 2\nhead_dim = 8";
const std::string gpt2 = "n_embd = 32\nn_layer = 4\nn_head = 4\nn_positions = 16";

struct TorchCase {
  std::string name;
  int gpus = 1;
  std::string train = {}, switches = {};
  std::string model = "llama-3.1-8b";
  std::string override_keys = grouped;
  std::string precision = "fp32";
  int micro_batch = 1;
  std::string versions = "{}";
  int vocabulary = 128;
  std::string dropout = "hidden_dropout = 0.0\nattention_dropout = 0.0";
};

MathCase job_of(const TorchCase& requested) {
  return {.name = requested.name,
          .gpus = requested.gpus,
          .layout = fmt::format("data = {}", requested.gpus),
          .train = requested.train,
          .override_keys = requested.override_keys,
          .model = requested.model,
          .micro_batch = requested.micro_batch,
          .runtime = fmt::format("name = \"pytorch\"\nversions = {}\n[runtime.switches]\n{}", requested.versions,
                                 requested.switches),
          .precision = requested.precision,
          .global_batch = std::max(4, requested.gpus * requested.micro_batch),
          .vocabulary = requested.vocabulary,
          .dropout = requested.dropout};
}

class PyTorchArithmetic : public testing::TestWithParam<TorchCase> {};

TEST_P(PyTorchArithmetic, OfAllRanksIsThatOfOne) { expect_what_one_rank_computes(job_of(GetParam())); }

INSTANTIATE_TEST_SUITE_P(
    Replicas, PyTorchArithmetic,
    testing::Values(TorchCase{"one"}, TorchCase{"four", 4}, TorchCase{"eight", 8},
                    TorchCase{"two_sequences", 2, "", "", "llama-3.1-8b", grouped, "fp32", 2},
                    TorchCase{.name = "buckets", .gpus = 2, .vocabulary = 8192},
                    TorchCase{.name = "views_of_buckets", .gpus = 2, .switches = "gradient_as_bucket_view = true"}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Optimizers, PyTorchArithmetic,
    testing::Values(TorchCase{"one_by_one", 2, "",
                              "foreach = false\nweight_decay = 0.1\ndecoupled_weight_decay = false\namsgrad = true"},
                    TorchCase{"fused", 2, "", "fused = true"}, TorchCase{"not_clipped", 2, "", "max_grad_norm = 0"},
                    TorchCase{"decays", 2, "", "weight_decay = 0.1\namsgrad = true"},
                    TorchCase{"adam_fused", 2, "", "weight_decay = 0.1\namsgrad = true\nfused = true"},
                    TorchCase{"sgd", 2, "optimizer = \"sgd\"", "weight_decay = 0.1"},
                    TorchCase{"momentum", 2, "optimizer = \"sgd_momentum\""},
                    TorchCase{"momentum_fused", 2, "optimizer = \"sgd_momentum\"", "fused = true\nweight_decay = 0.1"},
                    TorchCase{"adafactor", 2, "optimizer = \"adafactor\"", "weight_decay = 0.1\nbeta1 = 0.9"},
                    TorchCase{"torch_adafactor", 2, "optimizer = \"adafactor\"", "adafactor = \"torch\""},
                    TorchCase{"torch_adafactor_foreach", 2, "optimizer = \"adafactor\"",
                              "adafactor = \"torch\"\nforeach = true\nweight_decay = 0.1"},
                    TorchCase{"muon", 2, "optimizer = \"muon\"", "weight_decay = 0.1"},
                    TorchCase{"lion", 2, "optimizer = \"lion_32bit\"", "weight_decay = 0.1"},
                    TorchCase{"lion_8bit", 2, "optimizer = \"lion_8bit\""},
                    TorchCase{"adam_8bit", 2, "optimizer = \"adamw_8bit\"", "quantize_embeddings = true"},
                    TorchCase{"paged_adam", 2, "optimizer = \"paged_adamw_32bit\""}),
    [](const auto& test) { return test.param.name; });

const std::string full = "recompute = \"full\"", scores = "attention = \"unfused\"", flash = "attention = \"flash\"";
INSTANTIATE_TEST_SUITE_P(Passes, PyTorchArithmetic,
                         testing::Values(TorchCase{"checkpointed", 2, full, "use_reentrant = false"},
                                         TorchCase{"reentrant", 2, full, "use_reentrant = true"},
                                         TorchCase{"no_cache", 2, "", "use_cache = false\nkeep_outputs = true"},
                                         TorchCase{"fake_tensors", 2, "", "fake_tensor_mode = true"},
                                         TorchCase{.name = "versions",
                                                   .gpus = 2,
                                                   .versions = "{ torch = \"2.4\", transformers = \"4.48\" }"},
                                         TorchCase{.name = "latest", .gpus = 2, .versions = "{ torch = \"2.15\" }"}),
                         [](const auto& test) { return test.param.name; });

const std::string pure = "master_dtype = \"bf16\"";
INSTANTIATE_TEST_SUITE_P(
    Types, PyTorchArithmetic,
    testing::Values(TorchCase{"autocast", 2, "", "", "llama-3.1-8b", grouped, "bf16"},
                    TorchCase{"autocast_scores", 2, scores, "", "llama-3.1-8b", grouped, "bf16"},
                    TorchCase{"autocast_checkpointed", 2, full, "", "llama-3.1-8b", grouped, "bf16"},
                    TorchCase{"fp16", 2, "", "", "llama-3.1-8b", grouped, "fp16"},
                    TorchCase{"fp16_fused", 2, "", "fused = true", "llama-3.1-8b", grouped, "fp16"},
                    TorchCase{"pure", 2, pure, "", "llama-3.1-8b", grouped, "bf16"},
                    TorchCase{"pure_flash", 2, pure + "\n" + flash, "", "llama-3.1-8b", grouped, "bf16"},
                    TorchCase{"pure_sgd", 2, pure + "\noptimizer = \"sgd\"", "", "llama-3.1-8b", grouped, "bf16"},
                    TorchCase{"pure_masked", 2, pure, "", "mistral-7b-v0.1", grouped + "\nsliding_window = 5", "bf16"},
                    TorchCase{"autocast_gpt2", 2, scores, "", "gpt2", gpt2, "bf16"},
                    TorchCase{"autocast_gemma3", 2, "", "", "gemma-3-1b", grouped + "\nsliding_window = 5", "bf16"}),
    [](const auto& test) { return test.param.name; });

const std::string alike = "num_key_value_heads = 4", window = grouped + "\nsliding_window = 5";
INSTANTIATE_TEST_SUITE_P(Models, PyTorchArithmetic,
                         testing::Values(TorchCase{"gpt2_scores", 2, scores, "", "gpt2", gpt2},
                                         TorchCase{"santacoder", 2, "", "", "santacoder", gpt2},
                                         TorchCase{"neox", 2, "", "", "pythia-6.9b", ""},
                                         TorchCase{"phi3", 2, "", "", "phi-3-mini-4k", alike},
                                         TorchCase{"qwen2", 2, "", "", "qwen2.5-7b", "num_key_value_heads = 2"},
                                         TorchCase{"olmo2", 2, "", "", "olmo-2-7b", alike},
                                         TorchCase{"gemma2", 2, scores, "", "gemma-2-9b", window},
                                         TorchCase{"gemma3", 2, "", "", "gemma-3-1b", window},
                                         TorchCase{"mistral_scores", 2, scores, "", "mistral-7b-v0.1", window},
                                         TorchCase{"mistral_flash", 2, flash, "", "mistral-7b-v0.1", window}),
                         [](const auto& test) { return test.param.name; });

// Experts as one module, by a kernel of groups (h100) and by products one after the other (fp32), and as linears.
const std::string few = grouped + "\nnum_local_experts = 4\nnum_experts_per_tok = 2",
                  of_qwen = grouped + "\nnum_experts = 4\nnum_experts_per_tok = 2\nmoe_intermediate_size = 24",
                  shared =
                      "num_key_value_heads = 2\nnum_experts = 4\nnum_experts_per_tok = 2\n"
                      "moe_intermediate_size = 24\nshared_expert_intermediate_size = 40";
TorchCase of_release(TorchCase requested, const std::string& transformers) {
  requested.versions = fmt::format("{{ torch = \"2.15\", transformers = \"{}\" }}", transformers);
  std::ranges::replace_copy(transformers, std::back_inserter(requested.name += "_"), '.', '_');
  return requested;
}
INSTANTIATE_TEST_SUITE_P(Experts, PyTorchArithmetic,
                         testing::Values(of_release({"mixtral", 2, "", "", "mixtral-8x7b", few}, "5.23"),
                                         of_release({"mixtral", 2, pure, "", "mixtral-8x7b", few, "bf16"}, "5.10"),
                                         of_release({"mixtral", 2, "", "", "mixtral-8x7b", few}, "4.48"),
                                         of_release({"qwen3", 2, full, "", "qwen3-30b-a3b", of_qwen}, "5.4"),
                                         of_release({"qwen3", 2, full, "", "qwen3-30b-a3b", of_qwen}, "5.6"),
                                         of_release({"qwen3", 2, "", "", "qwen3-30b-a3b", of_qwen}, "4.57"),
                                         of_release({"qwen2", 2, "", "", "qwen2-57b-a14b", shared}, "5.23"),
                                         of_release({"qwen2", 2, "", "", "qwen2-57b-a14b", shared}, "4.57")),
                         [](const auto& test) { return test.param.name; });

// Replicas drop of their parts of a micro-batch what one rank drops of all, also when a region runs again.
TorchCase dropping(TorchCase requested) {
  requested.dropout = "hidden_dropout = 0.2\nattention_dropout = 0.2";
  return requested;
}
INSTANTIATE_TEST_SUITE_P(Dropouts, PyTorchArithmetic,
                         testing::Values(dropping({"gpt2", 2, "", "", "gpt2", gpt2}),
                                         dropping({"gpt2_scores", 2, scores, "", "gpt2", gpt2, "fp32", 2}),
                                         dropping({"gpt2_checkpointed", 2, full + "\n" + scores,
                                                   "use_reentrant = false", "gpt2", gpt2}),
                                         dropping({"gpt2_reentrant", 2, full, "use_reentrant = true", "gpt2", gpt2}),
                                         dropping({"neox", 2, "", "", "pythia-6.9b", ""}),
                                         dropping({"phi3", 4, full, "", "phi-3-mini-4k", alike}),
                                         dropping({"autocast_gpt2", 2, "", "", "gpt2", gpt2, "bf16"})),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tidemark::tests::pytorch_math_test
