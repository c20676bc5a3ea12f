#include "scenarios/predict/allocator_events.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {
namespace {

class Cutter {
 public:
  using Kind = AllocatorEvent::Kind;

  explicit Cutter(const RepeatingProgram& program)
      : program_(program),
        made_(static_cast<std::size_t>(program.rolled.buffers)),
        recorded_(static_cast<std::size_t>(program.rolled.events)),
        repeat_(program.repeats.begin()),
        part_(&cut_.state.construction) {
    for (const Op& op : program.rolled.ops)
      if (const auto* o = std::get_if<Free>(&op)) made_[o->buffer.index()].freed = true;
    for (const Op& op : program.rolled.ops)
      if (const auto* o = std::get_if<CrossStreamUse>(&op); o != nullptr && delays_a_free(*o))
        cut_.passes.used_by.insert(o->stream.value);
    cut_.passes.has_cross_stream_uses = !cut_.passes.used_by.empty();
  }

  std::optional<RankEvents> cut() && {
    const std::vector<Op>& ops = program_.rolled.ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (repeat_ != program_.repeats.end() && i == repeat_->first) enter_body();
      if (repeat_ != program_.repeats.end() && i == repeat_->last) leave_body();
      add(ops[i]);
    }
    if (!apart_) return std::nullopt;
    return std::move(cut_);
  }

 private:
  struct Made {
    std::int32_t since = -1;  // the latest micro-batch then, counted over all steps; -1: of the state
    std::int32_t place = 0;
    std::int32_t bodies = 0;  // entered by then
    bool freed = false;
    bool on_host = false;  // no effect on the allocator
  };

  void add(const Op& op) {
    std::visit(Overloaded{
                   [&](const Alloc& o) { allocate(o); },
                   [&](const Free& o) { refer(o.buffer, {}, Kind::Free, Kind::FreeState); },
                   [&](const CrossStreamUse& o) {
                     if (delays_a_free(o)) refer(o.buffer, o.stream, Kind::CrossStreamUse, std::nullopt);
                   },
                   [&](const Launch& o) {
                     if (o.stream.valid() && !program_.rolled[o.kernel].follows()) launch(o.stream);
                   },
                   [&](const Collective& o) { launch(o.stream); },
                   [&](const Exchange& o) { launch(o.stream); },
                   [&](const Memcpy& o) { launch(o.stream); },
                   [&](const Record& o) { record(o); },
                   [&](const Wait& o) { refer(o.event, o.stream, Kind::Wait, Kind::WaitState); },
                   [&](const Sync& o) { refer(o.event, {}, Kind::Sync, Kind::SyncState); },
                   [&](const CreateDriver& o) { add(Kind::Driver, static_cast<std::int32_t>(o.resource)); },
                   [&](const CreateCommunicator& o) { add(Kind::Communicator, o.comm.value); },
                   [](const Bind&) {},
                   [](const Unbind&) {},
                   [&](const Mark& o) { enter(o); },
               },
               op);
  }
  // What nothing frees may be used by any stream.
  [[nodiscard]] bool delays_a_free(const CrossStreamUse& o) const {
    return o.recorded && made_[o.buffer.index()].freed;
  }
  void add(Kind kind, std::int32_t ref) { part_->push_back({0, ref, 0, {}, kind}); }

  // Counted as long as nothing else happens.
  void launch(StreamId stream) {
    if (!cut_.passes.has_cross_stream_uses && micro_batch_ >= 0) return;
    if (part_->empty() || part_->back().kind != Kind::Launches || part_->back().stream != stream)
      part_->push_back({0, 0, 0, stream, Kind::Launches});
    ++part_->back().bytes;
  }

  void allocate(const Alloc& o) {
    Made& made = made_[o.buffer.index()];
    if (o.space == MemorySpace::Registered) part_->push_back({o.size.count(), 0, 0, {}, Kind::Registered});
    if (o.space != MemorySpace::Device) {
      made.on_host = true;
    } else if (micro_batch_ < 0) {
      made.place = state_allocs_++;
      part_->push_back({o.size.count(), 0, 0, o.stream, Kind::AllocState});
    } else if (!made.freed && step_ == 1) {
      // A cache; what the last step leaves behind, the next would free.
      part_->push_back({o.size.count(), 0, 0, o.stream, Kind::Keep});
    } else {
      made.since = latest();
      made.place = allocs_.back()++;
      made.bodies = bodies_;
      part_->push_back({o.size.count(), 0, 0, o.stream, Kind::Alloc});
    }
  }
  void refer(BufferId buffer, StreamId stream, Kind kind, std::optional<Kind> kind_of_state) {
    const Made& made = made_[buffer.index()];
    if (!made.on_host) refer(made, stream, kind, kind_of_state);
  }
  void refer(const Made& made, StreamId stream, Kind kind, std::optional<Kind> kind_of_state) {
    const bool of_state = made.since < 0;
    apart_ &= of_state == (micro_batch_ < 0) && (!of_state || kind_of_state);
    if (!apart_) return;
    if (of_state) return part_->push_back({0, made.place, 0, stream, *kind_of_state});
    // What an earlier step made has no name once a body lies between, of which there may be more.
    apart_ = made.since >= before_step_ || made.bodies == bodies_;
    const bool early = made.since >= before_step_ && made.since < repeats_since_;
    part_->push_back({0, made.place, early ? made.since - before_step_ : latest() - made.since, stream, kind, early});
  }
  // Where passes lend no blocks, nobody cares what they wait for.
  void refer(EventId event, StreamId stream, Kind kind, Kind kind_of_state) {
    if (cut_.passes.has_cross_stream_uses || micro_batch_ < 0)
      refer(recorded_[event.index()], stream, kind, kind_of_state);
  }
  void record(const Record& o) {
    if (micro_batch_ < 0) {
      recorded_[o.event.index()] = {.place = state_events_++};
      part_->push_back({0, 0, 0, o.stream, Kind::RecordState});
    } else if (cut_.passes.has_cross_stream_uses) {
      recorded_[o.event.index()] = {.since = latest(), .place = events_.back()++, .bodies = bodies_};
      part_->push_back({0, 0, 0, o.stream, Kind::Record});
    }
  }

  void enter_body() {
    passes_ = &cut_.passes.steps.back().body;
    ++bodies_;
  }
  // What the end of a step frees and no body would so late was made at its beginning, however many bodies lie between.
  void leave_body() {
    PassEvents& its = cut_.passes.steps.back();
    its.repeats = 1 + repeat_->more;
    passes_ = &its.after;
    repeats_since_ = latest() + 1 - repeat_->distance;
    ++repeat_;
  }

  // A step begins with the state, then come its passes, then the state again: from its second mark on, where there is
  // no pass. What comes in another order is not apart.
  void enter(const Mark& mark) {
    if (mark.empties_cache) {
      apart_ &= mark.micro_batch < 0;
      add(Kind::EmptyCache, 0);
    }
    if (mark.step != step_) {
      step_ = mark.step;
      part_ = &cut_.state.steps.emplace_back().before;
      passes_ = &cut_.passes.steps.emplace_back().before;
      before_step_ = latest() + 1;
      repeats_since_ = before_step_;
      micro_batch_ = -1;
      apart_ &= mark.micro_batch < 0;
      return;
    }
    if (step_ == 0) return;
    apart_ &= mark.micro_batch < 0 || cut_.state.steps.back().after.empty();
    micro_batch_ = mark.micro_batch < 0 ? -1 : before_step_ + mark.micro_batch;
    part_ = micro_batch_ < 0 ? &cut_.state.steps.back().after : passes_;
    while (micro_batch_ > latest()) {
      allocs_.push_back(0);
      events_.push_back(0);
      add(Kind::Begin, 0);
    }
  }
  [[nodiscard]] std::int32_t latest() const { return static_cast<std::int32_t>(allocs_.size()) - 1; }

  const RepeatingProgram& program_;
  RankEvents cut_;
  bool apart_ = true;           // passes refer only to what passes made, the state to what the state made
  std::vector<Made> made_;      // by buffer
  std::vector<Made> recorded_;  // by event
  std::vector<Repeat>::const_iterator repeat_;
  std::vector<std::int32_t> allocs_, events_;  // while each was the latest micro-batch, over all steps
  std::int32_t state_allocs_ = 0, state_events_ = 0;
  std::int32_t bodies_ = 0;  // entered, over all steps
  EventSequence *part_, *passes_ = nullptr;
  std::int32_t step_ = 0, before_step_ = 0;
  std::int32_t micro_batch_ = -1;    // -1 outside passes
  std::int32_t repeats_since_ = -1;  // after a body: the first micro-batch that is another one after more of them
};

// Launches around them are counted together, as those of a program that does not create them.
void erase_communicators(EventSequence& events, const std::set<std::int32_t>& which) {
  using Kind = AllocatorEvent::Kind;
  const auto erased = [&](const AllocatorEvent& e) { return e.kind == Kind::Communicator && which.contains(e.ref); };
  if (std::ranges::none_of(events, erased)) return;
  EventSequence rest;
  for (const AllocatorEvent& e : events) {
    if (erased(e)) continue;
    const bool goes_on = e.kind == Kind::Launches && !rest.empty() && rest.back().kind == Kind::Launches &&
                         rest.back().stream == e.stream;
    if (goes_on)
      rest.back().bytes += e.bytes;
    else
      rest.push_back(e);
  }
  events = std::move(rest);
}

}  // namespace

std::optional<RankEvents> events_of(const RepeatingProgram& program) { return Cutter(program).cut(); }

bool same_state(const StateEvents& whole, const StageEvents& passes, const StateEvents& alone) {
  std::set<std::int32_t> created;  // by passes
  for (const PassEvents& step : passes.steps)
    for (const EventSequence* part : {&step.before, &step.body, &step.after})
      for (const AllocatorEvent& e : *part)
        if (e.kind == AllocatorEvent::Kind::Communicator) created.insert(e.ref);
  StateEvents rest = alone;
  for (StateEvents::Step& step : rest.steps) {
    erase_communicators(step.before, created);
    erase_communicators(step.after, created);
  }
  return rest == whole;
}

}  // namespace tidemark::scenarios
