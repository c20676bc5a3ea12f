#include "kernels/cost/product_time.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "kernels/cost/rates.hpp"

namespace tidemark::kernels {
namespace {

constexpr std::int64_t pieces(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

// Output tiles of the libraries' kernels for 16-bit types, rows by columns.
struct Tile {
  std::int64_t rows, columns;
};
constexpr std::array<Tile, 8> tiles{
    {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256}, {128, 64}, {64, 128}, {64, 64}}};
// Elements of k that a kernel's main loop takes at once: less than that is not dealt out.
constexpr std::int64_t slice = 64;

Duration exchanged(Wide partial_sums, const Device& device) {
  return time_of(Bytes{static_cast<std::int64_t>(2 * partial_sums * size_of(DType::FP32).count())}, device);
}

/// From Hopper on: whole waves, or all tiles dealt out evenly along k (stream-k).
Duration dealt_out(const Product& p, const Tile& tile, OperationRate rate, const Device& device) {
  const std::int64_t side_by_side = device.multiprocessors - p.spared;
  const std::int64_t count = p.alike * pieces(p.m, tile.rows) * pieces(p.n, tile.columns);
  const Wide of_tile = Wide{2} * tile.rows * tile.columns * p.k;
  const Duration in_waves = time_of(of_tile * pieces(count, side_by_side) * side_by_side, rate);
  if (count % side_by_side == 0) return in_waves;
  const Wide least = Wide{2} * tile.rows * tile.columns * std::min(slice, p.k) * side_by_side;
  const Duration sums = exchanged(Wide{side_by_side} * tile.rows * tile.columns, device);
  return std::min(in_waves, time_of(std::max(of_tile * count, least), rate) + sums);
}

/// Before Hopper: whole waves of one of many kernels (Osama et al., "Stream-K", arXiv 2301.03598, of cuBLAS on an
/// A100), some of which cut k into a few parts and exchange the sums of all. Smaller tiles reach less, as they load
/// more for each operation: what a load of an element costs beside a multiplication was chosen, with the shares of the
/// peak, on the products of an A100 SXM that scripts/fit_kernels fits on, among 0, 3, 5, 7, 10, 15, 20 and 30.
Duration in_waves(const Product& p, const Tile& tile, OperationRate rate, const Device& device) {
  constexpr std::int64_t a_load = 5;
  constexpr std::array<std::int64_t, 6> cuts{1, 2, 3, 4, 6, 8};
  // rows * columns + a_load * (rows + columns), of which the largest tile's is as many operations as it does
  constexpr auto work = [](const Tile& t) { return t.rows * t.columns + a_load * (t.rows + t.columns); };
  constexpr Tile largest = tiles.front();
  const std::int64_t side_by_side = device.multiprocessors - p.spared;
  const std::int64_t count = p.alike * pieces(p.m, tile.rows) * pieces(p.n, tile.columns);
  Duration shortest{std::numeric_limits<std::int64_t>::max()};
  for (const std::int64_t cut : cuts) {
    const Wide depth = pieces(pieces(p.k, cut), slice) * slice;
    const Wide waves = pieces(count * cut, side_by_side);
    const Wide operations =
        Wide{2} * work(tile) * depth * waves * side_by_side * (largest.rows * largest.columns) / work(largest);
    const Wide sums = cut > 1 ? Wide{cut} * p.alike * p.m * p.n : Wide{0};
    shortest = std::min(shortest, time_of(operations, rate) + exchanged(sums, device));
  }
  return shortest;
}

/// What multiprocessors do that all work as long as the one that does most.
Duration arithmetic_time(const Product& p, OperationRate rate, const Device& device) {
  const bool hopper = device.compute_capability >= 90;
  Duration shortest{std::numeric_limits<std::int64_t>::max()};
  for (const Tile& tile : std::span(tiles).first(hopper ? 3 : tiles.size()))
    shortest = std::min(shortest, hopper ? dealt_out(p, tile, rate, device) : in_waves(p, tile, rate, device));
  return shortest / p.alike;
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
          static_cast<std::int32_t>(kernel.attributes[1]),
          std::max(static_cast<std::int32_t>(kernel.attributes[2]), 1),
          kernel.follows()};
}

Duration product_time(const Product& p, const Device& device) {
  OperationRate rate = scaled(peak_rate(device, p.operands), device.efficiency.gemm);
  if (p.spared > 0) rate = OperationRate{rate.count() / device.multiprocessors * (device.multiprocessors - p.spared)};
  const Duration arithmetic = arithmetic_time(p, rate, device);
  const Bytes result = (p.m * p.n * (p.accumulates ? 2 : 1)) * size_of(p.result);
  const Bytes traffic = (p.m * p.k + p.k * p.n) * size_of(p.operands) + result;
  const Duration written = time_of(scaled(result, device.efficiency.epilogue), device);
  const Duration start = p.follows ? Duration{} : start_of_large(device);
  return start + std::max(arithmetic + written, time_of(traffic, device));
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
