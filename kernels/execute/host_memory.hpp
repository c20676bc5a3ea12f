#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "kernels/execute/page_scale.hpp"
#include "sim/memory/caching_allocator.hpp"
#include "sim/program/program.hpp"

namespace tidemark::execute {

/// Segments of host memory under the invented addresses that a simulation uses, so that equal requests make equal
/// blocks. Every 512 B of a segment stand for a page of their own: blocks never share one.
class HostSegments {
 public:
  HostSegments() = default;
  HostSegments(HostSegments&&) = default;
  HostSegments& operator=(HostSegments&&) = default;
  ~HostSegments();

  [[nodiscard]] std::optional<Address> allocate(Bytes size, StreamId stream);
  void release(Address address, Bytes size);
  [[nodiscard]] Bytes available() const { return addresses_.available(); }

  /// Expandable segments: address space now, and pages as they are touched. What is unmapped is given back at once.
  [[nodiscard]] std::optional<Address> reserve(Bytes size, Bytes page, StreamId stream);
  void unreserve(Address address, Bytes size);
  [[nodiscard]] bool map(Address address, Bytes size) { return addresses_.map(address, size); }
  void unmap(Address address, Bytes size);

  /// Where the block at that address has its pages.
  [[nodiscard]] std::byte* pages_at(Address address) const;

 private:
  [[nodiscard]] static std::span<std::byte> pages_for(Bytes size);
  void drop(Address address);

  InventedAddresses addresses_;
  std::map<Address, std::span<std::byte>> mapped_;  // segments, by address
};
static_assert(ExpandableSegmentSource<HostSegments>);

/// A rank's device memory, played by host memory: the caching allocator's blocks, of which the pages that the scale
/// leaves are resident while they are allocated, and only then. Its buffers in host memory have pages of their own.
class HostMemory {
 public:
  HostMemory(std::int32_t buffers, PageScale scale) : scale_(scale), held_(static_cast<std::size_t>(buffers)) {}
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  /// Its pages are there and zero. Throws std::runtime_error where there are none to be had.
  void allocate(BufferId buffer, Bytes size, StreamId stream, MemorySpace space = MemorySpace::Device);
  /// Its pages are given back: whoever reads on finds zeros.
  void release(BufferId buffer);

  /// The words that stand for what was asked for.
  [[nodiscard]] std::span<std::uint64_t> words(BufferId buffer) const;
  [[nodiscard]] Bytes allocated() const { return allocator_.allocated(); }
  [[nodiscard]] Bytes reserved() const { return allocator_.reserved(); }

 private:
  struct Held {
    std::optional<BlockId> block;  // on the device
    std::byte* pages = nullptr;
    Bytes resident;
    std::int64_t words = 0;
    MemorySpace space = MemorySpace::Device;
    bool live = false;
  };

  Held block_for(Bytes size, StreamId stream);
  [[nodiscard]] Held pages_for(Bytes size, MemorySpace space) const;

  PageScale scale_;
  CachingAllocator<HostSegments> allocator_;
  std::vector<Held> held_;  // by buffer
};

}  // namespace tidemark::execute
