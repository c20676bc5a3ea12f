#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "sim/base/address.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/memory/segment_source.hpp"

namespace tidemark::sim {

/// Where segments lie. Which of two free blocks of one size is taken depends on it.
///
/// CUDA's driver goes down: a segment gets the lowest gap that has room for it, and where there is none whole units of
/// 32 MiB below all others, whose rest is a gap. Read off seven histories of an H100 with driver 580.159.04, of whose
/// pairs of segments of one size 97.9 to 99.9 % lie so (tests/golden/gpu_recordings_test.cpp). What the driver keeps
/// among them for itself is not known. Rising addresses are those of InventedAddresses.
class DriverAddresses {
 public:
  explicit DriverAddresses(AddressOrder order) : order_(order) {}

  std::optional<Address> allocate(Bytes size, StreamId) { return take(size); }
  void release(Address address, Bytes size) { give_back(address, round_up(size, granularity)); }
  std::optional<Address> reserve(Bytes size, Bytes, StreamId) { return take(size); }
  void unreserve(Address address, Bytes size) { give_back(address, round_up(size, granularity)); }
  [[nodiscard]] static Bytes available() { return AllocatorOptions::unlimited; }
  static bool map(Address, Bytes) { return true; }
  static void unmap(Address, Bytes) {}

 private:
  struct Gap {
    Address address;
    Bytes size;
  };
  static constexpr Bytes granularity{2 << 20}, unit{32 << 20};
  static constexpr Address first{0x7f00'0000'0000};

  Address take(Bytes requested) {
    const Bytes size = round_up(requested, granularity);
    // One more than a device could have goes up, where nothing ends.
    const bool falls = order_ == AddressOrder::Falling && round_up(size, unit) <= lowest_ - Address{};
    if (!falls) return std::exchange(highest_, highest_ + size);
    const auto gap = std::ranges::find_if(gaps_, [&](const Gap& g) { return g.size >= size; });
    if (gap != gaps_.end()) {
      const Address address = gap->address;
      if (gap->size == size)
        gaps_.erase(gap);
      else
        *gap = {address + size, gap->size - size};
      return address;
    }
    const Bytes units = round_up(size, unit);
    lowest_ = lowest_ + (Bytes{} - units);
    if (units > size) gaps_.insert(gaps_.begin(), {lowest_ + size, units - size});
    return lowest_;
  }

  void give_back(Address address, Bytes size) {
    if (order_ == AddressOrder::Rising || address >= first) return;
    auto next = std::ranges::lower_bound(gaps_, address, {}, &Gap::address);
    if (next != gaps_.begin()) {
      const auto before = std::prev(next);
      if (before->address + before->size == address) {
        before->size += size;
        if (next != gaps_.end() && before->address + before->size == next->address) {
          before->size += next->size;
          gaps_.erase(next);
        }
        return;
      }
    }
    if (next != gaps_.end() && address + size == next->address)
      *next = {address, size + next->size};
    else
      gaps_.insert(next, {address, size});
  }

  AddressOrder order_;
  Address lowest_ = first, highest_ = first;
  std::vector<Gap> gaps_;  // by address; no two touch
};

static_assert(ExpandableSegmentSource<DriverAddresses>);

}  // namespace tidemark::sim
