#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/program/program.hpp"

namespace tidemark::sim {

/// When one rank ran a program: what memory may ask a clock.
struct ProgramTimes {
  /// What a stream was given before the program's op `before` is done by `end`.
  struct Work {
    std::uint32_t before = 0;
    Instant end;
    bool operator==(const Work&) const = default;
  };
  std::vector<Instant> host;               ///< by op: when the host thread comes to it
  std::vector<std::vector<Work>> streams;  ///< by StreamId, in order of ops
  bool operator==(const ProgramTimes&) const = default;

  /// When all is done that the stream has been given before the op.
  [[nodiscard]] Instant done(StreamId stream, std::size_t op) const {
    if (stream.index() >= streams.size()) return {};
    const std::vector<Work>& its = streams[stream.index()];
    const auto later =
        std::upper_bound(its.begin(), its.end(), op, [](std::size_t at, const Work& work) { return at < work.before; });
    return later == its.begin() ? Instant{} : std::prev(later)->end;
  }
};

}  // namespace tidemark::sim
