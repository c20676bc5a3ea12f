#include "sim/clock/class_timeline.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "sim/base/overloaded.hpp"
#include "sim/clock/detail/rank_alone.hpp"

namespace tidemark::sim {
namespace {

// The same rules as the engine's (engine.cpp), of one class whose transfers are known: host order is an order in which
// everything can be done.
class Walk {
 public:
  Walk(const Program& program, const OpTimes& times, const ClassTrace& told)
      : program_(program),
        times_(times),
        told_(told),
        events_(static_cast<std::size_t>(program.events)),
        alone_(told.beside, events_.size()),
        is_beside_(alone_.any()) {}

  ClassTimeline timeline() && {
    found_.host.resize(program_.ops.size());
    found_.spans.reserve(program_.ops.size() / 3);
    for (at_ = 0; at_ < program_.ops.size() && !stopped_; ++at_) {
      found_.host[at_] = now_;
      const Op& op = program_.ops[at_];
      // Most ops only matter to memory, and most others are launches.
      if (const auto* kernel = std::get_if<Launch>(&op))
        launch(*kernel);
      else if (!std::holds_alternative<Alloc>(op) && !std::holds_alternative<Free>(op) &&
               !std::holds_alternative<Mark>(op))
        add(op);
    }
    return std::move(found_);
  }

 private:
  // Nothing: something before it never ended.
  using Known = std::optional<Instant>;

  struct Stream {
    Instant tail;
    bool stands = false;        // in something that never ends
    std::size_t transfers = 0;  // so far
  };

  void add(const Op& op) {
    std::visit(Overloaded{
                   [&](const Collective& o) { collective(o); },
                   [&](const Exchange& o) { transfer(o.stream); },
                   [&](const Memcpy& o) { transfer(o.stream); },
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
                   },
                   Ignored<Alloc, Free, Borrow, Launch, CreateDriver, CreateCommunicator, Bind, Unbind, Mark>{},
               },
               op);
  }

  void launch(const Launch& o) {
    Duration duration = times_.kernels[o.kernel.index()];
    if (!o.stream.valid()) {
      now_ = now_ + duration;
      return;
    }
    if (!program_[o.kernel].follows()) now_ = now_ + times_.launch;
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
    const auto lone = told_.lone.find(key);
    if (lone == told_.lone.end()) return transfer(o.stream);
    now_ = now_ + times_.launch;
    Stream& its = stream(o.stream);
    if (its.stands) return;
    const Instant begin = std::max(its.tail, now_);
    its.tail = begin + lone->second;
    note(o.stream, begin, begin, its.tail);
  }

  void transfer(StreamId on) {
    now_ = now_ + times_.launch;
    Stream& its = stream(on);
    if (its.stands) return;
    const std::size_t which = its.transfers++;
    its.stands = on.index() >= told_.transfers.size() || which >= told_.transfers[on.index()].size();
    if (its.stands) return;
    const Instant arrived = std::max(its.tail, now_);
    const TransferTimes& told = told_.transfers[on.index()][which];
    note(on, arrived, told.begin, told.end, told.meeting);
    its.tail = told.end;
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
  const ClassTrace& told_;
  std::vector<Known> events_;    // by EventId
  std::vector<Stream> streams_;  // by StreamId
  RankAlone alone_;
  bool is_beside_;
  Instant now_;  // of the host thread
  std::size_t at_ = 0;
  bool stopped_ = false;  // the host thread waits for what never comes
  ClassTimeline found_;
};

}  // namespace

ClassTimeline timeline_of(const Program& program, const OpTimes& times, const ClassTrace& told) {
  return Walk(program, times, told).timeline();
}

std::vector<ClassTimeline> timelines(const Workload& workload, const Folding& folding, const TimePrices& prices,
                                     const Trace& trace) {
  std::vector<ClassTimeline> found;
  for (std::size_t c = 0; c < trace.classes.size(); ++c)
    found.push_back(timeline_of(workload.programs[static_cast<std::size_t>(folding.classes[c].program)],
                                prices.classes[c], trace.classes[c]));
  return found;
}

}  // namespace tidemark::sim
