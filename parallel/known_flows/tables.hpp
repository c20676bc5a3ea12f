#pragma once

#include <span>
#include <string_view>

#include "parallel/known_flows/known_flows.hpp"

// The tables that known_flows() looks into, each in a file of its own.

namespace tidemark::parallel {

inline constexpr std::string_view laid_in_zeros =
    "the gradient of a part is laid into a tensor of zeros (aten slice_backward)";

[[nodiscard]] std::span<const KnownFlow> flows_of_megatron();
[[nodiscard]] std::span<const KnownFlow> flows_of_offloaded_layers();
[[nodiscard]] std::span<const KnownFlow> flows_of_offloaded_modules();
[[nodiscard]] std::span<const KnownFlow> flows_of_pytorch();
[[nodiscard]] std::span<const KnownFlow> flows_of_rollouts();

}  // namespace tidemark::parallel
