#include "scenarios/recordings/log_comparison.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

Bytes peak_until(const MemoryRecord& memory, std::int64_t step) {
  const std::vector<Bytes>& steps = memory.peak_allocated_by_step;  // construction first
  const auto count = step < 0 ? std::ssize(steps) : std::clamp<std::int64_t>(step + 1, 1, std::ssize(steps));
  return *std::max_element(steps.begin(), steps.begin() + count);
}

}  // namespace

double RankPeaks::error() const {
  double most = 0;
  for (const std::optional<BytePair>& its : {allocated, reserved, device})
    if (its) most = std::max(most, std::abs(its->error()));
  return most;
}

bool LogComparison::agrees(double tolerance) const {
  return std::all_of(ranks.begin(), ranks.end(), [&](const RankPeaks& r) { return r.error() <= tolerance; });
}

LogComparison compare_log(const Prediction& prediction, const std::vector<LoggedPeak>& logged,
                          const std::string& file) {
  std::map<Rank, const MemoryRecord*> memory;
  for (const RankGroup& group : prediction.groups)
    for (const Rank rank : group.ranks) memory[rank] = &group.memory;
  LogComparison out;
  std::vector<Problem> problems;
  for (const LoggedPeak& peak : logged) {
    const auto found = memory.find(peak.rank);
    if (found == memory.end()) {
      problems.push_back({.file = file,
                          .line = static_cast<int>(peak.line),
                          .column = 0,
                          .message = fmt::format("rank {} is not in the job", peak.rank.value),
                          .hint = fmt::format("the scenario has ranks 0 to {}: it has to be the job that wrote the log",
                                              prediction.scenario.gpus - 1)});
      continue;
    }
    RankPeaks& row = out.ranks.emplace_back();
    row.logged = peak;
    if (peak.reserved) row.reserved = BytePair{found->second->peak_reserved, *peak.reserved};
    if (peak.device) row.device = BytePair{found->second->device.bytes, *peak.device};
    if (peak.allocated) row.allocated = BytePair{peak_until(*found->second, peak.step), *peak.allocated};
  }
  if (!problems.empty()) throw InputError(problems);
  return out;
}

}  // namespace tidemark::scenarios
