#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/base/units.hpp"

// What one process of a dry run left behind (scenarios/dry_run/inside writes it).

namespace tidemark::scenarios {

/// PyTorch's counters of its caching allocator.
struct AllocatorCounters {
  Bytes allocated, active, reserved, requested;
  friend bool operator==(const AllocatorCounters&, const AllocatorCounters&) = default;
};

/// Counters at their highest, each by itself, and as the part ends.
struct DryStep {
  AllocatorCounters peak, after;
  friend bool operator==(const DryStep&, const DryStep&) = default;
};

enum class DryOutcome : std::uint8_t {
  Completed,    ///< as many steps as were asked for
  Ended,        ///< the script came to its end before
  OutOfMemory,  ///< it ended because memory ran out
  Error,        ///< it ended by an exception
  Refused,      ///< it asked for what the null device does not have
};

struct NamedBytes {
  std::string name;
  Bytes bytes;
  friend bool operator==(const NamedBytes&, const NamedBytes&) = default;
};

/// A process group that the rank was a member of, and what it did with it.
struct DryGroup {
  std::vector<std::int64_t> ranks;
  std::string backend;  ///< as the script asked for it
  bool on_device = true;
  bool reduces = false, shards = false, exchanges = false;
  std::vector<std::int64_t> peers;  ///< of messages
  friend bool operator==(const DryGroup&, const DryGroup&) = default;
};

/// Something that a device or other ranks would have said, and what was said in their place.
struct StoodIn {
  std::string what, where;
  std::int64_t count = 1;
  friend bool operator==(const StoodIn&, const StoodIn&) = default;
};

struct DryFailure {
  std::string type, message;
  std::vector<std::string> stack;  ///< innermost first
  friend bool operator==(const DryFailure&, const DryFailure&) = default;
};

/// Where the allocator found no memory for the first time, whatever the script made of it.
struct DeviceRanOut {
  Bytes wanted, device_free;
  std::int64_t after_steps = 0;
  AllocatorCounters then;
  std::vector<std::string> stack;
  friend bool operator==(const DeviceRanOut&, const DeviceRanOut&) = default;
};

struct RankReport {
  std::int64_t rank = 0;
  DryOutcome outcome = DryOutcome::Ended;
  std::string torch, cuda, python;
  std::map<std::string, std::string> packages;  ///< releases of frameworks that the script imported
  std::optional<std::int64_t> nccl;             ///< major x 100 + minor
  std::optional<DryStep> set_up;                ///< before the first forward pass
  std::vector<DryStep> steps;
  AllocatorCounters rest;  ///< highest after the last step
  std::optional<std::int64_t> device;
  std::int64_t retries = 0;
  Bytes at_peak;  ///< allocated
  std::vector<NamedBytes>
      by_what;  ///< of it: parameters, gradients, optimizer_state, buffers, the largest first, and other last
  std::vector<NamedBytes> by_place;  ///< of what is `other`: where the code asked for it
  std::vector<std::string> peak_stack;
  std::vector<DryGroup> groups;
  std::vector<StoodIn> stood_in;
  std::optional<DeviceRanOut> ran_out;
  std::optional<DryFailure> failure;
  std::optional<std::int64_t> exit_status;
  std::optional<Bytes> host_resident;  ///< the most of it that was in memory
  double seconds = 0;

  /// Highest of all parts.
  [[nodiscard]] AllocatorCounters peak() const;
  friend bool operator==(const RankReport&, const RankReport&) = default;
};

/// Throws std::runtime_error where the file is not such a report.
[[nodiscard]] RankReport read_rank_report(const std::filesystem::path& file);
[[nodiscard]] RankReport parse_rank_report(const std::string& text, const std::string& file);

}  // namespace tidemark::scenarios
