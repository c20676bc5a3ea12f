#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/program/kernel.hpp"

namespace tidemark::sim {

/// Bytes [begin, end) of a buffer.
struct Stretch {
  Bytes begin, end;
  bool operator==(const Stretch&) const = default;
};

/// Sets of bytes of a buffer, each known by a number: two sets of one number are one set. A union or a difference is
/// worked out once and looked up from then on, because programs do the same with one buffer after another.
class ByteSets {
 public:
  using Id = std::int32_t;
  static constexpr Id empty = 0;

  ByteSets();

  [[nodiscard]] Id stretch(Bytes begin, Bytes end);
  /// What a view that begins at `from` sees.
  [[nodiscard]] Id seen(const View& view, Bytes from);
  [[nodiscard]] Id united(Id a, Id b);
  /// `a` without `b`.
  [[nodiscard]] Id without(Id a, Id b);
  [[nodiscard]] Id common(Id a, Id b) { return without(a, without(a, b)); }

  [[nodiscard]] Bytes size(Id set) const { return sets_[static_cast<std::size_t>(set)].size; }
  /// In order; none touches another.
  [[nodiscard]] std::span<const Stretch> operator[](Id set) const {
    return sets_[static_cast<std::size_t>(set)].stretches;
  }

 private:
  struct Set {
    std::vector<Stretch> stretches;
    Bytes size;
  };

  [[nodiscard]] Id known(std::vector<Stretch> set);

  std::vector<Set> sets_;
  std::unordered_multimap<std::uint64_t, Id> by_hash_;
  std::unordered_map<std::uint64_t, Id> unions_, differences_;  // by both operands
};

}  // namespace tidemark::sim
