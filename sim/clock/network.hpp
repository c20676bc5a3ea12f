#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/clock/fair_share.hpp"
#include "sim/clock/transfer.hpp"

namespace tidemark::sim {

/// Whether concurrent transfers slow each other down on links they share.
enum class LinkSharing : std::uint8_t { MaxMinFair, None };

/// Bytes under way on links. Rates change whenever a transfer comes or goes; an end that was planned under old rates
/// is void, which its version tells.
class Network {
 public:
  /// A transfer that is to end at `at`, if nothing changes before.
  struct PlannedEnd {
    std::int32_t transfer = -1;
    std::uint32_t version = 0;
    Instant at;
  };

  Network(const std::vector<Bandwidth>& links, LinkSharing sharing);

  /// The bytes of `price` start to move now. `transfer` is the caller's number for it, small and reused.
  void start(std::int32_t transfer, const TransferCost& cost, Instant now);
  void finish(std::int32_t transfer);
  /// How long the bytes of `price` take where nothing else moves.
  [[nodiscard]] Duration alone(const TransferCost& cost);
  [[nodiscard]] bool is_current(std::int32_t transfer, std::uint32_t version) const {
    return flows_[static_cast<std::size_t>(transfer)].version == version;
  }
  /// What is left of a transfer that is under way: equal ones end as much later as their `now` is later.
  struct Progress {
    std::int64_t remaining_high = 0, remaining_low = 0;
    Bandwidth rate;
    Duration since;  ///< before now
    bool shares = false;
    bool operator==(const Progress&) const = default;
  };
  [[nodiscard]] Progress progress(std::int32_t transfer, Instant now) const;
  /// All of it happens so much later.
  void shift(Duration by) {
    for (Flow& flow : flows_) flow.since = flow.since + by;
  }
  /// Call once everything of this instant has started and finished: the ends to plan anew. Valid until the next call.
  [[nodiscard]] const std::vector<PlannedEnd>& settle(Instant now);

 private:
  __extension__ using Wide = __int128;

  struct Flow {
    Wide remaining = 0;  ///< bytes of its largest load, times picoseconds per second
    Bandwidth rate;
    Instant since;  ///< `remaining` was true then
    std::uint32_t version = 0;
    FlowId id;
  };
  void plan(std::int32_t transfer, Instant at);

  const std::vector<Bandwidth>& links_;
  LinkSharing sharing_;
  FairShare shares_;
  std::vector<Flow> flows_;                // by transfer
  std::vector<std::int32_t> transfer_of_;  // by FlowId
  std::vector<PlannedEnd> planned_, returned_;
};

}  // namespace tidemark::sim
