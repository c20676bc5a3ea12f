#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "scenarios/io/input_error.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests {

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
    return scenario_of_text(text);
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
