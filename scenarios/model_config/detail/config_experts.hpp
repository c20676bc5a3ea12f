#pragma once

#include <optional>

#include "parallel/model/model.hpp"
#include "scenarios/model_config/detail/config_values.hpp"
#include "scenarios/model_config/detail/experts_format.hpp"

namespace tidemark::scenarios {

/// Nothing where every layer is dense. The model's own sizes are read already.
[[nodiscard]] std::optional<Experts> read_experts(ConfigValues& config, const config_format::ExpertsFormat& format,
                                                  const Model& model);

[[nodiscard]] MultiLatentAttention read_multi_latent_attention(ConfigValues& config);

}  // namespace tidemark::scenarios
