#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include "kernels/execute/detail/check_cuda.hpp"
#include "kernels/math/engine/blas.hpp"
#include "kernels/math/namespace.hpp"

namespace tidemark::math {

#ifdef __CUDACC__
// Threads go by elements, each of which is a range.
template <class Body>
__global__ void run_body(std::int64_t count, Body body) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    body(i, i + 1);
}
#endif

/// Carries kernels out on the current GPU, one after the other on a stream of its own; products by cuBLAS, in fp32 and
/// fp64 throughout. Otherwise as HostEngine.
class DeviceEngine {
 public:
  DeviceEngine();
  DeviceEngine(const DeviceEngine&) = delete;
  DeviceEngine& operator=(const DeviceEngine&) = delete;
  ~DeviceEngine();

#ifdef __CUDACC__
  template <class Body>
  void ranges(std::int64_t count, const Body& body) {
    if (count == 0) return;
    constexpr std::int64_t threads = 256, most_blocks = 1024;
    const std::int64_t needed = (count + threads - 1) / threads;
    run_body<<<static_cast<unsigned>(needed < most_blocks ? needed : most_blocks), threads, 0, stream_>>>(count, body);
    execute::check_cuda(cudaGetLastError(), "a kernel");
  }
#endif
  [[nodiscard]] std::byte* room(std::size_t bytes);
  void copy(void* to, const void* from, std::size_t bytes);
  template <class Real>
  void multiply(double scale, const Matrix<Real>& a, const Matrix<Real>& b, double kept, Real* c, std::int64_t apart);
  void done();

  void fill(std::byte* memory, std::byte content, std::size_t bytes);
  /// Waits for all that it was given.
  void finish();

 private:
  struct Block {
    std::byte* first = nullptr;
    std::size_t size = 0;
  };

  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  std::vector<Block> blocks_;  // of room; all but the last are full
  std::size_t used_ = 0;       // of the last
};

}  // namespace tidemark::math
