#include "parallel/torch/ops/reduction.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "parallel/torch/session.hpp"

namespace tidemark::parallel::torch {
namespace {

constexpr std::int64_t warp = 32, most_threads = 512;         // of a block; shared by a vector's elements
constexpr std::int64_t least_values = 16, most_values = 256;  // that a thread sums
constexpr std::int64_t widest_vector = 4, least_vectors = 128;
constexpr std::int64_t bytes_of_counter = 4;

std::int64_t power_of_two_below(std::int64_t n, std::int64_t most) {
  return n < most ? static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))))
                  : most;
}

std::int64_t parts_of(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

// A dimension of the input, its stride there and in the output; 0: it is summed.
struct Dimension {
  std::int64_t size = 1, stride = 0, kept = 0;
  [[nodiscard]] bool summed() const { return kept == 0; }
};

// As TensorIterator.cpp orders and joins them: summed ones first, the innermost first, neighbours in memory as one.
std::vector<Dimension> dimensions_of(const Tensor& x, const Shape& sizes) {
  const std::size_t missing = x.sizes.size() - sizes.size();
  const Shape kept_strides = contiguous_strides(sizes);
  std::vector<Dimension> order;
  for (std::size_t d = x.sizes.size(); d-- > 0;) {
    const bool kept = d >= missing && sizes[d - missing] == x.sizes[d];
    if (x.sizes[d] != 1) order.push_back({x.sizes[d], x.strides[d], kept ? kept_strides[d - missing] : 0});
  }
  std::stable_sort(order.begin(), order.end(), [](const Dimension& a, const Dimension& b) {
    return a.summed() != b.summed() ? a.summed() : a.stride < b.stride;
  });
  std::vector<Dimension> joined;
  for (const Dimension& d : order) {
    const bool joins = !joined.empty() && joined.back().stride * joined.back().size == d.stride &&
                       joined.back().kept * joined.back().size == d.kept;
    if (joins)
      joined.back().size *= d.size;
    else
      joined.push_back(d);
  }
  return joined;
}

// get_output_vec_size: outputs that a thread sums at once.
std::int64_t vector_of(const std::vector<Dimension>& dimensions, std::size_t first_kept) {
  std::int64_t vector = widest_vector;
  const auto fit = [&](std::int64_t n) {
    while (n % vector != 0) vector /= 2;
  };
  fit(dimensions[first_kept].size);
  for (std::size_t d = 0; d < dimensions.size(); ++d)
    if (d != first_kept) fit(dimensions[d].stride);
  return vector;
}

}  // namespace

ReductionScratch sum_scratch(const Tensor& x, const Shape& sizes, std::int64_t device_threads, Bytes of_sum) {
  const std::int64_t outputs = elements_of(sizes), inputs = x.elements() / outputs;
  const std::vector<Dimension> dimensions = dimensions_of(x, sizes);
  const auto first_kept = static_cast<std::size_t>(
      std::count_if(dimensions.begin(), dimensions.end(), [](const Dimension& d) { return d.summed(); }));
  if (first_kept == 0) return {};

  // Threads lie side by side along what is innermost in memory: values that are summed, or outputs.
  const bool along_sum = first_kept == dimensions.size() || dimensions.front().stride < dimensions[first_kept].stride;
  std::int64_t across = along_sum ? inputs : outputs, down = along_sum ? outputs : inputs, vector = 1;
  if (along_sum && dimensions.front().stride == 1 && across >= least_vectors && first_kept == 1)
    across /= widest_vector;
  if (!along_sum && dimensions[first_kept].stride == 1) {
    vector = vector_of(dimensions, first_kept);
    across /= vector;
  }
  const std::int64_t most = most_threads / vector;
  const std::int64_t wide = power_of_two_below(across, most), high = power_of_two_below(down, most);
  const std::int64_t height = std::min(high, most / std::min(wide, warp));
  const std::int64_t width = std::min(wide, most / height);

  std::int64_t values = along_sum ? parts_of(inputs, width) : inputs, columns = along_sum ? 1 : width;
  const bool split = values >= std::min(height * least_values, most_values);  // among the rows of a block
  if (!split) return {};
  values = parts_of(values, height);
  const std::int64_t grid = parts_of(outputs / vector, columns);
  const std::int64_t blocks = device_threads / (width * height);
  if (values < most_values || grid > blocks) return {};
  const std::int64_t sharing =
      std::clamp(parts_of(blocks, grid), parts_of(values, most_values), parts_of(values, least_values));
  if (sharing <= 1) return {};
  const std::int64_t sums = outputs * sharing * (along_sum ? 1 : width * vector);
  return {sums * of_sum, Bytes{bytes_of_counter * grid}};
}

std::vector<Tensor> reduction_scratch(Session& s, const Tensor& x, const Shape& sizes, Bytes of_sum) {
  std::vector<Tensor> made;
  if (!s.behavior().kernel_workspaces) return made;
  const ReductionScratch needed = sum_scratch(x, sizes, s.behavior().device_threads, of_sum);
  for (const Bytes size : {needed.partial_sums, needed.counters})
    if (size > Bytes{})
      made.push_back(s.empty({size / size_of(DType::FP32)}, DType::FP32, "sum_scratch", Category::Temporaries));
  return made;
}

}  // namespace tidemark::parallel::torch
