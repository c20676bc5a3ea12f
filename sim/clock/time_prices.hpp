#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/clock/transfer.hpp"
#include "sim/program/program.hpp"

namespace tidemark::sim {

/// A collective as a price list tells it apart.
struct CollectiveKey {
  CommSlot comm;
  CollectiveKind kind = CollectiveKind::AllReduce;
  Bytes size;
  friend auto operator<=>(const CollectiveKey&, const CollectiveKey&) = default;
};

/// A message to the rank `step` places on.
struct MessageKey {
  CommSlot comm;
  std::int32_t step = 0;
  Bytes size;
  friend auto operator<=>(const MessageKey&, const MessageKey&) = default;
};

/// How long each op of one program takes on one kind of rank.
struct OpTimes {
  Duration launch;                ///< of the host thread, for each op that it hands to the device
  std::vector<Duration> kernels;  ///< by KernelId
  std::map<CollectiveKey, TransferPrice> collectives;
  std::map<MessageKey, TransferPrice> messages;
};

/// How long everything of a workload takes, by class of ranks; and the links that transfers share.
struct TimePrices {
  std::vector<OpTimes> classes;  ///< by class of a Folding
  std::vector<Bandwidth> links;  ///< by LinkId
};

}  // namespace tidemark::sim
