#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "sim/base/address.hpp"
#include "sim/base/ensure.hpp"
#include "sim/base/units.hpp"

namespace tidemark::sim {

/// Where a caching allocator gets whole segments from, as cudaMalloc and cudaFree give and take them.
template <class Source>
concept SegmentSource = requires(Source& source, const Source& idle, Address address, Bytes size, StreamId stream) {
  { source.allocate(size, stream) } -> std::same_as<std::optional<Address>>;  // nothing: the device is full
  { source.release(address, size) } -> std::same_as<void>;
  { idle.available() } -> std::same_as<Bytes>;  // what the device could still give; evidence when it gives nothing
};

/// A source of expandable segments too: address space without memory, and memory for parts of it, as
/// cuMemAddressReserve, cuMemCreate and cuMemMap give them.
template <class Source>
concept ExpandableSegmentSource = SegmentSource<Source> &&
    requires(Source& source, Address address, Bytes size, Bytes page, StreamId stream) {
  { source.reserve(size, page, stream) } -> std::same_as<std::optional<Address>>;  // mapped by whole pages
  { source.unreserve(address, size) } -> std::same_as<void>;
  { source.map(address, size) } -> std::same_as<bool>;  // all of it, or nothing: the device is full
  { source.unmap(address, size) } -> std::same_as<void>;
};

/// Segments at made-up, ever increasing addresses, until the device is full. Nothing depends on the addresses
/// except which of two free blocks of equal size is taken first.
class InventedAddresses {
 public:
  struct Options {
    Bytes capacity = Bytes{std::numeric_limits<std::int64_t>::max()};  ///< what the device has for segments
    Address first = {0x7f00'0000'0000};                                ///< a multiple of 2 MiB
  };

  InventedAddresses() : InventedAddresses(Options{}) {}
  explicit InventedAddresses(Options options) : available_(options.capacity), next_(options.first) {
    ensure(options.first.value % granularity == 0, "invented addresses start at a multiple of 2 MiB");
  }

  std::optional<Address> allocate(Bytes size, StreamId) {
    if (size > available_) return std::nullopt;
    available_ -= size;
    return std::exchange(next_, next_ + round_up(size, Bytes{granularity}));
  }
  void release(Address, Bytes size) { available_ += size; }
  [[nodiscard]] Bytes available() const { return available_; }

  std::optional<Address> reserve(Bytes size, Bytes, StreamId) {
    return std::exchange(next_, next_ + round_up(size, Bytes{granularity}));
  }
  void unreserve(Address, Bytes) {}
  bool map(Address, Bytes size) {
    if (size > available_) return false;
    available_ -= size;
    return true;
  }
  void unmap(Address, Bytes size) { available_ += size; }

 private:
  static constexpr std::int64_t granularity = 2 << 20;  // of physical memory on every CUDA device so far

  Bytes available_;
  Address next_;
};

static_assert(ExpandableSegmentSource<InventedAddresses>);

/// Something that happened to a whole segment, or to pages of an expandable one.
struct SegmentEvent {
  enum class Kind : std::uint8_t { Alloc, Free, Map, Unmap };

  Kind kind = Kind::Alloc;
  Address address;
  Bytes size;

  friend constexpr bool operator==(const SegmentEvent&, const SegmentEvent&) = default;
};

/// Any source, with a log of what it gave and took back, in order.
template <SegmentSource Source>
class LoggedSegments {
 public:
  LoggedSegments() = default;
  explicit LoggedSegments(Source source) : source_(std::move(source)) {}

  std::optional<Address> allocate(Bytes size, StreamId stream) {
    const std::optional<Address> address = source_.allocate(size, stream);
    if (address) events_.push_back({SegmentEvent::Kind::Alloc, *address, size});
    return address;
  }
  void release(Address address, Bytes size) {
    source_.release(address, size);
    events_.push_back({SegmentEvent::Kind::Free, address, size});
  }
  [[nodiscard]] Bytes available() const { return source_.available(); }

  std::optional<Address> reserve(Bytes size, Bytes page, StreamId stream) requires ExpandableSegmentSource<Source> {
    return source_.reserve(size, page, stream);
  }
  void unreserve(Address address, Bytes size) requires ExpandableSegmentSource<Source> {
    source_.unreserve(address, size);
  }
  bool map(Address address, Bytes size) requires ExpandableSegmentSource<Source> {
    const bool mapped = source_.map(address, size);
    if (mapped) events_.push_back({SegmentEvent::Kind::Map, address, size});
    return mapped;
  }
  void unmap(Address address, Bytes size) requires ExpandableSegmentSource<Source> {
    source_.unmap(address, size);
    events_.push_back({SegmentEvent::Kind::Unmap, address, size});
  }

  [[nodiscard]] Source& source() { return source_; }
  [[nodiscard]] const std::vector<SegmentEvent>& events() const { return events_; }
  /// What happened since the last call, or since the beginning.
  std::vector<SegmentEvent> take_events() { return std::exchange(events_, {}); }

 private:
  Source source_;
  std::vector<SegmentEvent> events_;
};

}  // namespace tidemark::sim
