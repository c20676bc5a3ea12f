#include "sim/clock/engine.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/base/ensure.hpp"
#include "sim/clock/event_queue.hpp"
#include "sim/clock/lone_transfers.hpp"
#include "sim/clock/timed_program.hpp"
#include "sim/program/program_text.hpp"

// Kernels need no events: a stream that waits for nothing knows when each of them ends. Only what depends on other
// ranks does: a transfer begins when everyone who takes part is ready, and ends when its bytes have moved at the rates
// that links allow. A class's host thread runs ahead until it has to wait, its streams until they meet a transfer. Work
// that others wait for is never earlier than the event that let it go on, so events come in order of time.

namespace tidemark::sim {
namespace {

constexpr std::int32_t nobody = -1;
constexpr Instant never{Duration{std::numeric_limits<std::int64_t>::max()}};

// Of an event that no stream has come to; no instant is below zero.
constexpr Instant unrecorded{Duration{-1}};
constexpr Instant awaited{Duration{-2}};  // and someone waits for it
constexpr bool is_recorded(Instant event) { return event >= Instant{}; }

// First in, first out; its memory is used again.
template <class T>
class Fifo {
 public:
  [[nodiscard]] bool empty() const { return first_ == items_.size(); }
  void push(const T& item) { items_.push_back(item); }
  T pop() {
    const T item = items_[first_++];
    if (2 * first_ >= items_.size()) {
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    return item;
  }
  [[nodiscard]] auto begin() const { return items_.begin() + static_cast<std::ptrdiff_t>(first_); }
  [[nodiscard]] auto end() const { return items_.end(); }

 private:
  std::vector<T> items_;
  std::size_t first_ = 0;
};

struct StreamState {
  const TimedOp* next = nullptr;  // what it does next, or waits in
  const TimedOp* end = nullptr;
  Instant tail;  // all work before `next` is done by then
  bool in_transfer = false;
  std::int32_t waits_for_event = nobody;
  Instant arrived;  // at the transfer
};

// A collective as one class calls it.
struct CollectiveCall {
  CommSlot comm;
  std::int32_t group = nobody;           // of Folding::groups
  const TransferPrice* price = nullptr;  // none: the price list has no such call
};

// One message of an exchange as one class posts it.
struct MessageCall {
  Direction direction = Direction::Send;
  std::int32_t channel = nobody;
  const TransferPrice* price = nullptr;  // of a send; none: the price list has no such message
};

struct ClassState {
  const Program* program = nullptr;  // op by op, for timelines
  const TimedProgram* timed = nullptr;
  Duration launch;
  std::vector<CollectiveCall> collectives;          // as in `timed`
  std::vector<std::vector<MessageCall>> exchanges;  // as in `timed`
  std::vector<Instant> starts;                      // of the stretches that the host thread has come to
  std::size_t next_step_end = 0;
  Instant host;
  std::int32_t host_waits_for_event = nobody;
  std::vector<StreamState> streams;
  std::vector<Instant> events;
  std::vector<std::int64_t> meetings;  // by slot: how many collectives it has come to
  ClassTrace trace;

  [[nodiscard]] bool can_run(const StreamState& its) const {
    return its.next != its.end && its.next->stretch < starts.size() && its.waits_for_event == nobody &&
           !its.in_transfer;
  }
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
  std::size_t members = 0;
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
// Messages one way between two classes. Only one side ever waits.
struct Channel {
  Direction side = Direction::Send;
  Fifo<HalfMessage> waiting;
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
  /// `programs` are those of a Workload, or of a RepeatingWorkload where no timeline is kept.
  template <class Programs>
  Engine(const Programs& programs, const std::vector<Communicator>& communicators, const Folding& folding,
         const TimePrices& prices, const EngineOptions& options)
      : communicators_(communicators), folding_(folding), options_(options), network_(prices.links, options.sharing) {
    time_programs(programs, prices);
    for (std::int32_t c = 0; c < class_count(); ++c) prepare(c, prices.classes[static_cast<std::size_t>(c)]);
    for (const GroupClass& group : folding.groups) meetings_.push_back({group.classes.size(), 0, {}});
    // A timeline tells of each by itself.
    if (options.keep == Keep::Ends) {
      uses_.resize(prices.links.size());
      std::vector<Overlaps> overlap;
      for (const auto& program : programs) overlap.push_back(overlaps_of(program));
      time_lone_transfers(overlap);
    }
    for (ClassState& its : classes_) stand_at_start(its);
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

  // ---- the start
  // -----------------------------------------------------------------------------------------------------

  // Classes whose kernels take equally long share a program.
  template <class Programs>
  void time_programs(const Programs& programs, const TimePrices& prices) {
    const Kernels how = options_.keep == Keep::Timeline ? Kernels::Each : Kernels::Together;
    std::vector<std::vector<std::size_t>> seen(programs.size());  // classes that do not share, by program
    classes_.resize(folding_.classes.size());
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      const OpTimes& times = prices.classes[c];
      const auto which = static_cast<std::size_t>(folding_.classes[c].program);
      ClassState& its = classes_[c];
      if constexpr (std::is_same_v<Programs, std::vector<Program>>) its.program = &programs[which];
      its.launch = times.launch;
      const auto same = std::find_if(seen[which].begin(), seen[which].end(), [&](std::size_t other) {
        return prices.classes[other].launch == times.launch && prices.classes[other].kernels == times.kernels;
      });
      if (same != seen[which].end()) {
        its.timed = classes_[*same].timed;
        continue;
      }
      seen[which].push_back(c);
      timed_.push_back(std::make_unique<TimedProgram>(timed(programs[which], times.launch, times.kernels, how)));
      its.timed = timed_.back().get();
    }
  }

  void prepare(std::int32_t c, const OpTimes& times) {
    ClassState& its = state(c);
    const TimedProgram& program = *its.timed;
    for (const CollectiveKey& key : program.collectives)
      its.collectives.push_back({key.comm, group_of(c, key.comm), price_in(times.collectives, key)});
    for (const TimedExchange& exchange : program.exchanges) {
      std::vector<MessageCall>& calls = its.exchanges.emplace_back();
      for (const TimedExchange::Message& m : exchange.messages) calls.push_back(message_call(c, times, exchange, m));
    }
  }

  void stand_at_start(ClassState& its) {
    const TimedProgram& program = *its.timed;
    for (const std::vector<TimedOp>& ops : program.streams) {
      StreamState& stream = its.streams.emplace_back();
      stream.next = ops.data();
      stream.end = ops.data() + ops.size();
    }
    its.starts.reserve(program.host.size());
    its.events.resize(program.events, unrecorded);
    its.meetings.resize(communicators_.size());
    if (options_.keep == Keep::Timeline) {
      its.trace.host.resize(its.program->ops.size());
      std::size_t spans = 0;
      for (const std::vector<TimedOp>& ops : program.streams) spans += ops.size();
      its.trace.spans.reserve(spans);
    }
  }

  // ---- transfers that share nothing
  // -----------------------------------------------------------------------------------------------------

  static Overlaps overlaps_of(const Program& program) {
    return overlaps(timed(program, {}, std::vector<Duration>(program.kernels.size()), Kernels::Together));
  }
  // What repeats does so in the same order.
  static Overlaps overlaps_of(const RepeatingProgram& program) { return overlaps_of(program.rolled); }

  // A transfer as links tell it apart: messages by their channel, collectives by their group and what they are.
  struct LinkUse {
    std::int32_t channel = nobody, group = nobody;
    CollectiveKind kind = CollectiveKind::AllReduce;
    Bytes size;
    bool operator==(const LinkUse&) const = default;
  };
  static LinkUse use_of(const CollectiveCall& call, const CollectiveKey& key) {
    return {nobody, call.group, key.kind, key.size};
  }

  // Collectives of one class that meet no other transfer on their links become kernels.
  void time_lone_transfers(const std::vector<Overlaps>& overlaps) {
    note_link_uses();
    using Durations = std::vector<std::optional<Duration>>;
    std::map<std::pair<const TimedProgram*, Durations>, const TimedProgram*> known;
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      ClassState& its = classes_[c];
      const Overlaps& overlap = overlaps[static_cast<std::size_t>(folding_.classes[c].program)];
      Durations durations;
      for (std::size_t call = 0; call < its.collectives.size(); ++call)
        durations.push_back(is_alone(its, call, overlap) ? std::optional(its.collectives[call].price->latency +
                                                                         network_.alone(*its.collectives[call].price))
                                                         : std::nullopt);
      if (std::ranges::none_of(durations, [](const auto& d) { return d.has_value(); })) continue;
      const auto [found, added] = known.try_emplace({its.timed, durations});
      if (added) {
        timed_.push_back(std::make_unique<TimedProgram>(with_known(*its.timed, durations)));
        found->second = timed_.back().get();
      }
      its.timed = found->second;
    }
  }

  void note_link_uses() {
    const auto note = [&](const TransferPrice* price, const LinkUse& use) {
      if (price == nullptr) return;
      for (const LinkLoad& load : price->loads) {
        std::vector<LinkUse>& uses = uses_[load.link.index()];
        if (std::ranges::find(uses, use) == uses.end()) uses.push_back(use);
      }
    };
    for (const ClassState& its : classes_) {
      for (std::size_t call = 0; call < its.collectives.size(); ++call)
        note(its.collectives[call].price, use_of(its.collectives[call], its.timed->collectives[call]));
      for (const std::vector<MessageCall>& messages : its.exchanges)
        for (const MessageCall& m : messages) note(m.price, {m.channel, nobody, {}, {}});
    }
  }

  // Whether the class takes part in whatever uses the links of one of its collectives, at other times.
  [[nodiscard]] bool is_alone(const ClassState& its, std::size_t call, const Overlaps& overlap) const {
    const CollectiveCall& mine = its.collectives[call];
    if (mine.price == nullptr || meetings_[static_cast<std::size_t>(mine.group)].members != 1) return false;
    return std::ranges::all_of(mine.price->loads, [&](const LinkLoad& load) {
      return std::ranges::all_of(uses_[load.link.index()], [&](const LinkUse& use) {
        bool takes_part = false, at_other_times = true;
        const auto see = [&](bool same, std::size_t other) {
          takes_part |= same;
          at_other_times &= !same || !overlap[call][other];
        };
        for (std::size_t other = 0; other < its.collectives.size(); ++other)
          see(use_of(its.collectives[other], its.timed->collectives[other]) == use, other);
        for (std::size_t e = 0; e < its.exchanges.size(); ++e)
          for (const MessageCall& m : its.exchanges[e])
            see(use.channel != nobody && m.channel == use.channel, its.collectives.size() + e);
        return takes_part && at_other_times;
      });
    });
  }

  template <class Key>
  static const TransferPrice* price_in(const std::map<Key, TransferPrice>& prices, const Key& key) {
    const auto found = prices.find(key);
    return found == prices.end() ? nullptr : &found->second;
  }

  MessageCall message_call(std::int32_t c, const OpTimes& times, const TimedExchange& exchange,
                           const TimedExchange::Message& message) {
    const Rank peer = group_neighbour(communicators_[exchange.comm.index()],
                                      folding_.classes[static_cast<std::size_t>(c)].first, message.step);
    const std::int32_t other = folding_.class_of_rank[peer.index()];
    if (message.direction == Direction::Receive)
      return {message.direction, channel({exchange.comm.value, other, c, -message.step}), nullptr};
    return {message.direction, channel({exchange.comm.value, c, other, message.step}),
            price_in(times.messages, {exchange.comm, message.step, message.size})};
  }

  // By slot, sending class, receiving class and step.
  using Way = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>;

  std::int32_t channel(const Way& way) {
    const auto [entry, added] = ways_.try_emplace(way, static_cast<std::int32_t>(channels_.size()));
    if (added) channels_.emplace_back();
    return entry->second;
  }

  // ---- the host thread
  // -----------------------------------------------------------------------------------------------

  void run_host(std::int32_t c) {
    ClassState& its = state(c);
    const std::vector<HostStretch>& stretches = its.timed->host;
    while (its.starts.size() < stretches.size() && its.host_waits_for_event == nobody) {
      const HostStretch& stretch = stretches[its.starts.size()];
      end_steps(its);
      if (options_.keep == Keep::Timeline) note_host(its, stretch);
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

  // Training loops wait for the device once a step, when they read the loss: the next step begins after all streams.
  // Here the streams' ends need not be known yet, so the step's end is noted as the last op handed over.
  static void end_steps(ClassState& its) {
    const std::vector<StepEnd>& ends = its.timed->step_ends;
    for (; its.next_step_end < ends.size() && ends[its.next_step_end].stretch == its.starts.size(); ++its.next_step_end)
      its.trace.step_ends.push_back(its.host + ends[its.next_step_end].after);
  }

  static void note_host(ClassState& its, const HostStretch& stretch) {
    Instant at = its.host;
    for (std::uint32_t i = stretch.first; i < stretch.last; ++i) {
      its.trace.host[i] = at;
      const Op& op = its.program->ops[i];
      if (std::holds_alternative<Launch>(op) || std::holds_alternative<Collective>(op) ||
          std::holds_alternative<Exchange>(op))
        at = at + its.launch;
    }
  }

  // ---- streams
  // -------------------------------------------------------------------------------------------------------

  // What streams can do of what they have been handed, in the order in which they were.
  void run_streams(std::int32_t c) {
    ClassState& its = state(c);
    for (;;) {
      std::size_t first = its.streams.size();
      std::uint32_t until = std::numeric_limits<std::uint32_t>::max();  // where another stream comes first
      for (std::size_t s = 0; s < its.streams.size(); ++s) {
        if (!its.can_run(its.streams[s])) continue;
        if (first < its.streams.size() && its.streams[first].next->op < its.streams[s].next->op) {
          until = std::min(until, its.streams[s].next->op);
        } else {
          if (first < its.streams.size()) until = its.streams[first].next->op;
          first = s;
        }
      }
      if (first == its.streams.size()) return;
      StreamState& stream = its.streams[first];
      const Waiter at{c, {static_cast<std::int32_t>(first)}};
      do advance(at, its, stream);
      while (its.can_run(stream) && stream.next->op < until);
    }
  }

  void drain(const Waiter& at) {
    ClassState& its = state(at.rank_class);
    StreamState& stream = its.streams[at.stream.index()];
    while (its.can_run(stream)) advance(at, its, stream);
  }

  // Does the next op, or stands in it.
  void advance(const Waiter& at, ClassState& its, StreamState& stream) {
    const TimedOp& op = *stream.next;
    const Instant handed_over = its.starts[op.stretch] + op.after;
    switch (op.kind) {
      case TimedOp::Kind::Kernels:
        stream.tail = std::max(stream.tail + op.duration, handed_over);  // `after` is until they end
        trace_.events += op.what;
        if (options_.keep == Keep::Timeline) {
          const Instant begin = stream.tail + -op.duration;
          its.trace.spans.push_back({op.op, at.stream, begin, begin, stream.tail});
        }
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
        const Instant begin = std::max(stream.tail, handed_over);
        if (event > begin) {
          note(at, its, op.op, begin, begin, event);
          stream.tail = event;
        }
        break;
      }
      case TimedOp::Kind::Collective:
      case TimedOp::Kind::Exchange:
        stream.in_transfer = true;
        stream.arrived = std::max(stream.tail, handed_over);
        arrivals_.push(at);
        return;
    }
    ++stream.next;
  }

  // Carries on what newly recorded events and arrivals allow, until nothing moves at this instant.
  void wake_waiters() {
    while (!recorded_.empty() || !arrivals_.empty()) {
      if (!arrivals_.empty()) {
        arrive(arrivals_.pop());
        continue;
      }
      const auto [c, event] = recorded_.pop();
      ClassState& its = state(c);
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

  void note(const Waiter& at, ClassState& its, std::uint32_t op, Instant ready, Instant begin, Instant end) {
    if (options_.keep == Keep::Timeline) its.trace.spans.push_back({op, at.stream, ready, begin, end});
  }

  // ---- transfers
  // -----------------------------------------------------------------------------------------------------

  void arrive(const Waiter& at) {
    ClassState& its = state(at.rank_class);
    const TimedOp& op = *stream(at).next;
    if (op.kind == TimedOp::Kind::Collective)
      join(at, its, its.collectives[op.what]);
    else
      post(at, its.exchanges[op.what]);
  }

  [[nodiscard]] std::int32_t group_of(std::int32_t c, CommSlot comm) const {
    return folding_.classes[static_cast<std::size_t>(c)].groups[comm.index()];
  }

  void join(const Waiter& at, ClassState& its, const CollectiveCall& call) {
    Meetings& meetings = meetings_[static_cast<std::size_t>(call.group)];
    if (meetings.members == 1) {  // as of most groups, whose ranks are of one class
      ensure(call.price != nullptr, "every collective of a workload has a price");
      begin(*call.price, stream(at).arrived).members.push_back(at);
      return;
    }
    Meeting& meeting = meetings[its.meetings[call.comm.index()]++];
    meeting.arrived.push_back(at);
    meeting.last = std::max(meeting.last, stream(at).arrived);
    if (meeting.arrived.size() < meetings.members) return;
    ensure(call.price != nullptr, "every collective of a workload has a price");
    ActiveTransfer& transfer = begin(*call.price, meeting.last);
    transfer.members.swap(meeting.arrived);
    meetings.close_first();
  }

  void post(const Waiter& at, const std::vector<MessageCall>& messages) {
    const Instant ready = stream(at).arrived;
    const std::int32_t exchange = exchanges_.add();
    exchanges_[exchange] = {at, static_cast<std::int32_t>(messages.size()), never, ready};
    for (const MessageCall& m : messages) {
      ensure(m.price != nullptr || m.direction == Direction::Receive, "every message of a workload has a price");
      Channel& channel = channels_[static_cast<std::size_t>(m.channel)];
      if (channel.waiting.empty() || channel.side == m.direction) {
        channel.side = m.direction;
        channel.waiting.push({exchange, ready, m.price});
        continue;
      }
      const HalfMessage other = channel.waiting.pop();
      const std::array<std::int32_t, 2> send_first =
          m.direction == Direction::Send ? std::array{exchange, other.exchange} : std::array{other.exchange, exchange};
      begin(m.price != nullptr ? *m.price : *other.price, std::max(ready, other.ready)).exchanges = send_first;
    }
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

  // The transfer that the stream stands in is over.
  void leave(const Waiter& at, Instant begin, Instant end) {
    ClassState& its = state(at.rank_class);
    StreamState& stream = its.streams[at.stream.index()];
    note(at, its, stream.next->op, stream.arrived, begin, end);
    stream.tail = end;
    stream.in_transfer = false;
    ++stream.next;
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
    const TimedOp& op = *stream(at).next;
    Stall found{at.rank_class, op.op, {}, nobody};
    if (op.kind == TimedOp::Kind::Collective) {
      const CollectiveKey& collective = state(at.rank_class).timed->collectives[op.what];
      const std::int32_t group = group_of(at.rank_class, collective.comm);
      const std::int64_t which = state(at.rank_class).meetings[collective.comm.index()] - 1;
      const std::vector<Waiter>& there = meetings_[static_cast<std::size_t>(group)][which].arrived;
      for (const std::int32_t member : folding_.groups[static_cast<std::size_t>(group)].classes) {
        const bool came =
            std::any_of(there.begin(), there.end(), [&](const Waiter& w) { return w.rank_class == member; });
        if (!came && found.waits_for_class == nobody) found.waits_for_class = member;
      }
      found.waiting_for =
          fmt::format("{} in communicator {}", name(collective.kind), communicators_[collective.comm.index()].name);
      return found;
    }
    // The first message of the exchange that the other side has not posted.
    for (const auto& [way, number] : ways_) {
      const Channel& channel = channels_[static_cast<std::size_t>(number)];
      if (!waits(channel, at)) continue;
      const auto& [comm, from, to, step] = way;
      const bool sends = channel.side == Direction::Send;
      found.waits_for_class = sends ? to : from;
      found.waiting_for =
          fmt::format("{} in communicator {}", sends ? "its send to be received" : "a message to be sent",
                      communicators_[static_cast<std::size_t>(comm)].name);
      break;
    }
    return found;
  }

  bool waits(const Channel& channel, const Waiter& at) {
    return std::any_of(channel.waiting.begin(), channel.waiting.end(), [&](const HalfMessage& half) {
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

  const std::vector<Communicator>& communicators_;
  const Folding& folding_;
  EngineOptions options_;
  Network network_;
  std::vector<std::unique_ptr<const TimedProgram>> timed_;
  std::vector<ClassState> classes_;
  std::vector<Meetings> meetings_;  // by group class
  std::map<Way, std::int32_t> ways_;
  std::vector<Channel> channels_;           // as numbered in `ways_`
  std::vector<std::vector<LinkUse>> uses_;  // by LinkId
  Pool<ExchangeState> exchanges_;
  Pool<ActiveTransfer> transfers_;
  EventQueue<QueuedEvent> queue_;
  Fifo<std::pair<std::int32_t, std::int32_t>> recorded_;  // class, event
  Fifo<Waiter> arrivals_;                                 // at a transfer
  Trace trace_;
};

}  // namespace

Trace simulate(const Workload& workload, const Folding& folding, const TimePrices& prices,
               const EngineOptions& options) {
  return Engine(workload.programs, workload.communicators, folding, prices, options).run();
}

Trace simulate(const RepeatingWorkload& workload, const Folding& folding, const TimePrices& prices,
               LinkSharing sharing) {
  return Engine(workload.programs, workload.communicators, folding, prices, {sharing, Keep::Ends}).run();
}

}  // namespace tidemark::sim
