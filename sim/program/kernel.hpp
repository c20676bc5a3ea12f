#pragma once

#include <cstdint>
#include <variant>

#include "sim/base/dtype.hpp"
#include "sim/base/units.hpp"

namespace tidemark::sim {

enum class Pass : std::uint8_t { Forward, Backward };

/// C[m,n] = A[m,k] B[k,n].
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::BF16;
  bool operator==(const Gemm&) const = default;
};

/// Fused causal self-attention of `batch` sequences; the backward pass recomputes the scores.
struct Attention {
  Pass pass = Pass::Forward;
  std::int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  DType dtype = DType::BF16;
  bool operator==(const Attention&) const = default;
};

/// What a kernel bound by memory does; kernels of one kind share an efficiency.
enum class Streaming : std::uint8_t { Fill, Copy, Lookup, Norm, Rotary, Activation, Add, Loss, Reduce, Update };

/// A kernel whose time is that of the bytes it reads and writes.
struct Stream {
  Streaming kind = Streaming::Copy;
  Bytes read;
  Bytes written;
  bool operator==(const Stream&) const = default;
};

using Kernel = std::variant<Gemm, Attention, Stream>;

}  // namespace tidemark::sim
