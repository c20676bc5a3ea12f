#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "parallel/job/layout.hpp"
#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

using AxisOrder = decltype(Layout::order);

/// "tp-cp-ep-dp-pp", as Megatron writes the order of axes: each at most once; cp and ep, where they are left out, come
/// after tp. Nothing where the text is no such order.
[[nodiscard]] std::optional<AxisOrder> parse_axis_order(std::string_view text);
[[nodiscard]] std::string text(const AxisOrder& order);

}  // namespace tidemark::scenarios
