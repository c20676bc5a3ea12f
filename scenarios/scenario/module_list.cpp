#include "scenarios/scenario/module_list.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {

std::vector<std::string> read_module_list(TomlReader& table, std::string_view key, std::string_view hint) {
  std::vector<std::string> names;
  const TomlValue* const given = table.raw(key);
  if (given == nullptr) return names;
  const auto* const list = std::get_if<std::vector<TomlValue>>(&given->value);
  if (list == nullptr) {
    table.problem(key, fmt::format("{} takes a list of names of modules, not {}", key, text(*given)),
                  std::string(hint));
    return names;
  }
  for (const TomlValue& entry : *list)
    if (const auto* const name = std::get_if<std::string>(&entry.value); name != nullptr && !name->empty())
      names.push_back(*name);
    else
      table.problem(key, fmt::format("{} in {} is not a name of a module", text(entry), key), std::string(hint));
  if (list->empty()) table.problem(key, fmt::format("{} names no modules", key), std::string(hint));
  return names;
}

void report_unknown_module(TomlReader& table, std::string_view key, const std::string& name, const Model& model,
                           const std::vector<parallel::transformers::ModuleName>& modules, std::string_view kind) {
  // Ends of names, each once.
  std::vector<std::string> ends;
  for (const parallel::transformers::ModuleName& its : modules) {
    if (kind == "linear" && !its.linear) continue;
    std::string end = its.path.substr(its.path.rfind('.') + 1);
    if (std::ranges::find(ends, end) == ends.end()) ends.push_back(std::move(end));
  }
  const std::string near = nearest(name, ends);
  table.problem(key, fmt::format("{}: {} has no {} module {}", key, model.name, kind, in_quotes(name)),
                near.empty() ? fmt::format("it has {}", fmt::join(ends, ", "))
                             : fmt::format("did you mean {}?", in_quotes(near)));
}

}  // namespace tidemark::scenarios
