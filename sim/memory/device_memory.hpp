#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "sim/base/units.hpp"
#include "sim/memory/driver_addresses.hpp"
#include "sim/memory/segment_source.hpp"

namespace tidemark::sim {

/// Capacities of a device: at least `from`, and less than `below`.
struct CapacityRange {
  Bytes from, below = Bytes{std::numeric_limits<std::int64_t>::max()};
  [[nodiscard]] bool contains(Bytes capacity) const { return from <= capacity && capacity < below; }
  bool operator==(const CapacityRange&) const = default;
};

/// A device's memory as the allocator sees it: what drivers leave over, where they would have it.
class DeviceMemory {
 public:
  explicit DeviceMemory(Bytes capacity, AddressOrder order = AddressOrder::Rising)
      : capacity_(capacity), free_(capacity), addresses_(order) {}

  std::optional<Address> allocate(Bytes size, StreamId stream) {
    if (!take(size)) return std::nullopt;
    return addresses_.allocate(size, stream);
  }
  void release(Address address, Bytes size) {
    give_back(size);
    addresses_.release(address, size);
  }
  [[nodiscard]] Bytes available() const { return free_; }

  std::optional<Address> reserve(Bytes size, Bytes page, StreamId stream) {
    return addresses_.reserve(size, page, stream);
  }
  void unreserve(Address address, Bytes size) { addresses_.unreserve(address, size); }
  bool map(Address, Bytes size) { return take(size); }
  void unmap(Address, Bytes size) { give_back(size); }

  /// For good. False: there is not so much.
  [[nodiscard]] bool take_for_driver(Bytes size) { return take(size); }
  /// How often memory was taken or given back.
  [[nodiscard]] std::int64_t changes() const { return changes_; }
  /// Devices that would have given and refused the same so far.
  [[nodiscard]] CapacityRange alike() const { return alike_; }

 private:
  bool take(Bytes size) {
    const Bytes needed = capacity_ - free_ + size;
    if (size > free_) {
      alike_.below = std::min(alike_.below, needed);
      return false;
    }
    alike_.from = std::max(alike_.from, needed);
    free_ -= size;
    ++changes_;
    return true;
  }
  void give_back(Bytes size) {
    free_ += size;
    ++changes_;
  }

  Bytes capacity_, free_;
  CapacityRange alike_;
  std::int64_t changes_ = 0;
  DriverAddresses addresses_;
};

static_assert(ExpandableSegmentSource<DeviceMemory>);

}  // namespace tidemark::sim
