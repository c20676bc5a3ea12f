#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tidemark::scenarios {

/// Layers of each stage of Megatron-LM's --pipeline-model-parallel-layout, "Et*3|(tt|)*29tL", in the model's order.
/// Nothing where the embedding is not in the first stage, the loss or a layer of further tokens not in the last, where
/// a stage between them has no layers, and where it is no such text.
[[nodiscard]] std::optional<std::vector<std::int64_t>> layers_of_stages(std::string_view layout);

}  // namespace tidemark::scenarios
