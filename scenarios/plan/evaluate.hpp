#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/plan/bounds/bounds.hpp"
#include "scenarios/plan/plan.hpp"

namespace tidemark::scenarios {

/// A candidate that bounds do not reject, at the good ends of its bounds.
struct Survivor {
  std::int64_t candidate = 0;
  Bytes device_low;
  Duration step_low, step_high;
  double throughput_high = 0;
};

/// What bounds say of a run of combinations.
struct Screened {
  std::map<std::string, std::int64_t> dropped;
  std::int64_t candidates = 0, rejected = 0, unbounded = 0;
  std::vector<Survivor> survivors;
  std::vector<Miss> nearest;  ///< of the rejected, those that lack the least
};

/// A point that something has been found at.
struct Point {
  Bytes memory;
  double throughput = 0;
};
/// Whether something at that point leaves nothing to win for what has at least this memory and at most this throughput.
[[nodiscard]] bool beats(const Point& point, Bytes memory_low, double throughput_high);

/// What the emulated allocator, or a whole run, says of a candidate.
struct Evaluated {
  enum class Verdict : std::uint8_t { Fits, DoesNotFit, Beaten, Failed };
  Verdict verdict = Verdict::Beaten;
  bool timed = false;
  bool asks_the_clock = false;  ///< its fullest device may hold more than found, which only a whole run says
  Found found;                  ///< where it fits; where it is beaten, `device_upper` is what it has at least
  Miss miss;                    ///< where it does not
  Failed failed;                ///< where neither can be said
};

/// What points there are to beat, and what throughput is of interest whatever its memory.
struct Bar {
  std::vector<Point> front;
  double throughput = 0;

  [[nodiscard]] bool beats(Bytes memory_low, double throughput_high) const;
};

/// A candidate's figures by a whole run.
using WholeRun = std::function<Figures(const Scenario&)>;

class Evaluator {
 public:
  explicit Evaluator(const Space& space, WholeRun whole_run = whole_figures)
      : space_(space), whole_run_(std::move(whole_run)), bounder_(models_), memory_(models_) {}

  [[nodiscard]] Screened screen(std::int64_t first, std::int64_t count, std::size_t nearest);
  /// Its memory by the emulated allocator. What bounds do not know is run in full.
  [[nodiscard]] Evaluated allocate(const Survivor& survivor, const Bar& bar);
  /// How long a step of what fits takes, on the full clock.
  [[nodiscard]] Evaluated time(const Found& fitting);
  /// What its step, which takes so long, is made of.
  [[nodiscard]] StepParts parts(std::int64_t candidate, Duration step);
  /// Whole: what `predict` says.
  [[nodiscard]] Evaluated in_full(std::int64_t candidate);

 private:
  const Space& space_;
  WholeRun whole_run_;
  SharedModels models_;
  Bounder bounder_;
  ExactMemory memory_;
  ExactTime time_;
  /// As many as are told of lack no more than that. What lacks more is in no answer, whoever finds that out and when.
  std::atomic<Bytes> farthest_near_{Bytes{std::numeric_limits<std::int64_t>::max()}};
};

/// The `most` that lack the least; of equal ones, the first in the space.
void keep_nearest(std::vector<Miss>& misses, std::size_t most);

}  // namespace tidemark::scenarios
