// The pending events of a simulation, soonest first; events of one instant come out in the order they were pushed.
//
// A tournament: the leaves are the events, and every four of a level send the soonest of them to the level above. A key
// is one 128-bit number, the instant above the order of pushing above the leaf, so that one comparison orders events
// entirely, the winner says where its payload is, and payloads never move. When a leaf changes, its path to the top is
// played again. Which groups are on that path does not depend on the keys: unlike on the way down a heap, they are
// fetched all at once, and no branch is mispredicted. Four keys are one cache line. An event is mostly popped to push
// its successor, so `pop` leaves its leaf as it is and the next `push` takes it over: one path for both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "sim/base/ensure.hpp"
#include "sim/base/time.hpp"

namespace tidemark::sim {

/// Events by (instant, order of pushing). Up to 2^24 at once and 2^40 from one `clear` to the next. A payload has a
/// default and moves.
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
    return instant_of(vacated_ == none ? soonest_ : soonest_without(vacated_));
  }

  void push(Instant at, Payload payload) {
    ensure(pushed_ < max_pushed, "an event queue orders at most 2^40 events");
    const std::size_t leaf = vacated_ != none ? std::exchange(vacated_, none) : free_leaf();
    payloads_[leaf] = std::move(payload);
    play(leaf, (static_cast<Key>(at.since_start().count()) << 64) | static_cast<Key>(pushed_++ << leaf_bits | leaf));
    ++size_;
  }

  /// The soonest event, which leaves the queue; there must be one.
  Event pop() {
    ensure(size_ > 0, "an event is popped from a queue that has one");
    if (vacated_ != none) {
      play(vacated_, never);
      free_.push_back(vacated_);
    }
    vacated_ = static_cast<std::uint64_t>(soonest_) & (max_leaves - 1);
    --size_;
    return {instant_of(soonest_), std::move(payloads_[vacated_])};
  }

  void clear() { *this = EventQueue{}; }

  /// Calls `see(instant, payload)` for each event, in no order.
  template <class See>
  void for_each(See see) const {
    for (std::size_t leaf = 0; leaf < payloads_.size(); ++leaf) {
      const Key key = groups_[leaf / 4].keys[leaf % 4];
      if (leaf != vacated_ && key != never) see(instant_of(key), payloads_[leaf]);
    }
  }

  /// All events come so much later.
  void shift(Duration by) {
    std::vector<Event> all;
    while (!empty()) all.push_back(pop());
    for (Event& event : all) push(event.at + by, std::move(event.payload));
  }

 private:
  __extension__ using Key = __int128;  // instant: 64 bits, order of pushing: 40 bits, leaf: 24 bits
  static constexpr int leaf_bits = 24;
  static constexpr std::uint64_t max_leaves = std::uint64_t{1} << leaf_bits;
  static constexpr std::uint64_t max_pushed = std::uint64_t{1} << (64 - leaf_bits);
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  static constexpr Key never =
      (static_cast<Key>(std::numeric_limits<std::int64_t>::max()) << 64) | std::numeric_limits<std::uint64_t>::max();

  struct alignas(64) Group {
    std::array<Key, 4> keys{never, never, never, never};
  };

  static Instant instant_of(Key key) { return Instant{Duration{static_cast<std::int64_t>(key >> 64)}}; }

  static Key sooner(Key a, Key b) { return b < a ? b : a; }
  static Key soonest_but(const Group& group, std::size_t member) {
    return sooner(group.keys[member ^ 1], sooner(group.keys[member ^ 2], group.keys[member ^ 3]));
  }

  // The levels lie one after the other, leaves first; the last is a single group.
  static std::size_t groups_above(std::size_t groups) { return (groups + 3) / 4; }

  // A leaf gets a key; who is soonest from there to the top. Not inlined: g++ 12 then compiles `sooner` to conditional
  // moves whatever surrounds a push, where branches would be mispredicted half of the time.
  [[gnu::noinline]] void play(std::size_t leaf, Key key) {
    Group* level = groups_.data();
    std::size_t member = leaf;
    for (std::size_t width = leaf_groups_;; width = groups_above(width)) {
      Group& group = level[member / 4];
      group.keys[member % 4] = key;
      key = sooner(key, soonest_but(group, member % 4));
      if (width == 1) break;
      level += width;
      member /= 4;
    }
    soonest_ = key;
  }

  [[nodiscard]] Key soonest_without(std::size_t leaf) const {
    Key key = never;
    const Group* level = groups_.data();
    std::size_t member = leaf;
    for (std::size_t width = leaf_groups_;; width = groups_above(width)) {
      key = sooner(key, soonest_but(level[member / 4], member % 4));
      if (width == 1) return key;
      level += width;
      member /= 4;
    }
  }

  std::size_t free_leaf() {
    if (!free_.empty()) {
      const std::size_t leaf = free_.back();
      free_.pop_back();
      return leaf;
    }
    ensure(payloads_.size() < max_leaves, "an event queue holds at most 2^24 events");
    if (payloads_.size() == 4 * leaf_groups_) grow();
    payloads_.emplace_back();
    return payloads_.size() - 1;
  }

  // Twice the leaves; the levels above are played anew.
  void grow() {
    leaf_groups_ *= 2;
    std::size_t count = 1;
    for (std::size_t width = leaf_groups_; width > 1; width = groups_above(width)) count += width;
    groups_.resize(leaf_groups_ / 2);
    groups_.resize(count);
    Group* level = groups_.data();
    for (std::size_t width = leaf_groups_; width > 1; width = groups_above(width)) {
      for (std::size_t g = 0; g < width; ++g) {
        level[width + g / 4].keys[g % 4] = sooner(level[g].keys[0], soonest_but(level[g], 0));
      }
      level += width;
    }
  }

  std::vector<Group> groups_ = std::vector<Group>(1);
  std::size_t leaf_groups_ = 1;
  std::vector<Payload> payloads_;  // by leaf
  std::vector<std::size_t> free_;
  Key soonest_ = never;
  std::size_t vacated_ = none;  // the leaf whose event was popped last, if no one has taken it over yet
  std::size_t size_ = 0;
  std::uint64_t pushed_ = 0;
};

}  // namespace tidemark::sim
