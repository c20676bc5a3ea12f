#include "sim/clock/class_timeline.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>

#include "sim/base/overloaded.hpp"
#include "sim/clock/detail/rank_alone.hpp"
#include "sim/clock/queue_points.hpp"

namespace tidemark::sim {
namespace {

// The same rules as the engine's (engine.cpp), of one class whose transfers are known: host order is an order in which
// everything can be done.
class Walk {
 public:
  Walk(const Program& program, const OpTimes& times, const ClassTrace& reported, std::vector<Cycle> cycles = {})
      : program_(program),
        times_(times),
        reported_(reported),
        events_(static_cast<std::size_t>(program.events)),
        alone_(reported.beside, events_.size()),
        is_beside_(alone_.any()),
        queue_(times.queue, fills(times.queue, program)),
        handed_over_(queue_.launched().size()) {
    found_.cycles = std::move(cycles);
  }

  ClassTimeline timeline() && {
    found_.host.resize(program_.ops.size());
    found_.spans.reserve(program_.ops.size() / 3);
    for (at_ = 0; at_ < program_.ops.size() && !stopped_; ++at_) {
      if (!found_.cycles.empty()) see_cycles();
      found_.host[at_] = now_;
      const Op& op = program_.ops[at_];
      // Most ops only matter to memory, and most others are launches.
      if (const auto* kernel = std::get_if<Launch>(&op))
        launch(*kernel);
      else if (const auto* mark = std::get_if<Mark>(&op))
        enter(*mark);
      else if (!std::holds_alternative<Alloc>(op) && !std::holds_alternative<Free>(op))
        add(op);
    }
    return std::move(found_);
  }

 private:
  // Nothing: something before it never ended.
  using Known = std::optional<Instant>;

  // So many launches on a channel, and when all of them were done.
  struct HandedOver {
    std::int64_t launches = 0;
    Known done;
  };

  struct Stream {
    Instant tail;
    bool stands = false;        // in something that never ends
    std::size_t transfers = 0;  // so far
  };

  // The trace goes on behind all that comes again.
  void see_cycles() {
    if (next_cycle_ < found_.cycles.size() && at_ == found_.cycles[next_cycle_].first) {
      transfers_before_.clear();
      for (const Stream& its : streams_) transfers_before_.push_back(its.transfers);
    }
    if (next_cycle_ == found_.cycles.size() || at_ != found_.cycles[next_cycle_].end()) return;
    const Cycle& cycle = found_.cycles[next_cycle_++];
    for (std::size_t s = 0; s < streams_.size(); ++s)
      streams_[s].transfers += static_cast<std::size_t>(cycle.more) *
                               (streams_[s].transfers - (s < transfers_before_.size() ? transfers_before_[s] : 0));
    left_out_ += cycle.more * cycle.shift;
  }

  void add(const Op& op) {
    std::visit(Overloaded{
                   [&](const Collective& o) { collective(o); },
                   [&](const Exchange& o) { transfer(o.stream, times_.host.of(phase_)); },
                   [&](const Memcpy& o) { transfer(o.stream, times_.host.of(phase_)); },
                   [&](const Record& o) {
                     if (is_beside_) alone_.record(o.stream, o.event);
                     const Stream& its = stream(o.stream);
                     events_[o.event.index()] = its.stands ? Known{} : std::max(its.tail, now_);
                   },
                   [&](const Wait& o) { wait(o); },
                   [&](const Sync& o) {
                     const Known done = events_[o.event.index()];
                     stopped_ = !done;
                     if (done) now_ = std::max(now_, *done);
                     wait_for_room();
                   },
                   Ignored<Alloc, Free, CrossStreamUse, Launch, CreateDriver, CreateCommunicator, Bind, Unbind, Mark>{},
               },
               op);
  }

  void enter(const Mark& mark) {
    if (queue_.is_at(mark)) wait_for_room();
    phase_ = mark.phase;
  }

  void p2p(StreamId to, Duration takes) {
    if (queue_.is_before_launch(to)) wait_for_room();
    queue_.launch(to);
    now_ = now_ + takes;
  }

  // At one of the queue's points, or after the host has waited for an event.
  void wait_for_room() {
    queue_.pass();
    if (!queue_.fills()) return;
    for (std::size_t channel = 0; channel < handed_over_.size(); ++channel) {
      Known done = Instant{};
      for (std::size_t s = channel; s < streams_.size(); s += handed_over_.size())
        done = done && !streams_[s].stands ? Known{std::max(*done, streams_[s].tail)} : Known{};
      const std::int64_t launched = queue_.launched()[channel];
      handed_over_[channel].push_back({launched, done});
      const std::int64_t rid_of = QueuePoints::rid_of(times_.queue, launched);
      if (rid_of <= 0) continue;
      while (handed_over_[channel].front().launches < rid_of) handed_over_[channel].pop_front();
      const Known room = handed_over_[channel].front().done;
      stopped_ |= !room;
      if (room) now_ = std::max(now_, *room);
    }
  }

  void launch(const Launch& o) {
    Duration duration = times_.kernels[o.kernel.index()];
    if (!o.stream.valid()) {
      now_ = now_ + duration;
      return;
    }
    if (!program_[o.kernel].follows()) p2p(o.stream, times_.host.of(phase_));
    if (is_beside_) duration = alone_.kernel(o.stream, o.kernel, duration);
    Stream& its = stream(o.stream);
    if (its.stands) return;
    const Instant begin = std::max(its.tail, now_);
    its.tail = begin + duration;
    note(o.stream, begin, begin, its.tail);
  }

  void collective(const Collective& o) {
    const CollectiveKey key = key_of(program_, o);
    if (is_beside_) alone_.collective(o.stream, key);
    const auto lone = reported_.lone.find(key);
    if (lone == reported_.lone.end()) return transfer(o.stream, times_.host.of_collective(phase_, o.comm));
    p2p(o.stream, times_.host.of_collective(phase_, o.comm));
    Stream& its = stream(o.stream);
    if (its.stands) return;
    const Instant begin = std::max(its.tail, now_);
    its.tail = begin + lone->second;
    note(o.stream, begin, begin, its.tail);
  }

  void transfer(StreamId on, Duration takes) {
    p2p(on, takes);
    Stream& its = stream(on);
    if (its.stands) return;
    const std::size_t which = its.transfers++;
    its.stands = on.index() >= reported_.transfers.size() || which >= reported_.transfers[on.index()].size();
    if (its.stands) return;
    const Instant arrived = std::max(its.tail, now_);
    const TransferTimes& reported = reported_.transfers[on.index()][which];
    const Instant begin = reported.begin - left_out_, end = reported.end - left_out_;
    note(on, arrived, begin, end, reported.meeting);
    its.tail = end;
  }

  void wait(const Wait& o) {
    if (is_beside_) alone_.wait(o.stream, o.event);
    Stream& its = stream(o.stream);
    if (its.stands) return;
    const Known done = events_[o.event.index()];
    its.stands = !done;
    if (its.stands) return;
    const Instant begin = std::max(its.tail, now_);
    if (*done <= begin) return;
    note(o.stream, begin, begin, *done);
    its.tail = *done;
  }

  Stream& stream(StreamId id) {
    if (id.index() >= streams_.size()) streams_.resize(id.index() + 1);
    return streams_[id.index()];
  }

  void note(StreamId on, Instant ready, Instant begin, Instant end, Duration meeting = {}) {
    found_.spans.push_back({static_cast<std::uint32_t>(at_), on, ready, begin, end, meeting});
  }

  const Program& program_;
  const OpTimes& times_;
  const ClassTrace& reported_;
  std::vector<Known> events_;    // by EventId
  std::vector<Stream> streams_;  // by StreamId
  RankAlone alone_;
  bool is_beside_;
  QueuePoints queue_;
  std::vector<std::deque<HandedOver>> handed_over_;  // by channel, at points of the queue
  Instant now_;                                      // of the host thread
  Phase phase_ = Phase::Construction;
  std::size_t at_ = 0;
  bool stopped_ = false;  // the host thread waits for what never comes
  std::size_t next_cycle_ = 0;
  std::vector<std::size_t> transfers_before_;  // by stream: before that cycle
  Duration left_out_;                          // of what comes again
  ClassTimeline found_;
};

}  // namespace

ClassTimeline timeline_of(const Program& program, const OpTimes& times, const ClassTrace& reported) {
  return Walk(program, times, reported).timeline();
}

namespace {

// As they are numbered without what comes again.
std::vector<Cycle> cycles_of(const ClassTrace& reported, std::int64_t kept) {
  std::vector<Cycle> cycles;
  std::uint32_t left_out = 0;
  for (const LeaptCycle& its : reported.cycles) {
    Cycle cycle = its.cycle;
    cycle.first -= left_out;
    cycle.more -= kept;
    left_out += static_cast<std::uint32_t>(cycle.more) * cycle.ops;
    cycles.push_back(cycle);
  }
  return cycles;
}

}  // namespace

ClassTimeline short_timeline_of(const Program& few, const OpTimes& times, const ClassTrace& reported,
                                std::int64_t kept) {
  return Walk(few, times, reported, cycles_of(reported, kept)).timeline();
}

RepeatingProgram without_cycles(RepeatingProgram program, const ClassTrace& reported, std::int64_t kept) {
  for (const LeaptCycle& its : reported.cycles) {
    Repeat& repeat = program.repeats[its.loop];
    const auto body = static_cast<std::int64_t>(repeat.last - repeat.first);
    repeat.more -= (its.cycle.more - kept) * (its.cycle.ops / body);
  }
  return program;
}

std::vector<ClassTimeline> timelines(const Workload& workload, const Folding& folding, const TimeCosts& costs,
                                     const Trace& trace) {
  std::vector<ClassTimeline> found;
  for (std::size_t c = 0; c < trace.classes.size(); ++c)
    found.push_back(timeline_of(workload.programs[static_cast<std::size_t>(folding.classes[c].program)],
                                costs.classes[c], trace.classes[c]));
  return found;
}

}  // namespace tidemark::sim
