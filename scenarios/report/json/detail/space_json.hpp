#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "scenarios/plan/space/space.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {

/// A table as JSON: what a scenario's file says.
inline nlohmann::ordered_json document_json(const TomlTable& table) {
  using Json = nlohmann::ordered_json;
  Json out = Json::object();
  const auto as_json = [](const auto& self, const TomlValue& value) -> Json {
    return std::visit(Overloaded{
                          [](bool its) { return Json(its); },
                          [](std::int64_t its) { return Json(its); },
                          [](double its) { return Json(its); },
                          [](const std::string& its) { return Json(its); },
                          [](const TomlTime&) { return Json(); },
                          [&](const std::vector<TomlValue>& its) {
                            Json list = Json::array();
                            for (const TomlValue& each : its) list.push_back(self(self, each));
                            return list;
                          },
                          [](const TomlTable& its) { return document_json(its); },
                      },
                      value.value);
  };
  for (const TomlKey& key : table.keys) out[key.name] = as_json(as_json, key.value);
  return out;
}

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
