#include "kernels/math/philox.hpp"

#include <cmath>
#include <numbers>

namespace tidemark::math {
namespace {

constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

// The middle of one of 2^32 intervals.
double between_0_and_1(std::uint32_t word) { return (word + 0.5) * 0x1p-32; }

}  // namespace

std::array<std::uint32_t, 4> philox(const std::array<std::uint32_t, 4>& counter,
                                    const std::array<std::uint32_t, 2>& key) {
  constexpr int rounds = 10;
  constexpr std::uint64_t multipliers[] = {0xD2511F53, 0xCD9E8D57};
  constexpr std::uint32_t weyl[] = {0x9E3779B9, 0xBB67AE85};  // golden ratio, square root of 3 less 1
  std::array<std::uint32_t, 4> x = counter;
  std::array<std::uint32_t, 2> k = key;
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t a = multipliers[0] * x[0], b = multipliers[1] * x[2];
    x = {high(b) ^ x[1] ^ k[0], low(b), high(a) ^ x[3] ^ k[1], low(a)};
    k = {k[0] + weyl[0], k[1] + weyl[1]};
  }
  return x;
}

const std::array<std::uint32_t, 4>& RandomNumbers::block(std::uint64_t number) {
  if (number_ != number) {
    number_ = number;
    block_ = philox({low(number), high(number), low(stream_), high(stream_)}, {low(key_), high(key_)});
  }
  return block_;
}

double RandomNumbers::uniform(std::int64_t index) {
  const auto at = static_cast<std::uint64_t>(index);
  return between_0_and_1(block(at / 4)[at % 4]);
}

// Box and Muller, from two words of a block.
double RandomNumbers::normal(std::int64_t index) {
  const auto at = static_cast<std::uint64_t>(index);
  const std::array<std::uint32_t, 4>& words = block(at / 2);
  const std::size_t first = at % 2 * 2;
  return std::sqrt(-2 * std::log(between_0_and_1(words[first]))) *
         std::cos(2 * std::numbers::pi * between_0_and_1(words[first + 1]));
}

}  // namespace tidemark::math
