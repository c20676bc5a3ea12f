#include "parallel/schedule/messages.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tidemark::parallel {
namespace {

// The one of them that goes to another rank.
std::optional<Message> sent(const std::optional<Message>& message) {
  return message && message->from.rank != message->to.rank ? message : std::nullopt;
}

void add(Steps& steps, bool beside, const std::optional<Message>& send, const std::optional<Message>& receive) {
  if (send || receive) steps.emplace_back(P2pExchange{send, receive, beside});
}

// Room for each action and what goes before and after it.
Steps empty_steps(const Schedule& schedule) {
  Steps steps;
  steps.reserve(3 * schedule.size() + 1);
  return steps;
}

Steps free_steps(const Schedule& schedule, const Neighbours& neighbours, std::int32_t rank) {
  Steps steps = empty_steps(schedule);
  for (const Action& action : schedule) {
    add(steps, true, {}, sent(neighbours.needed(rank, action)));
    steps.emplace_back(action);
    add(steps, true, sent(neighbours.made(rank, action)), {});
  }
  return steps;
}

Steps paired_steps(const Schedule& schedule, const Neighbours& neighbours, std::int32_t rank) {
  Steps steps = empty_steps(schedule);
  std::optional<Message> goes;
  bool forward = false;  // what goes is of a forward pass
  for (const Action& action : schedule) {
    const std::optional<Message> comes = sent(neighbours.needed(rank, action));
    if (forward != is_forward(action.kind)) {
      add(steps, false, goes, comes);
    } else {
      add(steps, false, goes, {});
      add(steps, false, {}, comes);
    }
    steps.emplace_back(action);
    goes = sent(neighbours.made(rank, action));
    forward = is_forward(action.kind);
  }
  add(steps, false, goes, {});
  return steps;
}

// The passes of all ranks in one direction, which they run in step.
class Overlapped {
 public:
  Overlapped(const std::vector<Schedule>& schedules, const Neighbours& neighbours, bool forward)
      : neighbours_(neighbours), forward_(forward), passes_(schedules.size()) {
    for (std::size_t rank = 0; rank < schedules.size(); ++rank)
      for (const Action& action : schedules[rank])
        if (is_forward(action.kind) == forward) passes_[rank].push_back(action);
  }

  // Megatron's own number: of a list that never alternates it says whether the last forward pass would.
  [[nodiscard]] std::int32_t warmup(std::int32_t rank) const {
    const Schedule& its = passes_[index(rank)];
    std::int32_t chunks = 0, group = 0;
    for (const Action& action : its) {
      chunks = std::max(chunks, action.chunk + 1);
      if (chunks == 1) ++group;
    }
    return interleaved_warmup(rank, static_cast<std::int32_t>(passes_.size()),
                              static_cast<std::int32_t>(its.size()) / chunks, chunks, group);
  }
  // Whose passes come before those of the other ranks.
  [[nodiscard]] bool leads(std::int32_t rank) const {
    return rank == (forward_ ? 0 : static_cast<std::int32_t>(passes_.size()) - 1);
  }
  // What a rank's first pass needs; the rank that leads the direction makes it itself.
  [[nodiscard]] std::optional<Message> before_all(std::int32_t rank) const {
    return sent(neighbours_.needed(rank, passes_[index(rank)].front()));
  }
  // What comes to a rank while its pass `k` sends. A rank is a pass behind the one that sends to it; the one that leads
  // is ahead of the last by all others.
  [[nodiscard]] std::optional<Message> beside(std::int32_t rank, std::int32_t k) const {
    const auto ranks = static_cast<std::int32_t>(passes_.size());
    const std::int32_t from = (rank + (forward_ ? ranks - 1 : 1)) % ranks;
    const std::int32_t its = leads(rank) ? k - (ranks - 1) : k + 1;
    if (its < 0 || its >= static_cast<std::int32_t>(passes_[index(from)].size())) return std::nullopt;
    return sent(neighbours_.made(from, passes_[index(from)][static_cast<std::size_t>(its)]));
  }

 private:
  static std::size_t index(std::int32_t rank) { return static_cast<std::size_t>(rank); }

  const Neighbours& neighbours_;
  bool forward_;
  std::vector<Schedule> passes_;
};

Steps in_step(const Schedule& schedule, const Neighbours& neighbours, std::int32_t rank, const Overlapped& forward,
              const Overlapped& backward, bool ahead) {
  Steps steps = empty_steps(schedule);
  if (schedule.empty()) return steps;                               // of a rank that nobody asks for
  const auto all = static_cast<std::int32_t>(schedule.size()) / 2;  // passes of each direction
  const std::int32_t warmup = forward.warmup(rank);
  std::int32_t forwards = 0, backwards = 0;
  add(steps, false, {}, forward.before_all(rank));
  for (const Action& action : schedule) {
    const bool of_outputs = is_forward(action.kind);
    const bool steady = of_outputs ? forwards >= warmup : backwards < all - warmup;
    const Overlapped& direction = of_outputs ? forward : backward;
    const std::optional<Message> goes = sent(neighbours.made(rank, action)),
                                 comes = direction.beside(rank, of_outputs ? forwards++ : backwards++);
    const bool before = ahead && !steady && !direction.leads(rank);
    if (before && comes) steps.emplace_back(P2pExchange{{}, comes, true, true});
    steps.emplace_back(action);
    add(steps, steady || ahead, goes, before ? std::nullopt : comes);
    if (of_outputs && forwards == warmup) add(steps, warmup < all, {}, backward.before_all(rank));
  }
  return steps;
}

}  // namespace

Neighbours::Neighbours(const StagePlacement& placement) : chunks_(placement.chunks) {
  for (std::int32_t rank = 0; rank < placement.ranks; ++rank)
    for (std::int32_t chunk = 0; chunk < chunks_; ++chunk) {
      previous_.push_back(placement.previous({rank, chunk}));
      next_.push_back(placement.next({rank, chunk}));
    }
}

std::optional<Message> Neighbours::needed(std::int32_t rank, const Action& action) const {
  const Place here{rank, action.chunk};
  const auto from = [&](Payload payload, const std::optional<Place>& place) -> std::optional<Message> {
    if (!place) return std::nullopt;
    return Message{payload, action.micro_batch, *place, here};
  };
  switch (action.kind) {
    case ActionKind::Forward:
      return from(Payload::Output, previous_[index(here)]);
    case ActionKind::InputGradient:
    case ActionKind::Backward:
      return from(Payload::InputGradient, next_[index(here)]);
    case ActionKind::WeightGradient:
      break;
  }
  return std::nullopt;
}

std::optional<Message> Neighbours::made(std::int32_t rank, const Action& action) const {
  const Place here{rank, action.chunk};
  const auto to = [&](Payload payload, const std::optional<Place>& place) -> std::optional<Message> {
    if (!place) return std::nullopt;
    return Message{payload, action.micro_batch, here, *place};
  };
  switch (action.kind) {
    case ActionKind::Forward:
      return to(Payload::Output, next_[index(here)]);
    case ActionKind::InputGradient:
    case ActionKind::Backward:
      return to(Payload::InputGradient, previous_[index(here)]);
    case ActionKind::WeightGradient:
      break;
  }
  return std::nullopt;
}

std::vector<Steps> with_messages(const std::vector<Schedule>& schedules, const StagePlacement& placement,
                                 P2pMode mode) {
  const Neighbours neighbours(placement);
  const auto of_each = [&](auto steps_of) {
    std::vector<Steps> all;
    for (std::size_t rank = 0; rank < schedules.size(); ++rank)
      all.push_back(steps_of(schedules[rank], static_cast<std::int32_t>(rank)));
    return all;
  };
  switch (mode) {
    case P2pMode::Free:
      return of_each([&](const Schedule& its, std::int32_t rank) { return free_steps(its, neighbours, rank); });
    case P2pMode::Batched:
      return of_each([&](const Schedule& its, std::int32_t rank) { return paired_steps(its, neighbours, rank); });
    case P2pMode::Overlapped:
    case P2pMode::OverlappedWithFlush: {
      const Overlapped forward(schedules, neighbours, true), backward(schedules, neighbours, false);
      const bool ahead = mode == P2pMode::OverlappedWithFlush;
      return of_each([&](const Schedule& its, std::int32_t rank) {
        return in_step(its, neighbours, rank, forward, backward, ahead);
      });
    }
  }
  return {};
}

std::string text(const Steps& steps) {
  Schedule schedule;
  for (const Step& step : steps)
    if (const auto* action = std::get_if<Action>(&step)) schedule.push_back(*action);
  const std::string actions = text(schedule);
  const bool several = actions.find('.') != std::string::npos;
  const auto name = [&](const Message& message, const Place& here) {
    return fmt::format("{}{}{}", message.payload == Payload::Output ? 'F' : 'B', message.micro_batch,
                       several ? fmt::format(".{}", here.chunk) : "");
  };
  std::string out;
  std::size_t at = 0;  // of the next action in their text
  for (const Step& step : steps) {
    if (!out.empty()) out += ' ';
    if (const auto* p2p = std::get_if<P2pExchange>(&step)) {
      const std::optional<Message>&send = p2p->send, &receive = p2p->receive;
      const std::string goes = send ? fmt::format("{}>{}", name(*send, send->from), send->to.rank) : "";
      const std::string comes = receive ? fmt::format("{}<{}", name(*receive, receive->to), receive->from.rank) : "";
      const std::string_view brackets = p2p->beside ? "{}" : "[]";
      out += fmt::format("{}{}{}{}{}", brackets[0], goes, send && receive ? " " : "", comes, brackets[1]);
    } else {
      const std::size_t end = std::min(actions.find(' ', at), actions.size());
      out.append(actions, at, end - at);
      at = end + 1;
    }
  }
  return out;
}

}  // namespace tidemark::parallel
