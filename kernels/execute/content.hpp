#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/execute/namespace.hpp"
#include "sim/program/program.hpp"

// What a payload should hold. A kernel leaves a stamp in every page of its outputs, in every word where they are small:
// numbers that grow evenly from word to word, from a base of their own. Collectives cut, move and add them, so that
// whatever a buffer should hold is a few runs of evenly growing numbers.

namespace tidemark::execute {

/// Words [begin, end) of a payload: each that is `phase` modulo `grid` holds base + word x slope, modulo 2^64; the
/// others may hold anything.
struct ContentRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t grid = 1;
  std::int64_t phase = 0;  ///< in [0, grid)
  std::uint64_t base = 0;
  std::uint64_t slope = 0;

  [[nodiscard]] std::int64_t first() const;  ///< the first word that is known; >= end where none is
  [[nodiscard]] std::uint64_t at(std::int64_t word) const { return base + static_cast<std::uint64_t>(word) * slope; }
  bool operator==(const ContentRun&) const = default;
};

/// Ascending, apart from each other; what is in no run may be anything.
using Content = std::vector<ContentRun>;

/// What a kernel leaves in a payload of so many words.
[[nodiscard]] Content stamped(std::uint64_t base, std::int64_t words);

/// Words [from, to), moved so that `from` comes to stand at `at`, appended to `out`.
void append(Content& out, const Content& source, std::int64_t from, std::int64_t to, std::int64_t at);

/// Word by word, where every one of them is known.
[[nodiscard]] Content sum(std::span<const Content> contents);

/// A member's part of what `n` of them share: an even cut, at whole pages where parts are that large.
[[nodiscard]] std::int64_t shard_words(std::int64_t words, std::int64_t n);
/// Of a payload of so many words, the part that a message is.
[[nodiscard]] inline std::int64_t part_words(std::int64_t words, const Transfer& message) {
  return message.parts == 1 ? words : shard_words(words, message.parts);
}

}  // namespace tidemark::execute
