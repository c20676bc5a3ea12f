#pragma once

#include <string>

#include "sim/base/units.hpp"

namespace tidemark::sim {

/// A number of bytes that is known, or estimated within bounds (low <= bytes <= high); `source` says by what.
struct Estimate {
  Bytes bytes;
  Bytes low;
  Bytes high;
  std::string source;

  bool operator==(const Estimate&) const = default;
};

}  // namespace tidemark::sim
