#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/calibrate/point.hpp"
#include "sim/base/units.hpp"
#include "topology/calibration.hpp"

// What was measured of a machine, as the files that `predict` reads.

namespace tidemark::scenarios {

/// Who measured, where and how.
struct MachineRun {
  std::string name;                ///< of the files, without their endings
  std::string machine;             ///< processor, cores and kernel of the first rank's host
  std::vector<std::string> hosts;  ///< names, each once
  std::int32_t ranks = 1, ranks_per_host = 1, cores = 1;
  std::int32_t ranks_per_node = 1;  ///< of what was measured as a node: a host, or a part of one
  Bytes host_memory;
  std::string tidemark, mpi, date;  ///< date: as it was given; empty: not told
  std::int64_t repeats = 0;
  std::vector<Point> points;
};

/// A key of the cluster's file that nothing was measured for.
struct NotMeasured {
  std::string key, value, from;
};

struct MachineFiles {
  std::string cluster, calibration;  ///< texts; the first names the second
  std::vector<NotMeasured> not_measured;
};

/// The points of a run as a calibration has them: what is no kernel or transfer is left out.
[[nodiscard]] Calibration calibration_of(const std::vector<Point>& points);

/// Who measured what, when and where: the files' `source`.
[[nodiscard]] std::string source_of(const MachineRun& run);
/// The calibration's file: the points that it is made of are the run's, in their order.
[[nodiscard]] std::string calibration_text(const MachineRun& run, const Calibration& calibration);

/// Of hosts, whose ranks are processes with a core each. Throws InputError where too little was measured.
[[nodiscard]] MachineFiles host_files(const MachineRun& run);

}  // namespace tidemark::scenarios
