#include "scenarios/predict/reported_replay.hpp"

#include <utility>
#include <variant>

#include "scenarios/predict/upper_ends/deferred_frees.hpp"

namespace tidemark::scenarios {

ReplayOptions reported_replay(const Job& job, const Trace& trace, const ProgramTimes& times) {
  ReplayOptions options{.capacity = job.scenario.cluster.device.capacity,
                        .allocator = allocator_options_of(job.scenario)};
  const bool completed = std::holds_alternative<Completed>(trace.outcome);
  if (job.asks_the_clock && completed) options.cross_stream = ByClock{&times, prompt_stream(job.runtime)};
  return options;
}

ReplayOptions without_device(ReplayOptions options) {
  options.capacity = ReplayOptions{}.capacity;
  options.allocator = without_limit(std::move(options.allocator));
  return options;
}

}  // namespace tidemark::scenarios
