#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "kernels/math/namespace.hpp"
#include "kernels/math/values.hpp"

namespace tidemark::math {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): four random words for each
/// counter, without any state.
[[nodiscard]] TIDEMARK_EVERYWHERE constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                                                std::array<std::uint32_t, 2> key) {
  constexpr int rounds = 10;
  constexpr std::uint64_t first = 0xD2511F53, second = 0xCD9E8D57;
  constexpr std::uint32_t golden_ratio = 0x9E3779B9, root_of_3 = 0xBB67AE85;  // their binary fractions
  std::array<std::uint32_t, 4>& x = counter;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t a = first * x[0], b = second * x[2];
    x = {static_cast<std::uint32_t>(b >> 32) ^ x[1] ^ key[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ x[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key = {key[0] + golden_ratio, key[1] + root_of_3};
  }
  return x;
}

/// Random numbers by their index; those of another key or stream are others.
class RandomNumbers {
 public:
  TIDEMARK_EVERYWHERE explicit RandomNumbers(std::uint64_t key, std::uint64_t stream = 0)
      : key_(key), stream_(stream) {}

  /// Between 0 and 1, neither of them.
  [[nodiscard]] TIDEMARK_EVERYWHERE double uniform(std::int64_t index) {
    const auto at = static_cast<std::uint64_t>(index);
    return between_0_and_1(block(at / 4)[at % 4]);
  }
  /// Of mean 0 and deviation 1: Box and Muller, from two words of a block.
  [[nodiscard]] TIDEMARK_EVERYWHERE double normal(std::int64_t index) {
    const auto at = static_cast<std::uint64_t>(index);
    const std::array<std::uint32_t, 4>& words = block(at / 2);
    const std::size_t first = at % 2 * 2;
    return std::sqrt(-2 * std::log(between_0_and_1(words[first]))) *
           std::cos(2 * std::numbers::pi * between_0_and_1(words[first + 1]));
  }

 private:
  static TIDEMARK_EVERYWHERE constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  static TIDEMARK_EVERYWHERE constexpr std::uint32_t high(std::uint64_t x) { return low(x >> 32); }
  // The middle of one of 2^32 intervals.
  static TIDEMARK_EVERYWHERE constexpr double between_0_and_1(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }

  TIDEMARK_EVERYWHERE const std::array<std::uint32_t, 4>& block(std::uint64_t number) {
    if (!drawn_ || number_ != number) {
      drawn_ = true;
      number_ = number;
      block_ = philox({low(number), high(number), low(stream_), high(stream_)}, {low(key_), high(key_)});
    }
    return block_;
  }

  std::uint64_t key_, stream_;
  bool drawn_ = false;
  std::uint64_t number_ = 0;  ///< of the block drawn last
  std::array<std::uint32_t, 4> block_{};
};

}  // namespace tidemark::math
