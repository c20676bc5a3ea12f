#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/clock/transfer.hpp"
#include "sim/program/program.hpp"
#include "topology/namespace.hpp"

// What was measured of one machine: times of kernels, collectives, messages and copies. They take the place of what
// models say (docs/calibration.md has the rule).

namespace tidemark::topology {

struct Calibration {
  /// A kernel by itself. What its sizes are depends on the operation (kernels/cost/calibrated_kernel.hpp).
  struct Kernel {
    Operation operation = Operation::Matmul;
    DType dtype = DType::BF16;
    std::vector<std::int64_t> sizes;
    Duration time;
    bool operator==(const Kernel&) const = default;
  };
  /// `size`: what the larger side holds on one rank.
  struct Collective {
    CollectiveKind kind = CollectiveKind::AllReduce;
    std::int32_t ranks = 1, nodes = 1;
    Bytes size;
    Duration time;
    bool operator==(const Collective&) const = default;
  };
  /// From one device to another one.
  struct Message {
    bool between_nodes = false;
    Bytes size;
    Duration time;
    bool operator==(const Message&) const = default;
  };
  /// Between a device and its host's pinned memory.
  struct Copy {
    bool to_device = true;
    Bytes size;
    Duration time;
    bool operator==(const Copy&) const = default;
  };

  std::string name;    ///< of the file
  std::string source;  ///< who measured what, where
  std::string text;    ///< what the file says
  std::vector<Kernel> kernels;
  std::vector<Collective> collectives;
  std::vector<Message> messages;
  std::vector<Copy> copies;

  [[nodiscard]] bool has_transfers() const { return !collectives.empty() || !messages.empty() || !copies.empty(); }
  bool operator==(const Calibration&) const = default;
};

/// One that all copies of a cluster share, or none; equal where they say the same.
class SharedCalibration {
 public:
  SharedCalibration() = default;
  SharedCalibration(Calibration its) : its_(std::make_shared<const Calibration>(std::move(its))) {}  // NOLINT
  [[nodiscard]] bool there() const { return its_ != nullptr; }
  [[nodiscard]] const Calibration* get() const { return its_.get(); }
  const Calibration* operator->() const { return its_.get(); }
  friend bool operator==(const SharedCalibration& a, const SharedCalibration& b) {
    return a.its_ == b.its_ || (a.its_ && b.its_ && *a.its_ == *b.its_);
  }

 private:
  std::shared_ptr<const Calibration> its_;
};

/// Where a time comes from.
enum class TimeSource : std::uint8_t { Model, Interpolated, Measured };

/// A size at which something was measured, and how long it took.
struct MeasuredPoint {
  std::vector<std::int64_t> sizes;
  Duration time;
  /// What the model has for those sizes.
  double modelled = 0;
};
/// The time of `sizes`, of which a model has `modelled`: that of the point with the same sizes (times what the model
/// makes of a difference that is none of sizes: a product that accumulates); else, where a point is within a factor of
/// two in each of them, the model's times a ratio of measured to modelled that is a power law of the sizes, fitted to
/// the points within a factor of eight by weighted least squares, near ones first. Nothing where there is no such
/// point.
struct TimeByPoints {
  Duration time;
  TimeSource source = TimeSource::Model;
};
[[nodiscard]] std::optional<TimeByPoints> time_by_points(std::span<const MeasuredPoint> points,
                                                         std::span<const std::int64_t> sizes, double modelled);

/// Of a collective among so many ranks on so many nodes; `modelled`: what a model has for a size. Nothing where nothing
/// like it was measured.
[[nodiscard]] std::optional<TimeByPoints> measured_time(const Calibration& calibration, CollectiveKind kind,
                                                        std::int32_t ranks, std::int32_t nodes, Bytes size);
[[nodiscard]] std::optional<TimeByPoints> measured_message(const Calibration& calibration, bool between_nodes,
                                                           Bytes size);
[[nodiscard]] std::optional<TimeByPoints> measured_copy(const Calibration& calibration, bool to_device, Bytes size);

/// The transfer, of which a model says that it takes `modelled` with its links to itself, so that it takes `time`: its
/// latency and what it puts on links grow or shrink alike, so that others share links with it as before.
[[nodiscard]] TransferCost stretched(TransferCost cost, Duration modelled, Duration time);
/// How long it takes alone, whoever shares its links: `capacities` by link.
[[nodiscard]] Duration lone(const TransferCost& cost, std::span<const Bandwidth> capacities);

}  // namespace tidemark::topology
