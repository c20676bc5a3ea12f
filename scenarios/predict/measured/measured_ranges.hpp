#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"
#include "scenarios/predict/measured/measured_rows.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "sim/base/units.hpp"

// What the mechanisms do not explain. Each has a range of its own (drivers, frees that other streams delay, batches
// that outlive their step, routing); how far runs that were measured are off besides is known from those alone. A
// runtime's own rows say whether such a range holds, so they have no part in how wide it is.

namespace tidemark::scenarios {

/// How far what is measured may be from what is told, to both sides.
struct MeasuredRange {
  double share = 0;       ///< of the central value; 0 where nothing was measured
  double coverage = 0;    ///< of runs like those that were measured, how many it holds
  std::int64_t rows = 0;  ///< of other runtimes, that it is from
};

/// As far as the rows of other runtimes are off: the k-th of n, where a further one like them is no farther off with a
/// chance of k in n + 1. Of so many that this is more than 99 of 100, the least that is as much; else the farthest.
[[nodiscard]] MeasuredRange range_of(MeasuredFigure figure, std::string_view runtime,
                                     std::span<const MeasuredRow> rows = measured_rows());

/// What was measured of a runtime itself.
struct RowsOfRuntime {
  std::int64_t rows = 0, on_device = 0;
  std::int64_t within = 0;                ///< of `rows`, in the range that those of others make
  std::vector<std::string_view> devices;  ///< by name
};
[[nodiscard]] RowsOfRuntime own_rows(MeasuredFigure figure, std::string_view runtime, std::string_view device,
                                     std::span<const MeasuredRow> rows = measured_rows());

/// The releases that decide what a scenario's runtime does: "megatron 0.14", "torch 2.4, transformers 4.45".
[[nodiscard]] std::string releases_of(const Scenario& scenario);

/// That share of what is allocated, rounded up.
[[nodiscard]] Bytes unexplained(double share, Bytes allocated);

/// What of the answer nobody's runs were held to: "reserved memory of deepspeed; …". Nothing where all of it was.
[[nodiscard]] std::string not_calibrated(const Scenario& scenario);

/// How wide ranges are, from what rows, and how many of the runtime's own are in them, a sentence each.
[[nodiscard]] std::vector<std::string> range_assumptions(const Scenario& scenario);

}  // namespace tidemark::scenarios
