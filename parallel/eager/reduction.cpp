#include "parallel/eager/reduction.hpp"

#include <algorithm>
#include <bit>

namespace tidemark::parallel::eager {
namespace {

constexpr std::int64_t warp = 32, most_threads = 512;         // of a block; shared by a vector's elements
constexpr std::int64_t least_values = 16, most_values = 256;  // that a thread sums
constexpr std::int64_t bytes_of_sum = 4, bytes_of_counter = 4;

std::int64_t power_of_two_below(std::int64_t n, std::int64_t most) {
  return n < most ? static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n))) : most;
}

std::int64_t vector_of(std::int64_t columns) { return columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 1; }

std::int64_t parts(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

}  // namespace

ReductionScratch row_sum_scratch(std::int64_t rows, std::int64_t columns, std::int64_t device_threads) {
  const std::int64_t vector = vector_of(columns), most = most_threads / vector;
  const std::int64_t across = power_of_two_below(columns / vector, most), down = power_of_two_below(rows, most);
  const std::int64_t height = std::min(down, most / std::min(across, warp));
  const std::int64_t width = std::min(across, most / height);
  std::int64_t values = rows;
  const bool split = values >= height * least_values || values >= most_values;  // among the rows of a block
  if (!split) return {};
  values = parts(values, height);
  const std::int64_t grid = parts(columns / vector, width);
  const std::int64_t blocks = device_threads / (width * height);
  if (values < most_values || grid > blocks) return {};
  const std::int64_t sharing =
      std::max(std::min(parts(blocks, grid), parts(values, least_values)), parts(values, most_values));
  if (sharing <= 1) return {};
  return {Bytes{bytes_of_sum * columns * sharing * width * vector}, Bytes{bytes_of_counter * grid}};
}

}  // namespace tidemark::parallel::eager
