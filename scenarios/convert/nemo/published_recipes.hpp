#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

// What Megatron-Bridge's recipes of performance set, by release: published_recipes.tsv, which scripts/bridge_recipes
// writes.

namespace tidemark::scenarios {

struct PublishedRecipe {
  std::vector<std::string_view> releases;  ///< "0.3", "0.4", in their order
  std::string_view model;                  ///< "llama3_70b"
  std::string_view task;                   ///< "pretrain", "sft" or "peft"
  std::string_view device;                 ///< "gb200"
  std::string_view precision;              ///< "bf16", "fp8_cs", "fp8_mx", "fp8_sc", "nvfp4"
  std::string_view variant;                ///< "v1", "v2", "large_scale"; empty: the only one, or the usual one
  std::int64_t devices = 0;
  /// "model.seq_length" and "8192", as Python writes it.
  std::vector<std::pair<std::string_view, std::string_view>> settings;
};
[[nodiscard]] const std::vector<PublishedRecipe>& published_recipes();

}  // namespace tidemark::scenarios
