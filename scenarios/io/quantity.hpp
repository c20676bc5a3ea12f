#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sim/units.hpp"

namespace tidemark {

/// Bytes read from a text, or why they could not be.
struct ParsedBytes {
  std::optional<Bytes> bytes;
  std::string why;  ///< empty when `bytes` is set
};

/// "80 GiB", "81559 MiB", "79.25 GiB", "85520809984 B": a number that is not negative, and a unit. Binary units count
/// in 1024s, decimal ones (kB, MB, GB, TB) in 1000s. Exact: a text that is not a whole number of bytes is refused.
ParsedBytes parse_bytes(std::string_view text);

/// The shortest exact text that `parse_bytes` reads back: the largest binary unit that divides it, such as "80 GiB".
std::string text(Bytes bytes);

}  // namespace tidemark
