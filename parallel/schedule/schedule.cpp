#include "parallel/schedule/schedule.hpp"

#include <fmt/format.h>

namespace tidemark {

std::string text(const Schedule& schedule) {
  std::string out;
  for (const ScheduleStep& step : schedule)
    out += fmt::format("{}{}{}", out.empty() ? "" : " ", step.pass == Pass::Forward ? 'F' : 'B', step.micro_batch);
  return out;
}

}  // namespace tidemark
