#pragma once

#include <cstdint>

#include "sim/base/units.hpp"
#include "topology/namespace.hpp"

namespace tidemark::topology {

/// Operations per second; a multiply-add is two.
using OperationRate = Quantity<struct OperationPerSecondUnit>;

/// Watts.
using Power = Quantity<struct WattUnit>;

/// Millionths: a fraction or a ratio of a cluster file, exact to six decimals.
using Ratio = Quantity<struct MillionthUnit>;

inline constexpr Ratio one{1'000'000};

constexpr double as_double(Ratio ratio) {
  return static_cast<double>(ratio.count()) / static_cast<double>(one.count());
}

/// `quantity` x `ratio`, rounded down.
template <class Unit>
constexpr Quantity<Unit> scaled(Quantity<Unit> quantity, Ratio ratio) {
  __extension__ using Wide = __int128;
  return Quantity<Unit>{static_cast<std::int64_t>(static_cast<Wide>(quantity.count()) * ratio.count() / one.count())};
}

/// `quantity` / `ratio`, rounded down; `ratio` > 0.
template <class Unit>
constexpr Quantity<Unit> divided(Quantity<Unit> quantity, Ratio ratio) {
  __extension__ using Wide = __int128;
  return Quantity<Unit>{static_cast<std::int64_t>(static_cast<Wide>(quantity.count()) * one.count() / ratio.count())};
}

}  // namespace tidemark::topology
