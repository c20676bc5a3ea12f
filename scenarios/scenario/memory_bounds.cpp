#include "scenarios/scenario/memory_bounds.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <span>

#include <fmt/format.h>

#include "scenarios/scenario/detail/bound_formulas.hpp"
#include "scenarios/scenario/memory_bounds_below.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

struct NamedBound {
  const BoundFormula* formula = nullptr;
  std::int64_t number = 0;
};
NamedBound named(std::string_view name) {
  const std::size_t colon = name.find(':');
  NamedBound its;
  for (const std::span<const BoundFormula> of :
       {formulas_of_megatron(), formulas_of_tools(), formulas_of_pretrainers()})
    if (const auto found = std::ranges::find(of, name.substr(0, colon), &BoundFormula::name); found != of.end())
      its.formula = &*found;
  if (its.formula == nullptr) return its;
  if (colon != std::string_view::npos) std::from_chars(name.data() + colon + 1, name.data() + name.size(), its.number);
  return its;
}

}  // namespace

bool has_memory_bound(std::string_view name) { return named(name).formula != nullptr; }

Bytes most_more(std::string_view name, const Scenario& scenario) {
  return std::ranges::max(more_by_stage(name, scenario));
}

std::vector<Bytes> more_by_stage(std::string_view name, const Scenario& scenario) {
  const NamedBound its = named(name);
  ensure(its.formula != nullptr, "a bound has a formula");
  std::vector<Bytes> all;
  for (std::int32_t stage = 0; stage < scenario.layout.pipeline; ++stage)
    all.emplace_back(its.formula->more(BoundSizes(scenario, its.number, stage)));
  return all;
}

Bytes most_less(std::string_view name, const Scenario& scenario) {
  const NamedBound its = named(name);
  ensure(its.formula != nullptr, "a bound has a formula");
  Bytes most;
  for (std::int32_t stage = 0; its.formula->less != nullptr && stage < scenario.layout.pipeline; ++stage)
    most = std::max(most, Bytes{its.formula->less(BoundSizes(scenario, its.number, stage))});
  return most;
}

Bytes most_more(const std::vector<MemoryBound>& bounds) {
  Bytes all;
  for (const MemoryBound& its : bounds) all += its.more;
  return all;
}

bool may_take_less(std::string_view name) {
  const NamedBound its = named(name);
  return its.formula != nullptr && its.formula->less != nullptr;
}

std::string lacking_on(std::string_view name, const Device& device) {
  const NamedBound its = named(name);
  if (its.formula == nullptr || its.formula->least_capability == nullptr) return {};
  const std::int32_t least = its.formula->least_capability(its.number), has = device.compute_capability;
  if (has >= least) return {};
  return fmt::format("takes compute capability {}.{}, and {} has {}.{}", least / 10, least % 10, device.name, has / 10,
                     has % 10);
}

std::vector<std::string> memory_bounds() {
  std::vector<std::string> names;
  for (const std::span<const BoundFormula> of :
       {formulas_of_megatron(), formulas_of_tools(), formulas_of_pretrainers()})
    for (const BoundFormula& its : of) names.emplace_back(its.name);
  return names;
}

}  // namespace tidemark::scenarios
