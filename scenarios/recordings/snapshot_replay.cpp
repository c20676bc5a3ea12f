#include "scenarios/recordings/snapshot_replay.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "scenarios/environment/allocator_conf.hpp"
#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

[[noreturn]] void refuse(std::string source, std::string message, std::string hint) {
  throw InputError(Problem{.file = std::move(source), .message = std::move(message), .hint = std::move(hint)});
}

using Builders = std::vector<TraceBuilder>;

std::int64_t device_of(const SnapshotQuestion& question, const MemorySnapshot& snapshot, const Builders& builders) {
  if (question.device) {
    const std::size_t devices = snapshot.device_traces.size();
    if (*question.device >= 0 && static_cast<std::size_t>(*question.device) < devices) return *question.device;
    refuse(question.path, fmt::format("there is no trace of device {}", *question.device),
           fmt::format("the file has traces of {} devices", devices));
  }
  std::vector<std::size_t> recorded;
  for (std::size_t device = 0; device < builders.size(); ++device)
    if (!builders[device].empty()) recorded.push_back(device);
  if (recorded.empty())
    refuse(question.path, "has no trace of any device",
           "record one: torch.cuda.memory._record_memory_history() before the steps to record");
  if (recorded.size() > 1)
    refuse(question.path, fmt::format("has traces of devices {}", fmt::join(recorded, ", ")),
           "choose one with --device");
  return static_cast<std::int64_t>(recorded.front());
}

WhatIf ask(const SnapshotQuestion& question, const RecordedTrace& trace, const ReplayReport& report) {
  WhatIf what;
  what.conditions.options = trace.options;
  if (question.allocator_conf) {
    AllocatorConf conf = read_allocator_conf(*question.allocator_conf, "--alloc-conf");
    what.allocator_conf = *question.allocator_conf;
    what.conditions.options = conf.options;
    what.remarks = std::move(conf.remarks);
  }
  AllocatorOptions& options = what.conditions.options;
  if (question.memory_fraction) options.memory_fraction = *question.memory_fraction;
  what.conditions.capacity = question.capacity;
  if (!question.capacity && report.capacity) {
    what.conditions.capacity = report.capacity;
    what.capacity_from_recording = true;
  }
  if (what.conditions.capacity) options.device_memory = *what.conditions.capacity;
  if (options.memory_fraction < 1 && !what.conditions.capacity)
    refuse(question.memory_fraction ? "--memory-fraction" : "--alloc-conf", "is a fraction of a device of unknown size",
           "give its size with --capacity");
  what.recorded = scenarios::what_if(trace, report, {trace.options, std::nullopt});
  what.requested = scenarios::what_if(trace, report, what.conditions);
  return what;
}

}  // namespace

SnapshotReplay replay_snapshot(const SnapshotQuestion& question) {
  SnapshotReplay answer;
  answer.path = question.path;
  // A trace that grew as vectors do would take twice its room. Address space is free where nothing is written.
  constexpr std::uintmax_t least_bytes = 40;  // that an event takes in a pickle
  std::error_code unknown;
  const std::uintmax_t bytes = std::filesystem::file_size(question.path, unknown);
  const auto most_events = unknown ? 0 : static_cast<std::size_t>(bytes / least_bytes);
  Builders builders;
  answer.snapshot = read_memory_snapshot(question.path, [&](std::size_t device, const TraceEvent& event) {
    if (question.device && static_cast<std::int64_t>(device) != *question.device) return;
    if (builders.size() <= device) builders.resize(device + 1);
    if (builders[device].empty()) builders[device].reserve(most_events);
    builders[device].add(event);
  });
  answer.device = device_of(question, answer.snapshot, builders);
  builders.resize(answer.snapshot.device_traces.size());
  answer.trace =
      std::move(builders[static_cast<std::size_t>(answer.device)]).build(answer.snapshot, answer.device, question.path);
  answer.report = replay(answer.trace);
  answer.steps = steps_of(answer.trace, answer.snapshot.annotations, answer.device, {.fewest_steps = 1});
  answer.allocated_at_steps = allocated_at(answer.trace, answer.steps);
  answer.survivors = survivors(answer.trace, answer.steps);
  if (question.asks_what_if()) answer.what_if = ask(question, answer.trace, answer.report);
  return answer;
}

}  // namespace tidemark::scenarios
