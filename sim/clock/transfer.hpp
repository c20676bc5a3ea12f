#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/base/units.hpp"

namespace tidemark::sim {

using LinkId =
    Id<struct LinkKind>;  ///< one direction of a link of the fabric, or a class of links that are loaded alike

/// Bytes that one transfer puts on one link. Where links and transfers stand for classes, `sharers` equal transfers of
/// the same class use the link at the same time.
struct LinkLoad {
  LinkId link;
  Bytes bytes;
  std::int32_t sharers = 1;
  bool operator==(const LinkLoad&) const = default;
};

/// What a collective or a message costs: a latency that no one shares, then bytes on links that others may share.
struct TransferCost {
  Duration latency;
  std::vector<LinkLoad> loads;  ///< a class of links once per load; empty: nothing but latency
  bool operator==(const TransferCost&) const = default;
};

}  // namespace tidemark::sim
