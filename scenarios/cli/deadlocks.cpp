#include "scenarios/cli/deadlocks.hpp"

#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/predict/deadlock.hpp"

namespace tidemark::cli {

bool deadlocks(const Job& job, const Trace& trace) {
  const std::optional<DeadlockReport> report = deadlock_of(job, trace);
  if (report) answer(deadlock_text(*report), "", {});
  return report.has_value();
}

}  // namespace tidemark::cli
