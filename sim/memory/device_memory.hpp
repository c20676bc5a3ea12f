#pragma once

#include <cstdint>
#include <optional>

#include "sim/base/units.hpp"
#include "sim/memory/driver_addresses.hpp"
#include "sim/memory/segment_source.hpp"

namespace tidemark::sim {

/// A device's memory as the allocator sees it: what drivers leave over, where they would have it.
class DeviceMemory {
 public:
  explicit DeviceMemory(Bytes capacity, AddressOrder order = AddressOrder::Rising)
      : free_(capacity), addresses_(order) {}

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

 private:
  bool take(Bytes size) {
    if (size > free_) return false;
    free_ -= size;
    ++changes_;
    return true;
  }
  void give_back(Bytes size) {
    free_ += size;
    ++changes_;
  }

  Bytes free_;
  std::int64_t changes_ = 0;
  DriverAddresses addresses_;
};

static_assert(ExpandableSegmentSource<DeviceMemory>);

}  // namespace tidemark::sim
