#include "kernels/execute/detail/cuda_memory.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "kernels/execute/page_scale.hpp"

namespace tidemark::execute {

void check_cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw std::runtime_error(fmt::format("{} failed: {}", call, cudaGetErrorString(code)));
}

Bytes device_bytes_used() {
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return Bytes{static_cast<std::int64_t>(total - free)};
}

CudaSegments::~CudaSegments() {
  for (const auto& [address, memory] : segments_) cudaFree(memory);
}

std::optional<Address> CudaSegments::allocate(Bytes size, StreamId stream) {
  void* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, static_cast<std::size_t>(size.count()));
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is handled: later calls must not report it again
    return std::nullopt;
  }
  check_cuda(code, "cudaMalloc");
  const std::optional<Address> address = addresses_.allocate(size, stream);
  if (address) segments_.emplace(*address, memory);
  highest_ = std::max(highest_, device_bytes_used());
  return address;
}

void CudaSegments::release(Address address, Bytes size) {
  const auto segment = segments_.find(address);
  ensure(segment != segments_.end(), "a segment is given back once");
  check_cuda(cudaFree(segment->second), "cudaFree");
  segments_.erase(segment);
  addresses_.release(address, size);
}

Bytes CudaSegments::available() const {
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return Bytes{static_cast<std::int64_t>(free)};
}

std::uint64_t* CudaSegments::at(Address address) const {
  const auto after = segments_.upper_bound(address);
  ensure(after != segments_.begin(), "a block lies in a segment");
  const auto& [start, memory] = *std::prev(after);
  return reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(memory) + (address - start).count());
}

Bytes CudaSegments::take_highest() { return std::exchange(highest_, Bytes{}); }

CudaMemory::~CudaMemory() {
  for (const Held& held : held_) free_on_host(held);
}

// Of what is on the device: nothing.
void CudaMemory::free_on_host(const Held& held) {
  if (is_reached_by_kernels(held.space))
    cudaFreeHost(held.words);
  else if (held.space != MemorySpace::Device)
    delete[] held.words;
}

void CudaMemory::allocate(BufferId buffer, Bytes size, StreamId stream, MemorySpace space) {
  const std::int64_t count = device_scale.words(size);
  if (space == MemorySpace::Pageable || space == MemorySpace::Nvme) {  // which stands for files
    held_[buffer.index()] = {{}, new std::uint64_t[static_cast<std::size_t>(count)]{}, count, stream, space};
    return;
  }
  if (is_reached_by_kernels(space)) {
    // No allocator's, and kernels reach them.
    void* words = nullptr;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(std::uint64_t);
    check_cuda(cudaHostAlloc(&words, bytes, cudaHostAllocDefault), "cudaHostAlloc");
    std::memset(words, 0, bytes);
    held_[buffer.index()] = {{}, static_cast<std::uint64_t*>(words), count, stream, space};
    return;
  }
  const std::variant<BlockId, OutOfMemory> got = allocator_.malloc(size, stream);
  if (const auto* out = std::get_if<OutOfMemory>(&got))
    throw std::runtime_error(fmt::format("out of device memory: {} MiB asked for, {} MiB free, {} MiB held",
                                         out->segment.count() >> 20, out->available.count() >> 20,
                                         out->reserved.count() >> 20));
  const BlockId block = std::get<BlockId>(got);
  held_[buffer.index()] = {block, allocator_.source().at(allocator_.address(block)), count, stream, space};
}

void CudaMemory::free(BufferId buffer) {
  Held& held = held_[buffer.index()];
  ensure(held.words != nullptr, "a buffer is released once");
  if (held.block) allocator_.free(*held.block);
  free_on_host(held);
  held = {};
}

}  // namespace tidemark::execute
