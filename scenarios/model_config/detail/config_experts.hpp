#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/model/model.hpp"
#include "scenarios/model_config/detail/config_values.hpp"
#include "scenarios/model_config/detail/experts_format.hpp"

namespace tidemark::scenarios {

/// The experts of a model, and which of its layers have a plain MLP in their place.
struct ExpertLayers {
  Experts experts;
  std::vector<bool> dense_layers;
};

/// Of so many layers; nothing where every one is dense. The model's own sizes are read already.
[[nodiscard]] std::optional<ExpertLayers> read_experts(ConfigValues& config, const config_format::ExpertsFormat& format,
                                                       const Model& model, std::int64_t layers);

[[nodiscard]] MultiLatentAttention read_multi_latent_attention(ConfigValues& config);

}  // namespace tidemark::scenarios
