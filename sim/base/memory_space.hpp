#pragma once

#include <cstdint>
#include <string_view>

namespace tidemark::sim {

/// Where memory lies.
enum class MemorySpace : std::uint8_t {
  Device,
  Pinned,      ///< of the host, locked in memory: devices reach it by themselves
  Pageable,    ///< of the host
  Registers,   ///< of the device's processors, between the steps of one fused kernel: of no allocator
  Nvme,        ///< files on the drives of a node
  Registered,  ///< of the device, where other devices of its node reach it: of no allocator
  Managed,     ///< the driver moves it between device and host, page by page, as they are asked for: of no allocator
};

/// Whether the host thread reaches it.
constexpr bool is_of_host(MemorySpace space) { return space == MemorySpace::Pinned || space == MemorySpace::Pageable; }

/// Whether kernels reach it, and no allocator of the device's has it.
constexpr bool is_reached_by_kernels(MemorySpace space) {
  return space == MemorySpace::Pinned || space == MemorySpace::Registers || space == MemorySpace::Registered ||
         space == MemorySpace::Managed;
}

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
    case MemorySpace::Nvme:
      return "nvme";
    case MemorySpace::Registered:
      return "registered";
    case MemorySpace::Managed:
      return "managed";
  }
  return "?";
}

}  // namespace tidemark::sim
