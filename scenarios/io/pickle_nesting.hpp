#pragma once

#include <cstddef>
#include <cstdint>

#include "scenarios/io/pickle.hpp"

namespace tidemark::scenarios {

enum class Nesting : std::uint8_t { Bounded, TooDeep, Cyclic };

/// Whether whoever walks the values of a pickle may recurse. A list can be put into itself, or a thousand lists into
/// each other, by way of the memo. Visits every container once, however often it is shared.
Nesting nesting(const Pickle& pickle, std::size_t limit);

}  // namespace tidemark::scenarios
