#include "kernels/execute/host_memory.hpp"

#include <stdexcept>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <sys/mman.h>

#include "sim/base/ensure.hpp"

namespace tidemark::execute {
namespace {

constexpr std::int64_t block_unit = 512;  // of the caching allocator
constexpr std::int64_t widening = PageScale::page.count() / block_unit;

}  // namespace

HostSegments::~HostSegments() {
  for (const auto& [address, memory] : mapped_) munmap(memory.data(), memory.size());
}

// Empty where the system has no address space left.
std::span<std::byte> HostSegments::pages_for(Bytes size) {
  const auto length = static_cast<std::size_t>(size.count() * widening);
  // Only pages that are touched count; address space is not scarce.
  void* memory = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return {};
  madvise(memory, length, MADV_NOHUGEPAGE);  // refused where the kernel has none: as well
  return {static_cast<std::byte*>(memory), length};
}

std::optional<Address> HostSegments::allocate(Bytes size, StreamId stream) {
  const std::span<std::byte> pages = pages_for(size);
  if (pages.empty()) return std::nullopt;
  const std::optional<Address> address = addresses_.allocate(size, stream);
  if (address) mapped_.emplace(*address, pages);
  return address;
}

void HostSegments::release(Address address, Bytes size) {
  drop(address);
  addresses_.release(address, size);
}

std::optional<Address> HostSegments::reserve(Bytes size, Bytes page, StreamId stream) {
  const std::span<std::byte> pages = pages_for(size);
  if (pages.empty()) return std::nullopt;
  const std::optional<Address> address = addresses_.reserve(size, page, stream);
  if (address) mapped_.emplace(*address, pages);
  return address;
}

void HostSegments::unreserve(Address address, Bytes size) {
  drop(address);
  addresses_.unreserve(address, size);
}

void HostSegments::unmap(Address address, Bytes size) {
  madvise(pages_at(address), static_cast<std::size_t>(size.count() * widening), MADV_DONTNEED);
  addresses_.unmap(address, size);
}

void HostSegments::drop(Address address) {
  const auto segment = mapped_.find(address);
  ensure(segment != mapped_.end(), "a segment is given back once");
  munmap(segment->second.data(), segment->second.size());
  mapped_.erase(segment);
}

std::byte* HostSegments::pages_at(Address address) const {
  const auto after = mapped_.upper_bound(address);
  ensure(after != mapped_.begin(), "a block lies in a segment");
  const auto& [start, memory] = *std::prev(after);
  return memory.data() + (address - start).count() * widening;
}

HostMemory::~HostMemory() {
  for (const Held& held : held_)
    if (held.space != MemorySpace::Device) munmap(held.pages, static_cast<std::size_t>(held.resident.count()));
}

void HostMemory::allocate(BufferId buffer, Bytes size, StreamId stream, MemorySpace space) {
  Held& held = held_[buffer.index()];
  held = space == MemorySpace::Device ? block_for(size, stream) : pages_for(size, space);
  held.live = true;
  for (std::int64_t at = 0; at < held.resident.count(); at += PageScale::page.count())
    *reinterpret_cast<volatile std::uint64_t*>(held.pages + at) = 0;
}

HostMemory::Held HostMemory::pages_for(Bytes size, MemorySpace space) const {
  const Bytes resident = scale_.held(size);
  void* const pages = mmap(nullptr, static_cast<std::size_t>(resident.count()), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED)
    throw std::runtime_error(
        fmt::format("out of memory: the operating system refuses {} MiB for a buffer of the host (ulimit -v, "
                    "vm.overcommit_memory and vm.max_map_count limit it)",
                    resident.count() >> 20));
  madvise(pages, static_cast<std::size_t>(resident.count()), MADV_NOHUGEPAGE);  // refused where there are none: as well
  return {{}, static_cast<std::byte*>(pages), resident, scale_.words(size), space, false};
}

HostMemory::Held HostMemory::block_for(Bytes size, StreamId stream) {
  const std::variant<BlockId, OutOfMemory> got = allocator_.malloc(size, stream);
  if (const auto* none = std::get_if<OutOfMemory>(&got))
    throw std::runtime_error(
        fmt::format("out of memory: the operating system refuses {} MiB of address space for a segment of {} MiB, "
                    "beside {} MiB of segments (ulimit -v, vm.overcommit_memory and vm.max_map_count limit it)",
                    none->segment.count() * widening >> 20, none->segment.count() >> 20, none->reserved.count() >> 20));
  const BlockId block = std::get<BlockId>(got);
  return {block,
          allocator_.source().pages_at(allocator_.address(block)),
          scale_.held(allocator_.size(block)),
          scale_.words(size),
          MemorySpace::Device,
          false};
}

void HostMemory::release(BufferId buffer) {
  Held& held = held_[buffer.index()];
  ensure(std::exchange(held.live, false), "a buffer is released once");
  madvise(held.pages, static_cast<std::size_t>(held.resident.count()), MADV_DONTNEED);
  // The pages stay known: a use after the release must find what is there.
  if (held.block) allocator_.free(*held.block);
}

std::span<std::uint64_t> HostMemory::words(BufferId buffer) const {
  const Held& held = held_[buffer.index()];
  return {reinterpret_cast<std::uint64_t*>(held.pages), static_cast<std::size_t>(held.words)};
}

}  // namespace tidemark::execute
