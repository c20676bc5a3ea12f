#include "scenarios/report/simulated_snapshot.hpp"

#include <array>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "scenarios/predict/reported_replay.hpp"
#include "scenarios/predict/role_program.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::int64_t picoseconds_per_microsecond = 1'000'000;

// Frames and stacks, each once.
class Stacks {
 public:
  Stacks(const Program& program, MemorySnapshot& snapshot) : program_(program), snapshot_(snapshot) {}

  // Viewers print a frame as file:line:name.
  StackId of(const TensorEvent& tensor, const Mark& mark) {
    const auto [known, is_new] = stacks_.try_emplace(
        std::tuple(tensor.label, tensor.category, mark.label, mark.phase, mark.micro_batch, mark.step));
    if (!is_new) return known->second;
    const std::string& label = program_[tensor.label];
    const std::string op = mark.label.valid() ? program_[mark.label] : std::string();
    const auto layer_of = [&](LabelId id) { return std::string(program_.labels[id.index()].layer_text()); };
    std::string layer = layer_of(tensor.label);
    if (layer.empty() && mark.label.valid()) layer = layer_of(mark.label);
    std::vector<FrameId> stack{frame("tensor", 0, label)};
    if (!op.empty()) stack.push_back(frame("operator", 0, op));
    if (!layer.empty()) stack.push_back(frame("layer", 0, layer));
    stack.push_back(frame("step", mark.step,
                          mark.micro_batch < 0
                              ? std::string(name(mark.phase))
                              : fmt::format("{} of micro-batch {}", name(mark.phase), mark.micro_batch)));
    stack.push_back(frame("category", 0, std::string(name(tensor.category))));
    snapshot_.stacks.push_back(std::move(stack));
    return known->second = StackId{static_cast<std::int32_t>(snapshot_.stacks.size()) - 1};
  }

 private:
  FrameId frame(const std::string& file, std::int64_t line, const std::string& name) {
    const auto [known, is_new] = frames_.try_emplace(std::tuple(file, line, name));
    if (is_new) {
      known->second = FrameId{static_cast<std::int32_t>(snapshot_.frames.size())};
      snapshot_.frames.push_back({name, file, line});
    }
    return known->second;
  }

  const Program& program_;
  MemorySnapshot& snapshot_;
  std::map<std::tuple<std::string, std::int64_t, std::string>, FrameId> frames_;
  std::map<std::tuple<LabelId, Category, LabelId, Phase, std::int32_t, std::int32_t>, StackId> stacks_;
};

class Recorder {
 public:
  Recorder(const Job& job, const Trace& trace, Rank rank)
      : job_(job),
        trace_(trace),
        its_(job, job.role_of(rank)),
        program_(its_.program()),
        times_(its_.times(trace, rank)),
        costs_(job.costs.of(rank)),
        options_(allocator_options_of(job.scenario)),
        stacks_(program_, snapshot_) {
    AllocatorSettings& settings = snapshot_.settings.emplace();
    settings.text = job.scenario.runtime.allocator;
    if (options_.max_split_size != AllocatorOptions::unlimited) settings.max_split_size = options_.max_split_size;
    settings.garbage_collection_threshold = options_.garbage_collection_threshold;
    settings.expandable_segments = options_.expandable_segments;
    settings.roundup_divisions = options_.roundup_divisions;
    snapshot_.device_traces.emplace_back();
    category_ids_.fill({});
    // The viewer of PyTorch 2.11 fails on categories without this one.
    snapshot_.categories.emplace_back("unknown");
  }

  MemorySnapshot record() && {
    ReplayOptions limit = reported_replay(job_, trace_, times_);
    if (replay(program_, costs_, limit).failure) limit = without_device(std::move(limit));
    const ObservedMemory observed = replay(program_, costs_, limit, [&](const MemoryEvent& event) { note(event); });
    if (!program_.ops.empty()) walk_to(program_.ops.size() - 1);
    leave_optimizer();
    for (const SegmentLayout& segment : observed.segments) snapshot_.segments.push_back(segment_record(segment));
    return std::move(snapshot_);
  }

 private:
  struct Segment {
    StreamId stream;
    StackId stack;
  };

  void note(const MemoryEvent& event) {
    walk_to(event.at.op);
    const auto* tensor = std::get_if<TensorEvent>(&event.what);
    ensure(tensor != nullptr || event.segments.empty(), "drivers take no segments");
    if (tensor == nullptr) return;
    const StackId stack = stacks_.of(*tensor, event.at.mark);
    for (const SegmentEvent& segment : event.segments) note(segment, tensor->stream, stack);
    TraceEvent out{.address = tensor->address,
                   .size = tensor->requested,
                   .stream = tensor->stream.value,
                   .time_us = now_us_,
                   .stack = stack,
                   .category = category(tensor->category)};
    const auto add = [&](TraceEvent::Action action) {
      out.action = action;
      snapshot_.device_traces.front().push_back(out);
    };
    switch (tensor->kind) {
      case TensorEvent::Kind::Alloc:
        add(TraceEvent::Action::Alloc);
        stack_of_block_[tensor->address.value] = stack;
        break;
      case TensorEvent::Kind::Free:
        add(TraceEvent::Action::FreeRequested);
        add(TraceEvent::Action::FreeCompleted);
        break;
      case TensorEvent::Kind::FreeLater:
        add(TraceEvent::Action::FreeRequested);
        break;
      case TensorEvent::Kind::ComeBack:
        add(TraceEvent::Action::FreeCompleted);
        break;
    }
  }

  void note(const SegmentEvent& segment, StreamId stream, StackId stack) {
    const auto action = [&] {
      switch (segment.kind) {
        case SegmentEvent::Kind::Alloc:
          return TraceEvent::Action::SegmentAlloc;
        case SegmentEvent::Kind::Free:
          return TraceEvent::Action::SegmentFree;
        case SegmentEvent::Kind::Map:
          return TraceEvent::Action::SegmentMap;
        case SegmentEvent::Kind::Unmap:
          return TraceEvent::Action::SegmentUnmap;
      }
      ensure(false, "segments come or go");
      return TraceEvent::Action::SegmentFree;
    };
    TraceEvent out{.action = action(),
                   .address = segment.address,
                   .size = segment.size,
                   .stream = stream.value,
                   .time_us = now_us_,
                   .stack = stack,
                   .category = TraceCategoryId{0}};
    // The stream that takes memory; that which makes room for another may have none of it.
    const bool comes = out.action == TraceEvent::Action::SegmentAlloc || out.action == TraceEvent::Action::SegmentMap;
    if (comes)
      segments_[segment.address.value] = {stream, stack};
    else
      out.stream = segment_of(segment.address).stream.value;
    snapshot_.device_traces.front().push_back(out);
  }

  // The host thread comes to the op.
  void walk_to(std::size_t op) {
    for (; next_ <= op; ++next_) {
      now_us_ = times_.host[next_].since_start().count() / picoseconds_per_microsecond;
      const Mark* mark = std::get_if<Mark>(&program_.ops[next_]);
      if (mark == nullptr) continue;
      if (program_[mark->label] != "optimizer_step")
        leave_optimizer();
      else if (!std::exchange(in_optimizer_, true))
        annotate(ExternalAnnotation::Stage::Start);
    }
  }

  void leave_optimizer() {
    if (std::exchange(in_optimizer_, false)) annotate(ExternalAnnotation::Stage::End);
  }

  // As torch.profiler marks where a step ends.
  void annotate(ExternalAnnotation::Stage stage) {
    snapshot_.annotations.push_back({stage, "Optimizer.step#tidemark.step", 0, now_us_});
  }

  TraceCategoryId category(Category category) {
    TraceCategoryId& id = category_ids_[static_cast<std::size_t>(category)];
    if (!id.valid()) {
      id = TraceCategoryId{static_cast<std::int32_t>(snapshot_.categories.size())};
      snapshot_.categories.emplace_back(name(category));
    }
    return id;
  }

  [[nodiscard]] SegmentRecord segment_record(const SegmentLayout& segment) const {
    SegmentRecord record{.address = segment.address,
                         .size = segment.size,
                         .stream = segment.stream.value,
                         .pool = segment.pool,
                         .mempool = segment.mempool,
                         .expandable = segment.expandable,
                         .stack = segment_of(segment.address).stack};
    for (const BlockLayout& block : segment.blocks) {
      const BlockRecord::State state = state_of(block.state);
      record.blocks.push_back(
          {block.address, block.size, block.requested, state,
           state == BlockRecord::State::Inactive ? StackId{} : stack_of_block_.at(block.address.value)});
    }
    return record;
  }

  static BlockRecord::State state_of(BlockState state) {
    switch (state) {
      case BlockState::Free:
        return BlockRecord::State::Inactive;
      case BlockState::Allocated:
        return BlockRecord::State::ActiveAllocated;
      case BlockState::PendingFree:
        return BlockRecord::State::ActivePendingFree;
      case BlockState::Unmapped:
        break;
    }
    ensure(false, "a layout has no unmapped blocks");
    return BlockRecord::State::Inactive;
  }

  // The segment, or the mapped pages, at an address or, where several were mapped one by one, around it.
  [[nodiscard]] const Segment& segment_of(Address address) const {
    const auto after = segments_.upper_bound(address.value);
    ensure(after != segments_.begin(), "memory that goes came before");
    return std::prev(after)->second;
  }

  const Job& job_;
  const Trace& trace_;
  const RoleProgram its_;
  const Program& program_;
  const ProgramTimes times_;
  const DriverCosts& costs_;
  const AllocatorOptions options_;
  MemorySnapshot snapshot_;
  Stacks stacks_;
  std::array<TraceCategoryId, category_count> category_ids_;
  std::unordered_map<std::uint64_t, StackId> stack_of_block_;  // by address, of the last alloc there
  std::map<std::uint64_t, Segment> segments_;                  // by address, also those that are gone
  std::size_t next_ = 0;
  std::int64_t now_us_ = 0;
  bool in_optimizer_ = false;
};

}  // namespace

MemorySnapshot simulated_snapshot(const Job& job, const Trace& trace, Rank rank) {
  return Recorder(job, trace, rank).record();
}

}  // namespace tidemark::scenarios
