#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/program/left_out.hpp"
#include "sim/program/program.hpp"

namespace tidemark::sim {

/// Ops of a program that come again `more` times right after they came once, each time `shift` later. What lists of
/// them hold is there once, and so later ops have lower numbers there; those of a list of cycles count so as well.
struct Cycle {
  std::uint32_t first = 0, ops = 0;  ///< op; of a cycle
  std::int64_t more = 0;
  Duration shift;
  bool operator==(const Cycle&) const = default;

  [[nodiscard]] std::size_t end() const { return std::size_t{first} + ops; }
};

/// A cycle of a program that came again without being played, in the loop of one of its repeats. As ops are numbered in
/// the whole program.
struct LeaptCycle {
  std::size_t loop = 0;  ///< index of the repeat
  Cycle cycle;
  bool operator==(const LeaptCycle&) const = default;
};

/// Where an op of the whole program is in lists in which cycles are once.
struct PlaceInCycles {
  std::size_t op = 0;
  Duration later;  ///< than what the list has there
  const Cycle* cycle =
      nullptr;  ///< whose op it is for the `times`-th time after the first; none: no cycle's, or the first
  std::int64_t times = 0;
};
[[nodiscard]] inline PlaceInCycles place_in(std::span<const Cycle> cycles, std::size_t op) {
  PlaceInCycles place{op, {}, nullptr, 0};
  for (const Cycle& cycle : cycles) {
    if (place.op < cycle.end()) break;
    const std::size_t since = place.op - cycle.first;
    const auto times = static_cast<std::int64_t>(since / cycle.ops);
    if (times <= cycle.more) return {cycle.first + since % cycle.ops, place.later + times * cycle.shift, &cycle, times};
    place.op -= static_cast<std::size_t>(cycle.more) * cycle.ops;
    place.later += cycle.more * cycle.shift;
  }
  return place;
}

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
  std::vector<Cycle> cycles;               ///< of `host` and `streams`
  /// Where the program's ops are in another one, whose times the lists are; none: it is that program. Outlives this.
  const std::vector<std::uint32_t>* places = nullptr;
  /// Of that program: what it leaves out of the one whose times the lists are.
  std::vector<LeftOut> left_out = {};
  bool operator==(const ProgramTimes&) const = default;

  [[nodiscard]] Instant host_at(std::size_t op) const {
    if (cycles.empty() && left_out.empty() && places == nullptr) return host[op];
    const PlaceInCycles its = place_in(cycles, simulated(op));
    return its.op < host.size() ? host[its.op] + its.later : host.back() + its.later;
  }

  /// Whether all that happens from op `from` to `to` comes again each `ops` of them.
  [[nodiscard]] bool repeat(std::size_t from, std::size_t to, std::size_t later) const {
    const std::size_t begin = simulated(from), ops = simulated(later) - begin, end = simulated(to);
    std::size_t before = 0;  // of what the lists leave out
    for (const Cycle& cycle : cycles) {
      const std::size_t first = cycle.first + before;
      before += static_cast<std::size_t>(cycle.more) * cycle.ops;
      if (first <= begin && end <= cycle.end() + before) return ops % cycle.ops == 0;
    }
    return false;
  }

  /// When all is done that the stream has been given before the op.
  [[nodiscard]] Instant done(StreamId stream, std::size_t op) const {
    if (stream.index() >= streams.size()) return {};
    PlaceInCycles at = place_in(cycles, simulated(op));
    const Work* work = last_before(stream, at.op);
    if (at.cycle != nullptr && (work == nullptr || work->before <= at.cycle->first)) {
      // Nothing of this time: what was last is of the time before, or came before the cycle.
      work = last_before(stream, at.cycle->end());
      --at.times;
      if (work != nullptr && work->before <= at.cycle->first) at.times = 0;
    }
    if (work == nullptr) return {};
    Duration later = at.cycle != nullptr ? at.times * at.cycle->shift : Duration{};
    for (const Cycle& cycle : cycles) {
      if (&cycle == at.cycle || at.op < cycle.end()) break;
      if (work->before > cycle.first) later += cycle.more * cycle.shift;
    }
    return work->end + later;
  }

 private:
  [[nodiscard]] std::size_t simulated(std::size_t op) const {
    if (places != nullptr) op = op < places->size() ? (*places)[op] : std::size_t{UINT32_MAX};
    return op_of_whole(left_out, op);
  }
  [[nodiscard]] const Work* last_before(StreamId stream, std::size_t op) const {
    const std::vector<Work>& its = streams[stream.index()];
    const auto later =
        std::upper_bound(its.begin(), its.end(), op, [](std::size_t at, const Work& work) { return at < work.before; });
    return later == its.begin() ? nullptr : &*std::prev(later);
  }
};

}  // namespace tidemark::sim
