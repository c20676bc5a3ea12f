#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/execute/page_scale.hpp"
#include "sim/program/costs.hpp"
#include "sim/program/program.hpp"

// Memory at some moments of a run: once as a replay of the program with its frees says, once as it was measured.
// Moments are ops of the program without frees, each with the frees that follow it.

namespace tidemark::execute {

/// What a rank holds at a moment, or at most while it is in a phase.
struct MemoryPoint {
  std::size_t op = 0;  ///< the moment; for a phase, the op that entered it first
  std::int32_t step = 0;
  Phase phase = Phase::Construction;
  Bytes resident;   ///< what the system sees of it
  Bytes allocated;  ///< blocks, in the job's bytes
  bool operator==(const MemoryPoint&) const = default;
};

struct MemoryPoints {
  std::vector<MemoryPoint> phases;   ///< highest values, by step and phase
  std::vector<MemoryPoint> samples;  ///< ascending moments
  MemoryPoint peak;                  ///< highest resident value
  Bytes reserved;                    ///< at the end, in the job's bytes
};

/// What of a rank's memory the system sees.
enum class Holding : std::uint8_t {
  Blocks,    ///< pages of allocated blocks and of host memory, as on the host back end
  Segments,  ///< whole segments, cached or not, as on a device
};

/// Where to look: so many moments spread evenly over the last step, a few over what comes before, and the predicted
/// peak. `predicted` holds frees.
[[nodiscard]] std::vector<std::size_t> sample_moments(const Program& predicted, PageScale scale,
                                                      Holding holding = Holding::Blocks);

/// What a replay of the predicted program says at those moments and in every phase.
[[nodiscard]] MemoryPoints predicted_points(const Program& predicted, PageScale scale,
                                            const std::vector<std::size_t>& moments, Holding holding = Holding::Blocks);

/// The highest values of a step's phase.
class PhasePeaks {
 public:
  /// `point` holds now, in the phase that it names.
  void note(const MemoryPoint& point);
  [[nodiscard]] const std::vector<MemoryPoint>& all() const { return phases_; }

 private:
  std::vector<MemoryPoint> phases_;
};

}  // namespace tidemark::execute
