#include "scenarios/plan/bounds/pass_schedule.hpp"

#include <algorithm>

#include "parallel/job/job.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

Duration span_of(ActionKind kind, Duration forward, Duration backward) {
  switch (kind) {
    case ActionKind::Forward:
      return forward;
    case ActionKind::Backward:
      return backward;
    case ActionKind::InputGradient:
    case ActionKind::WeightGradient:
      break;
  }
  ensure(false, "samples know how long whole backward passes take");
  return {};
}

// What is certain of the habit without knowing when each message is waited for.
P2pMode at_best(P2pMode mode) {
  switch (mode) {
    case P2pMode::Free:
    case P2pMode::Batched:
      return mode;
    case P2pMode::Overlapped:
    case P2pMode::OverlappedWithFlush:
      return P2pMode::Free;
  }
  return P2pMode::Free;
}

enum class HostThread : std::uint8_t {
  NotCounted,
  RunsAhead,
  Waits  // Megatron-LM's p2p_communication.py: batch_p2p_sync
};

std::vector<Duration> ends(const std::vector<Steps>& steps, const StagePlacement& placement,
                           const std::vector<std::vector<PassSpans>>& spans, Duration message,
                           const std::vector<Duration>& begin, HostThread host) {
  const auto its = [&](std::int32_t rank, const Action& action) -> const PassSpans& {
    return spans[static_cast<std::size_t>(rank)][static_cast<std::size_t>(action.chunk)];
  };
  const auto on_device = [&](std::int32_t rank, const Action& action) {
    return span_of(action.kind, its(rank, action).forward, its(rank, action).backward);
  };
  const auto on_host = [&](std::int32_t rank, const Action& action) {
    return span_of(action.kind, its(rank, action).host_forward, its(rank, action).host_backward);
  };
  Spans all{on_device, message, begin, {}};
  if (host != HostThread::NotCounted) all.host = {on_host, host == HostThread::Waits};
  DryRun run = dry_run(steps, placement, all);
  ensure(run.stuck.empty(), "a schedule that runs to its end does so here");
  return std::move(run.ends);
}

}  // namespace

PassSchedule::PassSchedule(const Layout& layout, std::int64_t micro_batches)
    : placement_(layout.placement()),
      mode_(traits_of(layout.schedule).p2p),
      micro_batches_(micro_batches),
      steps_(
          with_messages(schedules_of(layout, static_cast<std::int32_t>(micro_batches)), placement_, at_best(mode_))) {}

std::vector<Duration> PassSchedule::earliest_ends(const std::vector<std::vector<PassSpans>>& spans, Duration message,
                                                  const std::vector<Duration>& begin) const {
  const bool waits = mode_ == P2pMode::Batched && placement_.chunks == 1;
  return ends(steps_, placement_, spans, message, begin, waits ? HostThread::Waits : HostThread::RunsAhead);
}

std::vector<Duration> PassSchedule::latest_ends(const std::vector<std::vector<PassSpans>>& spans, Duration message,
                                                const std::vector<Duration>& begin) const {
  if (at_best(mode_) == mode_) return ends(steps_, placement_, spans, message, begin, HostThread::NotCounted);
  // Something is always under way, so all of it one after the other takes longest: each pass, and with it what it hands
  // over and is handed.
  Duration all = *std::max_element(begin.begin(), begin.end());
  for (const std::vector<PassSpans>& of_rank : spans)
    for (const PassSpans& its : of_rank) all += (its.forward + its.backward + message * 4) * micro_batches_;
  return std::vector<Duration>(spans.size(), all);
}

InFlight fullest_moments(const Schedule& schedule, std::int32_t chunks) {
  InFlight most;
  InFlight::At now{ActionKind::Forward, 0, std::vector<std::int32_t>(static_cast<std::size_t>(chunks), 0)};
  const auto beats = [](const InFlight::At& a, const InFlight::At& b) {
    return a.kind == b.kind && a.chunk == b.chunk &&
           std::equal(a.others.begin(), a.others.end(), b.others.begin(), std::greater_equal{});
  };
  for (const Action& action : schedule) {
    std::int32_t& its = now.others[static_cast<std::size_t>(action.chunk)];
    if (!is_forward(action.kind)) --its;
    now.kind = action.kind;
    now.chunk = action.chunk;
    if (std::none_of(most.moments.begin(), most.moments.end(), [&](const InFlight::At& m) { return beats(m, now); })) {
      std::erase_if(most.moments, [&](const InFlight::At& m) { return beats(now, m); });
      most.moments.push_back(now);
    }
    if (!is_last_of_micro_batch(action.kind)) ++its;
  }
  return most;
}

}  // namespace tidemark::scenarios
