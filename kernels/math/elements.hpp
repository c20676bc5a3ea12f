#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/math/compute.hpp"

namespace tidemark::math {

/// What an array holds, broadcast to sizes, row by row; zeros of one that is absent: nothing is added.
/// Value is float, double or std::int64_t.
template <class Value>
[[nodiscard]] std::vector<Value> read(const Array& array, Storage storage, const Shape& sizes);

/// Stores values, row by row, in the array's type; of an absent one nothing.
template <class Value>
void write(const Array& array, Storage storage, std::span<const Value> values);

/// Which element, row by row, is the first that is no number; -1 where all are.
[[nodiscard]] std::int64_t first_not_a_number(const Array& array, Storage storage);

}  // namespace tidemark::math
