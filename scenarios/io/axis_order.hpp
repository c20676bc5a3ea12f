#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "parallel/layout.hpp"
#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// "tp-cp-ep-dp-pp", as Megatron writes the order of axes: tp, dp and pp each once, cp and ep anywhere or left out
/// while they are not modelled. Nothing where the text is no such order.
[[nodiscard]] std::optional<std::array<MeshAxis, 3>> parse_axis_order(std::string_view text);

/// The same order as text, cp and ep after tp.
[[nodiscard]] std::string text(const std::array<MeshAxis, 3>& order);

}  // namespace tidemark::scenarios
