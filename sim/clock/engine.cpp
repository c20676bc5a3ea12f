#include "sim/clock/engine.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "sim/base/ensure.hpp"
#include "sim/clock/detail/cycles.hpp"
#include "sim/clock/detail/engine_state.hpp"
#include "sim/clock/event_queue.hpp"
#include "sim/clock/queue_points.hpp"

// Kernels need no events: a stream that waits for nothing knows when each of them ends. Only what depends on other
// ranks does: a transfer begins when everyone who takes part is ready, and ends when its bytes have moved at the rates
// that links allow. A class's host thread runs ahead until it has to wait, its streams until they meet a transfer. Work
// that others wait for is never earlier than the event that let it go on, so events come in order of time.

namespace tidemark::sim {
namespace {

class Engine {
 public:
  template <class Programs>
  Engine(const Programs& programs, const std::vector<Communicator>& communicators, const Folding& folding,
         const TimeCosts& costs, LinkSharing sharing)
      : network_(costs.links, sharing), state_(set_up(programs, communicators, folding, costs, network_)) {}

  Trace run() && {
    for (std::int32_t c = 0; c < state_.class_count(); ++c) {
      run_host(c);
      wake_waiters();
    }
    Cycles cycles({state_, transfers_, queue_, network_, trace_});
    while (!queue_.empty()) {
      if (cycles.is_due()) cycles.look(queue_.next());
      const Instant now = queue_.next();
      while (!queue_.empty() && queue_.next() == now) handle(queue_.pop().payload, now);
      for (const Network::PlannedEnd& end : network_.settle(now))
        queue_.push(end.at, {QueuedEvent::Kind::BytesEnd, end.transfer, end.version});
    }
    return conclude();
  }

 private:
  // ---- the host thread
  // -----------------------------------------------------------------------------------------------

  void run_host(std::int32_t c) {
    ClassState& its = state_.of(c);
    const std::int64_t stretches = its.timed->stretches();
    while (std::ssize(its.starts) < stretches && its.host_waits_for_event == nobody) {
      its.host_waits_for_room = its.fills_queue && !has_room(its);
      if (its.host_waits_for_room) return;
      const HostStretch stretch = its.timed->stretch(std::ssize(its.starts));
      end_steps(its);
      its.starts.push_back(its.host);
      its.host = its.host + stretch.length;
      run_streams(c);
      if (stretch.sync == nobody) continue;
      Instant& done = its.events[static_cast<std::size_t>(stretch.sync)];
      if (is_recorded(done)) {
        its.host = std::max(its.host, done);
      } else {
        done = awaited;
        its.host_waits_for_event = stretch.sync;
      }
    }
  }

  // Whether what makes room for the next stretch is known to be done: the host thread is no earlier than that.
  static bool has_room(ClassState& its) {
    const auto channels = its.free_since.size();
    const auto launched = [&](std::size_t stretch, std::size_t channel) {
      return its.timed->launched_before(static_cast<std::int64_t>(stretch), channel, channels);
    };
    for (std::size_t channel = 0; channel < channels; ++channel) {
      const std::int64_t rid_of = QueuePoints::rid_of(its.queue, launched(its.starts.size(), channel));
      if (rid_of <= 0) continue;
      std::uint32_t& since = its.free_since[channel];
      while (launched(since, channel) < rid_of) ++since;
      for (std::size_t s = channel; s < its.streams.size(); s += channels) {
        StreamState& stream = its.streams[s];
        if (stream.stretch() < since) return false;
        while (stream.done.front().before < since) stream.done.pop();
        its.host = std::max(its.host, stream.done.front().at);
      }
    }
    return true;
  }

  // Training loops wait for the device once a step, when they read the loss: the next step begins after all streams.
  // Here the streams' ends need not be known yet, so the step's end is noted as the last op handed over.
  static void end_steps(ClassState& its) {
    const std::vector<StepEnd>& ends = its.timed->step_ends;
    for (; its.next_step_end < ends.size() && ends[its.next_step_end].stretch == its.starts.size(); ++its.next_step_end)
      its.trace.step_ends.push_back(its.host + ends[its.next_step_end].after);
  }

  // ---- streams
  // -------------------------------------------------------------------------------------------------------

  // What streams can do of what they have been handed, in the order in which they were.
  void run_streams(std::int32_t c) {
    ClassState& its = state_.of(c);
    for (;;) {
      std::size_t first = its.streams.size();
      std::uint32_t until = std::numeric_limits<std::uint32_t>::max();  // where another stream comes first
      for (std::size_t s = 0; s < its.streams.size(); ++s) {
        if (!its.can_run(its.streams[s])) continue;
        if (first < its.streams.size() && its.streams[first].next.op().op < its.streams[s].next.op().op) {
          until = std::min(until, its.streams[s].next.op().op);
        } else {
          if (first < its.streams.size()) until = its.streams[first].next.op().op;
          first = s;
        }
      }
      if (first == its.streams.size()) return;
      StreamState& stream = its.streams[first];
      const Waiter at{c, {static_cast<std::int32_t>(first)}};
      do advance(at, its, stream);
      while (its.can_run(stream) && stream.next.op().op < until);
    }
  }

  void drain(const Waiter& at) {
    ClassState& its = state_.of(at.rank_class);
    StreamState& stream = its.streams[at.stream.index()];
    while (its.can_run(stream)) advance(at, its, stream);
  }

  // Does the next op, or stands in it.
  void advance(const Waiter& at, ClassState& its, StreamState& stream) {
    const TimedOp& op = stream.next.op();
    const Instant handed_over = its.starts[op.stretch] + op.after;
    switch (op.kind) {
      case TimedOp::Kind::Kernels:
        stream.tail = std::max(stream.tail + op.duration, handed_over);  // `after` is until they end
        trace_.events += op.what;
        break;
      case TimedOp::Kind::Record: {
        Instant& event = its.events[op.what];
        if (event == awaited) recorded_.push({at.rank_class, static_cast<std::int32_t>(op.what)});
        event = std::max(stream.tail, handed_over);
        break;
      }
      case TimedOp::Kind::Wait: {
        Instant& event = its.events[op.what];
        if (!is_recorded(event)) {
          event = awaited;
          stream.waits_for_event = static_cast<std::int32_t>(op.what);
          return;
        }
        stream.tail = std::max(stream.tail, event);
        break;
      }
      case TimedOp::Kind::Collective:
      case TimedOp::Kind::Exchange:
      case TimedOp::Kind::Copy:
        stream.in_transfer = true;
        stream.arrived = std::max(stream.tail, handed_over);
        arrivals_.push(at);
        return;
    }
    go_on(at, its, stream);
  }

  // To what the stream is handed next.
  void go_on(const Waiter& at, ClassState& its, StreamState& stream) {
    const std::uint32_t stretch = stream.next.op().stretch;
    stream.next.advance();
    if (!its.fills_queue || stream.stretch() == stretch) return;
    stream.done.push({stream.stretch(), stream.tail});
    if (its.host_waits_for_room) roomier_.push(at.rank_class);
  }

  // Carries on what newly recorded events and arrivals allow, until nothing moves at this instant.
  void wake_waiters() {
    while (!recorded_.empty() || !arrivals_.empty() || !roomier_.empty()) {
      if (!arrivals_.empty()) {
        arrive(arrivals_.pop());
        continue;
      }
      if (!roomier_.empty()) {
        const std::int32_t c = roomier_.pop();
        if (state_.of(c).host_waits_for_room) run_host(c);
        continue;
      }
      const auto [c, event] = recorded_.pop();
      ClassState& its = state_.of(c);
      for (std::size_t s = 0; s < its.streams.size(); ++s) {
        if (its.streams[s].waits_for_event != event) continue;
        its.streams[s].waits_for_event = nobody;
        drain({c, {static_cast<std::int32_t>(s)}});
      }
      if (its.host_waits_for_event == event) {
        its.host_waits_for_event = nobody;
        its.host = std::max(its.host, its.events[static_cast<std::size_t>(event)]);
        run_host(c);
      }
    }
  }

  // ---- transfers
  // -----------------------------------------------------------------------------------------------------

  void arrive(const Waiter& at) {
    ClassState& its = state_.of(at.rank_class);
    const TimedOp& op = state_.stream(at).next.op();
    if (op.kind == TimedOp::Kind::Collective)
      join(at, its, its.collectives[op.what]);
    else if (op.kind == TimedOp::Kind::Exchange)
      post(at, its.exchanges[op.what]);
    else
      copy(at, its.copies[op.what]);
  }

  void join(const Waiter& at, ClassState& its, const CollectiveCall& call) {
    Meetings& meetings = state_.meetings[static_cast<std::size_t>(call.group)];
    if (meetings.members == 1) {  // as of most groups, whose ranks are of one class
      ensure(call.cost != nullptr, "every collective of a workload has a price");
      begin(*call.cost, state_.stream(at).arrived).members.push_back(at);
      return;
    }
    Meeting& meeting = meetings[its.meetings[call.comm.index()]++];
    meeting.arrived.push_back(at);
    meeting.last = std::max(meeting.last, state_.stream(at).arrived);
    if (meeting.arrived.size() < meetings.members) return;
    ensure(call.cost != nullptr, "every collective of a workload has a price");
    ActiveTransfer& transfer = begin(*call.cost, meeting.last);
    transfer.members.swap(meeting.arrived);
    meetings.close_first();
  }

  void copy(const Waiter& at, const TransferCost* cost) {
    ensure(cost != nullptr, "every copy of a workload has a price");
    begin(*cost, state_.stream(at).arrived).members.push_back(at);
  }

  void post(const Waiter& at, const std::vector<MessageCall>& messages) {
    const Instant ready = state_.stream(at).arrived;
    const std::int32_t exchange = state_.exchanges.add();
    state_.exchanges[exchange] = {at, static_cast<std::int32_t>(messages.size()), never, ready, ready};
    for (const MessageCall& m : messages) {
      ensure(m.cost != nullptr || m.direction == Direction::Receive, "every message of a workload has a price");
      Channel& channel = state_.channels[static_cast<std::size_t>(m.channel)];
      if (channel.waiting.empty() || channel.side == m.direction) {
        channel.side = m.direction;
        channel.waiting.push({exchange, ready, m.cost});
        continue;
      }
      const HalfMessage other = channel.waiting.pop();
      const std::array<std::int32_t, 2> send_first =
          m.direction == Direction::Send ? std::array{exchange, other.exchange} : std::array{other.exchange, exchange};
      begin(m.cost != nullptr ? *m.cost : *other.cost, std::max(ready, other.ready)).exchanges = send_first;
    }
  }

  // Whoever takes part is left to the caller.
  ActiveTransfer& begin(const TransferCost& cost, Instant at) {
    const std::int32_t id = transfers_.add();
    ActiveTransfer& transfer = transfers_[id];
    transfer.cost = &cost;
    transfer.begin = at;
    transfer.members.clear();
    transfer.exchanges = {nobody, nobody};
    queue_.push(at + cost.latency, {QueuedEvent::Kind::BytesStart, id, 0});
    return transfer;
  }

  void handle(const QueuedEvent& event, Instant now) {
    if (event.kind == QueuedEvent::Kind::BytesStart) {
      ++trace_.events;
      network_.start(event.transfer, *transfers_[event.transfer].cost, now);
      return;
    }
    if (!network_.is_current(event.transfer, event.version)) return;
    ++trace_.events;
    network_.finish(event.transfer);
    const ActiveTransfer& done = transfers_[event.transfer];  // none begins before `wake_waiters`
    for (const Waiter& member : done.members) leave(member, {done.begin, now});
    for (const std::int32_t id : done.exchanges) {
      if (id == nobody) continue;
      ExchangeState& exchange = state_.exchanges[id];
      exchange.begin = std::min(exchange.begin, done.begin);
      exchange.last_begin = std::max(exchange.last_begin, done.begin);
      exchange.end = std::max(exchange.end, now);
      if (--exchange.open > 0) continue;
      state_.exchanges.remove(id);
      leave(exchange.waiter, {exchange.begin, exchange.end, exchange.last_begin - exchange.begin});
    }
    transfers_.remove(event.transfer);
    wake_waiters();
  }

  // The transfer that the stream stands in is over.
  void leave(const Waiter& at, const TransferTimes& times) {
    ClassState& its = state_.of(at.rank_class);
    StreamState& stream = its.streams[at.stream.index()];
    its.trace.transfers[at.stream.index()].push_back(times);
    stream.tail = times.end;
    stream.in_transfer = false;
    go_on(at, its, stream);
    drain(at);
  }

  // ---- the end
  // -------------------------------------------------------------------------------------------------------

  Trace conclude() {
    Deadlock deadlock{stalls_of(state_), {}};
    for (std::int32_t c = 0; c < state_.class_count(); ++c) {
      ClassState& its = state_.of(c);
      Instant end = its.host;
      for (const StreamState& stream : its.streams) end = std::max(end, stream.tail);
      its.trace.step_ends.push_back(end);
      trace_.end = std::max(trace_.end, end);
    }
    if (!deadlock.stalls.empty()) {
      deadlock.cycle = cycle_of(deadlock.stalls);
      trace_.outcome = std::move(deadlock);
    }
    for (ClassState& its : state_.classes) trace_.classes.push_back(std::move(its.trace));
    return std::move(trace_);
  }

  Network network_;
  EngineState state_;
  Pool<ActiveTransfer> transfers_;
  EventQueue<QueuedEvent> queue_;
  Fifo<std::pair<std::int32_t, std::int32_t>> recorded_;  // class, event
  Fifo<Waiter> arrivals_;                                 // at a transfer
  Fifo<std::int32_t> roomier_;                            // classes whose launch queue may have room again
  Trace trace_;
};

}  // namespace

Trace simulate(const Workload& workload, const Folding& folding, const TimeCosts& costs, LinkSharing sharing) {
  return Engine(workload.programs, workload.communicators, folding, costs, sharing).run();
}

Trace simulate(const RepeatingWorkload& workload, const Folding& folding, const TimeCosts& costs, LinkSharing sharing) {
  return Engine(workload.programs, workload.communicators, folding, costs, sharing).run();
}

}  // namespace tidemark::sim
