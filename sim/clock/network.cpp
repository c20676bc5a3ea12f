#include "sim/clock/network.hpp"

#include <algorithm>

namespace tidemark::sim {

Network::Network(const std::vector<Bandwidth>& links, LinkSharing sharing)
    : links_(links), sharing_(sharing), shares_(links) {}

void Network::plan(std::int32_t transfer, Instant at) {
  planned_.push_back({transfer, ++flows_[static_cast<std::size_t>(transfer)].version, at});
}

void Network::start(std::int32_t transfer, const TransferCost& cost, Instant now) {
  const auto index = static_cast<std::size_t>(transfer);
  if (index >= flows_.size()) flows_.resize(index + 1);
  Flow& flow = flows_[index];
  flow.id = FlowId{};
  const Bytes size = largest_load(cost.loads);
  if (size == Bytes{0}) return plan(transfer, now);
  if (sharing_ == LinkSharing::None) {
    Duration longest;
    for (const LinkLoad& load : cost.loads) longest = std::max(longest, load.bytes / links_[load.link.index()]);
    return plan(transfer, now + longest);
  }
  flow.remaining = static_cast<Wide>(size.count()) * picoseconds_per_second;
  flow.rate = {};
  flow.since = now;
  flow.id = shares_.add(cost.loads);
  if (flow.id.index() >= transfer_of_.size()) transfer_of_.resize(flow.id.index() + 1);
  transfer_of_[flow.id.index()] = transfer;
}

void Network::finish(std::int32_t transfer) {
  Flow& flow = flows_[static_cast<std::size_t>(transfer)];
  ++flow.version;
  if (flow.id.valid()) shares_.remove(flow.id);
  flow.id = FlowId{};
}

Network::Progress Network::progress(std::int32_t transfer, Instant now) const {
  const auto index = static_cast<std::size_t>(transfer);
  if (index >= flows_.size() || !flows_[index].id.valid()) return {};
  const Flow& flow = flows_[index];
  return {static_cast<std::int64_t>(flow.remaining >> 64), static_cast<std::int64_t>(flow.remaining), flow.rate,
          now - flow.since, true};
}

Duration Network::alone(const TransferCost& cost) {
  Network idle(links_, sharing_);
  idle.start(0, cost, Instant{});
  return idle.settle(Instant{}).front().at - Instant{};
}

const std::vector<Network::PlannedEnd>& Network::settle(Instant now) {
  for (const FlowId id : shares_.settle()) {
    const std::int32_t transfer = transfer_of_[id.index()];
    Flow& flow = flows_[static_cast<std::size_t>(transfer)];
    flow.remaining -= static_cast<Wide>((now - flow.since).count()) * flow.rate.count();
    flow.since = now;
    flow.rate = shares_.rate(id);
    const Wide left = std::max(flow.remaining, Wide{0});
    const Wide picoseconds = (left + flow.rate.count() - 1) / flow.rate.count();
    plan(transfer, now + Duration{static_cast<std::int64_t>(picoseconds)});
  }
  returned_.swap(planned_);
  planned_.clear();
  return returned_;
}

}  // namespace tidemark::sim
