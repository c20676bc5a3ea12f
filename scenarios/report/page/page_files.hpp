#pragma once

#include <string_view>

#include "scenarios/namespace.hpp"

// What a report's page is made of beside its data: files of this folder, as the build put them into the program.

namespace tidemark::scenarios {

[[nodiscard]] std::string_view page_template();
[[nodiscard]] std::string_view page_style();
[[nodiscard]] std::string_view page_charts();  ///< Apache ECharts
[[nodiscard]] std::string_view
page_figures();  ///< from data to what ECharts draws; ECMAScript 5, runs without a browser
[[nodiscard]] std::string_view page_script();  ///< lays the figures out in a browser

}  // namespace tidemark::scenarios
