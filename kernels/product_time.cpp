#include "kernels/product_time.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "kernels/rates.hpp"

namespace tidemark::kernels {
namespace {

constexpr std::int64_t pieces(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

// Output tiles of the libraries' large kernels for 16-bit types, rows by columns.
struct Tile {
  std::int64_t rows, columns;
};
constexpr std::array<Tile, 3> tiles{{{256, 128}, {128, 256}, {128, 128}}};
// Elements of k that a kernel's main loop takes at once: less than that is not dealt out.
constexpr std::int64_t slice = 64;

/// What multiprocessors do that all work as long as the one that does most.
Duration arithmetic_time(const Product& p, const Tile& tile, OperationRate rate, const Device& device) {
  const std::int64_t side_by_side = device.multiprocessors - p.spared;
  const std::int64_t count = pieces(p.m, tile.rows) * pieces(p.n, tile.columns);
  const Wide of_tile = Wide{2} * tile.rows * tile.columns * p.k;
  const Duration in_waves = time_of(of_tile * pieces(count, side_by_side) * side_by_side, rate);
  if (count % side_by_side == 0) return in_waves;
  const Wide least = Wide{2} * tile.rows * tile.columns * std::min(slice, p.k) * side_by_side;
  const Bytes partial_sums{2 * side_by_side * tile.rows * tile.columns * size_of(DType::FP32).count()};
  return std::min(in_waves, time_of(std::max(of_tile * count, least), rate) + time_of(partial_sums, device));
}

}  // namespace

Product product_of(const Program& program, const Kernel& kernel) {
  const View &a = program[kernel.inputs[0]], &b = program[kernel.inputs[1]], &c = program[kernel.outputs[0]];
  const std::int64_t k = a.sizes.back();
  return {k > 0 ? elements_of(a.sizes) / k : 0,
          b.sizes.back(),
          k,
          size_of(a.dtype) <= size_of(b.dtype) ? a.dtype : b.dtype,
          c.dtype,
          kernel.inputs[3].valid(),
          static_cast<std::int32_t>(kernel.attributes[1])};
}

Duration product_time(const Product& p, const Device& device) {
  OperationRate rate = scaled(peak_rate(device, p.operands), device.efficiency.gemm);
  if (p.spared > 0) rate = OperationRate{rate.count() / device.multiprocessors * (device.multiprocessors - p.spared)};
  Duration arithmetic{std::numeric_limits<std::int64_t>::max()};
  for (const Tile& tile : tiles) arithmetic = std::min(arithmetic, arithmetic_time(p, tile, rate, device));
  const Bytes result = (p.m * p.n * (p.accumulates ? 2 : 1)) * size_of(p.result);
  const Bytes traffic = (p.m * p.k + p.k * p.n) * size_of(p.operands) + result;
  const Duration written = time_of(scaled(result, device.efficiency.epilogue), device);
  return start_of_large(device) + std::max(arithmetic + written, time_of(traffic, device));
}

// Blocks of NCCL's kernels share their multiprocessor with none of compute (NVIDIA/nccl, issue 689). On an H100,
// cuBLAS's products have a block for each multiprocessor and take twice as long beside them, as the blocks that find no
// room run after the others (pytorch/pytorch, issue 143988 and pull request 147966); one that reached 80 % of the peak
// reaches 47 % beside an all-gather of 24 blocks (NVIDIA's forum, 337991). Static tiles on Blackwell: the same
// (CUTLASS, "Blackwell cluster launch control"); what cuBLAS does there is not published.
Duration second_wave(Duration product, const Device& device) {
  return device.compute_capability >= 90 && device.compute_capability < 120 ? product : Duration{};
}

}  // namespace tidemark::kernels
