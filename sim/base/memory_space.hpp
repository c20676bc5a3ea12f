#pragma once

#include <cstdint>
#include <string_view>

namespace tidemark::sim {

/// Where memory lies.
enum class MemorySpace : std::uint8_t {
  Device,
  Pinned,     ///< of the host, locked in memory: devices reach it by themselves
  Pageable,   ///< of the host
  Registers,  ///< of the device's processors, between the steps of one fused kernel: of no allocator
};

constexpr std::string_view name(MemorySpace space) {
  switch (space) {
    case MemorySpace::Device:
      return "device";
    case MemorySpace::Pinned:
      return "pinned";
    case MemorySpace::Pageable:
      return "pageable";
    case MemorySpace::Registers:
      return "registers";
  }
  return "?";
}

}  // namespace tidemark::sim
