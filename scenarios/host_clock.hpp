#pragma once

#include <cstddef>
#include <vector>

#include "scenarios/prediction.hpp"

namespace tidemark::scenarios {

/// When a rank's host thread comes to each op of its role's program. Time is simulated once per class of ranks, with
/// the program of the stage's first role; the rank's own has the same marks and may do other pieces of work between
/// them. So it is walked beside the simulated one: mark by mark, and from each by the ops that take the host's time.
/// Where the programs are equal, that is the simulated time of every op.
class HostClock {
 public:
  /// Both outlive the clock; the trace has a timeline.
  HostClock(const Job& job, const Trace& trace, Rank rank);

  /// The instant of the program's next op: to be called once for each, in order.
  [[nodiscard]] Instant come_to(const Op& op);

 private:
  void enter(const Mark& mark);
  void pass_one();

  const Program& simulated_;
  const std::vector<Instant>& host_;
  std::size_t place_ = 0;      ///< the simulated op that the host is at
  std::size_t next_mark_ = 0;  ///< beyond that place; the number of ops where there is none
};

}  // namespace tidemark::scenarios
