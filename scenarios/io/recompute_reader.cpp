#include "scenarios/io/recompute_reader.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "scenarios/io/names.hpp"
#include "scenarios/io/suggestion.hpp"

namespace tidemark::scenarios {
namespace {

constexpr IntegerRange layer_count{0, 1 << 16};

// Modules that Megatron-LM 0.14 knows and dense decoders do not have, or that are not modelled.
constexpr auto other_modules =
    std::to_array<std::string_view>({"layernorm", "mla_up_proj", "moe", "moe_act", "shared_experts"});

void read_modules(TomlReader& table, Recomputation& asked) {
  const TomlValue* given = table.raw("recompute_modules");
  if (given == nullptr) {
    asked.core_attention = asked.kind == Recompute::Selective;
    return;
  }
  const auto* list = std::get_if<std::vector<TomlValue>>(&given->value);
  if (list == nullptr) {
    table.problem("recompute_modules", fmt::format("recompute_modules takes a list of names, not {}", text(*given)),
                  "[\"core_attn\"], [\"mlp\"] or both");
    return;
  }
  for (const TomlValue& entry : *list) {
    const auto* name = std::get_if<std::string>(&entry.value);
    if (name != nullptr && *name == "core_attn") {
      asked.core_attention = true;
    } else if (name != nullptr && *name == "mlp") {
      asked.mlp = true;
    } else {
      const bool known =
          name != nullptr && std::find(other_modules.begin(), other_modules.end(), *name) != other_modules.end();
      table.problem("recompute_modules",
                    known ? fmt::format("recomputing {} is not modelled yet", text(entry))
                          : fmt::format("{} is no module that can be recomputed", text(entry)),
                    "\"core_attn\" and \"mlp\" can");
    }
  }
}

}  // namespace

Recomputation read_recomputation(TomlReader& table) {
  Recomputation asked;
  asked.kind = read_name(table, "recompute", recompute_names).value_or(Recompute::None);
  const std::optional<RecomputeMethod> method = read_name(table, "recompute_method", recompute_method_names);
  const std::optional<std::int64_t> layers = table.integer("recompute_layers", layer_count);
  read_modules(table, asked);
  if (asked.kind != Recompute::Full) return asked;
  asked.method = method.value_or(RecomputeMethod::Uniform);
  asked.layers = static_cast<std::int32_t>(layers.value_or(1));
  return asked;
}

void check_recomputation(TomlReader& table, const Recomputation& asked) {
  if (!table.sound("recompute")) return;
  const TomlValue* modules = table.sound("recompute_modules") ? table.raw("recompute_modules") : nullptr;
  if (modules != nullptr) {
    const bool none = std::get<std::vector<TomlValue>>(modules->value).empty();
    if (asked.kind == Recompute::Selective && none)
      table.problem("recompute_modules", "recompute = \"selective\" with nothing to recompute",
                    "name modules, or set recompute = \"none\"");
    if (asked.kind != Recompute::Selective && !none)
      table.problem("recompute_modules", "recompute_modules is for recompute = \"selective\"",
                    "leave it out, or set recompute = \"selective\"");
  }
  if (asked.kind == Recompute::Full) {
    if (asked.layers == 0)
      table.problem("recompute_layers", "recompute_layers = 0 recomputes nothing",
                    "at least 1, or recompute = \"none\"");
    return;
  }
  const std::string hint = "leave it out, or set recompute = \"full\"";
  if (asked.kind == Recompute::Selective && table.has("recompute_method") && table.sound("recompute_method"))
    table.problem("recompute_method", "recompute_method is for recompute = \"full\"", hint);
  if (table.sound("recompute_layers") && table.integer("recompute_layers", layer_count).value_or(0) != 0)
    table.problem("recompute_layers", "recompute_layers is for recompute = \"full\"", hint);
}

}  // namespace tidemark::scenarios
