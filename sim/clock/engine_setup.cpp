#include <algorithm>
#include <optional>
#include <utility>

#include "sim/base/in_parallel.hpp"
#include "sim/clock/detail/engine_state.hpp"
#include "sim/clock/lone_transfers.hpp"

namespace tidemark::sim {
namespace {

class SetUp {
 public:
  SetUp(const std::vector<Communicator>& communicators, const Folding& folding, Network& network)
      : state_(communicators, folding), network_(network) {}

  EngineState of(const std::vector<Program>& programs, const TimeCosts& costs) && {
    begin(programs.size(), costs);
    for (std::size_t p = 0; p < programs.size(); ++p) time_program(p, programs[p], Kernels::Each, costs);
    prepare(costs);
    for (ClassState& its : state_.classes) stand_at_start(its);
    return std::move(state_);
  }

  EngineState of(const std::vector<Outline>& programs, const TimeCosts& costs) && {
    begin(programs.size(), costs);
    std::vector<Overlaps> overlap(programs.size());
    in_parallel(0, programs.size(), [&](std::size_t p) {
      const std::shared_ptr<const RepeatingProgram> its = programs[p].get();
      time_program(p, *its, Kernels::Together, costs);
      overlap[p] = overlaps_of(*its);
    });
    prepare(costs);
    uses_.resize(costs.links.size());
    time_lone_transfers(overlap);
    for (ClassState& its : state_.classes) stand_at_start(its);
    return std::move(state_);
  }

 private:
  void begin(std::size_t programs, const TimeCosts& costs) {
    classes_.resize(programs);
    state_.classes.resize(state_.folding.classes.size());
    for (std::size_t c = 0; c < state_.classes.size(); ++c) {
      classes_[static_cast<std::size_t>(state_.folding.classes[c].program)].push_back(c);
      state_.classes[c].queue = costs.classes[c].queue;
      state_.classes[c].trace.beside = beside_of(static_cast<std::int32_t>(c), costs);
    }
  }

  // Classes whose kernels take equally long share a program. Of several programs at a time.
  template <class AnyProgram>
  void time_program(std::size_t which, const AnyProgram& program, Kernels how, const TimeCosts& costs) {
    std::vector<std::size_t> seen;  // classes that do not share
    for (const std::size_t c : classes_[which]) {
      const OpTimes& times = costs.classes[c];
      ClassState& its = state_.classes[c];
      const auto same = std::ranges::find_if(seen, [&](std::size_t other) {
        return costs.classes[other].host == times.host && costs.classes[other].queue == times.queue &&
               costs.classes[other].kernels == times.kernels && state_.classes[other].trace.beside == its.trace.beside;
      });
      if (same != seen.end()) {
        its.timed = state_.classes[*same].timed;
        continue;
      }
      seen.push_back(c);
      its.timed = std::make_shared<const TimedProgram>(
          timed(program, times.host, times.kernels, how, its.trace.beside, times.queue));
    }
  }

  // As if nobody used its links too, whom a price of classes counts among its sharers: every rank of a class is held up
  // as it would be for itself.
  static Duration by_itself(const TransferCost& cost, const std::vector<Bandwidth>& links) {
    Duration longest;
    for (const LinkLoad& load : cost.loads) longest = std::max(longest, load.bytes / links[load.link.index()]);
    return cost.latency + longest;
  }

  Beside beside_of(std::int32_t c, const TimeCosts& costs) {
    Beside beside{costs.classes[static_cast<std::size_t>(c)].second_waves, {}};
    if (beside.second_waves.empty()) return beside;
    for (std::size_t comm = 0; comm < state_.communicators.size(); ++comm) {
      const auto group = static_cast<std::size_t>(state_.group_of(c, {static_cast<std::int32_t>(comm)}));
      if (group >= costs.collectives.size()) continue;
      for (const auto& [key, cost] : costs.collectives[group])
        if (key.comm.index() == comm) beside.collectives[key] = by_itself(cost, costs.links);
    }
    return beside;
  }

  void prepare(const TimeCosts& costs) {
    for (std::int32_t c = 0; c < state_.class_count(); ++c) prepare(c, costs);
    for (const GroupClass& group : state_.folding.groups) state_.meetings.push_back({group.classes.size(), 0, {}});
  }

  void prepare(std::int32_t c, const TimeCosts& costs) {
    ClassState& its = state_.of(c);
    const TimedProgram& program = *its.timed;
    const OpTimes& times = costs.classes[static_cast<std::size_t>(c)];
    for (const CollectiveKey& key : program.collectives) {
      const std::int32_t group = state_.group_of(c, key.comm);
      const bool priced = static_cast<std::size_t>(group) < costs.collectives.size();
      its.collectives.push_back(
          {key.comm, group, priced ? cost_in(costs.collectives[static_cast<std::size_t>(group)], key) : nullptr});
    }
    for (const CopyKey& key : program.copies) its.copies.push_back(cost_in(times.copies, key));
    for (const TimedExchange& exchange : program.exchanges) {
      std::vector<MessageCall>& calls = its.exchanges.emplace_back();
      for (const TimedExchange::Message& m : exchange.messages) calls.push_back(message_call(c, times, exchange, m));
    }
  }

  void stand_at_start(ClassState& its) {
    const TimedProgram& program = *its.timed;
    its.fills_queue = !program.launched.empty();
    for (std::size_t s = 0; s < program.streams.size(); ++s) {
      StreamState& stream = its.streams.emplace_back(OpCursor(program, s));
      if (its.fills_queue && stream.stretch() > 0) stream.done.push({stream.stretch(), {}});
    }
    its.free_since.resize(static_cast<std::size_t>(its.queue.channels), 0);
    its.starts.reserve(static_cast<std::size_t>(program.stretches()));
    its.events.resize(program.events, unrecorded);
    its.meetings.resize(state_.communicators.size());
    its.trace.transfers.resize(program.streams.size());
  }

  // What repeats does so in the same order.
  static Overlaps overlaps_of(const RepeatingProgram& program) {
    const std::vector<Duration> no_time(program.rolled.kernels.size());
    return overlaps(timed(program.rolled, Duration{}, no_time, Kernels::Together));
  }

  // A transfer as links tell it apart: messages by their channel, collectives by their group and what they are. Copies
  // are all one: nobody's collective is alone where there are any.
  struct LinkUse {
    std::int32_t channel = nobody, group = nobody;
    CollectiveKey call = {};
    bool operator==(const LinkUse&) const = default;
  };
  static LinkUse use_of(const CollectiveCall& call, const CollectiveKey& key) { return {nobody, call.group, key}; }

  // Collectives of one class that meet no other transfer on their links become kernels.
  void time_lone_transfers(const std::vector<Overlaps>& overlaps) {
    note_link_uses();
    using Durations = std::vector<std::optional<Duration>>;
    std::map<std::pair<std::shared_ptr<const TimedProgram>, Durations>, std::shared_ptr<const TimedProgram>> known;
    for (std::size_t c = 0; c < state_.classes.size(); ++c) {
      ClassState& its = state_.classes[c];
      const Overlaps& overlap = overlaps[static_cast<std::size_t>(state_.folding.classes[c].program)];
      Durations durations;
      for (std::size_t call = 0; call < its.collectives.size(); ++call)
        durations.push_back(is_alone(its, call, overlap) ? std::optional(its.collectives[call].cost->latency +
                                                                         network_.alone(*its.collectives[call].cost))
                                                         : std::nullopt);
      for (std::size_t call = 0; call < durations.size(); ++call)
        if (durations[call]) its.trace.lone[its.timed->collectives[call]] = *durations[call];
      if (its.trace.lone.empty()) continue;
      const auto [found, added] = known.try_emplace({its.timed, durations});
      if (added) {
        found->second = std::make_shared<const TimedProgram>(with_known(*its.timed, durations));
      }
      its.timed = found->second;
    }
  }

  void note_link_uses() {
    const auto note = [&](const TransferCost* cost, const LinkUse& use) {
      if (cost == nullptr) return;
      for (const LinkLoad& load : cost->loads) {
        std::vector<LinkUse>& uses = uses_[load.link.index()];
        if (std::ranges::find(uses, use) == uses.end()) uses.push_back(use);
      }
    };
    for (const ClassState& its : state_.classes) {
      for (std::size_t call = 0; call < its.collectives.size(); ++call)
        note(its.collectives[call].cost, use_of(its.collectives[call], its.timed->collectives[call]));
      for (const std::vector<MessageCall>& messages : its.exchanges)
        for (const MessageCall& m : messages) note(m.cost, {.channel = m.channel});
      for (const TransferCost* cost : its.copies) note(cost, {});
    }
  }

  // Whether the class takes part in whatever uses the links of one of its collectives, at other times.
  [[nodiscard]] bool is_alone(const ClassState& its, std::size_t call, const Overlaps& overlap) const {
    const CollectiveCall& mine = its.collectives[call];
    if (mine.cost == nullptr || state_.meetings[static_cast<std::size_t>(mine.group)].members != 1) return false;
    return std::ranges::all_of(mine.cost->loads, [&](const LinkLoad& load) {
      return std::ranges::all_of(uses_[load.link.index()], [&](const LinkUse& use) {
        bool takes_part = false, at_other_times = true;
        const auto see = [&](bool same, std::size_t other) {
          takes_part |= same;
          at_other_times &= !same || !overlap[call][other];
        };
        for (std::size_t other = 0; other < its.collectives.size(); ++other)
          see(use_of(its.collectives[other], its.timed->collectives[other]) == use, other);
        for (std::size_t e = 0; e < its.exchanges.size(); ++e)
          for (const MessageCall& m : its.exchanges[e])
            see(use.channel != nobody && m.channel == use.channel, its.collectives.size() + e);
        return takes_part && at_other_times;
      });
    });
  }

  template <class Key>
  static const TransferCost* cost_in(const std::map<Key, TransferCost>& costs, const Key& key) {
    const auto found = costs.find(key);
    return found == costs.end() ? nullptr : &found->second;
  }

  MessageCall message_call(std::int32_t c, const OpTimes& times, const TimedExchange& exchange,
                           const TimedExchange::Message& message) {
    const Rank peer = group_neighbour(state_.communicators[exchange.comm.index()],
                                      state_.folding.classes[static_cast<std::size_t>(c)].first, message.step);
    const std::int32_t other = state_.folding.class_of_rank[peer.index()];
    if (message.direction == Direction::Receive)
      return {message.direction, channel({exchange.comm.value, other, c, -message.step}), nullptr};
    return {message.direction, channel({exchange.comm.value, c, other, message.step}),
            cost_in(times.messages, {exchange.comm, message.step, message.size})};
  }

  std::int32_t channel(const Way& way) {
    const auto [entry, added] = state_.ways.try_emplace(way, static_cast<std::int32_t>(state_.channels.size()));
    if (added) state_.channels.emplace_back();
    return entry->second;
  }

  EngineState state_;
  std::vector<std::vector<std::size_t>> classes_;  // by program
  Network& network_;
  std::vector<std::vector<LinkUse>> uses_;  // by LinkId
};

}  // namespace

EngineState set_up(const std::vector<Program>& programs, const std::vector<Communicator>& communicators,
                   const Folding& folding, const TimeCosts& costs, Network& network) {
  return SetUp(communicators, folding, network).of(programs, costs);
}

EngineState set_up(const std::vector<Outline>& programs, const std::vector<Communicator>& communicators,
                   const Folding& folding, const TimeCosts& costs, Network& network) {
  return SetUp(communicators, folding, network).of(programs, costs);
}

}  // namespace tidemark::sim
