#include "scenarios/recordings/logs/log_comparison.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "scenarios/formats/format.hpp"
#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

Bytes peak_until(const MemoryRecord& memory, std::int64_t step) {
  const std::vector<Bytes>& steps = memory.peak_allocated_by_step;  // construction first
  const auto count = step < 0 ? std::ssize(steps) : std::clamp<std::int64_t>(step + 1, 1, std::ssize(steps));
  return *std::max_element(steps.begin(), steps.begin() + count);
}

// A message says what was held as memory ran out, and not what the job would have come to.
void compare_ends(const Prediction& prediction, const RankGroup& group, RankPeaks& row) {
  const Bytes capacity = prediction.scenario.cluster.device.capacity;
  row.ends_alike = group.failure.has_value();
  if (!group.failure) {
    row.predicted_end = fmt::format("does not run out of memory in the prediction, which fills {} of {} on it",
                                    gib(prediction.filled(group)), gib(capacity));
    return;
  }
  row.predicted_end = fmt::format(
      "also runs out of memory in the prediction: {}: {} asked, {} free; without a limit it would allocate {}",
      where(group.failure->at, group.failed_op), mib(group.failure->requested), mib(group.failure->free),
      gib(group.memory.allocated.bytes));
  row.allocated.reset();
  row.reserved.reset();
  if (row.device) row.device->predicted = capacity - group.failure->free;
}

// Devices of one name differ by what their driver keeps, which is far less than from one size to the next.
bool is_another_device(Bytes said, Bytes capacity) {
  constexpr double alike = 0.02;
  return std::abs(static_cast<double>(said.count()) / static_cast<double>(capacity.count()) - 1) > alike;
}

Problem another_device(const std::string& file, const LoggedPeak& peak, Bytes capacity) {
  return {.file = file,
          .line = static_cast<int>(peak.line),
          .column = 0,
          .message = fmt::format("ran out of memory on a device of {}, and the scenario's have {}", gib(*peak.capacity),
                                 gib(capacity)),
          .hint = "cluster = the one that the run was on (tidemark list clusters)"};
}

}  // namespace

double RankPeaks::error() const {
  double most = 0;
  for (const std::optional<BytePair>& its : {allocated, reserved, device})
    if (its) most = std::max(most, std::abs(its->error()));
  return most;
}

bool LogComparison::ends_alike() const { return std::ranges::all_of(ranks, &RankPeaks::ends_alike); }

bool StepBeside::within(double tolerance) const {
  const double its = seconds(measured.median);
  return its >= seconds(low) * (1 - tolerance) && its <= seconds(high) * (1 + tolerance);
}

bool LogComparison::agrees(double tolerance) const {
  return ends_alike() && (!step || step->within(tolerance)) &&
         std::all_of(ranks.begin(), ranks.end(), [&](const RankPeaks& r) { return r.error() <= tolerance; });
}

LogComparison compare_log(const Prediction& prediction, const std::vector<LoggedPeak>& logged,
                          const std::string& file) {
  std::map<Rank, const RankGroup*> groups;
  for (const RankGroup& group : prediction.groups)
    for (const Rank rank : group.ranks) groups[rank] = &group;
  LogComparison out;
  std::vector<Problem> problems;
  for (const LoggedPeak& peak : logged) {
    const auto found = groups.find(peak.rank);
    if (found == groups.end()) {
      problems.push_back({.file = file,
                          .line = static_cast<int>(peak.line),
                          .column = 0,
                          .message = fmt::format("rank {} is not in the job", peak.rank.value),
                          .hint = fmt::format("the scenario has ranks 0 to {}: it has to be the job that wrote the log",
                                              prediction.scenario.gpus - 1)});
      continue;
    }
    const Bytes capacity = prediction.scenario.cluster.device.capacity;
    if (peak.capacity && is_another_device(*peak.capacity, capacity)) {
      problems.push_back(another_device(file, peak, capacity));
      continue;
    }
    const MemoryRecord& memory = found->second->memory;
    RankPeaks& row = out.ranks.emplace_back();
    row.logged = peak;
    // What a run reserved as its job was made is not what it came to.
    if (peak.reserved && peak.step != 0) row.reserved = BytePair{memory.peak_reserved, *peak.reserved};
    if (peak.device) row.device = BytePair{memory.device.bytes, *peak.device};
    if (peak.allocated) row.allocated = BytePair{peak_until(memory, peak.step), *peak.allocated};
    if (peak.framework == LoggedPeak::Framework::OutOfMemory) compare_ends(prediction, *found->second, row);
  }
  if (!problems.empty()) throw InputError(problems);
  return out;
}

}  // namespace tidemark::scenarios
