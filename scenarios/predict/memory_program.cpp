#include "scenarios/predict/memory_program.hpp"

#include <variant>

#include "scenarios/predict/role_program.hpp"

namespace tidemark::scenarios {

MemoryRecord MemoryProgram::replayed(const DriverCosts& costs, const ReplayOptions& options) const {
  if (left_out_.empty()) return replay(program, costs, options);
  if (!whole_) {
    if (std::optional<MemoryRecord> record = replay(program, left_out_, costs, options)) return std::move(*record);
    whole_ = make_whole_();
  }
  if (options.cross_stream == CrossStreamReturn{CrossStreamFrees::AtNextSync}) {
    if (!whole_->program) throw NotKnownFromFew{};
    return replay(*whole_->program, costs, options);
  }
  const auto* by_clock = std::get_if<ByClock>(&options.cross_stream);
  if (by_clock == nullptr) return replay(whole_->of_memory, costs, options);
  if (!whole_->has_times) throw NotKnownFromFew{};
  ProgramTimes times = *by_clock->times;
  times.left_out.clear();
  times.places = whole_->on_clock.empty() ? nullptr : &whole_->on_clock;
  ReplayOptions with_times = options;
  with_times.cross_stream = ByClock{&times};
  return replay(whole_->of_memory, costs, with_times);
}

std::optional<Bytes> MemoryProgram::at_the_latest(const DriverCosts& costs, Bytes capacity,
                                                  const AllocatorOptions& allocator, const LaunchQueue& queue) const {
  if (events_.apart()) {
    const EventsRecord record = replay_events(*events_.state, *events_.passes, allocator, costs, capacity,
                                              {CrossStreamFrees::AtNextSync, queue});
    return record.out_of_memory ? std::nullopt : std::optional(record.device_upper(costs));
  }
  const MemoryRecord record = replayed(
      costs,
      {.capacity = capacity, .allocator = allocator, .cross_stream = CrossStreamFrees::AtNextSync, .queue = queue});
  return record.failure ? std::nullopt : std::optional(record.peak_device_upper);
}

}  // namespace tidemark::scenarios
