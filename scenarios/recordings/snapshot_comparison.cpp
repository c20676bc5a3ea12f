#include "scenarios/recordings/snapshot_comparison.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "scenarios/recordings/recorded_memory.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

using Action = TraceEvent::Action;

// A part of both sides' names: the layer's number says where, not what.
std::string without_layer(std::string label) {
  static constexpr std::string_view prefix = "layers.";
  const std::size_t at = label.find(prefix);
  if (at == std::string::npos) return label;
  const std::size_t from = at + prefix.size();
  const std::size_t to = label.find_first_not_of("0123456789", from);
  if (to == from) return label;
  return label.replace(from, to == std::string::npos ? to : to - from, "*");
}

// Events [first, last) of a recording.
struct Step {
  std::size_t first = 0, last = 0;
  StepEvidence evidence = StepEvidence::None;
};

std::size_t allocs_of(const RecordedTrace& trace, std::size_t first, std::size_t last) {
  const auto at = [&](std::size_t i) { return trace.events.begin() + static_cast<std::ptrdiff_t>(i); };
  return static_cast<std::size_t>(
      std::count_if(at(first), at(last), [](const RecordedEvent& e) { return e.action == Action::Alloc; }));
}

// The last complete step; where there is none, all of it. What has fewer allocations is a part of a step: several
// optimizers step one after another, and layers repeat.
Step last_complete_step(const Recording& recording, std::size_t fewest_allocs) {
  const Steps steps = steps_of(recording.trace, recording.snapshot.annotations, recording.device,
                               {.fewest_steps = 1, .fewest_requests = fewest_allocs});
  for (std::size_t i = steps.count(); i-- > 0;)
    if (allocs_of(recording.trace, steps.bounds[i], steps.bounds[i + 1]) >= fewest_allocs)
      return {steps.bounds[i], steps.bounds[i + 1], steps.evidence};
  return {0, recording.trace.events.size(), StepEvidence::None};
}

// One side: a recording, its last step and what is live at its peak.
class Side {
 public:
  Side(const Recording& recording, std::size_t fewest_allocs)
      : snapshot_(recording.snapshot),
        trace_(recording.trace),
        memory_(recorded_memory(trace_)),
        step_(last_complete_step(recording, fewest_allocs)) {
    const auto first = memory_.allocated.begin() + static_cast<std::ptrdiff_t>(step_.first);
    const auto last = memory_.allocated.begin() + static_cast<std::ptrdiff_t>(step_.last) + 1;
    peak_ = static_cast<std::size_t>(std::max_element(first, last) - memory_.allocated.begin());
    live_ = live_tensors(snapshot_, recording.device, trace_, peak_);
  }

  [[nodiscard]] StepSummary step() const { return {step_.last - step_.first, step_.evidence}; }
  [[nodiscard]] Bytes peak_allocated() const { return memory_.allocated[peak_]; }
  [[nodiscard]] Bytes allocated_at_begin() const { return memory_.allocated[step_.first]; }
  [[nodiscard]] Bytes peak_reserved() const {
    return *std::max_element(memory_.reserved.begin(), memory_.reserved.end());
  }
  [[nodiscard]] const std::vector<RecordedTensor>& live() const { return live_; }

  [[nodiscard]] std::size_t allocs() const { return allocs_of(trace_, step_.first, step_.last); }

  // Neither events nor times of two runs lie side by side, but the bytes that they allocate do.
  [[nodiscard]] std::array<Bytes, SnapshotComparison::curve_points> curve() const {
    Bytes all;
    const auto size_of = [&](std::size_t i) {
      return trace_.events[i].action == Action::Alloc ? trace_.events[i].size : Bytes{};
    };
    for (std::size_t i = step_.first; i < step_.last; ++i) all += size_of(i);
    std::array<Bytes, SnapshotComparison::curve_points> highest{};
    std::size_t point = 0;
    Bytes so_far, before = memory_.allocated[step_.first];
    for (std::size_t i = step_.first; i < step_.last; ++i) {
      so_far += size_of(i);
      const double share =
          static_cast<double>(so_far.count()) / static_cast<double>(std::max<std::int64_t>(all.count(), 1));
      const auto next =
          std::min(static_cast<std::size_t>(share * static_cast<double>(highest.size())), highest.size() - 1);
      for (; point < next; ++point) highest[point + 1] = before;
      highest[point] = std::max({highest[point], before, memory_.allocated[i + 1]});
      before = memory_.allocated[i + 1];
    }
    for (; point + 1 < highest.size(); ++point) highest[point + 1] = before;
    return highest;
  }

  // The frame that says most: where we wrote the file, the tensor; else the innermost line of Python that is not
  // PyTorch's own, or whatever there is.
  [[nodiscard]] std::string origin(const RecordedTensor& tensor) const {
    const bool is_before = tensor.event == RecordedTensor::before;
    return origin(tensor.stack, is_before ? "before the recording" : "no stack");
  }
  [[nodiscard]] std::string origin(StackId stack, const char* otherwise) const {
    if (!stack.valid() || snapshot_.stacks[stack.index()].empty()) return otherwise;
    const StackFrame *best = nullptr, *any = nullptr, *inside = nullptr;
    for (const FrameId id : snapshot_.stacks[stack.index()]) {
      const StackFrame& frame = snapshot_.frames[id.index()];
      if (frame.file == "tensor") return without_layer(frame.name);
      if (any == nullptr) any = &frame;
      if (!frame.file.ends_with(".py")) continue;
      if (inside == nullptr) inside = &frame;
      if (best == nullptr && frame.file.find("/torch/") == std::string::npos) best = &frame;
    }
    if (best == nullptr) best = inside != nullptr ? inside : any;
    const std::size_t slash = best->file.rfind('/');
    const std::string file = slash == std::string::npos ? best->file : best->file.substr(slash + 1);
    return file + ':' + std::to_string(best->line) + ' ' + best->name;
  }

  /// Events of the step that ask for no small size.
  [[nodiscard]] std::vector<const RecordedEvent*> requests() const {
    std::vector<const RecordedEvent*> found;
    for (std::size_t i = step_.first; i < step_.last; ++i)
      if (trace_.events[i].action == Action::Alloc && trace_.events[i].size >= DifferingRequest::smallest)
        found.push_back(&trace_.events[i]);
    return found;
  }
  [[nodiscard]] std::vector<std::string> stack_of(const RecordedEvent& event) const {
    std::vector<std::string> frames;
    if (!event.stack.valid()) return frames;
    for (const FrameId id : snapshot_.stacks[event.stack.index()]) {
      const StackFrame& frame = snapshot_.frames[id.index()];
      frames.push_back(frame.file + ':' + std::to_string(frame.line) + ' ' + frame.name);
    }
    return frames;
  }

 private:
  const MemorySnapshot& snapshot_;
  const RecordedTrace& trace_;
  RecordedMemory memory_;
  Step step_;
  std::size_t peak_ = 0;
  std::vector<RecordedTensor> live_;
};

// The most frequent; of equals the first in the alphabet.
std::string most_frequent(const std::map<std::string, std::int64_t>& counts) {
  const auto found =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return found == counts.end() ? std::string() : found->first;
}

template <class T, class Size>
void largest_first(std::vector<T>& list, Size size) {
  std::stable_sort(list.begin(), list.end(), [&](const T& a, const T& b) { return size(a) > size(b); });
}

using Tensors = std::vector<const RecordedTensor*>;

std::map<Bytes, Tensors, std::greater<>> by_size(const std::vector<RecordedTensor>& live) {
  std::map<Bytes, Tensors, std::greater<>> sizes;
  for (const RecordedTensor& tensor : live) sizes[tensor.requested].push_back(&tensor);
  return sizes;
}

void add_unmatched(const Side& side, const Tensors& tensors, std::size_t from, std::vector<Unmatched>& list) {
  std::map<std::string, Unmatched> found;
  for (std::size_t i = from; i < tensors.size(); ++i) {
    Unmatched& one = found[side.origin(*tensors[i])];
    one.requested = tensors[i]->requested;
    one.blocks += tensors[i]->block;
    ++one.count;
  }
  for (auto& [what, one] : found) {
    one.what = what;
    list.push_back(one);
  }
}

void match(const Side& predicted, const Side& measured, SnapshotComparison& out) {
  auto ours = by_size(predicted.live());
  auto theirs = by_size(measured.live());
  for (const auto& [size, tensors] : theirs) ours.try_emplace(size);
  for (const auto& [size, mine] : ours) {
    const Tensors& real = theirs[size];
    const std::size_t both = std::min(mine.size(), real.size());
    TensorMatch found{
        .requested = size, .count = static_cast<std::int64_t>(both), .blocks = {}, .predicted = {}, .measured = {}};
    std::map<std::string, std::int64_t> labels, frames;
    for (std::size_t i = 0; i < both; ++i) {
      found.blocks.predicted += mine[i]->block;
      found.blocks.measured += real[i]->block;
      ++labels[predicted.origin(*mine[i])];
      ++frames[measured.origin(*real[i])];
    }
    found.predicted = most_frequent(labels);
    found.measured = most_frequent(frames);
    out.block_rounding += found.blocks.difference();
    if (both > 0) out.matched.push_back(std::move(found));
    add_unmatched(predicted, mine, both, out.only_predicted);
    add_unmatched(measured, real, both, out.only_measured);
  }
  largest_first(out.matched, [](const TensorMatch& m) { return m.blocks.measured; });
  largest_first(out.only_predicted, [](const Unmatched& u) { return u.blocks; });
  largest_first(out.only_measured, [](const Unmatched& u) { return u.blocks; });
}

std::optional<DifferingRequest> first_difference(const Side& ours, const Side& theirs) {
  const std::vector<const RecordedEvent*> predicted = ours.requests(), measured = theirs.requests();
  const std::size_t both = std::min(predicted.size(), measured.size());
  std::size_t at = 0;
  while (at < both && predicted[at]->size == measured[at]->size) ++at;
  if (at == predicted.size() && at == measured.size()) return std::nullopt;
  DifferingRequest out;
  out.number = static_cast<std::int64_t>(at) + 1;
  if (at < predicted.size()) {
    out.size.predicted = predicted[at]->size;
    out.predicted = ours.origin(predicted[at]->stack, "no stack");
  }
  if (at < measured.size()) {
    out.size.measured = measured[at]->size;
    out.measured = theirs.origin(measured[at]->stack, "autograd, which has no stack");
    out.stack = theirs.stack_of(*measured[at]);
  }
  return out;
}

}  // namespace

double BytePair::error() const {
  if (measured == Bytes{0}) return predicted == Bytes{0} ? 0 : HUGE_VAL;
  return static_cast<double>(difference().count()) / static_cast<double>(measured.count());
}

bool SnapshotComparison::agrees(double tolerance) const {
  return std::abs(allocated.error()) <= tolerance && std::abs(reserved.error()) <= tolerance;
}

SnapshotComparison compare_recordings(const Recording& predicted, const Recording& measured) {
  const Side ours(predicted, 1);
  // Frameworks make more or fewer temporaries than predicted, but not several times as many.
  const Side theirs(measured, std::max<std::size_t>(ours.allocs() / 4, 1));
  SnapshotComparison out;
  out.predicted_step = ours.step();
  out.measured_step = theirs.step();
  out.allocated = {ours.peak_allocated(), theirs.peak_allocated()};
  out.at_begin = {ours.allocated_at_begin(), theirs.allocated_at_begin()};
  out.reserved = {ours.peak_reserved(), theirs.peak_reserved()};
  const auto our_curve = ours.curve(), their_curve = theirs.curve();
  for (std::size_t i = 0; i < out.curve.size(); ++i) out.curve[i] = {our_curve[i], their_curve[i]};
  out.first_difference = first_difference(ours, theirs);
  match(ours, theirs, out);
  Bytes explained = out.block_rounding;
  for (const Unmatched& u : out.only_predicted) explained += u.blocks;
  for (const Unmatched& u : out.only_measured) explained -= u.blocks;
  ensure(explained == out.allocated.difference(), "every byte of a difference is attributed");
  return out;
}

}  // namespace tidemark::scenarios
