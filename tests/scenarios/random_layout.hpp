#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "scenarios/formats/input_error.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests {

/// The scenario with data-parallel communication beside its passes, or not.
inline Scenario overlapped_at_random(Scenario scenario, std::mt19937& random) {
  const auto either = [&] { return random() % 2 == 0; };
  DataOverlap& overlap = scenario.runtime.overlap;
  overlap.gradients = either();
  overlap.parameters = overlap.gradients && scenario.layout.sharding == Sharding::Zero1 && either();
  overlap.gradients_aligned = either(), overlap.parameters_aligned = either();
  return scenario;
}

/// Every second one whose tensor-parallel ranks share sequences out, with their transfers beside products, where that
/// can be.
inline Scenario tensor_overlapped(Scenario scenario, const std::string& text, std::uint32_t seed) {
  if (!scenario.layout.sequence_parallel || scenario.layout.tensor == 1 || seed % 2 != 0) return scenario;
  try {
    return scenario_of_text(text + "[runtime.switches]\ntp-comm-overlap = true\n");
  } catch (const InputError&) {
    return scenario;
  }
}

/// A random layout of a small model; nothing where it is none.
inline std::optional<Scenario> random_scenario(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<std::string>& values) { return values[random() % values.size()]; };
  const std::string schedule = pick({"1f1b", "1f1b", "gpipe", "interleaved"});
  const std::string recompute =
      pick({"\"none\"", "\"full\"", "\"selective\"", "\"full\"\nrecompute_method = \"block\"\nrecompute_layers = 2"});
  const std::string text = fmt::format(
      R"(model = "models/{}.json"
cluster = "clusters/{}.toml"
gpus = {}
[model_override]
num_hidden_layers = {}
[layout]
tensor = {}
sequence_parallel = {}
pipeline = {}
schedule = "{}"
chunks = {}
sharding = "{}"
order = "{}"
[train]
sequence_length = {}
micro_batch = {}
global_batch = {}
gradient_dtype = "{}"
cross_entropy = "{}"
hidden_dropout = {}
attention_dropout = 0.0
recompute = {}
)",
      pick({"llama-3.1-8b", "qwen2.5-7b", "gpt2-xl", "gemma-2-9b"}),
      pick({"h100-sxm-80g", "rtx-4090-24g", "rtx-3080-10g", "a100-sxm-40g"}), pick({"2", "4", "8", "16"}),
      pick({"4", "8", "12"}), pick({"1", "2", "4"}), pick({"true", "false"}), pick({"1", "2", "4", "8"}), schedule,
      schedule == "interleaved" ? pick({"2", "3"}) : "1", pick({"none", "zero1"}),
      pick({"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"}), pick({"512", "1024"}), pick({"1", "2", "3"}),
      pick({"16", "48", "60", "96", "192"}), pick({"fp32", "bf16"}), pick({"te", "unfused", "fused"}),
      pick({"0.0", "0.1"}), recompute);
  try {
    return overlapped_at_random(tensor_overlapped(scenario_of_text(text), text, seed), random);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// The same of what divides experts and sequences: a small model, most often with experts.
inline std::optional<Scenario> random_parts(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<std::string>& values) { return values[random() % values.size()]; };
  const bool experts = random() % 4 != 0;
  const std::string schedule = pick({"1f1b", "1f1b", "1f1b", "gpipe", "interleaved"});
  std::vector<std::string> recomputed{"recompute = \"none\"", "recompute = \"full\""};
  for (const int layers : {2, 4})
    recomputed.push_back(
        fmt::format("recompute = \"full\"\nrecompute_method = \"block\"\nrecompute_layers = {}", layers));
  for (const char* module : {"core_attn", "mlp"})
    recomputed.push_back(fmt::format("recompute = \"selective\"\nrecompute_modules = [\"{}\"]", module));
  const std::string recompute = pick(recomputed);
  const std::string tensor = pick({"1", "1", "2", "4"}), kind = pick({"p2p", "all_gather", "a2a", "a2a+p2p"});
  const std::string layout = fmt::format(
      R"([layout]
tensor = {}
sequence_parallel = {}
context = {}
context_kind = "{}"
{}pipeline = {}
schedule = "{}"
chunks = {}
sharding = "{}"
order = "{}"
)",
      tensor, tensor == "1" ? "false" : "true", kind == "a2a+p2p" ? "4" : pick({"1", "2", "4"}), kind,
      kind == "a2a+p2p" ? "context_inner = 2\n" : "", pick({"1", "2", "4"}), schedule,
      schedule == "interleaved" ? "2" : "1", pick({"none", "zero1"}),
      pick({"tp-cp-ep-dp-pp", "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"}));
  const std::string of_experts = fmt::format(
      R"(expert = {}
expert_tensor = {}
[moe]
imbalance = {}
{}
[runtime.switches]
moe-permute-fusion = {}
moe-aux-loss-coeff = {}
)",
      pick({"1", "2", "4", "8"}), pick({"1", "1", "2"}), pick({"1.0", "1.0", "1.25"}),
      pick({"", "", "capacity_factor = 1.0", "capacity_factor = 1.25\npad_to_capacity = true"}),
      pick({"true", "false"}), pick({"0.0", "0.01"}));
  const std::string model =
      experts ? pick({"mixtral-8x7b", "deepseek-v2-lite", "deepseek-v2-lite", "qwen3-30b-a3b", "deepseek-v3"})
              : pick({"llama-3.1-8b", "qwen2.5-7b"});
  // With what predicts the token after the next one, or without it.
  const std::string smaller =
      model != "deepseek-v3"
          ? ""
          : "hidden_size = 1024\nintermediate_size = 1024\nmoe_intermediate_size = 256\nn_routed_experts = 32\n"
            "num_attention_heads = 16\nnum_key_value_heads = 16\nvocab_size = 16384\nnum_nextn_predict_layers = " +
                pick({"0", "1", "1"}) + '\n';
  const std::string text = fmt::format(
      R"(model = "models/{}.json"
cluster = "clusters/{}.toml"
gpus = {}
[model_override]
num_hidden_layers = {}
{}{}{}[train]
sequence_length = {}
micro_batch = {}
global_batch = {}
gradient_dtype = "{}"
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
{}
)",
      model, pick({"h100-sxm-80g", "h100-sxm-80g", "a100-sxm-40g", "rtx-4090-24g"}), pick({"8", "16", "32"}),
      pick({"4", "8"}), smaller, layout, experts ? of_experts : "", pick({"512", "1024"}), pick({"1", "2"}),
      pick({"32", "64", "96"}), pick({"fp32", "bf16"}), recompute);
  try {
    return overlapped_at_random(scenario_of_text(text), random);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// The text of PYTORCH_CUDA_ALLOC_CONF: the default, and one of each kind of setting.
inline std::string random_allocator(std::uint32_t seed) {
  const std::vector<std::string> texts{"", "expandable_segments:True", "max_split_size_mb:32",
                                       "roundup_power2_divisions:4",
                                       "max_split_size_mb:64,max_non_split_rounding_mb:32"};
  return texts[seed % texts.size()];
}

}  // namespace tidemark::tests
