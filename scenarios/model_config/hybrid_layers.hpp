#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "parallel/model/model.hpp"
#include "scenarios/namespace.hpp"

// Layers of a hybrid by their letters, as Megatron-LM (core/ssm/mamba_hybrid_layer_allocation.py) and Nemotron-H's
// config.json write them.

namespace tidemark::scenarios {

/// M: Mamba, *: attention, -: an MLP. Nothing of a letter that is none of these.
[[nodiscard]] std::optional<Layer> layer_of_letter(char letter, const Mamba2& mamba);
/// The letters of a model's layers; empty of one that is no hybrid.
[[nodiscard]] std::string hybrid_pattern(const Model& model);
/// Of so many layers, such a share of attention and of MLPs, as the module of Megatron's spreads them. Nothing where
/// shares are not between 0 and 1, nor both together.
[[nodiscard]] std::optional<std::string> spread_pattern(std::int64_t layers, double attention, double mlp);

}  // namespace tidemark::scenarios
