#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/execute/detail/check_cuda.hpp"
#include "sim/memory/caching_allocator.hpp"
#include "sim/program/program.hpp"

namespace tidemark::execute {

/// What cudaMemGetInfo says of the current device, all processes together.
[[nodiscard]] Bytes device_bytes_used();

/// Segments from cudaMalloc under the invented addresses that a simulation uses, so that equal requests make equal
/// blocks.
class CudaSegments {
 public:
  CudaSegments() = default;
  CudaSegments(CudaSegments&&) = default;
  CudaSegments& operator=(CudaSegments&&) = default;
  ~CudaSegments();

  [[nodiscard]] std::optional<Address> allocate(Bytes size, StreamId stream);
  void release(Address address, Bytes size);
  [[nodiscard]] Bytes available() const;

  [[nodiscard]] std::uint64_t* at(Address address) const;
  /// The most that the device held since the last call, looked at after each cudaMalloc.
  [[nodiscard]] Bytes take_highest();

 private:
  InventedAddresses addresses_;
  std::map<Address, void*> segments_;
  Bytes highest_;
};

/// A rank's blocks on its device, and its buffers in host memory.
class CudaMemory {
 public:
  explicit CudaMemory(std::int32_t buffers) : held_(static_cast<std::size_t>(buffers)) {}
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory();

  struct Held {
    std::optional<BlockId> block;    // on the device
    std::uint64_t* words = nullptr;  // none: released
    std::int64_t count = 0;
    StreamId stream;
    MemorySpace space = MemorySpace::Device;
  };

  void allocate(BufferId buffer, Bytes size, StreamId stream, MemorySpace space);
  void free(BufferId buffer);
  [[nodiscard]] const Held& operator[](BufferId buffer) const { return held_[buffer.index()]; }
  [[nodiscard]] Bytes allocated() const { return allocator_.allocated(); }
  [[nodiscard]] Bytes reserved() const { return allocator_.reserved(); }
  [[nodiscard]] CudaSegments& segments() { return allocator_.source(); }

 private:
  static void free_on_host(const Held& held);

  CachingAllocator<CudaSegments> allocator_;
  std::vector<Held> held_;  // by buffer
};

}  // namespace tidemark::execute
