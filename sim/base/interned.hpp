#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tidemark::sim {

/// Tells at which place a table has a value, so that it has each value once. The values are in the table alone.
template <class Value, class Hash>
class Interned {
 public:
  /// Adds the value where the table does not have it. `table` is the same each time, and nothing else adds to it.
  template <class Like>
  std::int32_t place(std::vector<Value>& table, const Like& value) {
    if (2 * table.size() >= slots_.size()) grow();
    const std::uint64_t hash = Hash{}(value)*0x9e3779b97f4a7c15ULL;  // Knuth 6.4: high bits depend on all of them
    for (std::size_t at = first(hash);; at = (at + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[at];
      if (slot.place < 0) {
        slot = {hash, static_cast<std::int32_t>(table.size())};
        table.emplace_back(value);
        return slot.place;
      }
      if (slot.hash == hash && table[static_cast<std::size_t>(slot.place)] == value) return slot.place;
    }
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::int32_t place = -1;
  };

  [[nodiscard]] std::size_t first(std::uint64_t hash) const { return static_cast<std::size_t>(hash >> (64 - bits_)); }

  void grow() {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(std::size_t{1} << ++bits_));
    for (const Slot& slot : old) {
      if (slot.place < 0) continue;
      std::size_t at = first(slot.hash);
      while (slots_[at].place >= 0) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two, at most half of them taken
  int bits_ = 5;
};

}  // namespace tidemark::sim
