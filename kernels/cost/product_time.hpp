#pragma once

#include <cstdint>

#include "kernels/namespace.hpp"
#include "sim/base/time.hpp"
#include "sim/program/program.hpp"
#include "topology/cluster.hpp"

namespace tidemark::kernels {

/// C[m,n] = A[m,k] B[k,n], batches of A and C as rows; `added` to what C holds where it accumulates.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  DType operands = DType::BF16;
  DType result = DType::BF16;
  bool accumulates = false;
  std::int32_t spared = 0;  ///< multiprocessors that are left to others
  std::int32_t alike = 1;   ///< so many products of this kind run at once, this one among them
  bool follows = false;     ///< it runs in a kernel that was launched with another one
};

/// Of a kernel that is a matmul. Operands of unlike types are multiplied in the narrower one.
[[nodiscard]] Product product_of(const Program& program, const Kernel& kernel);

/// Tiles of the libraries' kernels, one on each multiprocessor at a time: in waves, of which the last costs as much as
/// a full one, and from Hopper on also dealt out evenly along k (stream-k), which exchanges partial sums; whichever is
/// shorter. Part of writing the result comes on top. Not less than its memory traffic. Of products that run at once,
/// the share of each in what their tiles take together.
[[nodiscard]] Duration product_time(const Product& product, const Device& device);

/// What a product that takes so long by itself takes for blocks whose multiprocessors are taken when it begins (Beside,
/// sim/clock/timed_program.hpp). On Hopper and later, libraries' kernels have a block for each multiprocessor, which
/// goes from tile to tile; earlier ones have a block for each tile, and go on with the multiprocessors that are left:
/// nothing.
[[nodiscard]] Duration second_wave(Duration product, const Device& device);

}  // namespace tidemark::kernels
