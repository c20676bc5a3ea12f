#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "sim/clock/detail/engine_state.hpp"
#include "sim/program/text/program_text.hpp"

namespace tidemark::sim {
namespace {

bool waits(const EngineState& state, const Channel& channel, const Waiter& at) {
  return std::any_of(channel.waiting.begin(), channel.waiting.end(), [&](const HalfMessage& half) {
    const Waiter& waiter = state.exchanges[half.exchange].waiter;
    return waiter.rank_class == at.rank_class && waiter.stream == at.stream;
  });
}

Stall stall(const EngineState& state, const Waiter& at) {
  const TimedOp& op = state.of(at.rank_class).streams[at.stream.index()].next.op();
  Stall found{at.rank_class, op.op, {}, nobody};
  if (op.kind == TimedOp::Kind::Collective) {
    const CollectiveKey& collective = state.of(at.rank_class).timed->collectives[op.what];
    const std::int32_t group = state.group_of(at.rank_class, collective.comm);
    const std::int64_t which = state.of(at.rank_class).meetings[collective.comm.index()] - 1;
    const std::vector<Waiter>& there = state.meetings[static_cast<std::size_t>(group)].at(which).arrived;
    for (const std::int32_t member : state.folding.groups[static_cast<std::size_t>(group)].classes) {
      const bool came =
          std::any_of(there.begin(), there.end(), [&](const Waiter& w) { return w.rank_class == member; });
      if (!came && found.waits_for_class == nobody) found.waits_for_class = member;
    }
    found.waiting_for =
        fmt::format("{} in communicator {}", name(collective.kind), state.communicators[collective.comm.index()].name);
    return found;
  }
  // The first message of the exchange that the other side has not posted.
  for (const auto& [way, number] : state.ways) {
    const Channel& channel = state.channels[static_cast<std::size_t>(number)];
    if (!waits(state, channel, at)) continue;
    const auto& [comm, from, to, step] = way;
    const bool sends = channel.side == Direction::Send;
    found.waits_for_class = sends ? to : from;
    found.waiting_for = fmt::format("{} in communicator {}", sends ? "its send to be received" : "a message to be sent",
                                    state.communicators[static_cast<std::size_t>(comm)].name);
    break;
  }
  return found;
}

}  // namespace

std::vector<Stall> stalls_of(const EngineState& state) {
  std::vector<Stall> stalls;
  for (std::int32_t c = 0; c < state.class_count(); ++c) {
    const std::vector<StreamState>& streams = state.of(c).streams;
    for (std::size_t s = 0; s < streams.size(); ++s)
      if (streams[s].in_transfer) stalls.push_back(stall(state, {c, {static_cast<std::int32_t>(s)}}));
  }
  return stalls;
}

std::vector<std::int32_t> cycle_of(const std::vector<Stall>& stalls) {
  std::map<std::int32_t, std::int32_t> next;
  for (const Stall& s : stalls) next.try_emplace(s.rank_class, s.waits_for_class);
  for (const auto& [start, unused] : next) {
    std::vector<std::int32_t> path;
    std::int32_t at = start;
    while (next.contains(at) && std::find(path.begin(), path.end(), at) == path.end()) {
      path.push_back(at);
      at = next.at(at);
    }
    const auto again = std::find(path.begin(), path.end(), at);
    if (again != path.end()) return {again, path.end()};
  }
  return {};
}

}  // namespace tidemark::sim
