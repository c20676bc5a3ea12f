#include "kernels/cost/attention_time.hpp"

#include <algorithm>
#include <bit>

#include "kernels/cost/rates.hpp"

namespace tidemark::kernels {
namespace {

// Dense 16-bit operations per clock and multiprocessor, and exponentials: CUDA C++ programming guide, "arithmetic
// instructions" (16 results of special functions per clock from compute capability 7.x on), and the architectures'
// white papers.
constexpr std::int64_t exponentials_per_clock = 16;
std::int64_t tensor_operations_per_clock(const Device& device) {
  if (device.compute_capability >= 100 && device.compute_capability < 120) return 8192;
  if (device.compute_capability == 90) return 4096;
  return device.compute_capability == 80 ? 2048 : 1024;
}

/// What kernels in Ampere's instructions reach of what kernels in the device's own do. Hopper: FlashAttention-2 against
/// cuDNN, three of every five lengths in figures 5 and 6 of the FlashAttention-3 paper (arXiv 2407.08608): 0.62 in the
/// median of each figure. Blackwell: the same on a B200, 546.8 to 191.2 ms (sgl-project/sglang, pull request 33655).
Ratio of_own(TensorInstructions instructions, const Device& device) {
  if (instructions == TensorInstructions::OfDevice) return one;
  if (device.compute_capability == 90) return Ratio{620'000};
  return device.compute_capability >= 100 && device.compute_capability < 120 ? Ratio{350'000} : one;
}

/// Kernels are built for widths of powers of two: 192 is computed as 256.
std::int64_t built_for(std::int64_t width) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(width, 1))));
}

/// How blocks fill the device: what the longest one takes when it is alone on its multiprocessor, and how much of it
/// sticks out where blocks of unlike length (causal) end; per cent of its time at the full rate. Fitted with the
/// efficiencies, on A100 and B200 at once: a kernel of the forward pass has two blocks on a multiprocessor.
struct Blocks {
  std::int64_t rows;
  std::int64_t alone, tail;
};
Blocks blocks_of(AttentionPass pass, const Device& device) {
  // Rows of a block: FlashAttention-2 and cuDNN take 128 queries, two such tiles on Blackwell; 128 keys backward.
  if (pass == AttentionPass::Backward) return {128, 105, 25};
  return {device.compute_capability >= 100 ? 256 : 128, 140, 60};
}

// Keys (forward) or queries (backward) of a tile.
constexpr std::int64_t other_side = 128;

/// Operations for each score.
Wide operations_of_score(const View& q, const View& v, AttentionPass pass, const Device& device) {
  const Wide keys = 2 * built_for(q.sizes[3]), values = 2 * built_for(v.sizes[3]);
  // Scores again, and a product for each gradient and for that of the scores.
  if (pass == AttentionPass::Backward) return 3 * keys + 2 * values;
  // An exponential takes the time in which the tensor cores could have done this many operations; half of it hides
  // behind them.
  return keys + values + tensor_operations_per_clock(device) / exponentials_per_clock / 2;
}

/// What goes before and after the kernel of the backward pass, bound by memory: row sums of results and their
/// gradients, gradients of queries that are added up in fp32, from zeros to what they are told in.
Duration beside_backward(const View& q, const View& v, const Device& device) {
  const std::int64_t rows = q.sizes[0] * q.sizes[1] * q.sizes[2];
  const Bytes read = 2 * rows * v.sizes[3] * size_of(q.dtype);
  const Bytes added_up = 2 * rows * q.sizes[3] * size_of(DType::FP32) + rows * q.sizes[3] * size_of(q.dtype);
  return 2 * start_of_large(device) + time_of(read + added_up, device);
}

}  // namespace

Duration attention_time(const View& q, const View& k, const View& v, bool causal, AttentionPass pass,
                        const Device& device, TensorInstructions instructions) {
  const std::int64_t queries = q.sizes[1], keys = k.sizes[1];
  const Blocks blocks = blocks_of(pass, device);
  // Of causal attention, half of a square of scores is masked, the one at the last keys; tiles on its diagonal are
  // computed whole.
  const std::int64_t masked = causal ? std::max(queries - blocks.rows - other_side, std::int64_t{}) : 0;
  const Wide of_two_heads = static_cast<Wide>(queries) * (2 * keys - masked);
  const Wide scores = static_cast<Wide>(q.sizes[0]) * q.sizes[2] * of_two_heads / 2;
  const Ratio reached =
      pass == AttentionPass::Forward ? device.efficiency.attention : device.efficiency.attention_backward;
  const OperationRate rate = scaled(scaled(peak_rate(device, q.dtype), reached), of_own(instructions, device));
  const Wide of_score = operations_of_score(q, v, pass, device);
  const auto [rows, across] = pass == AttentionPass::Forward ? std::pair(queries, keys) : std::pair(keys, queries);
  // The whole device would do so many while one multiprocessor does the longest block.
  const Wide longest = of_score * std::min(blocks.rows, rows) * across * device.multiprocessors;
  const Wide done = std::max(longest * blocks.alone / 100, scores * of_score + longest * blocks.tail / 100);
  const Duration products = start_of_large(device) + time_of(done, rate);
  return pass == AttentionPass::Forward ? products : products + beside_backward(q, v, device);
}

}  // namespace tidemark::kernels
