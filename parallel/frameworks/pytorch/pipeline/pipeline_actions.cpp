#include "parallel/frameworks/pytorch/pipeline/pipeline_actions.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "parallel/schedule/messages.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::pytorch {
namespace {

using Kind = PipelineActionKind;

constexpr std::size_t most_active_stages = 3;  // max_active_stages

constexpr std::array pass_kinds{std::pair{Kind::Forward, ActionKind::Forward},
                                std::pair{Kind::Backward, ActionKind::Backward},
                                std::pair{Kind::BackwardInput, ActionKind::InputGradient},
                                std::pair{Kind::BackwardWeight, ActionKind::WeightGradient}};

std::optional<ActionKind> pass_kind(Kind kind) {
  const auto its = std::ranges::find(pass_kinds, kind, [](const auto& pass) { return pass.first; });
  return its == pass_kinds.end() ? std::nullopt : std::optional(its->second);
}

Kind kind_of(ActionKind kind) {
  return std::ranges::find(pass_kinds, kind, [](const auto& pass) { return pass.second; })->first;
}

// An action, or two that are joined.
std::span<const PipelineAction> unit_at(const PipelineActions& actions, std::size_t at) {
  return std::span(actions).subspan(at, actions[at].joined ? 2 : 1);
}

PipelineActions passes_of(const Schedule& schedule) {
  PipelineActions passes;
  for (const Action& action : schedule)
    passes.push_back({kind_of(action.kind), action.chunk, action.micro_batch, action.joined});
  return passes;
}

// The next stages that compute from there on; of joined passes both.
std::vector<std::int32_t> next_stages(const PipelineActions& passes, std::size_t from) {
  std::vector<std::int32_t> found;
  for (std::size_t i = from; i < passes.size() && found.size() < most_active_stages;) {
    const std::span<const PipelineAction> unit = unit_at(passes, i);
    for (const PipelineAction& pass : unit)
      if (std::ranges::find(found, pass.chunk) == found.end()) found.push_back(pass.chunk);
    i += unit.size();
  }
  return found;
}

// _add_unshard_reshard
PipelineActions with_unshards(const PipelineActions& passes) {
  PipelineActions actions;
  std::vector<std::int32_t> active;
  for (std::size_t i = 0; i < passes.size();) {
    const std::span<const PipelineAction> unit = unit_at(passes, i);
    const std::vector<std::int32_t> next = next_stages(passes, i);
    std::erase_if(active, [&](std::int32_t stage) {
      const bool evicted = std::ranges::find(next, stage) == next.end();
      if (evicted) actions.push_back({Kind::Reshard, stage});
      return evicted;
    });
    for (const std::int32_t stage : next)
      if (std::ranges::find(active, stage) == active.end()) {
        active.push_back(stage);
        actions.push_back({Kind::Unshard, stage});
      }
    actions.insert(actions.end(), unit.begin(), unit.end());
    i += unit.size();
  }
  for (const std::int32_t stage : active) actions.push_back({Kind::Reshard, stage});
  return actions;
}

// _add_reduce_grad: after the last pass that makes gradients of a stage's weights.
PipelineActions with_reductions(const PipelineActions& given, bool waits) {
  const auto makes_gradients = [](const PipelineAction& action) {
    return action.kind == Kind::Backward || action.kind == Kind::BackwardWeight;
  };
  PipelineActions actions;
  for (std::size_t i = 0; i < given.size();) {
    const std::span<const PipelineAction> unit = unit_at(given, i);
    actions.insert(actions.end(), unit.begin(), unit.end());
    i += unit.size();
    for (const PipelineAction& its : unit) {
      if (!makes_gradients(its)) continue;
      const bool again =
          std::any_of(given.begin() + static_cast<std::ptrdiff_t>(i), given.end(),
                      [&](const PipelineAction& later) { return makes_gradients(later) && later.chunk == its.chunk; });
      if (again) continue;
      actions.push_back({Kind::ReduceGrad, its.chunk});
      if (waits) actions.push_back({Kind::WaitReduceGrad, its.chunk});
    }
  }
  return actions;
}

// _add_send_recv: ranks take turns; who has computed what another one needs sends it, and the other begins to receive
// it then.
std::vector<PipelineActions> with_messages_in_turns(const std::vector<PipelineActions>& given,
                                                    const Neighbours& neighbours) {
  const std::size_t ranks = given.size();
  std::vector<PipelineActions> all(ranks);
  std::vector<std::size_t> next(ranks);
  std::set<std::tuple<std::size_t, std::int32_t, std::int32_t, bool>> here;  // what has been received, or is made here
  const auto pass_of = [](const PipelineAction& action) -> std::optional<Action> {
    const std::optional<ActionKind> kind = pass_kind(action.kind);
    if (!kind) return std::nullopt;
    return Action{*kind, action.micro_batch, action.chunk};
  };
  const auto ready = [&](std::size_t rank, const PipelineAction& action) {
    const std::optional<Action> pass = pass_of(action);
    if (!pass) return true;
    const std::optional<Message> needed = neighbours.needed(static_cast<std::int32_t>(rank), *pass);
    return !needed || here.contains({rank, action.chunk, action.micro_batch, action.kind == Kind::Forward});
  };
  const auto p2p = [&](std::size_t rank, const PipelineAction& action) {
    const std::optional<Action> pass = pass_of(action);
    if (!pass) return;
    const std::optional<Message> made = neighbours.made(static_cast<std::int32_t>(rank), *pass);
    if (!made) return;
    const bool forward = action.kind == Kind::Forward;
    const auto to = static_cast<std::size_t>(made->to.rank);
    here.insert({to, made->to.chunk, action.micro_batch, forward});
    if (to == rank) return;
    all[rank].push_back({forward ? Kind::SendForward : Kind::SendBackward, action.chunk, action.micro_batch});
    all[to].push_back({forward ? Kind::ReceiveForward : Kind::ReceiveBackward, made->to.chunk, action.micro_batch});
  };
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (next[rank] == given[rank].size()) continue;
      const std::span<const PipelineAction> unit = unit_at(given[rank], next[rank]);
      if (!std::ranges::all_of(unit, [&](const PipelineAction& its) { return ready(rank, its); })) continue;
      next[rank] += unit.size();
      all[rank].insert(all[rank].end(), unit.begin(), unit.end());
      for (const PipelineAction& its : unit) p2p(rank, its);
      goes_on = true;
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank)
    ensure(next[rank] == given[rank].size(), "every pass gets its input");
  return all;
}

// _add_wait_send: for outputs after the backward pass that shows that they have come; for all else at the end.
PipelineActions with_waits(const PipelineActions& given, bool after_backward) {
  PipelineActions actions, pending;
  for (std::size_t i = 0; i < given.size();) {
    const std::span<const PipelineAction> unit = unit_at(given, i);
    actions.insert(actions.end(), unit.begin(), unit.end());
    i += unit.size();
    for (const PipelineAction& action : unit) {
      if (action.kind == Kind::SendForward)
        pending.push_back({Kind::WaitSendForward, action.chunk, action.micro_batch});
      if (action.kind == Kind::SendBackward)
        pending.push_back({Kind::WaitSendBackward, action.chunk, action.micro_batch});
      if ((action.kind != Kind::Backward && action.kind != Kind::BackwardInput) || !after_backward) continue;
      const PipelineAction waits{Kind::WaitSendForward, action.chunk, action.micro_batch};
      if (std::erase(pending, waits) > 0) actions.push_back(waits);
    }
  }
  actions.insert(actions.end(), pending.begin(), pending.end());
  return actions;
}

}  // namespace

std::vector<PipelineActions> pipeline_actions(const std::vector<Schedule>& schedules, const StagePlacement& placement,
                                              const PipelineBehavior& behavior) {
  std::vector<PipelineActions> all;
  for (const Schedule& schedule : schedules)
    all.push_back(with_reductions(with_unshards(passes_of(schedule)), behavior.waits_for_reductions));
  all = with_messages_in_turns(all, Neighbours(placement));
  for (PipelineActions& actions : all) actions = with_waits(actions, behavior.releases_sent);
  return all;
}

}  // namespace tidemark::parallel::pytorch
