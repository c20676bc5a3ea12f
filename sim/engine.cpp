#include "sim/engine.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "sim/ensure.hpp"
#include "sim/event_queue.hpp"
#include "sim/overloaded.hpp"
#include "sim/program_text.hpp"

// Kernels need no events: a stream that waits for nothing knows when each of them ends. Only what depends on other
// ranks does: a transfer begins when everyone who takes part is ready, and ends when its bytes have moved at the rates
// that links allow. A class's host thread runs ahead until it has to wait, its streams until they meet a transfer. Work
// that others wait for is never earlier than the event that let it go on, so events come in order of time.

namespace tidemark {
namespace {

constexpr std::int32_t nobody = -1;
constexpr Instant never{Duration{std::numeric_limits<std::int64_t>::max()}};

// What a stream has yet to do, because it cannot run ahead.
struct Pending {
  enum class Kind : std::uint8_t { Kernel, Record, Wait, Collective, Exchange };
  Kind kind = Kind::Kernel;
  std::uint32_t op = 0;
  std::int32_t event = nobody;
  Instant ready;  // the host had handed it over by then
  Duration duration;
};

struct StreamState {
  Instant tail;               // all work before the queue is done by then
  std::deque<Pending> queue;  // its head waits for a transfer, an event, or nothing
  bool in_transfer = false;
  std::int32_t waits_for_event = nobody;
  Instant arrived;  // at the transfer
};

struct ClassState {
  const Program* program = nullptr;
  const OpTimes* times = nullptr;
  std::vector<Bytes> buffer_sizes;  // as far as the host thread has come
  std::size_t next = 0;             // op of the host thread
  Instant host;
  std::int32_t host_waits_for_event = nobody;
  std::int32_t waiting = 0;          // streams that wait for an event, and the host thread
  std::vector<StreamState> streams;  // those that work was handed to
  std::vector<std::optional<Instant>> events;
  std::vector<std::int64_t> meetings;  // by slot: how many collectives it has come to
  std::int32_t step = 0;
  ClassTrace trace;
};

// Where a stream of a class stands and waits.
struct Waiter {
  std::int32_t rank_class = nobody;
  StreamId stream;
};

// Members of a group come together for one collective.
struct Meeting {
  std::vector<Waiter> arrived;
  Instant last;
};

// Those of a group that are open: members come to them in order, so that the oldest closes first.
struct Meetings {
  std::int64_t first = 0;  // its number
  std::vector<Meeting> open;

  Meeting& operator[](std::int64_t number) {
    const auto place = static_cast<std::size_t>(number - first);
    if (place >= open.size()) open.resize(place + 1);
    return open[place];
  }
  void close_first() {
    ++first;
    std::rotate(open.begin(), open.begin() + 1, open.end());  // the memory of its members is used again
    open.back().arrived.clear();
    open.back().last = {};
  }
};

// One grouped exchange of one class: done when all its messages are.
struct ExchangeState {
  Waiter waiter;
  std::int32_t open = 0;
  Instant begin, end;
};

// One side of a message that waits for the other.
struct HalfMessage {
  std::int32_t exchange = nobody;
  Instant ready;
  const TransferPrice* price = nullptr;  // the sender's
};
struct Channel {
  std::deque<HalfMessage> sends, receives;
};

struct ActiveTransfer {
  const TransferPrice* price = nullptr;
  Instant begin;
  std::vector<Waiter> members;                            // of a collective
  std::array<std::int32_t, 2> exchanges{nobody, nobody};  // of a message
};

struct QueuedEvent {
  enum class Kind : std::uint8_t { BytesStart, BytesEnd };
  Kind kind = Kind::BytesStart;
  std::int32_t transfer = nobody;
  std::uint32_t version = 0;
};

// Small numbers for things that come and go; one that comes finds what the last with its number left.
template <class T>
class Pool {
 public:
  std::int32_t add() {
    if (free_.empty()) {
      items_.emplace_back();
      return static_cast<std::int32_t>(items_.size()) - 1;
    }
    const std::int32_t id = free_.back();
    free_.pop_back();
    return id;
  }
  void remove(std::int32_t id) { free_.push_back(id); }
  T& operator[](std::int32_t id) { return items_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<T> items_;
  std::vector<std::int32_t> free_;
};

class Engine {
 public:
  Engine(const Workload& workload, const Folding& folding, const TimePrices& prices, const EngineOptions& options)
      : workload_(workload), folding_(folding), options_(options), network_(prices.links, options.sharing) {
    for (std::size_t c = 0; c < folding.classes.size(); ++c) {
      ClassState state;
      state.program = &workload.programs[static_cast<std::size_t>(folding.classes[c].program)];
      state.times = &prices.classes[c];
      state.buffer_sizes.resize(static_cast<std::size_t>(state.program->buffers));
      state.events.resize(static_cast<std::size_t>(state.program->events));
      state.meetings.resize(workload.communicators.size());
      if (options.keep == Keep::Timeline) {
        state.trace.host.resize(state.program->ops.size());
        state.trace.spans.reserve(state.program->ops.size() / 2);  // at least every other op takes no time
      }
      classes_.push_back(std::move(state));
    }
    meetings_.resize(folding.groups.size());
  }

  Trace run() && {
    for (std::int32_t c = 0; c < class_count(); ++c) {
      run_host(c);
      wake_waiters();
    }
    while (!queue_.empty()) {
      const Instant now = queue_.next();
      while (!queue_.empty() && queue_.next() == now) handle(queue_.pop().payload, now);
      for (const Network::PlannedEnd& end : network_.settle(now))
        queue_.push(end.at, {QueuedEvent::Kind::BytesEnd, end.transfer, end.version});
    }
    return conclude();
  }

 private:
  [[nodiscard]] std::int32_t class_count() const { return static_cast<std::int32_t>(classes_.size()); }
  ClassState& state(std::int32_t c) { return classes_[static_cast<std::size_t>(c)]; }
  StreamState& stream(const Waiter& at) { return state(at.rank_class).streams[at.stream.index()]; }

  // ---- the host thread
  // -----------------------------------------------------------------------------------------------

  void run_host(std::int32_t c) {
    ClassState& its = state(c);
    const Program& program = *its.program;
    while (its.next < program.ops.size() && its.host_waits_for_event == nobody) {
      const auto index = static_cast<std::uint32_t>(its.next++);
      if (!its.trace.host.empty()) its.trace.host[index] = its.host;
      const Op& op = program.ops[index];
      // Most ops only matter to memory, and visiting them would take as long as all that follows.
      if (const auto* alloc = std::get_if<Alloc>(&op)) {
        its.buffer_sizes[alloc->buffer.index()] = alloc->size;
        continue;
      }
      if (std::holds_alternative<Free>(op) || std::holds_alternative<Bind>(op) || std::holds_alternative<Unbind>(op))
        continue;
      const auto hand_over = [&](StreamId to, Pending::Kind kind, Duration duration) {
        its.host = its.host + its.times->launch;
        enqueue({c, to}, {kind, index, nobody, its.host, duration});
      };
      std::visit(Overloaded{
                     [](const Alloc&) {},  // above
                     [](const Free&) {},
                     [](const Borrow&) {},
                     [&](const Launch& o) {
                       hand_over(o.stream, Pending::Kind::Kernel, its.times->kernels[o.kernel.index()]);
                     },
                     [&](const Collective& o) { hand_over(o.stream, Pending::Kind::Collective, {}); },
                     [&](const Exchange& o) { hand_over(o.stream, Pending::Kind::Exchange, {}); },
                     [&](const Record& o) {
                       its.events[o.event.index()].reset();
                       enqueue({c, o.stream}, {Pending::Kind::Record, index, o.event.value, its.host, {}});
                     },
                     [&](const Wait& o) {
                       enqueue({c, o.stream}, {Pending::Kind::Wait, index, o.event.value, its.host, {}});
                     },
                     [&](const Sync& o) {
                       if (const std::optional<Instant>& done = its.events[o.event.index()])
                         its.host = std::max(its.host, *done);
                       else {
                         its.host_waits_for_event = o.event.value;
                         ++its.waiting;
                       }
                     },
                     [](const CreateDriver&) {},
                     [](const CreateCommunicator&) {},
                     [](const Bind&) {},
                     [](const Unbind&) {},
                     [&](const Mark& o) {
                       if (o.step != its.step) end_step(its);
                       its.step = o.step;
                     },
                 },
                 op);
    }
  }

  // Training loops wait for the device once a step, when they read the loss: the next step begins after all streams.
  // Here the streams' ends need not be known yet, so the step's end is noted as the last op handed over.
  static void end_step(ClassState& its) { its.trace.step_ends.push_back(its.host); }

  // ---- streams
  // -------------------------------------------------------------------------------------------------------

  void enqueue(const Waiter& at, const Pending& work) {
    std::vector<StreamState>& streams = state(at.rank_class).streams;
    if (at.stream.index() >= streams.size()) streams.resize(at.stream.index() + 1);
    StreamState& its = streams[at.stream.index()];
    if (!its.queue.empty() || !advance(at, work)) its.queue.push_back(work);
  }

  // Does the work where the stream need not wait; false where it stands now and waits.
  bool advance(const Waiter& at, const Pending& work) {
    StreamState& its = stream(at);
    const Instant begin = std::max(its.tail, work.ready);
    switch (work.kind) {
      case Pending::Kind::Kernel:
        its.tail = begin + work.duration;
        ++trace_.events;
        note(at, work.op, begin, begin, its.tail);
        return true;
      case Pending::Kind::Record:
        state(at.rank_class).events[static_cast<std::size_t>(work.event)] = begin;
        if (state(at.rank_class).waiting > 0) recorded_.push_back({at.rank_class, work.event});
        return true;
      case Pending::Kind::Wait: {
        const std::optional<Instant>& done = state(at.rank_class).events[static_cast<std::size_t>(work.event)];
        if (!done) {
          its.waits_for_event = work.event;
          ++state(at.rank_class).waiting;
          its.arrived = begin;
        } else if (*done > begin) {
          note(at, work.op, begin, begin, *done);
          its.tail = *done;
        }
        return done.has_value();
      }
      case Pending::Kind::Collective:
      case Pending::Kind::Exchange:
        its.in_transfer = true;
        its.arrived = begin;
        arrivals_.push_back({at, work.op});
        return false;
    }
    return false;
  }

  void drain(const Waiter& at) {
    StreamState& its = stream(at);
    while (!its.queue.empty() && its.waits_for_event == nobody && !its.in_transfer) {
      if (!advance(at, its.queue.front())) return;
      its.queue.pop_front();
    }
  }

  // Carries on what newly recorded events and arrivals allow, until nothing moves at this instant.
  void wake_waiters() {
    while (!recorded_.empty() || !arrivals_.empty()) {
      if (!arrivals_.empty()) {
        const auto [at, op] = arrivals_.front();
        arrivals_.pop_front();
        arrive(at, op);
        continue;
      }
      const auto [c, event] = recorded_.front();
      recorded_.pop_front();
      ClassState& its = state(c);
      for (std::size_t s = 0; s < its.streams.size(); ++s) {
        if (its.streams[s].waits_for_event != event) continue;
        its.streams[s].waits_for_event = nobody;
        --its.waiting;
        drain({c, {static_cast<std::int32_t>(s)}});
      }
      if (its.host_waits_for_event == event) {
        its.host_waits_for_event = nobody;
        --its.waiting;
        its.host = std::max(its.host, *its.events[static_cast<std::size_t>(event)]);
        run_host(c);
      }
    }
  }

  void note(const Waiter& at, std::uint32_t op, Instant ready, Instant begin, Instant end) {
    trace_.end = std::max(trace_.end, end);
    if (options_.keep == Keep::Timeline) state(at.rank_class).trace.spans.push_back({op, at.stream, ready, begin, end});
  }

  // ---- transfers
  // -----------------------------------------------------------------------------------------------------

  void arrive(const Waiter& at, std::uint32_t op) {
    const Op& what = state(at.rank_class).program->ops[op];
    if (const auto* collective = std::get_if<Collective>(&what))
      join(at, *collective);
    else
      post(at, std::get<Exchange>(what));
  }

  [[nodiscard]] std::int32_t group_of(std::int32_t c, CommSlot comm) const {
    return folding_.classes[static_cast<std::size_t>(c)].groups[comm.index()];
  }

  void join(const Waiter& at, const Collective& op) {
    const std::int32_t group = group_of(at.rank_class, op.comm);
    Meetings& meetings = meetings_[static_cast<std::size_t>(group)];
    Meeting& meeting = meetings[state(at.rank_class).meetings[op.comm.index()]++];
    meeting.arrived.push_back(at);
    meeting.last = std::max(meeting.last, stream(at).arrived);
    if (meeting.arrived.size() < folding_.groups[static_cast<std::size_t>(group)].classes.size()) return;
    const auto& prices = state(at.rank_class).times->collectives;
    const auto price = prices.find({op.comm, op.kind, op.size});
    ensure(price != prices.end(), "every collective of a workload has a price");
    ActiveTransfer& transfer = begin(price->second, meeting.last);
    transfer.members.swap(meeting.arrived);
    meetings.close_first();
  }

  void post(const Waiter& at, const Exchange& op) {
    ClassState& its = state(at.rank_class);
    const std::span<const Transfer> transfers = (*its.program)[op.transfers];
    const Instant ready = stream(at).arrived;
    const std::int32_t exchange = exchanges_.add();
    exchanges_[exchange] = {at, static_cast<std::int32_t>(transfers.size()), never, ready};
    for (const Transfer& t : transfers) {
      const Communicator& communicator = workload_.communicators[op.comm.index()];
      const Rank peer =
          group_neighbour(communicator, folding_.classes[static_cast<std::size_t>(at.rank_class)].first, t.step);
      const std::int32_t other = folding_.class_of_rank[peer.index()];
      HalfMessage half{exchange, ready, nullptr};
      if (t.direction == Direction::Send) {
        const auto price = its.times->messages.find({op.comm, t.step, its.buffer_sizes[t.buffer.index()]});
        ensure(price != its.times->messages.end(), "every message of a workload has a price");
        half.price = &price->second;
        Channel& channel = channels_[{op.comm.value, at.rank_class, other, t.step}];
        channel.sends.push_back(half);
        match(channel);
      } else {
        Channel& channel = channels_[{op.comm.value, other, at.rank_class, -t.step}];
        channel.receives.push_back(half);
        match(channel);
      }
    }
  }

  void match(Channel& channel) {
    if (channel.sends.empty() || channel.receives.empty()) return;
    const HalfMessage send = channel.sends.front(), receive = channel.receives.front();
    channel.sends.pop_front();
    channel.receives.pop_front();
    begin(*send.price, std::max(send.ready, receive.ready)).exchanges = {send.exchange, receive.exchange};
  }

  // Whoever takes part is left to the caller.
  ActiveTransfer& begin(const TransferPrice& price, Instant at) {
    const std::int32_t id = transfers_.add();
    ActiveTransfer& transfer = transfers_[id];
    transfer.price = &price;
    transfer.begin = at;
    transfer.members.clear();
    transfer.exchanges = {nobody, nobody};
    queue_.push(at + price.latency, {QueuedEvent::Kind::BytesStart, id, 0});
    return transfer;
  }

  void handle(const QueuedEvent& event, Instant now) {
    if (event.kind == QueuedEvent::Kind::BytesStart) {
      ++trace_.events;
      network_.start(event.transfer, *transfers_[event.transfer].price, now);
      return;
    }
    if (!network_.is_current(event.transfer, event.version)) return;
    ++trace_.events;
    network_.finish(event.transfer);
    const ActiveTransfer& done = transfers_[event.transfer];  // none begins before `wake_waiters`
    for (const Waiter& member : done.members) leave(member, done.begin, now);
    for (const std::int32_t id : done.exchanges) {
      if (id == nobody) continue;
      ExchangeState& exchange = exchanges_[id];
      exchange.begin = std::min(exchange.begin, done.begin);
      exchange.end = std::max(exchange.end, now);
      if (--exchange.open > 0) continue;
      exchanges_.remove(id);
      leave(exchange.waiter, exchange.begin, exchange.end);
    }
    transfers_.remove(event.transfer);
    wake_waiters();
  }

  // The transfer at the stream's head is over.
  void leave(const Waiter& at, Instant begin, Instant end) {
    StreamState& its = stream(at);
    note(at, its.queue.front().op, its.arrived, begin, end);
    its.tail = end;
    its.in_transfer = false;
    its.queue.pop_front();
    drain(at);
  }

  // ---- the end
  // -------------------------------------------------------------------------------------------------------

  Trace conclude() {
    Deadlock deadlock;
    for (std::int32_t c = 0; c < class_count(); ++c) {
      ClassState& its = state(c);
      Instant end = its.host;
      for (std::size_t s = 0; s < its.streams.size(); ++s) {
        end = std::max(end, its.streams[s].tail);
        if (its.streams[s].in_transfer) deadlock.stalls.push_back(stall({c, {static_cast<std::int32_t>(s)}}));
      }
      its.trace.step_ends.push_back(end);
      trace_.end = std::max(trace_.end, end);
    }
    if (!deadlock.stalls.empty()) {
      deadlock.cycle = cycle(deadlock.stalls);
      trace_.outcome = std::move(deadlock);
    }
    for (ClassState& its : classes_) trace_.classes.push_back(std::move(its.trace));
    return std::move(trace_);
  }

  Stall stall(const Waiter& at) {
    const std::uint32_t op = stream(at).queue.front().op;
    const Op& what = state(at.rank_class).program->ops[op];
    Stall found{at.rank_class, op, {}, nobody};
    if (const auto* collective = std::get_if<Collective>(&what)) {
      const std::int32_t group = group_of(at.rank_class, collective->comm);
      const std::int64_t which = state(at.rank_class).meetings[collective->comm.index()] - 1;
      const std::vector<Waiter>& there = meetings_[static_cast<std::size_t>(group)][which].arrived;
      for (const std::int32_t member : folding_.groups[static_cast<std::size_t>(group)].classes) {
        const bool came =
            std::any_of(there.begin(), there.end(), [&](const Waiter& w) { return w.rank_class == member; });
        if (!came && found.waits_for_class == nobody) found.waits_for_class = member;
      }
      found.waiting_for = fmt::format("{} in communicator {}", name(collective->kind),
                                      workload_.communicators[collective->comm.index()].name);
      return found;
    }
    // The first message of the exchange that the other side has not posted.
    for (const auto& [way, channel] : channels_) {
      const auto& [comm, from, to, step] = way;
      const bool sends = from == at.rank_class && waits(channel.sends, at);
      const bool receives = to == at.rank_class && waits(channel.receives, at);
      if (!sends && !receives) continue;
      found.waits_for_class = sends ? to : from;
      found.waiting_for =
          fmt::format("{} in communicator {}", sends ? "its send to be received" : "a message to be sent",
                      workload_.communicators[static_cast<std::size_t>(comm)].name);
      break;
    }
    return found;
  }

  bool waits(const std::deque<HalfMessage>& halves, const Waiter& at) {
    return std::any_of(halves.begin(), halves.end(), [&](const HalfMessage& half) {
      const Waiter& waiter = exchanges_[half.exchange].waiter;
      return waiter.rank_class == at.rank_class && waiter.stream == at.stream;
    });
  }

  static std::vector<std::int32_t> cycle(const std::vector<Stall>& stalls) {
    std::map<std::int32_t, std::int32_t> next;
    for (const Stall& s : stalls) next.try_emplace(s.rank_class, s.waits_for_class);
    for (const auto& [start, unused] : next) {
      std::vector<std::int32_t> path;
      std::int32_t at = start;
      while (next.contains(at) && std::find(path.begin(), path.end(), at) == path.end()) {
        path.push_back(at);
        at = next.at(at);
      }
      const auto again = std::find(path.begin(), path.end(), at);
      if (again != path.end()) return {again, path.end()};
    }
    return {};
  }

  const Workload& workload_;
  const Folding& folding_;
  EngineOptions options_;
  Network network_;
  std::vector<ClassState> classes_;
  std::vector<Meetings> meetings_;  // by group class
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>, Channel>
      channels_;  // by slot, sending class, receiving class and step
  Pool<ExchangeState> exchanges_;
  Pool<ActiveTransfer> transfers_;
  EventQueue<QueuedEvent> queue_;
  std::deque<std::pair<std::int32_t, std::int32_t>> recorded_;  // class, event
  std::deque<std::pair<Waiter, std::uint32_t>> arrivals_;       // at a transfer
  Trace trace_;
};

}  // namespace

Trace simulate(const Workload& workload, const Folding& folding, const TimePrices& prices,
               const EngineOptions& options) {
  return Engine(workload, folding, prices, options).run();
}

}  // namespace tidemark
