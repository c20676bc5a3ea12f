#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scenarios/recordings/memory_snapshot.hpp"
#include "scenarios/recordings/recorded_trace.hpp"
#include "sim/base/units.hpp"

// What a recording shows to stay, step after step.

namespace tidemark::scenarios {

/// How the steps of a recording were told apart.
enum class StepEvidence : std::uint8_t {
  None,
  Annotations,  ///< the profiler's marks: a step ends where an optimizer's step does
  Repetition,   ///< the sizes that are asked for repeat, without exception, from somewhere on to the end
};

/// Complete steps: step i is events [bounds[i], bounds[i + 1]).
struct Steps {
  StepEvidence evidence = StepEvidence::None;
  std::vector<std::size_t> bounds;

  [[nodiscard]] std::size_t count() const { return bounds.empty() ? 0 : bounds.size() - 1; }
};

struct StepSearch {
  std::size_t fewest_steps = 3;      ///< that have to be complete
  std::size_t fewest_requests = 16;  ///< of a step that repeats; fewer repeat by chance: the same layer, twice
};

/// Finds the steps of a trace: enough of them, or none.
[[nodiscard]] Steps steps_of(const RecordedTrace& trace, const std::vector<ExternalAnnotation>& annotations,
                             std::int64_t device, const StepSearch& search = {});

/// Allocations of one size from one place in the program, of which every step leaves some behind.
struct Survivors {
  Bytes size;                              ///< of one, as requested
  StackId stack;                           ///< where it is asked for; invalid without frames
  std::vector<std::int64_t> left_by_step;  ///< how many each step made that are still there at the end
  std::int64_t live = 0;                   ///< at the end, of this size and place, whenever made
  [[nodiscard]] Bytes growth() const;      ///< bytes a step, the least of the steps that count
};

/// Steady growth: the groups of which each of the last steps left at least one allocation that is still live at the
/// end of the recording. The last step does not count, since what it made may yet go, and neither does the first, which
/// makes what lives as long as the job; two others at least have to agree. Largest growth first.
[[nodiscard]] std::vector<Survivors> survivors(const RecordedTrace& trace, const Steps& steps);

/// Allocated in block sizes where each step begins, and where the last one ends.
[[nodiscard]] std::vector<Bytes> allocated_at(const RecordedTrace& trace, const Steps& steps);

}  // namespace tidemark::scenarios
