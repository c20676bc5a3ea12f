#include "parallel/schedule/schedule.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tidemark::parallel {

std::string text(const Schedule& schedule) {
  const bool several =
      std::any_of(schedule.begin(), schedule.end(), [](const ScheduleStep& step) { return step.chunk > 0; });
  std::string out;
  for (const ScheduleStep& step : schedule) {
    out += fmt::format("{}{}{}", out.empty() ? "" : " ", step.pass == Pass::Forward ? 'F' : 'B', step.micro_batch);
    if (several) out += fmt::format(".{}", step.chunk);
  }
  return out;
}

}  // namespace tidemark::parallel
