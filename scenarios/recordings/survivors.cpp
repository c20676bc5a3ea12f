#include "scenarios/recordings/survivors.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace tidemark::scenarios {
namespace {

using Action = TraceEvent::Action;

constexpr std::size_t fewest_steps = StepSearch{}.fewest_steps;

// A step ends with its optimizer's. Several parameter groups or optimizers may have marks of their own: those of one
// name are taken, the most frequent one, which of equals comes first.
std::vector<std::size_t> annotated_bounds(const RecordedTrace& trace,
                                          const std::vector<ExternalAnnotation>& annotations, std::int64_t device) {
  std::map<std::string_view, std::vector<std::int64_t>> ends;
  for (const ExternalAnnotation& mark : annotations) {
    const bool optimizer = std::string_view(mark.name).starts_with("Optimizer.step");
    if (optimizer && mark.device == device && mark.stage == ExternalAnnotation::Stage::End)
      ends[mark.name].push_back(mark.time_us);
  }
  const auto most = std::max_element(ends.begin(), ends.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (most == ends.end()) return {};
  std::sort(most->second.begin(), most->second.end());
  std::vector<std::size_t> bounds;
  for (const std::int64_t time : most->second) {
    const auto behind = std::partition_point(trace.events.begin(), trace.events.end(),
                                             [&](const RecordedEvent& event) { return event.time_us <= time; });
    const auto bound = static_cast<std::size_t>(behind - trace.events.begin());
    if (bounds.empty() || bound > bounds.back()) bounds.push_back(bound);
  }
  return bounds;
}

// For each position of a sequence, how long it agrees with the beginning from there on (Gusfield's Z).
std::vector<std::size_t> agreement_with_beginning(const std::vector<std::int64_t>& sequence) {
  std::vector<std::size_t> z(sequence.size(), 0);
  std::size_t left = 0, right = 0;
  for (std::size_t i = 1; i < sequence.size(); ++i) {
    if (i < right) z[i] = std::min(right - i, z[i - left]);
    while (i + z[i] < sequence.size() && sequence[z[i]] == sequence[i + z[i]]) ++z[i];
    if (i + z[i] > right) {
      left = i;
      right = i + z[i];
    }
  }
  return z;
}

// The sizes asked for, read from the end: with a period p, the sequence agrees with itself p further on. The shortest
// period is taken that holds for enough steps and half of all requests.
std::vector<std::size_t> repeated_bounds(const RecordedTrace& trace, const StepSearch& search) {
  std::vector<std::int64_t> sizes;
  std::vector<std::size_t> events;
  for (std::size_t i = trace.events.size(); i > 0; --i) {
    if (trace.events[i - 1].action != Action::Alloc) continue;
    sizes.push_back(trace.events[i - 1].size.count());
    events.push_back(i - 1);
  }
  const std::vector<std::size_t> agreement = agreement_with_beginning(sizes);
  std::size_t period = 0, covered = 0;
  const std::size_t needed = std::max<std::size_t>(search.fewest_steps, 2);  // one repeats nothing
  for (std::size_t p = std::max<std::size_t>(search.fewest_requests, 1); p < sizes.size() && period == 0; ++p) {
    covered = p + agreement[p];
    if (covered >= needed * p && 2 * covered >= sizes.size()) period = p;
  }
  std::vector<std::size_t> bounds;
  if (period == 0) return bounds;
  const std::size_t steps = covered / period;
  for (std::size_t step = steps; step > 0; --step) bounds.push_back(events[step * period - 1]);
  bounds.push_back(trace.events.size());
  return bounds;
}

// The allocations of the recording that are live at its end, in order.
std::vector<std::size_t> live_at_end(const RecordedTrace& trace) {
  std::unordered_map<std::uint64_t, std::size_t> live;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const RecordedEvent& event = trace.events[i];
    if (event.action == Action::Alloc) live[event.address.value] = i;
    if (event.action == Action::FreeCompleted || event.action == Action::FreeRequested) live.erase(event.address.value);
  }
  std::vector<std::size_t> made;
  for (const auto& [address, event] : live) made.push_back(event);
  std::sort(made.begin(), made.end());
  return made;
}

}  // namespace

Steps steps_of(const RecordedTrace& trace, const std::vector<ExternalAnnotation>& annotations, std::int64_t device,
               const StepSearch& search) {
  if (std::vector<std::size_t> bounds = annotated_bounds(trace, annotations, device);
      bounds.size() > search.fewest_steps)
    return {StepEvidence::Annotations, std::move(bounds)};
  if (std::vector<std::size_t> bounds = repeated_bounds(trace, search); bounds.size() > search.fewest_steps)
    return {StepEvidence::Repetition, std::move(bounds)};
  return {};
}

Bytes Survivors::growth() const {
  const auto counted = left_by_step.begin() + 1;
  return size * *std::min_element(counted, left_by_step.end() - 1);
}

std::vector<Survivors> survivors(const RecordedTrace& trace, const Steps& steps) {
  if (steps.count() < fewest_steps + 1) return {};
  std::map<std::pair<std::int32_t, Bytes>, Survivors> groups;
  for (const std::size_t made : live_at_end(trace)) {
    const RecordedEvent& event = trace.events[made];
    Survivors& group = groups[{event.stack.value, event.size}];
    group.size = event.size;
    group.stack = event.stack;
    group.left_by_step.resize(steps.count());
    ++group.live;
    const auto above = std::upper_bound(steps.bounds.begin(), steps.bounds.end(), made);
    if (above == steps.bounds.begin() || above == steps.bounds.end()) continue;
    ++group.left_by_step[static_cast<std::size_t>(above - steps.bounds.begin()) - 1];
  }
  std::vector<Survivors> found;
  for (auto& [key, group] : groups)
    if (group.growth() > Bytes{}) found.push_back(std::move(group));
  std::stable_sort(found.begin(), found.end(),
                   [](const Survivors& a, const Survivors& b) { return a.growth() > b.growth(); });
  return found;
}

std::vector<Bytes> allocated_at(const RecordedTrace& trace, const Steps& steps) {
  std::unordered_map<std::uint64_t, Bytes> live;
  Bytes allocated;
  for (const SegmentLayout& segment : trace.start)
    for (const BlockLayout& block : segment.blocks)
      if (block.state != BlockState::Free) allocated += live[block.address.value] = block.size;
  std::vector<Bytes> at;
  for (std::size_t i = 0; i <= trace.events.size() && at.size() < steps.bounds.size(); ++i) {
    if (steps.bounds[at.size()] == i) at.push_back(allocated);
    if (i == trace.events.size()) break;
    const RecordedEvent& event = trace.events[i];
    if (event.action == Action::Alloc) {
      allocated += live[event.address.value] = block_size(event.size, trace.options);
    } else if (event.action == Action::FreeRequested || event.action == Action::FreeCompleted) {
      const auto found = live.find(event.address.value);
      if (found == live.end()) continue;
      allocated -= found->second;
      live.erase(found);
    }
  }
  return at;
}

}  // namespace tidemark::scenarios
