#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/namespace.hpp"
#include "sim/base/time.hpp"
#include "sim/program/program.hpp"
#include "topology/calibration.hpp"
#include "topology/cluster.hpp"

// Kernels whose times were measured, in place of what models say.

namespace tidemark::kernels {

/// What a calibration tells kernels of one operation and type apart by:
///   matrix products      batches, m, n, k; of products that share b, batches are rows of a
///   attention, backward  batch, heads, queries, keys, width of a head, and whether it is causal: 1 or 0; without
///   dropout all others           the bytes that they read and write
[[nodiscard]] std::vector<std::int64_t> calibrated_sizes(const Program& program, const Kernel& kernel);
/// The type that counts: of what is multiplied, of queries, of others the first output.
[[nodiscard]] DType calibrated_type(const Program& program, const Kernel& kernel);

/// What a device's model has for a kernel of such sizes, in any unit: between points times go with sizes as it does.
[[nodiscard]] double modelled_by_sizes(Operation operation, DType dtype, std::span<const std::int64_t> sizes,
                                       const Device& device);

/// A device's model says how times go with sizes between points. A single core has no tiles, waves or blocks: there it
/// is operations that do.
class CalibratedKernels {
 public:
  /// `device` as it is under load. The calibration has to outlive it.
  CalibratedKernels(const Calibration& calibration, const Device& device);

  /// Nothing where nothing like it was measured.
  [[nodiscard]] std::optional<TimeByPoints> time(const Program& program, const Kernel& kernel) const;

 private:
  Device device_;
  std::map<std::pair<Operation, DType>, std::vector<MeasuredPoint>> points_;
};

}  // namespace tidemark::kernels
