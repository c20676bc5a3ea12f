#include "kernels/cost/scan_time.hpp"

#include <algorithm>
#include <vector>

#include "kernels/cost/rates.hpp"

namespace tidemark::kernels {
namespace {

// What sizes of the kernels' tensors are made of, over all tokens.
struct ScanSizes {
  std::int64_t tokens, heads, inner, shared, state, chunk;
  std::int64_t element;  ///< bytes

  ScanSizes(const View& x, const View& dt, const View& b, const Attributes& attributes)
      : tokens(x.sizes[0] * x.sizes[1]),
        heads(dt.sizes[2]),
        inner(x.sizes[2]),
        shared(b.sizes[2]),
        state(shared / static_cast<std::int64_t>(attributes[0])),
        chunk(static_cast<std::int64_t>(attributes[1])),
        element(size_of(x.dtype).count()) {}
  [[nodiscard]] std::int64_t of_tokens() const { return tokens * inner * element; }
  [[nodiscard]] std::int64_t of_groups(std::int64_t bytes) const { return tokens * shared * bytes; }
  [[nodiscard]] std::int64_t of_heads() const { return tokens * heads * wide; }
  [[nodiscard]] std::int64_t states(std::int64_t bytes) const {
    return (tokens + chunk - 1) / chunk * inner * state * bytes;
  }
  [[nodiscard]] std::int64_t scores() const { return tokens * (shared / state) * chunk * wide; }
  static constexpr std::int64_t wide = 4;  // bytes of fp32
};

// A kernel's operations for each token, and its bytes.
struct ScanWork {
  std::int64_t operations, bytes;
};
using ScanKernels = std::vector<ScanWork>;

// ssd_chunk_state.py, ssd_state_passing.py and ssd_bmm.py: what both directions begin with; states come in elements of
// so many bytes.
ScanKernels first_kernels(const ScanSizes& z, std::int64_t state_bytes) {
  return {{0, 3 * z.of_heads()},
          {2 * z.inner * z.state, z.of_tokens() + z.of_groups(z.element) + 2 * z.of_heads() + z.states(z.wide)},
          {0, z.states(z.wide) + z.states(state_bytes)},
          {2 * z.shared * z.chunk, 2 * z.of_groups(z.element) + z.scores()}};
}

// ssd_chunk_scan.py: kernels that weigh tokens within a chunk skip the half that is masked.
ScanKernels forward_kernels(const ScanSizes& z) {
  ScanKernels all = first_kernels(z, z.element);
  all.push_back({z.inner * (z.chunk + 2 * z.state),
                 4 * z.of_tokens() + z.of_groups(z.element) + 2 * z.of_heads() + z.scores() + z.states(z.element)});
  return all;
}

ScanKernels backward_kernels(const ScanSizes& z) {
  ScanKernels all = first_kernels(z, z.wide);
  const auto add = [&](std::int64_t operations, std::int64_t bytes) { all.push_back({operations, bytes}); };
  add(0, 6 * z.of_tokens());                                                              // dz
  add(2 * z.inner * z.state, z.of_tokens() + z.of_groups(z.element) + z.states(z.wide));  // dstates
  add(0, 2 * z.states(z.wide) + 2 * z.states(z.element));                                 // state passing
  add(z.inner * (z.chunk + 2 * z.state),                                                  // dx
      3 * z.of_tokens() + z.of_groups(z.element) + 3 * z.of_heads() + z.scores() + z.states(z.element));
  for (int times = 0; times < 2; ++times) {  // dB, dC
    add(2 * z.inner * z.state, z.of_tokens() + 2 * z.of_groups(z.wide) + 2 * z.of_heads() + z.states(z.element));
    add(2 * z.shared * z.chunk, z.scores() + 2 * z.of_groups(z.element) + z.of_groups(z.wide));
    add(z.inner * z.chunk, 2 * z.of_tokens() + z.of_heads() + z.scores());  // of scores, of decays
  }
  add(0, 8 * z.of_heads());  // sums of decays
  add(0, 4 * z.of_heads());
  return all;
}

}  // namespace

Duration scan_time(const Program& program, const Kernel& kernel, const Device& device) {
  const std::size_t first = kernel.operation == Operation::SsdScanBackward ? 1 : 0;
  const auto view = [&](std::size_t i) -> const View& { return program[kernel.inputs[first + i]]; };
  const ScanSizes sizes(view(0), view(1), view(3), kernel.attributes);
  const OperationRate rate = scaled(peak_rate(device, view(0).dtype),
                                    first == 0 ? device.efficiency.attention : device.efficiency.attention_backward);
  Duration sum;
  for (const ScanWork& its : first == 0 ? forward_kernels(sizes) : backward_kernels(sizes))
    sum += device.kernel_latency +
           std::max(time_of(static_cast<Wide>(its.operations) * sizes.tokens, rate), time_of(Bytes{its.bytes}, device));
  return sum;
}

}  // namespace tidemark::kernels
