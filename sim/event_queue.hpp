// The pending events of a simulation, soonest first; events of one instant come out in the order they were pushed.
//
// A heap of four children per node. A key is one 128-bit number, the instant above the order of pushing above the place
// of the payload, so that one comparison orders events entirely and payloads never move. Siblings fill one cache line:
// a level costs one line and no unpredictable branch. An event is mostly popped to push its successor, so `pop` leaves
// a hole at the root and the next `push` fills it: one way down for both, where others go down and up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "sim/ensure.hpp"
#include "sim/time.hpp"

namespace tidemark {

/// Events by (instant, order of pushing). Up to 2^24 at once and 2^40 from one `clear` to the next.
template <class Payload>
class EventQueue {
 public:
  struct Event {
    Instant at;
    Payload payload;
  };

  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }

  /// When the soonest event is; there must be one.
  [[nodiscard]] Instant next() const {
    ensure(size_ > 0, "an event queue has a next event");
    return instant_of(hole_at_root_ ? siblings_[1].keys[soonest(siblings_[1])] : key(root));
  }

  void push(Instant at, Payload payload) {
    ensure(pushed_ < max_pushed, "an event queue orders at most 2^40 events");
    const Key entering = (static_cast<Key>(at.since_start().count()) << 64) |
                         static_cast<Key>((pushed_++ << slot_bits) | keep(std::move(payload)));
    if (hole_at_root_) {
      hole_at_root_ = false;
      ++size_;
      sink(entering);
    } else {
      rise(entering);
    }
  }

  /// The soonest event, which leaves the queue; there must be one.
  Event pop() {
    ensure(size_ > 0, "an event is popped from a queue that has one");
    if (hole_at_root_) fill_root();
    const Key leaving = key(root);
    const std::size_t slot = static_cast<std::uint64_t>(leaving) & (max_slots - 1);
    free_slots_.push_back(static_cast<std::uint32_t>(slot));
    hole_at_root_ = --size_ > 0;
    if (!hole_at_root_) key(root) = never;
    return {instant_of(leaving), std::move(payloads_[slot])};
  }

  void clear() {
    siblings_.assign(1, Siblings{});
    payloads_.clear();
    free_slots_.clear();
    size_ = 0;
    pushed_ = 0;
    hole_at_root_ = false;
  }

 private:
  __extension__ using Key = __int128;  // instant: 64 bits, order of pushing: 40 bits, slot of the payload: 24 bits
  static constexpr int slot_bits = 24;
  static constexpr std::uint64_t max_slots = std::uint64_t{1} << slot_bits;
  static constexpr std::uint64_t max_pushed = std::uint64_t{1} << (64 - slot_bits);
  static constexpr Key never =
      (static_cast<Key>(std::numeric_limits<std::int64_t>::max()) << 64) | std::numeric_limits<std::uint64_t>::max();

  // The root is the last of the first group; the children of position i are group i - 2. What is not in use is `never`,
  // so that a group has a soonest member however few it has.
  struct alignas(64) Siblings {
    std::array<Key, 4> keys{never, never, never, never};
  };
  static constexpr std::size_t root = 3;
  static std::size_t children(std::size_t position) { return position - 2; }
  static std::size_t parent(std::size_t position) { return position / 4 + 2; }

  static Instant instant_of(Key key) { return Instant{Duration{static_cast<std::int64_t>(key >> 64)}}; }
  Key& key(std::size_t position) { return siblings_[position / 4].keys[position % 4]; }
  const Key& key(std::size_t position) const { return siblings_[position / 4].keys[position % 4]; }

  static std::size_t soonest(const Siblings& of) {
    const std::size_t a = of.keys[1] < of.keys[0] ? 1 : 0;
    const std::size_t b = of.keys[3] < of.keys[2] ? 3 : 2;
    return of.keys[b] < of.keys[a] ? b : a;
  }

  // Where the payload waits.
  std::uint64_t keep(Payload payload) {
    if (free_slots_.empty()) {
      ensure(payloads_.size() < max_slots, "an event queue holds at most 2^24 events");
      payloads_.push_back(std::move(payload));
      return payloads_.size() - 1;
    }
    const std::size_t slot = free_slots_.back();
    free_slots_.pop_back();
    payloads_[slot] = std::move(payload);
    return slot;
  }

  // Takes its place from the end upwards: what is pushed is mostly later than what is there, and stays near the end.
  void rise(Key entering) {
    std::size_t position = root + size_++;
    if (position / 4 == siblings_.size()) siblings_.emplace_back();
    while (position > root && entering < key(parent(position))) {
      key(position) = key(parent(position));
      position = parent(position);
    }
    key(position) = entering;
  }

  // Takes its place from the root downwards.
  void sink(Key entering) {
    std::size_t position = root;
    while (children(position) < siblings_.size()) {
      const Siblings& below = siblings_[children(position)];
      const std::size_t child = soonest(below);
      if (entering < below.keys[child]) break;
      key(position) = below.keys[child];
      position = 4 * children(position) + child;
    }
    key(position) = entering;
  }

  // The last event takes the root, from where it sinks. With the hole at the root the events end one further.
  void fill_root() {
    hole_at_root_ = false;
    const Key last = std::exchange(key(root + size_), never);
    sink(last);
  }

  std::vector<Siblings> siblings_ = std::vector<Siblings>(1);
  std::vector<Payload> payloads_;
  std::vector<std::uint32_t> free_slots_;
  std::size_t size_ = 0;
  std::uint64_t pushed_ = 0;
  bool hole_at_root_ = false;  // the root has left and no one has taken its place; implies size_ > 0
};

}  // namespace tidemark
