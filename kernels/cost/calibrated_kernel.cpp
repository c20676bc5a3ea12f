#include "kernels/cost/calibrated_kernel.hpp"

#include <algorithm>

#include "kernels/cost/attention_time.hpp"
#include "kernels/cost/product_time.hpp"
#include "kernels/cost/rates.hpp"
#include "kernels/cost/roofline.hpp"

namespace tidemark::kernels {
namespace {

double number(Duration time) { return static_cast<double>(time.count()); }

View view_of_heads(DType dtype, std::int64_t batch, std::int64_t sequence, std::int64_t heads, std::int64_t width) {
  const Shape sizes{batch, sequence, heads, width};
  return {dtype, sizes, contiguous_strides(sizes)};
}

bool is_attention(Operation operation) {
  return operation == Operation::Attention || operation == Operation::AttentionBackward;
}

// Where a kernel of attention has its queries: behind the gradient of what it gave.
std::size_t first_of_attention(Operation operation) { return operation == Operation::AttentionBackward ? 1 : 0; }

// In any unit: what counts is how it goes with sizes.
double operations_of(Operation operation, std::span<const std::int64_t> sizes) {
  double product = 1;
  for (const std::int64_t size : sizes.first(std::min<std::size_t>(sizes.size(), is_attention(operation) ? 5 : 4)))
    product *= static_cast<double>(size);
  return product;
}

}  // namespace

double modelled_by_sizes(Operation operation, DType dtype, std::span<const std::int64_t> sizes, const Device& device) {
  const bool a_core = device.multiprocessors == 1;
  if (operation == Operation::Matmul) {
    if (a_core) return operations_of(operation, sizes);
    return number(product_time({sizes[0] * sizes[1], sizes[2], sizes[3], dtype, dtype, false}, device));
  }
  if (is_attention(operation)) {
    if (a_core) return operations_of(operation, sizes);
    const View q = view_of_heads(dtype, sizes[0], sizes[2], sizes[1], sizes[4]),
               k = view_of_heads(dtype, sizes[0], sizes[3], sizes[1], sizes[4]);
    return number(attention_time(q, k, k, sizes[5] != 0,
                                 operation == Operation::Attention ? AttentionPass::Forward : AttentionPass::Backward,
                                 device));
  }
  return number(device.kernel_latency + time_of(Bytes{sizes[0]}, device));
}

std::vector<std::int64_t> calibrated_sizes(const Program& program, const Kernel& kernel) {
  const auto view = [&](std::size_t input) -> const View& { return program[kernel.inputs[input]]; };
  if (kernel.operation == Operation::Matmul) {
    const Shape &a = view(0).sizes, &b = view(1).sizes;
    const std::int64_t k = a.back(), batches = b.size() > 2 ? elements_of(Shape(b.begin(), b.end() - 2)) : 1;
    const std::int64_t rows = k > 0 ? elements_of(a) / k : 0;
    return {batches, batches > 0 ? rows / batches : 0, b.back(), k};
  }
  if (is_attention(kernel.operation)) {
    const std::size_t first = first_of_attention(kernel.operation);
    const Shape &q = view(first).sizes, &k = view(first + 1).sizes;
    return {q[0], q[2], q[1], k[1], q[3], kernel.attributes[1] != 0 ? 1 : 0};
  }
  return {traffic_of(program, kernel).count()};
}

DType calibrated_type(const Program& program, const Kernel& kernel) {
  if (kernel.operation == Operation::Matmul) return product_of(program, kernel).operands;
  if (is_attention(kernel.operation)) return program[kernel.inputs[first_of_attention(kernel.operation)]].dtype;
  for (const auto* const views : {&kernel.outputs, &kernel.inputs})
    for (const ViewId its : *views)
      if (its.valid()) return program[its].dtype;
  return DType::FP32;
}

CalibratedKernels::CalibratedKernels(const Calibration& calibration, const Device& device) : device_(device) {
  for (const Calibration::Kernel& k : calibration.kernels)
    points_[{k.operation, k.dtype}].push_back(
        {k.sizes, k.time, modelled_by_sizes(k.operation, k.dtype, k.sizes, device)});
}

std::optional<TimeByPoints> CalibratedKernels::time(const Program& program, const Kernel& kernel) const {
  if (is_attention(kernel.operation) && kernel.attributes[2] > 0) return std::nullopt;  // what dropout draws: not told
  const DType dtype = calibrated_type(program, kernel);
  const auto found = points_.find({kernel.operation, dtype});
  if (found == points_.end()) return std::nullopt;
  const std::vector<std::int64_t> sizes = calibrated_sizes(program, kernel);
  const bool a_core = device_.multiprocessors == 1;
  // What the sizes do not say (a product that accumulates, of a wider type; values of another width), the model does.
  const bool has_model = !a_core && (kernel.operation == Operation::Matmul || is_attention(kernel.operation));
  const double modelled = has_model ? number(kernel_time(program, kernel, device_))
                                    : modelled_by_sizes(kernel.operation, dtype, sizes, device_);
  return time_by_points(found->second, sizes, modelled);
}

}  // namespace tidemark::kernels
