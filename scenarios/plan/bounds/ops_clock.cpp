#include "scenarios/plan/bounds/ops_clock.hpp"

#include <algorithm>
#include <limits>
#include <map>

namespace tidemark::scenarios {
namespace {

constexpr Duration ages_ago{std::numeric_limits<std::int64_t>::min() / 4};

/// When streams are done, and events recorded. Everything before the ops is done at 0 on the compute stream; of the
/// other streams that is not known, unless they begin with it.
class StreamClock {
 public:
  explicit StreamClock(bool others_begin_too) : others_begin_{others_begin_too ? Duration{} : ages_ago} {}

  Duration& operator[](StreamId id) {
    if (id.index() >= tails_.size()) tails_.resize(id.index() + 1, others_begin_);
    return tails_[id.index()];
  }
  void record(const TimedOp& op, Duration at) { events_[op.event] = at; }
  void wait(const TimedOp& op, Duration& what) const {
    if (const auto its = events_.find(op.event); its != events_.end()) what = std::max(what, its->second);
  }
  [[nodiscard]] bool is_recorded(const TimedOp& op) const { return events_.contains(op.event); }
  [[nodiscard]] Duration compute() const { return tails_.front(); }
  [[nodiscard]] Duration last() const { return *std::ranges::max_element(tails_); }

 private:
  Duration others_begin_;
  std::vector<Duration> tails_{Duration{}};
  std::map<std::int32_t, Duration> events_;
};

// Of an uneven collective the other members' parts are not known: nothing is certain but that it is called.
DurationBounds cost_of(const TimedOp& op, const GroupCosts& groups) {
  if (op.kind == TimedOp::Kind::Message) return groups.message(op.size);
  DurationBounds its = groups.collective(op.collective, op.size);
  if (op.uneven) its.low = {};
  return its;
}

/// `cost(i)`: of the i-th op, which takes time.
template <class Cost>
Duration with_a_host_that_is_never_late(const std::vector<TimedOp>& ops, Cost cost) {
  StreamClock streams(false);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const TimedOp& op = ops[i];
    Duration& stream = streams[op.stream];
    switch (op.kind) {
      case TimedOp::Kind::Compute:
      case TimedOp::Kind::Transfer:
      case TimedOp::Kind::Message:
        stream += cost(i);
        break;
      case TimedOp::Kind::Signal:
        streams.record(op, stream);
        break;
      case TimedOp::Kind::Await:
        streams.wait(op, stream);
        break;
      case TimedOp::Kind::HostAwait:
        break;
    }
  }
  return streams.compute();
}

Duration with_a_late_host(const std::vector<TimedOp>& ops, Duration launch, const CostsOf& costs_of) {
  StreamClock streams(true);
  Duration host;
  for (const TimedOp& op : ops) {
    Duration& stream = streams[op.stream];
    switch (op.kind) {
      case TimedOp::Kind::Compute:
        if (op.launched) host += launch;
        stream = std::max(stream, host) + op.duration + op.longer;
        break;
      case TimedOp::Kind::Transfer:
      case TimedOp::Kind::Message:
        host += launch;
        stream = std::max(stream, host) + cost_of(op, costs_of(op)).high;
        break;
      case TimedOp::Kind::Signal:
        streams.record(op, std::max(stream, host));
        break;
      case TimedOp::Kind::Await:
        streams.wait(op, stream);
        break;
      case TimedOp::Kind::HostAwait:
        streams.wait(op, host);
        break;
    }
  }
  return std::max(host, streams.last());
}

/// The streams of a rank on a clock of their own, as sim/clock/detail/rank_alone.hpp has them for a whole program: by
/// how much each kernel is longer beside collectives. Messages hold nothing there.
class SecondWaves {
 public:
  SecondWaves(const std::vector<TimedOp>& ops, const CostsOf& costs_of) : longer_(ops.size()) {
    for (std::size_t i = 0; i < ops.size(); ++i) add(i, ops[i], costs_of);
    for (const Held& held : held_) known_ = known_ && streams_[held.by] <= streams_.compute();
  }

  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] Duration longer(std::size_t op) const { return longer_[op]; }
  [[nodiscard]] bool runs_on() const { return streams_.last() > streams_.compute(); }
  [[nodiscard]] bool waits_for_before() const { return waits_for_before_; }

 private:
  struct Held {
    StreamId by;
    Duration begin, end;
  };

  void add(std::size_t i, const TimedOp& op, const CostsOf& costs_of) {
    Duration& stream = streams_[op.stream];
    switch (op.kind) {
      case TimedOp::Kind::Compute:
        longer_[i] = longer_at(op, stream);
        stream += op.duration + longer_[i];
        break;
      case TimedOp::Kind::Transfer: {
        const std::optional<Duration> its = op.uneven ? std::nullopt : costs_of(op).alone(op.collective, op.size);
        known_ = known_ && its && stream >= Duration{};
        held_.push_back({op.stream, stream, stream + its.value_or(Duration{})});
        stream = held_.back().end;
        break;
      }
      case TimedOp::Kind::Signal:
        streams_.record(op, stream);
        break;
      case TimedOp::Kind::Await:
        waits_for_before_ = waits_for_before_ || !streams_.is_recorded(op);
        streams_.wait(op, stream);
        break;
      case TimedOp::Kind::Message:
      case TimedOp::Kind::HostAwait:
        break;
    }
  }

  [[nodiscard]] Duration longer_at(const TimedOp& kernel, Duration at) const {
    Duration longest;
    for (const Held& held : held_)
      if (held.by != kernel.stream && held.begin <= at && at < held.end)
        longest = std::max(longest, std::min(kernel.longer, held.end - at));
    return longest;
  }

  StreamClock streams_{false};
  std::vector<Held> held_;
  std::vector<Duration> longer_;  // by op
  bool known_ = true, waits_for_before_ = false;
};

}  // namespace

DurationBounds clock_bounds(const std::vector<TimedOp>& ops, Duration launch, const CostsOf& costs_of) {
  const auto low = [&](std::size_t i) {
    return ops[i].kind == TimedOp::Kind::Compute ? ops[i].duration : cost_of(ops[i], costs_of(ops[i])).low;
  };
  return {with_a_host_that_is_never_late(ops, low), with_a_late_host(ops, launch, costs_of)};
}

std::optional<LowWithSecondWaves> low_with_second_waves(const std::vector<TimedOp>& ops, const CostsOf& costs_of) {
  const SecondWaves waves(ops, costs_of);
  if (!waves.known()) return std::nullopt;
  const Duration low = with_a_host_that_is_never_late(ops, [&](std::size_t i) {
    const TimedOp& op = ops[i];
    return op.kind == TimedOp::Kind::Compute ? op.duration + waves.longer(i) : cost_of(op, costs_of(op)).low;
  });
  return LowWithSecondWaves{low, waves.runs_on(), waves.waits_for_before()};
}

Launches launches_of(const std::vector<TimedOp>& ops) {
  Launches found{};
  for (const TimedOp& op : ops)
    if ((op.kind == TimedOp::Kind::Compute && op.launched) || op.kind == TimedOp::Kind::Transfer ||
        op.kind == TimedOp::Kind::Message)
      ++found[static_cast<std::size_t>(op.phase)];
  return found;
}

Duration host_time(const Launches& launches, const HostCosts& costs) {
  Duration all;
  for (std::size_t phase = 0; phase < phases; ++phase) all += launches[phase] * costs.of(static_cast<Phase>(phase));
  return all;
}

}  // namespace tidemark::scenarios
