#include "kernels/math/detail/device_engine.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace tidemark::math {

using execute::check_cuda;

namespace {

void check_cublas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("{} failed: {}", call, cublasGetStatusString(status)));
}

template <class Real>
cublasOperation_t lies(const Matrix<Real>& m) {
  return m.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

}  // namespace

DeviceEngine::DeviceEngine() {
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check_cublas(cublasCreate(&blas_), "cublasCreate");
  check_cublas(cublasSetStream(blas_, stream_), "cublasSetStream");
  check_cublas(cublasSetMathMode(blas_, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode");  // no TF32, whatever is set
}

DeviceEngine::~DeviceEngine() {
  if (blas_ != nullptr) cublasDestroy(blas_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
  for (const Block& block : blocks_) cudaFree(block.first);
}

std::byte* DeviceEngine::room(std::size_t bytes) {
  constexpr std::size_t line = 256, least = std::size_t{1} << 20;
  const std::size_t size = std::max(line, (bytes + line - 1) / line * line);
  if (blocks_.empty() || used_ + size > blocks_.back().size) {
    Block block{nullptr, std::max(size, blocks_.empty() ? least : 2 * blocks_.back().size)};
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&block.first), block.size), "cudaMalloc");
    blocks_.push_back(block);
    used_ = 0;
  }
  used_ += size;
  return blocks_.back().first + (used_ - size);
}

// The largest block is kept: what comes next on the stream waits for what uses it now. cudaFree waits for the rest.
void DeviceEngine::done() {
  for (; blocks_.size() > 1; blocks_.erase(blocks_.begin())) check_cuda(cudaFree(blocks_.front().first), "cudaFree");
  used_ = 0;
}

void DeviceEngine::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
  finish();
}

void DeviceEngine::fill(std::byte* memory, std::byte content, std::size_t bytes) {
  check_cuda(cudaMemsetAsync(memory, static_cast<int>(content), bytes, stream_), "cudaMemsetAsync");
}

void DeviceEngine::finish() { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

template <class Real>
void DeviceEngine::multiply(double scale, const Matrix<Real>& a, const Matrix<Real>& b, double kept, Real* c,
                            std::int64_t apart) {
  if (a.rows == 0 || b.columns == 0) return;
  const ByColumns<Real> p(a, b, apart);
  const auto gemm = [&](auto call, Real by, Real keep) {
    check_cublas(call(blas_, lies(p.first), lies(p.second), p.m, p.n, p.k, &by, p.first.first, p.first.apart,
                      p.second.first, p.second.apart, &keep, c, p.apart),
                 "a product of cuBLAS");
  };
  if constexpr (sizeof(Real) == sizeof(float))
    gemm(cublasSgemm_64, static_cast<float>(scale), static_cast<float>(kept));
  else
    gemm(cublasDgemm_64, scale, kept);
}

template void DeviceEngine::multiply(double, const Matrix<float>&, const Matrix<float>&, double, float*, std::int64_t);
template void DeviceEngine::multiply(double, const Matrix<double>&, const Matrix<double>&, double, double*,
                                     std::int64_t);

}  // namespace tidemark::math
