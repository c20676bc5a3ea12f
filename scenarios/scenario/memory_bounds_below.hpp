#pragma once

#include <string_view>

#include "scenarios/namespace.hpp"
#include "sim/base/units.hpp"

namespace tidemark::scenarios {

struct Scenario;

/// How much less what a bound is called may take than what is simulated in its place, at most.
[[nodiscard]] Bytes most_less(std::string_view name, const Scenario& scenario);

}  // namespace tidemark::scenarios
