#pragma once

#include <cstdint>

#include "parallel/namespace.hpp"
#include "sim/base/units.hpp"

namespace tidemark::parallel {

/// The little that lowering may know of hardware.
struct Target {
  std::int32_t compute_capability = 90;  ///< major * 10 + minor
  std::int32_t devices_per_node = 8;
  Bytes capacity;
  std::int32_t multiprocessors = 132;
};

}  // namespace tidemark::parallel
