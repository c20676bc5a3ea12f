#include "scenarios/report/text/time_text.hpp"

#include <map>
#include <vector>

#include <fmt/format.h>

#include "parallel/job/mesh.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/predict/time/step_causes.hpp"

namespace tidemark::scenarios {

std::string time_text(const Job& job, const Trace& trace) {
  const StepAccount account = account_of(job, trace);
  const std::vector<StepTimes>& classes = account.classes;
  std::map<std::int32_t, std::vector<AlikeRanks>> stages;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const RankClass& its = job.folding.classes[c];
    stages[coordinates(job.scenario.layout, its.first).pipeline].push_back({its.size, classes[c]});
  }
  std::map<std::int32_t, CauseTimes> times;
  for (const auto& [stage, its] : stages) times[stage] = cause_times(job.communicators(), its);
  std::vector<std::vector<std::string>> rows{{"ms of a step"}};
  for (const auto& [stage, its] : times) rows[0].push_back(fmt::format("stage {}", stage));
  const auto milliseconds = [](Duration d) {
    return fmt::format("{:.3f}", static_cast<double>(d.count()) * 1e3 / static_cast<double>(picoseconds_per_second));
  };
  for (std::size_t cause = 0; cause < step_cause_count; ++cause) {
    std::vector<std::string> row{std::string(name(static_cast<StepCause>(cause)))};
    bool any = false;
    for (const auto& [stage, its] : times) {
      any |= its[cause] > Duration{};
      row.push_back(milliseconds(its[cause]));
    }
    if (any) rows.push_back(std::move(row));
  }
  std::vector<std::string> sums{"in all"};
  for (const auto& [stage, its] : times) {
    Duration sum;
    for (const Duration part : its) sum += part;
    sums.push_back(milliseconds(sum));
  }
  rows.push_back(std::move(sums));
  return "where the mean rank's compute stream spends the last step, by pipeline stage\n" + table(rows) +
         fmt::format("HFU {:.1f} %: all matrix products and attention, recomputation included, over dense peak\n",
                     100 * hardware_utilization(job, account, classes.front().step));
}

}  // namespace tidemark::scenarios
