#include "scenarios/plan/tie_analysis.hpp"

#include <cmath>
#include <set>

namespace tidemark::scenarios {
namespace {

StepPart part_of(const StepParts& parts, const std::string& cause) {
  const auto found = parts.find(cause);
  return found == parts.end() ? StepPart{} : found->second;
}

}  // namespace

TieAnalysis tie_analysis(std::int64_t candidate, Duration apart, const StepParts& best, const StepParts& other) {
  TieAnalysis made{candidate, apart, {}, {}, {}};
  std::set<std::string> causes;
  for (const StepParts* parts : {&best, &other})
    for (const auto& [cause, part] : *parts) causes.insert(cause);
  double all = 0, most = 0;
  for (const std::string& cause : causes) {
    const StepPart a = part_of(best, cause), b = part_of(other, cause);
    const double more = static_cast<double>((b.time - a.time).count());
    const double error = std::abs(more) * std::max(a.error, b.error);
    all += error * error;
    if (error <= most) continue;
    most = error;
    made.settles = cause;
  }
  made.error = Duration{std::llround(std::sqrt(all))};
  made.of_that = Duration{std::llround(most)};
  return made;
}

}  // namespace tidemark::scenarios
