#pragma once

#include <nlohmann/json.hpp>

#include "scenarios/plan/space/space.hpp"

namespace tidemark::scenarios {

/// Axes and their values, as answers show them.
inline nlohmann::ordered_json axes_json(const Space& space) {
  nlohmann::ordered_json axes = nlohmann::ordered_json::array();
  for (const Axis& axis : space.axes) {
    nlohmann::ordered_json values = nlohmann::ordered_json::array();
    for (const AxisValue& v : axis.values) values.push_back(v.text);
    axes.push_back({{"name", axis.name}, {"values", std::move(values)}});
  }
  return axes;
}

}  // namespace tidemark::scenarios
