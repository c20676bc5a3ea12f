#include "scenarios/snapshot_replay.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "scenarios/io/allocator_conf.hpp"
#include "scenarios/io/input_error.hpp"

namespace tidemark {
namespace {

[[noreturn]] void refuse(std::string source, std::string message, std::string hint) {
  throw InputError(Problem{.file = std::move(source), .message = std::move(message), .hint = std::move(hint)});
}

std::int64_t device_of(const SnapshotQuestion& question, const MemorySnapshot& snapshot) {
  if (question.device) return *question.device;
  std::vector<std::size_t> recorded;
  for (std::size_t device = 0; device < snapshot.device_traces.size(); ++device)
    if (!snapshot.device_traces[device].empty()) recorded.push_back(device);
  if (recorded.empty())
    refuse(question.path, "has no trace of any device",
           "record one: torch.cuda.memory._record_memory_history() before what is to be seen");
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
  what.recorded = tidemark::what_if(trace, report.emptied_at, {trace.options, std::nullopt});
  what.asked = tidemark::what_if(trace, report.emptied_at, what.conditions);
  return what;
}

}  // namespace

SnapshotReplay replay_snapshot(const SnapshotQuestion& question) {
  SnapshotReplay answer;
  answer.path = question.path;
  answer.snapshot = read_memory_snapshot(question.path);
  answer.device = device_of(question, answer.snapshot);
  answer.trace = recorded_trace(answer.snapshot, answer.device, question.path);
  answer.snapshot.device_traces.clear();
  answer.report = replay(answer.trace);
  answer.steps = steps_of(answer.trace, answer.snapshot.annotations, answer.device);
  answer.allocated_at_steps = allocated_at(answer.trace, answer.steps);
  answer.survivors = survivors(answer.trace, answer.steps);
  if (question.asks_what_if()) answer.what_if = ask(question, answer.trace, answer.report);
  return answer;
}

}  // namespace tidemark
