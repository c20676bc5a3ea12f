#pragma once

#include <cstdint>

namespace tidemark::sim {

/// Steele, Lea & Flood, Fast splittable pseudorandom number generators, 2014: the finalizer of SplitMix64.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Of a sequence.
template <class... Parts>
constexpr std::uint64_t hash_of(Parts... parts) {
  std::uint64_t hash = 0;
  ((hash = mixed(hash ^ static_cast<std::uint64_t>(parts))), ...);
  return hash;
}

/// One of its parts may be anything; the other is small, such as a colour. Cheaper than `hash_of`.
constexpr std::uint64_t hash_of_pair(std::uint64_t any, std::int32_t small) {
  return mixed(any ^ (static_cast<std::uint64_t>(small) * 0xd1342543de82ef95));
}

}  // namespace tidemark::sim
