#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "scenarios/plan/space/space.hpp"
#include "scenarios/plan/tie_analysis.hpp"
#include "sim/base/time.hpp"
#include "sim/base/units.hpp"

namespace tidemark::scenarios {

/// What a candidate takes and gives, as `predict` says it: memory of its fullest rank, a step's time.
struct Figures {
  Bytes allocated;     ///< torch.cuda.max_memory_allocated, highest of all ranks
  Bytes device;        ///< at central values of estimates
  Bytes device_upper;  ///< at their upper ends: what it fills of the room there is, or must have beyond that
  Bytes host_upper;    ///< the most that ranks of one node might hold of its host's memory, which it is judged at too
  bool completed = false;
  bool deadlocks = false;  ///< and has no other figures
  Duration step;
  double throughput = 0;  ///< tokens per second and device
  bool operator==(const Figures&) const = default;
};

/// The upper end of a bracket where nobody knows one.
inline constexpr Duration for_ever{std::numeric_limits<std::int64_t>::max()};

/// A candidate whose figures are exact.
struct Found {
  std::int64_t candidate = 0;
  Figures figures;
  Duration step_low, step_high;  ///< the bracket that its step lies in
  bool straddles = false;        ///< fits at central values of estimates, and not at their upper ends
  bool operator==(const Found&) const = default;
};

/// A candidate that does not fit, and how much its fullest device lacks, headroom included, and its fullest host; a
/// lower bound where bounds, or its first ranks, rejected it. Zero or less: nothing.
struct Miss {
  std::int64_t candidate = 0;
  Bytes lacks, host_lacks;
  bool exact = false;
  bool straddles = false;
  double throughput = 0;  ///< at most
  bool operator==(const Miss&) const = default;
};

/// A candidate that cannot be judged: it deadlocks, or what Tidemark makes of it is wrong.
struct Failed {
  std::int64_t candidate = 0;
  std::string why;
  bool operator==(const Failed&) const = default;
};

/// Whether `a` is the better answer of two that fit: throughput, then memory, then the order of the space.
[[nodiscard]] bool better(const Found& a, const Found& b);

struct PlanOptions {
  std::size_t top = 10;  ///< how many of the best are listed, and near misses
  /// Where a whole run contradicts what was said of a candidate, all run whole if there are no more than so many.
  std::int64_t most_in_full = 1000;
  /// Is told the best so far, each time that they change: before the search is over, and before they have run whole.
  std::function<void(const std::vector<Found>& best)> found = {};
};

/// How many candidates each tier decided.
struct TierCounts {
  std::int64_t bounded_rejected = 0;    ///< bounds alone say that they do not fit
  std::int64_t allocator_rejected = 0;  ///< the emulated allocator says so
  std::int64_t beaten = 0;              ///< no better than another one, at the good ends of their bounds
  std::int64_t timed = 0;               ///< fit, and ran on the clock
  std::int64_t unbounded = 0;           ///< of all: bounds do not know what they ask for
  std::int64_t failed = 0;              ///< cannot be judged
  bool operator==(const TierCounts&) const = default;
};

/// The answer of `plan`.
struct Plan {
  std::int64_t combinations = 0;
  std::map<std::string, std::int64_t> dropped;  ///< combinations that are no candidates, by reason
  std::int64_t candidates = 0;
  TierCounts tiers;
  std::vector<Found> best;                ///< that fit, best first; of those that come to the same, the first
  std::vector<TieAnalysis> tie_analyses;  ///< of the best but the first, each against it
  std::vector<Found> front;  ///< that fit and that no other beats in memory and throughput both: by falling memory
  std::vector<Miss> near_misses;
  std::vector<Failed> failed;  ///< the first of them
  std::int64_t in_full = 0;    ///< of the best and the front: run once more, whole
  /// Those that came out otherwise, whose figures here are those of their whole runs.
  std::vector<std::int64_t> disagreements;
  bool all_in_full = false;  ///< then every candidate was run whole
};

/// Hears what is done, of how much.
using PlanProgress = std::function<void(const std::string& what, std::int64_t done, std::int64_t all)>;

class TaskRunner;

/// Searches on this process' threads.
[[nodiscard]] Plan plan(const Space& space, const PlanOptions& options, const PlanProgress& progress = {});
/// Searches with the runner, which may be spread over processes or remember what was done before. The answer is the
/// same.
[[nodiscard]] Plan plan(const Space& space, const PlanOptions& options, TaskRunner& runner,
                        const PlanProgress& progress = {});

}  // namespace tidemark::scenarios
