#include "sim/memory/replay.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"
#include "sim/memory/caching_allocator.hpp"
#include "sim/memory/caching_host_allocator.hpp"
#include "sim/memory/device_memory.hpp"
#include "sim/memory/event_times.hpp"
#include "sim/memory/queued_launches.hpp"
#include "sim/memory/stream_clocks.hpp"
#include "sim/memory/waited_work.hpp"
#include "sim/program/structure/of_memory.hpp"
#include "sim/program/structure/repeats.hpp"

namespace tidemark::sim {
namespace {

// What a clock of streams writes of which all is done.
StateWords nothing_open() {
  StateWords none;
  none.add(-1);
  return none;
}

class Replayer {
 public:
  /// `program` has at least so many buffers.
  Replayer(const Program& program, const DriverCosts& costs, const ReplayOptions& options)
      : program_(program),
        costs_(costs),
        defers_(options.cross_stream != ReplayOptions{}.cross_stream),
        defers_pinned_(options.cross_stream == CrossStreamReturn{CrossStreamFrees::AtNextSync}),
        asks_the_queue_(defers_pinned_ && options.queue.depth < LaunchQueue::endless),
        queue_(options.queue),
        allocator_(LoggedSegments(DeviceMemory(options.capacity, options.allocator.address_order)), options.allocator,
                   {}, Counted::Memory),
        buffers_(static_cast<std::size_t>(program.buffers)) {
    if (const auto* by_clock = std::get_if<ByClock>(&options.cross_stream)) {
      times_ = by_clock->times;
      prompt_ = by_clock->prompt;
      clock_.emplace(*times_);
    }
    record_.peak_allocated_by_step.push_back({});
  }

  /// False when memory ran out.
  bool step(std::size_t index, const Op& op) {
    at_ = index;
    if (defers_pinned_) pinned_.events().note(op);
    // Named one by one, so that a new op has to be thought about here too.
    std::visit(Overloaded{
                   [&](const Alloc& o) { allocate(o); },
                   [&](const Free& o) { release(o.buffer); },
                   [&](const CrossStreamUse& o) { cross_stream_use(o); },
                   [&](const Record& o) { record(o); },
                   [&](const Wait& o) { wait(o); },
                   [&](const Sync& o) { sync(o.event); },
                   [&](const CreateDriver& o) { create({o.resource}, costs_.of(o.resource), category(o.resource)); },
                   [&](const CreateCommunicator& o) { create({o.comm}, costs_.of(o.comm), Category::Nccl); },
                   [&](const Mark& o) { enter(o); },
                   [&](const Memcpy& o) { copy(o); },
                   [&](const Launch& o) {
                     if (o.stream.valid() && asks_the_queue_ && !program_[o.kernel].follows()) p2p(o.stream);
                   },
                   [&](const Collective& o) { p2p(o.stream); },
                   [&](const Exchange& o) { p2p(o.stream); },
                   Ignored<Bind, Unbind>{},
               },
               op);
    return !record_.failure;
  }

  MemoryRecord finish() && {
    note_composition();
    record_.final_allocated = allocator_.allocated();
    record_.driver_bytes = driver_;
    record_.driver_upper = driver_upper_;
    record_.retries_of_last_step = allocator_.stats().alloc_retries - retries_before_step_;
    record_.peak_reserved = allocator_.stats().all.reserved.peak;
    record_.same_on = allocator_.source().source().alike();
    return std::move(record_);
  }

  [[nodiscard]] Bytes allocated() const { return allocator_.allocated(); }
  [[nodiscard]] Bytes reserved() const { return allocator_.reserved(); }
  [[nodiscard]] Bytes driver() const { return driver_; }
  [[nodiscard]] Bytes pinned() const { return record_.pinned.final; }
  [[nodiscard]] Bytes pageable() const { return record_.pageable.final; }
  [[nodiscard]] Moment moment() const { return {at_ + left_out_, mark_}; }

  /// What is done after the op `next` comes, as numbers that are the same where that is. Counts and places are those
  /// since then of what came in bodies of the loop, the first of which is at `loop.copies`.
  [[nodiscard]] StateWords state_at(std::size_t next, const LeftOut& loop) {
    StateWords state;
    if (clock_) clock_->finish(next, allocator_.events());
    state.add(allocator_.source().source().changes(), mark_.phase);
    for (const Held& its : buffers_) {
      if (!its.live) continue;
      const bool is_of_loop = its.made >= loop.copies;
      state.add(its.space, its.category, is_of_loop, is_of_loop ? next - its.made : its.made, its.size);
      if (its.space == MemorySpace::Device) state.add(allocator_.address(its.block));
      if (its.space == MemorySpace::Pinned) state.add(its.block.value);
    }
    allocator_.write(state);
    pinned_.write(state);
    // Whose pinned blocks wait for streams counts what it was given, and no two of its states are the same.
    if (defers_pinned_ && pinned_.held() > Bytes{}) state.add(next);
    if (clock_) clock_->write(next, allocator_.events(), state);
    if (defers_ && !clock_) write_waits(next, loop, state);
    return state;
  }
  /// When the host thread is at that op, by the clock.
  [[nodiscard]] Instant now(std::size_t op) const { return clock_ ? times_->host_at(op) : Instant{}; }
  /// Whether the clock says that bodies go on as they did from op `from` to `to`.
  [[nodiscard]] bool repeats(std::size_t from, std::size_t to, const LeftOut& loop) const {
    return !clock_ || times_->repeat(from, loop.end(), to);
  }
  /// Those bodies come, and are as the ones before them.
  void leave_out(const LeftOut& loop, Duration takes) {
    left_out_ += loop.ops();
    micro_batches_left_out_ = static_cast<std::int32_t>(loop.left_out * loop.period);
    step_of_left_out_ = loop.step;
    if (mark_.micro_batch >= 0) mark_.micro_batch += micro_batches_left_out_;
    if (clock_) clock_->shift(takes);
    for (Deferred& its : deferred_) its.done = its.done + takes;
  }
  /// Whether the last free of the buffer waits for a clock, and the buffers whose frees the last request found done.
  [[nodiscard]] bool is_deferred(BufferId buffer) const {
    return !deferred_.empty() && deferred_.back().buffer == buffer;
  }
  [[nodiscard]] const std::vector<BufferId>& came_back() const { return came_back_; }
  [[nodiscard]] Bytes block_of(BufferId buffer) const {
    const Held& held = buffers_[buffer.index()];
    if (held.space == MemorySpace::Pageable) return held.size;
    return held.space == MemorySpace::Pinned ? pinned_.size(held.block) : allocator_.size(held.block);
  }
  [[nodiscard]] TensorEvent tensor_of(const Alloc& o) const {
    const BlockId block = buffers_[o.buffer.index()].block;
    return {TensorEvent::Kind::Alloc, o.buffer, o.label, o.category, o.size, allocator_.size(block), o.stream,
            allocator_.address(block)};
  }
  [[nodiscard]] std::vector<SegmentEvent> take_segment_events() { return allocator_.source().take_events(); }
  [[nodiscard]] std::vector<SegmentLayout> segments() const { return allocator_.layout(); }

  static Category category(DriverResource resource) {
    return resource == DriverResource::NcclKernels ? Category::Nccl : Category::Context;
  }

 private:
  struct Deferred {
    BufferId buffer;
    Instant done;  // of the streams that borrowed it
  };
  struct Held {
    BlockId block{};  // of its allocator; none: in pageable memory
    Category category = Category::Temporaries;
    MemorySpace space = MemorySpace::Device;
    Bytes size;
    std::size_t made = 0;  // op
    bool live = false;     // where it takes memory
  };

  // Where what repeats is not in the program, there are more of them.
  template <class Entry, class Id>
  static Entry& entry(std::vector<Entry>& all, Id id) {
    if (id.index() >= all.size()) all.resize(id.index() + 1);
    return all[id.index()];
  }

  HostRecord& host(MemorySpace space) { return space == MemorySpace::Pinned ? record_.pinned : record_.pageable; }

  void allocate(const Alloc& o) {
    came_back_.clear();
    if (o.space == MemorySpace::Registers) {
      entry(buffers_, o.buffer).space = o.space;
      return;
    }
    if (o.space == MemorySpace::Registered) {
      entry(buffers_, o.buffer).space = o.space;
      return take_for_driver(round_up(o.size, registered_unit), o.category);
    }
    if (o.space == MemorySpace::Nvme) {
      entry(buffers_, o.buffer) = {{}, o.category, o.space, o.size, at_, true};
      record_.nvme = std::max(record_.nvme, in_files_ += o.size);
      return;
    }
    if (o.space == MemorySpace::Managed) {
      entry(buffers_, o.buffer) = {{}, o.category, o.space, o.size, at_, true};
      record_.managed = std::max(record_.managed, managed_ += o.size);
      return;
    }
    if (o.space != MemorySpace::Device) return allocate_on_host(o);
    const std::int64_t waited_for_all = allocator_.stats().sync_all_streams, retries = allocator_.stats().alloc_retries;
    const Instant at = clock_ ? clock_->finish(at_, allocator_.events()) : Instant{};
    const std::variant<BlockId, OutOfMemory> got = allocator_.malloc(o.size, o.stream);
    take_back(at, allocator_.stats().sync_all_streams != waited_for_all);
    if (!record_.first_retry && allocator_.stats().alloc_retries != retries) record_.first_retry = at_ + left_out_;
    if (const OutOfMemory* oom = std::get_if<OutOfMemory>(&got)) {
      record_.failure = OutOfDeviceMemory{moment(), oom->segment, oom->available};
      return;
    }
    const BlockId block = std::get<BlockId>(got);
    entry(buffers_, o.buffer) = {block, o.category, o.space, o.size, at_, true};
    live_ += block_size(o.size);
    composition_[o.category] += allocator_.size(block);

    const Bytes now = allocator_.allocated();
    if (now > record_.allocated.bytes) {
      record_.allocated.bytes = now;
      record_.allocated.at = moment();
      composition_pending_ = true;
    }
    Bytes& of_step = record_.peak_allocated_by_step.back();
    of_step = std::max(of_step, now);
    note_phase(now);
    note_device();
  }

  void allocate_on_host(const Alloc& o) {
    const bool pinned = o.space == MemorySpace::Pinned;
    const BlockId block = pinned ? pinned_.malloc(o.size) : BlockId{};
    entry(buffers_, o.buffer) = {block, o.category, o.space, o.size, at_, true};
    on_host_[o.category] += o.size;
    HostRecord& its = host(o.space);
    its.final = pinned ? pinned_.held() : its.final + o.size;
    note_host();
    if (its.final <= its.peak) return;
    its.peak = its.final;
    its.at = moment();
  }

  void note_host() {
    const Bytes now = record_.pinned.final + record_.pageable.final;
    if (now <= record_.host.bytes) return;
    record_.host = {now, moment(), on_host_};
    Bytes in_tensors;
    for (const Bytes bytes : on_host_.bytes) in_tensors += bytes;
    record_.host.composition[Category::Fragmentation] = now - in_tensors;
  }

  void release(BufferId buffer) {
    Held& held = buffers_[buffer.index()];
    held.live = false;
    if (held.space == MemorySpace::Registers || held.space == MemorySpace::Registered) return;  // which stays
    if (held.space == MemorySpace::Nvme) {
      in_files_ -= held.size;
      return;
    }
    if (held.space == MemorySpace::Managed) {
      managed_ -= held.size;
      return;
    }
    if (held.space != MemorySpace::Device) on_host_[held.category] -= held.size;
    if (held.space == MemorySpace::Pinned) return pinned_.free(held.block);
    if (held.space == MemorySpace::Pageable) {
      record_.pageable.final -= held.size;
      return;
    }
    note_composition();
    live_ -= block_size(held.size);
    composition_[held.category] -= allocator_.size(held.block);
    allocator_.free(held.block);
    if (clock_)
      if (const auto done = clock_->note(at_, allocator_.events())) deferred_.push_back({buffer, *done});
  }

  // Where frees come at once, copies are over by then.
  void copy(const Memcpy& o) {
    p2p(o.stream);
    if (!defers_pinned_) return;
    for (const Operand& side : {o.from, o.to})
      if (const Held& held = buffers_[side.buffer.index()]; held.space == MemorySpace::Pinned)
        pinned_.record_event(held.block, o.stream);
  }

  void take_back(Instant now, bool all) {
    std::erase_if(deferred_, [&](const Deferred& its) {
      if (all || its.done <= now) came_back_.push_back(its.buffer);
      return all || its.done <= now;
    });
  }

  // Where frees of borrowed blocks come at once, the block belongs to its own stream alone.
  void cross_stream_use(const CrossStreamUse& o) {
    const Held& held = buffers_[o.buffer.index()];
    if (!defers_ || !o.recorded || held.space != MemorySpace::Device) return;
    if (clock_ && o.stream == prompt_) return;
    allocator_.record_stream(held.block, o.stream);
    if (clock_) clock_->watch(o.stream);
  }
  void record(const Record& o) {
    if (defers_ && !clock_) entry(recorded_, o.event) = {streams_.record(o.stream, allocator_.events()), at_};
  }
  void wait(const Wait& o) {
    if (o.event.index() < recorded_.size()) streams_.wait(o.stream, recorded_[o.event.index()].clock);
  }
  // What streams and the host thread may still wait for: events of so many bodies as any looks back, and those of
  // before the loop, which must be done.
  void write_waits(std::size_t next, const LeftOut& loop, StateWords& state) {
    const StreamProgress& events = allocator_.events();
    streams_.write(events, state);
    queue_.write(streams_, events, state);
    const std::size_t looks_back = loop.first - loop.copies;
    for (const RecordedEvent& its : recorded_) {
      if (its.at >= loop.copies && next - its.at > looks_back) continue;
      StateWords open;
      streams_.write(its.clock, events, open);
      if (its.at < loop.copies && open == nothing_open()) continue;
      state.add(its.at >= loop.copies ? next - its.at : next);
      state.add(open);
    }
  }
  void p2p(StreamId stream) {
    if (asks_the_queue_) queue_.launch(stream, 1, streams_, allocator_.events());
  }
  void sync(EventId event) {
    if (event.index() < recorded_.size()) streams_.finish(recorded_[event.index()].clock, allocator_.events());
  }

  void create(std::variant<DriverResource, CommSlot> what, const Estimate& cost, Category its_category) {
    take_for_driver(cost.bytes, its_category);
    if (record_.failure) return;
    driver_upper_ += cost.high - cost.bytes;
    record_.driver.push_back({what, moment()});
    note_device();
  }

  void take_for_driver(Bytes size, Category its_category) {
    if (!allocator_.source().source().take_for_driver(size)) {
      record_.failure = OutOfDeviceMemory{moment(), size, allocator_.source().available()};
      return;
    }
    driver_ += size;
    driver_upper_ += size;
    driver_composition_[its_category] += size;
    note_device();
  }

  void enter(const Mark& mark) {
    if (mark.step != mark_.step) {
      record_.peak_allocated_by_step.push_back(allocator_.allocated());
      retries_before_step_ = allocator_.stats().alloc_retries;
    }
    if (mark.phase != mark_.phase) note_composition();
    mark_ = mark;
    if (mark.step == step_of_left_out_ && mark.micro_batch >= 0) mark_.micro_batch += micro_batches_left_out_;
    if (mark.empties_cache) {
      note_composition();
      came_back_.clear();
      (void)allocator_.empty_cache();
      take_back({}, true);
    }
    note_phase(allocator_.allocated());
  }

  void note_phase(Bytes now) {
    Peak& of_phase = record_.allocated_by_phase[static_cast<std::size_t>(mark_.phase)];
    if (now <= of_phase.bytes) return;
    of_phase.bytes = now;
    of_phase.at = moment();
    phase_pending_ = true;
  }

  // The composition at a peak of allocated is the one before the next free; copying it only then saves most copies.
  void note_composition() {
    if (phase_pending_) record_.allocated_by_phase[static_cast<std::size_t>(mark_.phase)].composition = composition_;
    phase_pending_ = false;
    if (!composition_pending_) return;
    record_.allocated.composition = composition_;
    composition_pending_ = false;
  }

  void note_device() {
    const Bytes reserved = allocator_.reserved();
    record_.peak_device_upper = std::max(record_.peak_device_upper, reserved + driver_upper_);
    record_.live_device = std::max(record_.live_device, live_ + driver_);
    record_.live_device_upper = std::max(record_.live_device_upper, live_ + driver_upper_);
    if (reserved + driver_ <= record_.device.bytes) return;
    record_.device = {reserved + driver_, moment(), composition_};
    Composition& there = record_.device.composition;
    for (std::size_t c = 0; c < category_count; ++c) there.bytes[c] += driver_composition_.bytes[c];
    there[Category::Fragmentation] = reserved - allocator_.allocated();
  }

  const Program& program_;
  const DriverCosts& costs_;
  bool defers_;          // frees of borrowed blocks
  bool defers_pinned_;   // … of those that streams copy
  bool asks_the_queue_;  // what must be done since the host thread goes on
  QueuedLaunches queue_;
  const ProgramTimes* times_ = nullptr;
  StreamId prompt_;
  std::optional<EventTimes> clock_;  // otherwise until the host has waited
  std::vector<Deferred> deferred_;   // frees, in order
  std::vector<BufferId> came_back_;
  StreamClocks streams_;
  struct RecordedEvent {
    StreamClocks::Clock clock;
    std::size_t at = 0;  // op
  };
  std::vector<RecordedEvent> recorded_;  // by event, where frees wait for streams
  CachingAllocator<LoggedSegments<DeviceMemory>> allocator_;
  CachingHostAllocator<WaitedWork> pinned_;
  std::vector<Held> buffers_;
  Composition composition_, driver_composition_, on_host_;
  bool composition_pending_ = false, phase_pending_ = false;
  Bytes driver_, driver_upper_, in_files_, managed_;
  Bytes live_;  // as requests are rounded: blocks may be larger
  std::int64_t retries_before_step_ = 0;
  Mark mark_;
  std::size_t at_ = 0;        // op, of those that there are
  std::size_t left_out_ = 0;  // before it
  std::int32_t step_of_left_out_ = -1, micro_batches_left_out_ = 0;
  MemoryRecord record_;
};

}  // namespace

MemoryRecord replay(const Program& program, const DriverCosts& costs, const ReplayOptions& options) {
  Replayer replayer(program, costs, options);
  for (std::size_t i = 0; i < program.ops.size(); ++i)
    if (!replayer.step(i, program.ops[i])) break;
  return std::move(replayer).finish();
}

MemoryRecord replay(const RepeatingProgram& program, const DriverCosts& costs, const ReplayOptions& options) {
  Replayer replayer(program.rolled, costs, options);
  std::size_t at = 0;
  tell_unrolled(program, [&](std::span<const Op> ops) {
    return std::ranges::all_of(ops, [&](const Op& op) { return replayer.step(at++, op); });
  });
  return std::move(replayer).finish();
}

MemoryRecord replay(const MemoryOutline& outline, const DriverCosts& costs, const ReplayOptions& options) {
  ensure(options.cross_stream != CrossStreamReturn{CrossStreamFrees::AtNextSync}, "what hosts wait for is not there");
  Replayer replayer(outline.program.rolled, costs, options);
  std::size_t at = 0;
  tell_unrolled(outline.program, [&](std::span<const Op> ops) {
    return std::ranges::all_of(ops, [&](const Op& op) {
      const std::size_t place = outline.places.empty() ? at : outline.places[at];
      ++at;
      return replayer.step(place, op);
    });
  });
  return std::move(replayer).finish();
}

namespace {

// Whether what bodies of a loop do to memory has come to repeat itself, as often as those that are left out say.
class Recurrence {
 public:
  explicit Recurrence(const LeftOut& loop) : loop_(loop) {}

  // Before the op, where a body ends and the next one begins.
  void look(Replayer& replayer, std::size_t op) {
    if (known_) return;
    StateWords state = replayer.state_at(op, loop_);
    for (auto earlier = seen_.rbegin(); earlier != seen_.rend(); ++earlier) {
      const auto period = static_cast<std::int64_t>((op - earlier->op) / loop_.body);
      if (loop_.left_out % period != 0 || earlier->state != state || !replayer.repeats(earlier->op, op, loop_))
        continue;
      known_ = true;
      takes_ = loop_.left_out / period * (replayer.now(op) - replayer.now(earlier->op));
      return;
    }
    seen_.push_back({op, std::move(state)});
  }
  [[nodiscard]] bool known() const { return known_; }
  // How long those take that are left out.
  [[nodiscard]] Duration takes() const { return takes_; }

 private:
  struct Seen {
    std::size_t op = 0;
    StateWords state;
  };
  const LeftOut& loop_;
  std::vector<Seen> seen_;
  bool known_ = false;
  Duration takes_;
};

}  // namespace

std::optional<MemoryRecord> replay(const Program& program, std::span<const LeftOut> left_out, const DriverCosts& costs,
                                   const ReplayOptions& options) {
  if (options.allocator.collects_garbage() && !left_out.empty()) return std::nullopt;  // by how old blocks are
  Replayer replayer(program, costs, options);
  std::size_t op = 0;
  const auto play_to = [&](std::size_t end) {
    for (; op < end; ++op)
      if (!replayer.step(op, program.ops[op])) return false;
    return true;
  };
  for (const LeftOut& loop : left_out) {
    Recurrence recurrence(loop);
    for (std::size_t body = loop.first; body <= loop.end(); body += loop.body) {
      if (!play_to(body)) return std::move(replayer).finish();
      recurrence.look(replayer, body);
    }
    if (!recurrence.known()) return std::nullopt;
    replayer.leave_out(loop, recurrence.takes());
  }
  play_to(program.ops.size());
  return std::move(replayer).finish();
}

ObservedMemory replay(const Program& program, const DriverCosts& costs, const ReplayOptions& options,
                      const MemoryObserver& observer) {
  Replayer replayer(program, costs, options);
  std::vector<TensorEvent> tensors(static_cast<std::size_t>(program.buffers));
  std::map<BufferId, HostEvent> on_host;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const Bytes allocated = replayer.allocated(), reserved = replayer.reserved();
    if (!replayer.step(i, op)) break;
    const auto tell = [&](const auto& what) {
      observer({replayer.moment(), what, replayer.allocated(), replayer.reserved(), replayer.driver(),
                replayer.take_segment_events(), replayer.pinned(), replayer.pageable()});
    };
    std::visit(
        Overloaded{
            [&](const Alloc& o) {
              for (const BufferId buffer : replayer.came_back()) {
                tensors[buffer.index()].kind = TensorEvent::Kind::ComeBack;
                observer({replayer.moment(),
                          tensors[buffer.index()],
                          allocated,
                          reserved,
                          replayer.driver(),
                          {},
                          replayer.pinned(),
                          replayer.pageable()});
              }
              if (o.space == MemorySpace::Device)
                tell(tensors[o.buffer.index()] = replayer.tensor_of(o));
              else if (is_of_host(o.space))
                tell(on_host[o.buffer] = {TensorEvent::Kind::Alloc, o.buffer, o.label, o.category, o.size, o.space});
            },
            [&](const Free& o) {
              if (const auto its = on_host.find(o.buffer); its != on_host.end()) {
                its->second.kind = TensorEvent::Kind::Free;
                return tell(its->second);
              }
              TensorEvent& tensor = tensors[o.buffer.index()];
              if (!tensor.buffer.valid()) return;  // in registers, or a file
              tensor.kind = replayer.is_deferred(o.buffer) ? TensorEvent::Kind::FreeLater : TensorEvent::Kind::Free;
              tell(tensor);
            },
            [&](const CreateDriver& o) {
              tell(DriverEvent{o.resource, Replayer::category(o.resource), costs.of(o.resource).bytes});
            },
            [&](const CreateCommunicator& o) {
              tell(DriverEvent{o.comm, Category::Nccl, costs.of(o.comm).bytes});
            },
            Ignored<CrossStreamUse, Launch, Collective, Exchange, Memcpy, Record, Wait, Sync, Bind, Unbind, Mark>{},
        },
        op);
  }
  std::vector<SegmentLayout> segments = replayer.segments();
  return {std::move(replayer).finish(), std::move(segments)};
}

namespace {

// Of those spaces.
template <class Wanted>
std::vector<LiveBuffer> live_in(const Program& program, const DriverCosts& costs, std::size_t op,
                                const ReplayOptions& options, Wanted wanted) {
  Replayer replayer(program, costs, options);
  std::vector<LiveBuffer> buffers(static_cast<std::size_t>(program.buffers));
  for (std::size_t i = 0; i <= op && i < program.ops.size(); ++i) {
    replayer.step(i, program.ops[i]);
    if (const Alloc* alloc = std::get_if<Alloc>(&program.ops[i]); alloc != nullptr && wanted(alloc->space))
      buffers[alloc->buffer.index()] = {
          alloc->buffer, alloc->label, alloc->category, alloc->size, replayer.block_of(alloc->buffer), i, alloc->space};
    else if (const Free* free = std::get_if<Free>(&program.ops[i]))
      buffers[free->buffer.index()] = {};
  }
  std::erase_if(buffers, [](const LiveBuffer& b) { return !b.buffer.valid(); });
  std::stable_sort(buffers.begin(), buffers.end(),
                   [](const LiveBuffer& a, const LiveBuffer& b) { return a.block > b.block; });
  return buffers;
}

}  // namespace

std::vector<LiveBuffer> live_buffers(const Program& program, const DriverCosts& costs, std::size_t op,
                                     const ReplayOptions& options) {
  return live_in(program, costs, op, options, [](MemorySpace space) { return space == MemorySpace::Device; });
}

std::vector<LiveBuffer> live_on_host(const Program& program, const DriverCosts& costs, std::size_t op) {
  return live_in(program, costs, op, {}, is_of_host);
}

std::vector<MemorySample> memory_timeline(const Program& program, const DriverCosts& costs,
                                          const AllocatorOptions& allocator) {
  Replayer replayer(program, costs, {.allocator = allocator});
  std::vector<MemorySample> samples;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    replayer.step(i, program.ops[i]);
    const MemorySample now{replayer.moment(), replayer.allocated(), replayer.reserved(), replayer.driver()};
    const bool changed = samples.empty() || samples.back().allocated != now.allocated ||
                         samples.back().reserved != now.reserved || samples.back().driver != now.driver;
    if (changed) samples.push_back(now);
  }
  return samples;
}

}  // namespace tidemark::sim
