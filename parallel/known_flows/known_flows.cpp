#include "parallel/known_flows/known_flows.hpp"

#include <string>

#include <fmt/format.h>

#include "parallel/known_flows/tables.hpp"

namespace tidemark::parallel {
namespace {

bool matches(std::string_view text, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t at = star; at <= text.size(); ++at)
    if (matches(text.substr(at), rest)) return true;
  return false;
}

bool is(const FlowFinding& finding, const KnownFlow& known) {
  const auto place = [](const FlowPlace& its) { return fmt::format("{} {}", name(its.phase), its.label); };
  return finding.kind == known.kind && matches(finding.tensor, known.tensor) && matches(place(finding.at), known.at) &&
         matches(place(finding.until), known.until);
}

}  // namespace

std::span<const KnownFlow> known_flows(FlowsOf framework) {
  switch (framework) {
    case FlowsOf::Megatron:
      return flows_of_megatron();
    case FlowsOf::OffloadedLayers:
      return flows_of_offloaded_layers();
    case FlowsOf::ModuleOffload:
      return flows_of_offloaded_modules();
    case FlowsOf::PyTorch:
      return flows_of_pytorch();
    case FlowsOf::Rollouts:
      return flows_of_rollouts();
  }
  return {};
}

const KnownFlow* known_flow(const FlowFinding& finding, FlowsOf framework) {
  for (const KnownFlow& known : known_flows(framework))
    if (is(finding, known)) return &known;
  if (framework == FlowsOf::OffloadedLayers || framework == FlowsOf::ModuleOffload)
    return known_flow(finding, FlowsOf::Megatron);
  return nullptr;
}

}  // namespace tidemark::parallel
