#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <cuda.h>

#include "kernels/execute/detail/cuda_memory.hpp"
#include "sim/memory/segment_source.hpp"

namespace tidemark::execute {

/// Segments from cudaMalloc, and expandable ones from CUDA's virtual memory: address space that pages of the current
/// device are mapped into, one handle each, as ExpandableSegment of c10/cuda/CUDACachingAllocator.cpp does it. Under
/// the invented addresses that a simulation uses.
class CudaVirtualSegments {
 public:
  /// Throws std::runtime_error where the device or the driver has no virtual memory management.
  CudaVirtualSegments();
  CudaVirtualSegments(CudaVirtualSegments&&) = default;
  CudaVirtualSegments& operator=(CudaVirtualSegments&&) = default;
  ~CudaVirtualSegments();

  [[nodiscard]] std::optional<Address> allocate(Bytes size, StreamId stream) {
    return segments_.allocate(size, stream);
  }
  void release(Address address, Bytes size) { segments_.release(address, size); }
  [[nodiscard]] Bytes available() const { return segments_.available(); }

  [[nodiscard]] std::optional<Address> reserve(Bytes size, Bytes page, StreamId stream);
  void unreserve(Address address, Bytes size);
  [[nodiscard]] bool map(Address address, Bytes size);
  /// Waits for the device first: what runs may still use the pages.
  void unmap(Address address, Bytes size);

  /// Memory behind an address, of a segment or of mapped pages.
  [[nodiscard]] std::uint64_t* at(Address address) const;

 private:
  struct Space {
    CUdeviceptr memory = 0;
    Bytes size;
    Bytes page;
    std::vector<CUmemGenericAllocationHandle> pages;  // 0: not mapped
  };
  using Spaces = std::map<Address, Space>;

  [[nodiscard]] Spaces::iterator space_at(Address address);
  void unmap_pages(Space& space, std::size_t begin, std::size_t end);

  CudaSegments segments_;
  InventedAddresses addresses_{{.first = {0x7000'0000'0000}}};  // below those of segments
  Spaces spaces_;
  int device_ = 0;
};
static_assert(ExpandableSegmentSource<CudaVirtualSegments>);

}  // namespace tidemark::execute
