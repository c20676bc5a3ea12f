#pragma once

#include <cstdint>

#include "kernels/math/compute.hpp"
#include "kernels/math/values.hpp"

namespace tidemark::math {

template <class Value, class Engine>
[[nodiscard]] Values<Value> room_of(Engine& engine, std::int64_t count) {
  return {reinterpret_cast<Value*>(engine.room(static_cast<std::size_t>(count) * sizeof(Value))), count};
}

/// What an array holds, broadcast to sizes, row by row; zeros of one that is absent: nothing is added.
/// Value is float, double or std::int64_t.
template <class Value, class Engine>
[[nodiscard]] Values<Value> read(Engine& engine, const Array& array, Storage storage, const Shape& sizes);

/// Stores values, row by row, in the array's type; of an absent one nothing.
template <class Engine, class Value>
void write(Engine& engine, const Array& array, Storage storage, Values<Value> values);

}  // namespace tidemark::math
