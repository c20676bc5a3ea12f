#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/execute/content.hpp"

namespace tidemark::execute {

/// Words on the device that were not what they should be.
struct DeviceFinding {
  std::uint64_t reading = 0;  ///< which check
  std::int64_t word = 0;
  std::uint64_t found = 0;
  std::uint64_t expected = 0;
};
struct DeviceFindings {
  static constexpr int most = 64;
  unsigned long long count = 0;
  DeviceFinding first[most];
};

/// Writes base + i x slope to word i, for all `count` of them.
void fill_words(std::uint64_t* words, std::int64_t count, std::uint64_t base, std::uint64_t slope, cudaStream_t stream);

/// Reads every word of the run, and notes those that are known and different.
void check_words(const std::uint64_t* words, const ContentRun& run, std::uint64_t reading, DeviceFindings* findings,
                 cudaStream_t stream);

}  // namespace tidemark::execute
