#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "scenarios/recordings/pickle/pickle.hpp"

namespace tidemark::scenarios {

enum class Nesting : std::uint8_t { Bounded, TooDeep, Cyclic };

struct PickleContainer {
  std::uint32_t index = 0;  ///< all containers count together
  std::span<const PickleValue> items;
};
/// The container that a value is, if it is one.
std::optional<PickleContainer> container_of(const Pickle& pickle, const PickleValue& value);

/// Whether whoever walks the values of a pickle may recurse. A list can be put into itself, or a thousand lists into
/// each other, by way of the memo. Visits every container once, however often it is shared.
Nesting nesting(const Pickle& pickle, std::size_t limit);

}  // namespace tidemark::scenarios
