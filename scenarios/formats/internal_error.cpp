#include "scenarios/formats/internal_error.hpp"

#include <utility>

#include <fmt/format.h>

namespace tidemark::scenarios {
namespace {

constexpr std::size_t most_shown = 3;

std::string message(const std::string& scenario, const std::vector<std::string>& findings) {
  std::string out = fmt::format("{}: internal error: its programs are not sound\n", scenario);
  for (std::size_t i = 0; i < findings.size() && i < most_shown; ++i) out += fmt::format("  {}\n", findings[i]);
  if (findings.size() > most_shown) out += fmt::format("  and {} more\n", findings.size() - most_shown);
  return out + "  this is a bug in Tidemark, not in the scenario: please report it with the scenario";
}

}  // namespace

InternalError::InternalError(std::string scenario, std::vector<std::string> findings)
    : std::runtime_error(message(scenario, findings)), scenario_(std::move(scenario)), findings_(std::move(findings)) {}

void require_sound(const std::string& scenario, std::vector<std::string> findings) {
  if (!findings.empty()) throw InternalError(scenario, std::move(findings));
}

}  // namespace tidemark::scenarios
