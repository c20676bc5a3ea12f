#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/memory/caching_allocator.hpp"
#include "tests/namespace.hpp"

// Pictures of an allocator as tests write them.

namespace tidemark::tests {

inline std::string text(Bytes n) {
  using namespace literals;
  if (n % 1_MiB == 0_B) return std::to_string(n / 1_MiB) + "M";
  if (n % 1_KiB == 0_B) return std::to_string(n / 1_KiB) + "K";
  return std::to_string(n.count());
}

// "20M[19M* 1M] 2M[2M]": segments by address and their blocks, * for allocated, ? for a free that waits for streams.
inline std::string text(const std::vector<SegmentLayout>& segments) {
  std::string out;
  for (const SegmentLayout& segment : segments) {
    if (!out.empty()) out += ' ';
    out += text(segment.size) + '[';
    for (const BlockLayout& block : segment.blocks) {
      if (out.back() != '[') out += ' ';
      out += text(block.size);
      if (block.state == BlockState::Allocated) out += '*';
      if (block.state == BlockState::PendingFree) out += '?';
    }
    out += ']';
  }
  return out;
}

// "+20M -20M m40M u20M": cudaMalloc, cudaFree, pages mapped, pages unmapped.
inline std::string text(const std::vector<SegmentEvent>& events) {
  std::string out;
  for (const SegmentEvent& event : events) {
    if (!out.empty()) out += ' ';
    switch (event.kind) {
      case SegmentEvent::Kind::Alloc:
        out += '+';
        break;
      case SegmentEvent::Kind::Free:
        out += '-';
        break;
      case SegmentEvent::Kind::Map:
        out += 'm';
        break;
      case SegmentEvent::Kind::Unmap:
        out += 'u';
        break;
    }
    out += text(event.size);
  }
  return out;
}

using LoggedAllocator = CachingAllocator<LoggedSegments<InventedAddresses>>;

// With `capacity` for segments, and a log of them.
inline LoggedAllocator logged_allocator(Bytes capacity, const AllocatorOptions& options = {}) {
  const LoggedSegments<InventedAddresses> source{InventedAddresses{{.capacity = capacity, .first = {1 << 30}}}};
  return LoggedAllocator{source, options};
}

template <class Allocator>
std::optional<BlockId> try_take(Allocator& allocator, Bytes size, StreamId stream = StreamId{0}) {
  const auto result = allocator.malloc(size, stream);
  if (const BlockId* block = std::get_if<BlockId>(&result)) return *block;
  return std::nullopt;
}

template <class Allocator>
BlockId take(Allocator& allocator, Bytes size, StreamId stream = StreamId{0}) {
  return try_take(allocator, size, stream).value();
}

}  // namespace tidemark::tests
