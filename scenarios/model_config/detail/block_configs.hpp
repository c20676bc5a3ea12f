#pragma once

#include <cstdint>
#include <optional>

#include "parallel/model/model.hpp"
#include "scenarios/model_config/detail/config_values.hpp"

namespace tidemark::scenarios {

/// What block_configs (DeciLMConfig, Llama-Nemotron) says of a model.
struct Blocks {
  LayerList layers;
  std::int64_t kv_heads = 0;  ///< of every layer that has attention: Megatron-LM's arguments.py takes no other
  std::int64_t ffn = 0;       ///< of most layers that have an MLP
};

/// Of so many layers, whose model has these heads and this width. Nothing where it is wrong, which is told.
[[nodiscard]] std::optional<Blocks> read_block_configs(ConfigValues& config, std::int64_t layers, const Model& model);

}  // namespace tidemark::scenarios
