#include "kernels/execute/detail/payload_kernels.hpp"

namespace tidemark::execute {
namespace {

constexpr int threads = 256;
constexpr int most_blocks = 1024;

int blocks_for(std::int64_t words) {
  const std::int64_t needed = (words + threads - 1) / threads;
  return static_cast<int>(needed < 1 ? 1 : needed < most_blocks ? needed : most_blocks);
}

__global__ void fill_kernel(std::uint64_t* words, std::int64_t count, std::uint64_t base, std::uint64_t slope) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    words[i] = base + static_cast<std::uint64_t>(i) * slope;
}

__global__ void check_kernel(const std::uint64_t* words, ContentRun run, std::uint64_t reading,
                             DeviceFindings* findings) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = run.begin + static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < run.end;
       i += stride) {
    const std::uint64_t found = __ldcg(reinterpret_cast<const unsigned long long*>(words) + i);
    const std::uint64_t expected = run.base + static_cast<std::uint64_t>(i) * run.slope;
    if ((i - run.phase) % run.grid != 0 || found == expected) continue;
    const unsigned long long place = atomicAdd(&findings->count, 1ULL);
    if (place < DeviceFindings::most) findings->first[place] = {reading, i, found, expected};
  }
}

}  // namespace

void fill_words(std::uint64_t* words, std::int64_t count, std::uint64_t base, std::uint64_t slope,
                cudaStream_t stream) {
  fill_kernel<<<blocks_for(count), threads, 0, stream>>>(words, count, base, slope);
}

void check_words(const std::uint64_t* words, const ContentRun& run, std::uint64_t reading, DeviceFindings* findings,
                 cudaStream_t stream) {
  check_kernel<<<blocks_for(run.end - run.begin), threads, 0, stream>>>(words, run, reading, findings);
}

}  // namespace tidemark::execute
