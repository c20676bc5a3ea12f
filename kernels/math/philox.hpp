#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "kernels/math/namespace.hpp"

namespace tidemark::math {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four random words for each
/// counter, without any state.
[[nodiscard]] std::array<std::uint32_t, 4> philox(const std::array<std::uint32_t, 4>& counter,
                                                  const std::array<std::uint32_t, 2>& key);

/// Random numbers by their index; those of another key or stream are others.
class RandomNumbers {
 public:
  explicit RandomNumbers(std::uint64_t key, std::uint64_t stream = 0) : key_(key), stream_(stream) {}

  /// Between 0 and 1, neither of them.
  [[nodiscard]] double uniform(std::int64_t index);
  /// Of mean 0 and deviation 1.
  [[nodiscard]] double normal(std::int64_t index);

 private:
  const std::array<std::uint32_t, 4>& block(std::uint64_t number);

  std::uint64_t key_, stream_;
  std::optional<std::uint64_t> number_;  ///< of the block drawn last
  std::array<std::uint32_t, 4> block_{};
};

}  // namespace tidemark::math
