#pragma once

#include <array>
#include <string_view>

#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// Megatron-LM's flags on what the host asks of losses and gradients, and Megatron-Bridge's two names for the halves of
/// the first.
inline constexpr std::array<std::string_view, 5> result_check_switches{
    "no-check-for-nan-in-loss-and-grad", "check-for-spiky-loss", "check-for-large-grads", "check_for_nan_in_loss",
    "check_for_nan_in_grad"};
[[nodiscard]] ResultChecks read_result_checks(TomlReader& switches);

}  // namespace tidemark::scenarios
