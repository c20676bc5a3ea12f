#include "scenarios/cli/deadlocks.hpp"

#include "scenarios/cli/output.hpp"
#include "scenarios/report/deadlock.hpp"

namespace tidemark::cli {

bool deadlocks(const Job& job, const Trace& trace) {
  const std::optional<DeadlockReport> report = deadlock_of(job, trace);
  if (report) answer(deadlock_text(*report), "", {});
  return report.has_value();
}

}  // namespace tidemark::cli
