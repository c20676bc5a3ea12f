#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "sim/clock/engine.hpp"
#include "sim/clock/timed_program.hpp"

// What the engine's parts share: set-up makes it, the run changes it, and where the run stops short, stalls are read
// off it.

namespace tidemark::sim {

constexpr std::int32_t nobody = -1;

// Of an event that no stream has come to; no instant is below zero.
constexpr Instant unrecorded{Duration{-1}};
constexpr Instant awaited{Duration{-2}};  // and someone waits for it
constexpr Instant never{Duration{std::numeric_limits<std::int64_t>::max()}};
constexpr bool is_recorded(Instant event) { return event >= Instant{}; }

// First in, first out; its memory is used again.
template <class T>
class Fifo {
 public:
  [[nodiscard]] bool empty() const { return first_ == items_.size(); }
  [[nodiscard]] const T& front() const { return items_[first_]; }
  void push(const T& item) { items_.push_back(item); }
  T pop() {
    const T item = items_[first_++];
    if (2 * first_ >= items_.size()) {
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    return item;
  }
  [[nodiscard]] std::size_t size() const { return items_.size() - first_; }
  [[nodiscard]] auto begin() const { return items_.begin() + static_cast<std::ptrdiff_t>(first_); }
  [[nodiscard]] auto end() const { return items_.end(); }
  [[nodiscard]] auto begin() { return items_.begin() + static_cast<std::ptrdiff_t>(first_); }
  [[nodiscard]] auto end() { return items_.end(); }

 private:
  std::vector<T> items_;
  std::size_t first_ = 0;
};

// All that a stream is handed in stretches before that one it has done at that instant.
struct StretchesDone {
  std::uint32_t before = 0;
  Instant at;
};

struct StreamState {
  explicit StreamState(const OpCursor& first) : next(first) {}

  OpCursor next;             // what it does next, or waits in
  Fifo<StretchesDone> done;  // in order, where the host thread may wait for them
  Instant tail;              // all work before `next` is done by then
  bool in_transfer = false;
  std::int32_t waits_for_event = nobody;
  Instant arrived;  // at the transfer

  /// The stretch of what comes next; behind all where there is nothing.
  [[nodiscard]] std::uint32_t stretch() const {
    return next.is_over() ? std::numeric_limits<std::uint32_t>::max() : next.op().stretch;
  }
};

// A collective as one class calls it.
struct CollectiveCall {
  CommSlot comm;
  std::int32_t group = nobody;         // of Folding::groups
  const TransferCost* cost = nullptr;  // none: the price list has no such call
};

// One message of an exchange as one class posts it.
struct MessageCall {
  Direction direction = Direction::Send;
  std::int32_t channel = nobody;
  const TransferCost* cost = nullptr;  // of a send; none: the price list has no such message
};

struct ClassState {
  std::shared_ptr<const TimedProgram> timed;  // classes that take equally long share one
  LaunchQueue queue;
  bool fills_queue = false;                         // its host thread may have to wait for room in it
  std::vector<std::uint32_t> free_since;            // by channel: a stretch, what comes before which has to be done
  std::vector<CollectiveCall> collectives;          // as in `timed`
  std::vector<std::vector<MessageCall>> exchanges;  // as in `timed`
  std::vector<const TransferCost*> copies;          // as in `timed`; none: the price list has no such copy
  std::vector<Instant> starts;                      // of the stretches that the host thread has come to
  std::size_t next_step_end = 0;
  Instant host;
  std::int32_t host_waits_for_event = nobody;
  bool host_waits_for_room = false;  // in its launch queue
  std::vector<StreamState> streams;
  std::vector<Instant> events;
  std::vector<std::int64_t> meetings;  // by slot: how many collectives it has come to
  ClassTrace trace;

  [[nodiscard]] bool can_run(const StreamState& its) const {
    return !its.next.is_over() && its.next.op().stretch < starts.size() && its.waits_for_event == nobody &&
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
  [[nodiscard]] const Meeting& at(std::int64_t number) const { return open[static_cast<std::size_t>(number - first)]; }
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
  Instant begin, last_begin, end;
};

// One side of a message that waits for the other.
struct HalfMessage {
  std::int32_t exchange = nobody;
  Instant ready;
  const TransferCost* cost = nullptr;  // the sender's
};
// Messages one way between two classes. Only one side ever waits.
struct Channel {
  Direction side = Direction::Send;
  Fifo<HalfMessage> waiting;
};

// What moves, or is about to.
struct ActiveTransfer {
  const TransferCost* cost = nullptr;
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

// By slot, sending class, receiving class and step.
using Way = std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>;

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
  const T& operator[](std::int32_t id) const { return items_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<T> items_;
  std::vector<std::int32_t> free_;
};

struct EngineState {
  EngineState(const std::vector<Communicator>& its_communicators, const Folding& its_folding)
      : communicators(its_communicators), folding(its_folding) {}

  [[nodiscard]] std::int32_t class_count() const { return static_cast<std::int32_t>(classes.size()); }
  ClassState& of(std::int32_t c) { return classes[static_cast<std::size_t>(c)]; }
  [[nodiscard]] const ClassState& of(std::int32_t c) const { return classes[static_cast<std::size_t>(c)]; }
  StreamState& stream(const Waiter& at) { return of(at.rank_class).streams[at.stream.index()]; }
  [[nodiscard]] std::int32_t group_of(std::int32_t c, CommSlot comm) const {
    return folding.classes[static_cast<std::size_t>(c)].groups[comm.index()];
  }

  const std::vector<Communicator>& communicators;
  const Folding& folding;
  std::vector<ClassState> classes;
  std::vector<Meetings> meetings;  // by group class
  std::map<Way, std::int32_t> ways;
  std::vector<Channel> channels;  // as numbered in `ways`
  Pool<ExchangeState> exchanges;
};

/// Every class at the start of its program. `programs` are those of a Workload, or of a RepeatingWorkload; the
/// network's links are those of the prices.
[[nodiscard]] EngineState set_up(const std::vector<Program>& programs, const std::vector<Communicator>& communicators,
                                 const Folding& folding, const TimeCosts& costs, Network& network);
[[nodiscard]] EngineState set_up(const std::vector<Outline>& programs, const std::vector<Communicator>& communicators,
                                 const Folding& folding, const TimeCosts& costs, Network& network);

/// Where classes stand in transfers that nobody will end: who waits for whom.
[[nodiscard]] std::vector<Stall> stalls_of(const EngineState& state);
/// Classes among them that wait for each other.
[[nodiscard]] std::vector<std::int32_t> cycle_of(const std::vector<Stall>& stalls);

}  // namespace tidemark::sim
