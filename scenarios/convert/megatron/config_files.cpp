#include <cstdint>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/formats/json_table.hpp"

// What a model computes with, and neither memory nor time depends on: a script without it trains another model.

namespace tidemark::scenarios {
namespace {

std::optional<double> number_of_config(const TomlTable& table, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names)
    for (const TomlKey& key : table.keys) {
      if (key.name != name) continue;
      if (const auto* whole = std::get_if<std::int64_t>(&key.value.value)) return static_cast<double>(*whole);
      if (const auto* real = std::get_if<double>(&key.value.value)) return *real;
    }
  return std::nullopt;
}

}  // namespace

std::vector<std::vector<std::string>> megatron_arguments_of(const std::string& config) {
  constexpr double usual_base = 10'000, usual_epsilon = 1e-5;  // arguments.py
  const TomlTable table = parse_json_table(config, "config.json", Automatic::Kept);
  std::vector<std::vector<std::string>> made;
  const std::optional<double> base = number_of_config(table, {"rope_theta", "rotary_emb_base"}),
                              epsilon =
                                  number_of_config(table, {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon"});
  if (base && *base != usual_base) made.push_back({"--rotary-base", fmt::format("{:.0f}", *base)});
  if (epsilon && *epsilon != usual_epsilon) made.push_back({"--norm-epsilon", fmt::format("{}", *epsilon)});
  for (const TomlKey& key : table.keys) {
    const auto* scaling = key.name == "rope_scaling" ? std::get_if<TomlTable>(&key.value.value) : nullptr;
    if (scaling == nullptr) continue;
    for (const TomlKey& its : scaling->keys)
      if (const auto* kind = std::get_if<std::string>(&its.value.value); its.name == "rope_type" && kind != nullptr)
        if (*kind == "llama3") {
          made.push_back({"--use-rope-scaling"});
          if (const auto factor = number_of_config(*scaling, {"factor"}); factor && *factor != 8.0)
            made.push_back({"--rope-scaling-factor", fmt::format("{}", *factor)});
        }
  }
  return made;
}

}  // namespace tidemark::scenarios
