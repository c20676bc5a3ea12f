#pragma once

#include <string>
#include <vector>

#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// What a prediction assumes of PyTorch, torchtitan, LitGPT or DeepSpeed, a sentence each.
[[nodiscard]] std::vector<std::string> eager_behavior(const Scenario& s, const EagerBehavior& behavior);
/// What a prediction assumes of Megatron-LM, a sentence each.
[[nodiscard]] std::vector<std::string> megatron_behavior(const Scenario& s);

}  // namespace tidemark::scenarios
