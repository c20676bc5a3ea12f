#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/clock/host_costs.hpp"
#include "sim/clock/transfer.hpp"
#include "sim/program/launch_queue.hpp"
#include "sim/program/program.hpp"

namespace tidemark::sim {

/// A collective as a price list tells it apart. All members of a group have one key for a call.
struct CollectiveKey {
  CommSlot comm;
  CollectiveKind kind = CollectiveKind::AllReduce;
  Bytes size;            ///< of an even one
  MatrixId matrix = {};  ///< of an uneven one
  friend auto operator<=>(const CollectiveKey&, const CollectiveKey&) = default;
};
[[nodiscard]] inline CollectiveKey key_of(const Program& program, const Collective& o) {
  if (o.row.valid()) return {o.comm, o.kind, {}, program[o.row].matrix};
  return {o.comm, o.kind, o.size, {}};
}

/// A message to the rank `step` places on.
struct MessageKey {
  CommSlot comm;
  std::int32_t step = 0;
  Bytes size;
  friend auto operator<=>(const MessageKey&, const MessageKey&) = default;
};

/// A copy between a device and its host.
struct CopyKey {
  MemorySpace from = MemorySpace::Device;
  MemorySpace to = MemorySpace::Device;
  Bytes size;
  friend auto operator<=>(const CopyKey&, const CopyKey&) = default;
};

/// How long each op of one program takes on one kind of rank.
struct OpTimes {
  HostCosts host;                 ///< of the host thread, for each op that it hands to the device
  LaunchQueue queue;              ///< that it hands them over by
  std::vector<Duration> kernels;  ///< by KernelId
  /// By KernelId: what a kernel that has one block for each multiprocessor takes for those that find theirs taken.
  /// Empty: there is no such kernel.
  std::vector<Duration> second_waves;
  std::map<MessageKey, TransferCost> messages;
  std::map<CopyKey, TransferCost> copies;
};

/// How long everything of a workload takes, by class of ranks; and the links that transfers share.
struct TimeCosts {
  std::vector<OpTimes> classes;  ///< by class of a Folding
  /// By Folding::groups: what a group calls has one price, whoever of it comes first or last.
  std::vector<std::map<CollectiveKey, TransferCost>> collectives;
  std::vector<Bandwidth> links;  ///< by LinkId
};

}  // namespace tidemark::sim
