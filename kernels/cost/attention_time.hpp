#pragma once

#include "kernels/namespace.hpp"
#include "sim/base/time.hpp"
#include "sim/program/program.hpp"
#include "topology/cluster.hpp"

namespace tidemark::kernels {

enum class AttentionPass : std::uint8_t { Forward, Backward };

/// Whose tensor instructions a kernel is written in: those of the device, or Ampere's, which later devices have too,
/// and carry out more slowly. FlashAttention-2 has no others.
enum class TensorInstructions : std::uint8_t { OfDevice, Ampere };

/// Fused attention of q, k and v: [batch, sequence, heads, width]. Blocks of queries (forward) or of keys (backward) go
/// to multiprocessors; all of them take what there is to do, and the longest block takes the time that it takes, which
/// is all of it where there are few heads.
[[nodiscard]] Duration attention_time(const View& q, const View& k, const View& v, bool causal, AttentionPass pass,
                                      const Device& device,
                                      TensorInstructions instructions = TensorInstructions::OfDevice);

}  // namespace tidemark::kernels
