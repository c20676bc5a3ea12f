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

/// A candidate's memory, of its fullest rank, and the time of its step, as `predict` reports them.
struct Figures {
  Bytes allocated;     ///< torch.cuda.max_memory_allocated, highest of all ranks
  Bytes device;        ///< at central values of estimates
  Bytes device_upper;  ///< at their upper ends: the memory that it fills, or that it requires where that is more than
                       ///< there is
  Bytes host_upper;    ///< the most host memory that ranks of one node might hold, by which it is judged too
  bool completed = false;
  bool deadlocks = false;  ///< and has no other figures
  Duration step;
  double throughput = 0;  ///< tokens per second and device
  bool operator==(const Figures&) const = default;
};

/// The upper end of a bracket where none is known.
inline constexpr Duration for_ever{std::numeric_limits<std::int64_t>::max()};

/// A candidate whose figures are exact.
struct Found {
  std::int64_t candidate = 0;
  Figures figures;
  Duration step_low, step_high;  ///< the bracket of its step time
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

/// A candidate that cannot be judged: it deadlocks, or Tidemark writes a wrong program for it.
struct Failed {
  std::int64_t candidate = 0;
  std::string why;
  bool operator==(const Failed&) const = default;
};

/// Whether `a` is the better answer of two that fit: throughput, then memory, then the order of the space.
[[nodiscard]] bool better(const Found& a, const Found& b);

struct PlanOptions {
  std::size_t top = 10;  ///< how many of the best are listed, and near misses
  /// If a full simulation contradicts a candidate's bounds, all candidates are simulated in full, up to this many.
  std::int64_t most_in_full = 1000;
  /// Called with the best so far each time they change, before they are simulated in full.
  std::function<void(const std::vector<Found>& best)> found = {};
};

/// How many candidates each tier decided.
struct TierCounts {
  std::int64_t bounded_rejected = 0;    ///< do not fit, by bounds alone
  std::int64_t allocator_rejected = 0;  ///< do not fit, by the emulated allocator
  std::int64_t beaten = 0;              ///< no better than another one, at the good ends of their bounds
  std::int64_t timed = 0;               ///< fit, and ran on the clock
  std::int64_t unbounded = 0;           ///< of all: use features that bounds do not cover
  std::int64_t failed = 0;              ///< cannot be judged
  bool operator==(const TierCounts&) const = default;
};

/// The answer of `plan`.
struct Plan {
  std::int64_t combinations = 0;
  std::map<std::string, std::int64_t> dropped;  ///< combinations that are not candidates, by reason
  std::int64_t candidates = 0;
  TierCounts tiers;
  std::vector<Found> best;                ///< that fit, best first; the first of equal ones
  std::vector<TieAnalysis> tie_analyses;  ///< of the best but the first, each against it
  std::vector<Found> front;               ///< the Pareto front of those that fit, by falling memory
  std::vector<Miss> near_misses;
  std::vector<Failed> failed;  ///< the first of them
  std::int64_t in_full = 0;    ///< of the best and the front: simulated in full, all of them where any was otherwise
  /// Those whose full simulation gave other figures, which are the ones here.
  std::vector<std::int64_t> disagreements;
  bool all_in_full = false;  ///< then every candidate was simulated in full
};

/// Called with the work done so far, and the total.
using PlanProgress = std::function<void(const std::string& what, std::int64_t done, std::int64_t all)>;

class TaskRunner;

/// Searches on this process' threads.
[[nodiscard]] Plan plan(const Space& space, const PlanOptions& options, const PlanProgress& progress = {});
/// Searches with the runner, which may use several processes or resume from a journal. The answer is the
/// same.
[[nodiscard]] Plan plan(const Space& space, const PlanOptions& options, TaskRunner& runner,
                        const PlanProgress& progress = {});

}  // namespace tidemark::scenarios
