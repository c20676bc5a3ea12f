#include "parallel/schedule/dry_run.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tidemark::parallel {
namespace {

constexpr Duration never{-1};

// What has become of a message.
struct Passage {
  Duration sent = never, awaited = never;  // when either side began
  bool beside = false;                     // for the receiver
};

class Runner {
 public:
  Runner(const std::vector<Steps>& steps, const StagePlacement& placement, const Spans& spans)
      : steps_(steps), placement_(placement), neighbours_(placement), spans_(spans), ranks_(steps.size()) {
    for (const Steps& its : steps)
      for (const Step& step : its)
        if (const auto* action = std::get_if<Action>(&step))
          micro_batches_ = std::max(micro_batches_, action->micro_batch + 1);
    passages_.resize(2 * steps.size() * static_cast<std::size_t>(placement.chunks * micro_batches_));
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) ranks_[rank].now = spans.begin[rank];
  }

  DryRun run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        while (ranks_[rank].next < steps_[rank].size() && advance(rank)) moved = true;
    }
    DryRun found;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      found.ends.push_back(ranks_[rank].now);
      if (ranks_[rank].next < steps_[rank].size())
        found.stuck.push_back({static_cast<std::int32_t>(rank), ranks_[rank].next});
    }
    return found;
  }

 private:
  struct Rank {
    std::size_t next = 0;
    bool begun = false;  // the hand-over that is next
    Duration now, host;
  };

  // A message is known by where it goes.
  [[nodiscard]] Passage& passage(const Message& m) {
    const std::int32_t payload = m.payload == Payload::Output ? 0 : 1;
    const std::int32_t place = (payload * placement_.ranks + m.to.rank) * placement_.chunks + m.to.chunk;
    return passages_[static_cast<std::size_t>(place * micro_batches_ + m.micro_batch)];
  }

  bool advance(std::size_t rank) {
    const Step& step = steps_[rank][ranks_[rank].next];
    if (const auto* p2p = std::get_if<P2pExchange>(&step)) return advance(ranks_[rank], *p2p);
    return advance(static_cast<std::int32_t>(rank), ranks_[rank], std::get<Action>(step));
  }

  bool advance(std::int32_t rank, Rank& at, const Action& action) {
    if (const auto message = neighbours_.needed(rank, action)) {
      const Passage& its = passage(*message);
      const bool is_here = message->from.rank == rank;
      if (its.sent == never || (!is_here && its.awaited == never)) return false;
      if (its.beside) at.now = std::max(at.now, its.sent + spans_.message);
    }
    at.now += spans_.action(rank, action);
    if (spans_.host.action) at.now = std::max(at.now, at.host += spans_.host.action(rank, action));
    ++at.next;
    if (const auto message = neighbours_.made(rank, action); message && message->to.rank == rank)
      passage(*message).sent = at.now;
    return true;
  }

  // Whether it is over, or has begun only now.
  bool advance(Rank& at, const P2pExchange& p2p) {
    const bool begins = !std::exchange(at.begun, true);
    if (begins) {
      if (p2p.send) passage(*p2p.send).sent = at.now;
      if (p2p.receive) {
        passage(*p2p.receive).awaited = at.now;
        passage(*p2p.receive).beside = p2p.beside;
      }
    }
    if (!p2p.beside) {
      Duration end = at.now;
      for (const auto* message : {&p2p.send, &p2p.receive}) {
        if (!*message) continue;
        const Passage& its = passage(**message);
        if (its.sent == never || its.awaited == never) return begins;
        end = std::max(end, std::max(its.sent, its.awaited) + spans_.message);
      }
      at.now = end;
      if (spans_.host.waits) at.host = end;
    }
    at.begun = false;
    ++at.next;
    return true;
  }

  const std::vector<Steps>& steps_;
  const StagePlacement& placement_;
  Neighbours neighbours_;
  const Spans& spans_;
  std::vector<Rank> ranks_;
  std::int32_t micro_batches_ = 0;
  std::vector<Passage> passages_;
};

}  // namespace

DryRun dry_run(const std::vector<Steps>& steps, const StagePlacement& placement, const Spans& spans) {
  return Runner(steps, placement, spans).run();
}

std::string deadlock(const std::vector<Steps>& steps, const StagePlacement& placement) {
  const Spans instant{[](std::int32_t, const Action&) { return Duration{}; }, {}, std::vector<Duration>(steps.size())};
  std::string out;
  for (const StuckRank& stuck : dry_run(steps, placement, instant).stuck) {
    const Step& step = steps[static_cast<std::size_t>(stuck.rank)][stuck.step];
    out += fmt::format("{}rank {} waits in {}", out.empty() ? "" : "; ", stuck.rank, text(Steps{step}));
  }
  return out;
}

}  // namespace tidemark::parallel
