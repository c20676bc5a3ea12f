#pragma once

#include <compare>
#include <cstdint>

#include "sim/base/units.hpp"

namespace tidemark::sim {

/// A place in a device's address space. Places differ by Bytes; two places do not add.
struct Address {
  std::uint64_t value = 0;

  friend constexpr auto operator<=>(Address, Address) = default;
  friend constexpr Address operator+(Address a, Bytes n) {
    return {a.value + static_cast<std::uint64_t>(n.count())};  // modulo 2^64, so that a negative n steps back
  }
  friend constexpr Bytes operator-(Address a, Address b) { return Bytes{static_cast<std::int64_t>(a.value - b.value)}; }
};

}  // namespace tidemark::sim
