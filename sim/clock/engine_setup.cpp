#include <algorithm>
#include <optional>
#include <utility>

#include "sim/clock/detail/engine_state.hpp"
#include "sim/clock/lone_transfers.hpp"

namespace tidemark::sim {
namespace {

class SetUp {
 public:
  SetUp(const std::vector<Communicator>& communicators, const Folding& folding, const EngineOptions& options,
        Network& network)
      : state_(communicators, folding), options_(options), network_(network) {}

  template <class Programs>
  EngineState of(const Programs& programs, const TimePrices& prices) && {
    time_programs(programs, prices);
    for (std::int32_t c = 0; c < state_.class_count(); ++c) prepare(c, prices);
    for (const GroupClass& group : state_.folding.groups) state_.meetings.push_back({group.classes.size(), 0, {}});
    // A timeline tells of each by itself.
    if (options_.keep == Keep::Ends) {
      uses_.resize(prices.links.size());
      std::vector<Overlaps> overlap;
      for (const auto& program : programs) overlap.push_back(overlaps_of(program));
      time_lone_transfers(overlap);
    }
    for (ClassState& its : state_.classes) stand_at_start(its);
    return std::move(state_);
  }

 private:
  // Classes whose kernels take equally long share a program.
  template <class Programs>
  void time_programs(const Programs& programs, const TimePrices& prices) {
    const Kernels how = options_.keep == Keep::Timeline ? Kernels::Each : Kernels::Together;
    std::vector<std::vector<std::size_t>> seen(programs.size());  // classes that do not share, by program
    std::vector<Beside> beside(state_.folding.classes.size());
    state_.classes.resize(state_.folding.classes.size());
    for (std::size_t c = 0; c < state_.classes.size(); ++c) {
      const OpTimes& times = prices.classes[c];
      const auto which = static_cast<std::size_t>(state_.folding.classes[c].program);
      ClassState& its = state_.classes[c];
      if constexpr (std::is_same_v<Programs, std::vector<Program>>) its.program = &programs[which];
      its.launch = times.launch;
      beside[c] = beside_of(static_cast<std::int32_t>(c), prices);
      const auto same = std::find_if(seen[which].begin(), seen[which].end(), [&](std::size_t other) {
        return prices.classes[other].launch == times.launch && prices.classes[other].kernels == times.kernels &&
               beside[other] == beside[c];
      });
      if (same != seen[which].end()) {
        its.timed = state_.classes[*same].timed;
        continue;
      }
      seen[which].push_back(c);
      state_.timed.push_back(
          std::make_unique<TimedProgram>(timed(programs[which], times.launch, times.kernels, how, beside[c])));
      its.timed = state_.timed.back().get();
    }
  }

  // As if nobody used its links too, whom a price of classes counts among its sharers: every rank of a class is held up
  // as it would be for itself.
  static Duration by_itself(const TransferPrice& price, const std::vector<Bandwidth>& links) {
    Duration longest;
    for (const LinkLoad& load : price.loads) longest = std::max(longest, load.bytes / links[load.link.index()]);
    return price.latency + longest;
  }

  Beside beside_of(std::int32_t c, const TimePrices& prices) {
    Beside beside{prices.classes[static_cast<std::size_t>(c)].second_waves, {}};
    if (beside.second_waves.empty()) return beside;
    for (std::size_t comm = 0; comm < state_.communicators.size(); ++comm) {
      const auto group = static_cast<std::size_t>(state_.group_of(c, {static_cast<std::int32_t>(comm)}));
      if (group >= prices.collectives.size()) continue;
      for (const auto& [key, price] : prices.collectives[group])
        if (key.comm.index() == comm) beside.collectives[key] = by_itself(price, prices.links);
    }
    return beside;
  }

  void prepare(std::int32_t c, const TimePrices& prices) {
    ClassState& its = state_.of(c);
    const TimedProgram& program = *its.timed;
    const OpTimes& times = prices.classes[static_cast<std::size_t>(c)];
    for (const CollectiveKey& key : program.collectives) {
      const std::int32_t group = state_.group_of(c, key.comm);
      const bool priced = static_cast<std::size_t>(group) < prices.collectives.size();
      its.collectives.push_back(
          {key.comm, group, priced ? price_in(prices.collectives[static_cast<std::size_t>(group)], key) : nullptr});
    }
    for (const CopyKey& key : program.copies) its.copies.push_back(price_in(times.copies, key));
    for (const TimedExchange& exchange : program.exchanges) {
      std::vector<MessageCall>& calls = its.exchanges.emplace_back();
      for (const TimedExchange::Message& m : exchange.messages) calls.push_back(message_call(c, times, exchange, m));
    }
  }

  void stand_at_start(ClassState& its) {
    const TimedProgram& program = *its.timed;
    for (const std::vector<TimedOp>& ops : program.streams) {
      StreamState& stream = its.streams.emplace_back();
      stream.next = ops.data();
      stream.end = ops.data() + ops.size();
    }
    its.starts.reserve(program.host.size());
    its.events.resize(program.events, unrecorded);
    its.meetings.resize(state_.communicators.size());
    if (options_.keep == Keep::Timeline) {
      its.trace.host.resize(its.program->ops.size());
      std::size_t spans = 0;
      for (const std::vector<TimedOp>& ops : program.streams) spans += ops.size();
      its.trace.spans.reserve(spans);
    }
  }

  static Overlaps overlaps_of(const Program& program) {
    return overlaps(timed(program, {}, std::vector<Duration>(program.kernels.size()), Kernels::Together));
  }
  // What repeats does so in the same order.
  static Overlaps overlaps_of(const RepeatingProgram& program) { return overlaps_of(program.rolled); }

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
    std::map<std::pair<const TimedProgram*, Durations>, const TimedProgram*> known;
    for (std::size_t c = 0; c < state_.classes.size(); ++c) {
      ClassState& its = state_.classes[c];
      const Overlaps& overlap = overlaps[static_cast<std::size_t>(state_.folding.classes[c].program)];
      Durations durations;
      for (std::size_t call = 0; call < its.collectives.size(); ++call)
        durations.push_back(is_alone(its, call, overlap) ? std::optional(its.collectives[call].price->latency +
                                                                         network_.alone(*its.collectives[call].price))
                                                         : std::nullopt);
      if (std::ranges::none_of(durations, [](const auto& d) { return d.has_value(); })) continue;
      const auto [found, added] = known.try_emplace({its.timed, durations});
      if (added) {
        state_.timed.push_back(std::make_unique<TimedProgram>(with_known(*its.timed, durations)));
        found->second = state_.timed.back().get();
      }
      its.timed = found->second;
    }
  }

  void note_link_uses() {
    const auto note = [&](const TransferPrice* price, const LinkUse& use) {
      if (price == nullptr) return;
      for (const LinkLoad& load : price->loads) {
        std::vector<LinkUse>& uses = uses_[load.link.index()];
        if (std::ranges::find(uses, use) == uses.end()) uses.push_back(use);
      }
    };
    for (const ClassState& its : state_.classes) {
      for (std::size_t call = 0; call < its.collectives.size(); ++call)
        note(its.collectives[call].price, use_of(its.collectives[call], its.timed->collectives[call]));
      for (const std::vector<MessageCall>& messages : its.exchanges)
        for (const MessageCall& m : messages) note(m.price, {.channel = m.channel});
      for (const TransferPrice* price : its.copies) note(price, {});
    }
  }

  // Whether the class takes part in whatever uses the links of one of its collectives, at other times.
  [[nodiscard]] bool is_alone(const ClassState& its, std::size_t call, const Overlaps& overlap) const {
    const CollectiveCall& mine = its.collectives[call];
    if (mine.price == nullptr || state_.meetings[static_cast<std::size_t>(mine.group)].members != 1) return false;
    return std::ranges::all_of(mine.price->loads, [&](const LinkLoad& load) {
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
  static const TransferPrice* price_in(const std::map<Key, TransferPrice>& prices, const Key& key) {
    const auto found = prices.find(key);
    return found == prices.end() ? nullptr : &found->second;
  }

  MessageCall message_call(std::int32_t c, const OpTimes& times, const TimedExchange& exchange,
                           const TimedExchange::Message& message) {
    const Rank peer = group_neighbour(state_.communicators[exchange.comm.index()],
                                      state_.folding.classes[static_cast<std::size_t>(c)].first, message.step);
    const std::int32_t other = state_.folding.class_of_rank[peer.index()];
    if (message.direction == Direction::Receive)
      return {message.direction, channel({exchange.comm.value, other, c, -message.step}), nullptr};
    return {message.direction, channel({exchange.comm.value, c, other, message.step}),
            price_in(times.messages, {exchange.comm, message.step, message.size})};
  }

  std::int32_t channel(const Way& way) {
    const auto [entry, added] = state_.ways.try_emplace(way, static_cast<std::int32_t>(state_.channels.size()));
    if (added) state_.channels.emplace_back();
    return entry->second;
  }

  EngineState state_;
  const EngineOptions& options_;
  Network& network_;
  std::vector<std::vector<LinkUse>> uses_;  // by LinkId
};

}  // namespace

EngineState set_up(const std::vector<Program>& programs, const std::vector<Communicator>& communicators,
                   const Folding& folding, const TimePrices& prices, const EngineOptions& options, Network& network) {
  return SetUp(communicators, folding, options, network).of(programs, prices);
}

EngineState set_up(const std::vector<RepeatingProgram>& programs, const std::vector<Communicator>& communicators,
                   const Folding& folding, const TimePrices& prices, const EngineOptions& options, Network& network) {
  return SetUp(communicators, folding, options, network).of(programs, prices);
}

}  // namespace tidemark::sim
