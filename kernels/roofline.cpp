#include "kernels/roofline.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace tidemark::kernels {
namespace {

__extension__ using Wide = __int128;

constexpr std::int64_t pieces(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

OperationRate peak_rate(const Device& device, DType dtype) {
  switch (dtype) {
    case DType::BF16:
      return device.peak.bf16;
    case DType::FP16:
      return device.peak.fp16;
    case DType::FP32:
    case DType::INT32:
    case DType::INT64:
    case DType::BOOL:
    case DType::INT16:
    case DType::E4M3:
    case DType::UINT8:
      return device.peak.fp32;
  }
  return device.peak.fp32;
}

/// `operations` at a rate, rounded up.
Duration time_of(Wide operations, OperationRate rate) {
  const Wide picoseconds = (operations * picoseconds_per_second + rate.count() - 1) / rate.count();
  return Duration{static_cast<std::int64_t>(picoseconds)};
}

Duration time_of(Bytes traffic, const Device& device) {
  return traffic / scaled(device.memory_bandwidth, device.efficiency.memory);
}

// Output tiles of the libraries' large kernels for 16-bit types, rows by columns.
struct Tile {
  std::int64_t rows, columns;
};
constexpr std::array<Tile, 3> tiles{{{256, 128}, {128, 256}, {128, 128}}};

// C[m,n] = A[m,k] B[k,n], batches of A and C as rows.
struct Gemm {
  std::int64_t m, n, k;
  DType dtype;
};

// Operands of unlike types are multiplied in the narrower one.
Gemm gemm_of(const View& a, const View& b) {
  const std::int64_t k = a.sizes.back();
  const DType dtype = size_of(a.dtype) <= size_of(b.dtype) ? a.dtype : b.dtype;
  return {k > 0 ? elements_of(a.sizes) / k : 0, b.sizes.back(), k, dtype};
}

Duration gemm_time(const Gemm& g, const Device& device) {
  const OperationRate rate = scaled(peak_rate(device, g.dtype), device.efficiency.gemm);
  Duration arithmetic{std::numeric_limits<std::int64_t>::max()};
  for (const Tile& tile : tiles) {
    const std::int64_t count = pieces(g.m, tile.rows) * pieces(g.n, tile.columns);
    const std::int64_t waves = pieces(count, device.multiprocessors);
    const Wide operations = Wide{2} * tile.rows * tile.columns * g.k * waves * device.multiprocessors;
    arithmetic = std::min(arithmetic, time_of(operations, rate));
  }
  const Bytes traffic = (g.m * g.k + g.k * g.n + g.m * g.n) * size_of(g.dtype);
  return std::max(arithmetic, time_of(traffic, device));
}

// Dense 16-bit operations per clock and multiprocessor, and exponentials: CUDA C++ programming guide, "arithmetic
// instructions" (16 results of special functions per clock from compute capability 7.x on), and the architectures'
// white papers.
constexpr std::int64_t exponentials_per_clock = 16;
std::int64_t tensor_operations_per_clock(const Device& device) {
  if (device.compute_capability >= 100 && device.compute_capability < 120) return 8192;
  if (device.compute_capability == 90) return 4096;
  return device.compute_capability == 80 ? 2048 : 1024;
}

// q, k, v: [batch, sequence, heads, width]. Products as wide as keys, and as values.
struct Products {
  std::int64_t keys, values;
};
Duration attention_time(const View& q, const View& k, const View& v, bool causal, Products products,
                        const Device& device) {
  // Of causal attention, half of a square of scores is masked, the one at the last keys. Each score is exponentiated
  // once.
  const Wide of_two_heads = static_cast<Wide>(q.sizes[1]) * (2 * k.sizes[1] - (causal ? q.sizes[1] : 0));
  const Wide scores = static_cast<Wide>(q.sizes[0]) * q.sizes[2] * of_two_heads / 2;
  const OperationRate peak = peak_rate(device, q.dtype);
  const Wide width = static_cast<Wide>(products.keys) * q.sizes[3] + static_cast<Wide>(products.values) * v.sizes[3];
  const Duration arithmetic = time_of(scores * 2 * width, scaled(peak, device.efficiency.gemm));
  // An exponential takes the time in which the tensor cores could have done this many operations; little of it hides
  // behind them, because scores wait for it.
  const Wide instead = tensor_operations_per_clock(device) / exponentials_per_clock;
  return arithmetic + time_of(scores * instead, peak);
}

}  // namespace

Duration kernel_time(const Program& program, const Kernel& kernel, const Device& device) {
  const auto view = [&](std::size_t input) -> const View& { return program[kernel.inputs[input]]; };
  const bool causal = kernel.attributes[1] != 0;
  switch (kernel.operation) {
    case Operation::Matmul:
      return gemm_time(gemm_of(view(0), view(1)), device);
    case Operation::Attention:  // scores, and their sums of values
      return attention_time(view(0), view(1), view(2), causal, {1, 1}, device);
    case Operation::AttentionBackward:  // scores again, and a product for each gradient and that of the scores
      return attention_time(view(1), view(2), view(3), causal, {3, 2}, device);
    default:  // the others are bound by memory
      return time_of(traffic_of(program, kernel), device);
  }
}

Duration host_time(const Program& program, const Kernel& kernel, const Cluster& cluster) {
  return traffic_of(program, kernel) / Bandwidth{cluster.host.memory_bandwidth.count() / cluster.node.devices};
}

std::vector<Duration> kernel_times(const Program& program, const Device& device) {
  std::vector<Duration> times;
  times.reserve(program.kernels.size());
  for (const Kernel& kernel : program.kernels) times.push_back(kernel_time(program, kernel, device));
  return times;
}

std::vector<Duration> kernel_times(const Program& program, const Cluster& cluster) {
  std::vector<Duration> times;
  times.reserve(program.kernels.size());
  for (const Kernel& kernel : program.kernels)
    times.push_back(kernel.processor == Processor::Host ? host_time(program, kernel, cluster)
                                                        : kernel_time(program, kernel, cluster.device));
  return times;
}

}  // namespace tidemark::kernels
