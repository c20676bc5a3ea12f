#pragma once

#include <cstdint>

#include "parallel/frameworks/megatron/te.hpp"

namespace tidemark::parallel::megatron {

/// mamba_ssm's mamba_split_conv1d_scan_combined: what Mamba-2 does between its two projections, as one function of
/// autograd. It keeps the projected tokens and the scan's output, and makes the rest of its activations again.
struct SsdScan {
  Name name;                                                    ///< "layers.0.mixer.scan"
  std::int64_t heads = 0, head_dim = 0, groups = 0, state = 0;  ///< of a rank
  const Weight *conv_weight = nullptr, *conv_bias = nullptr, *skip = nullptr;

  [[nodiscard]] std::int64_t inner() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t channels() const { return inner() + 2 * groups * state; }
};
/// `projected`: z, x, B, C and dt of each token, those of a sequence together. Rates and biases of dt are fp32.
[[nodiscard]] Tensor ssd_scan(Worker& w, const SsdScan& scan, Tensor projected, Tensor dt_bias, Tensor rates);

}  // namespace tidemark::parallel::megatron
