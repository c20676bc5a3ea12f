#include "scenarios/plan/bounds/pass_schedule.hpp"

#include <algorithm>

#include "parallel/job/job.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

Duration span_of(const PassSpans& spans, ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return spans.forward;
    case ActionKind::Backward:
      return spans.backward;
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

std::vector<Duration> ends(const std::vector<Steps>& steps, const StagePlacement& placement,
                           const std::vector<std::vector<PassSpans>>& spans, Duration message,
                           const std::vector<Duration>& begin) {
  const auto span = [&](std::int32_t rank, const Action& action) {
    const std::vector<PassSpans>& its = spans[static_cast<std::size_t>(rank)];
    return span_of(its[static_cast<std::size_t>(action.chunk)], action.kind);
  };
  DryRun run = dry_run(steps, placement, {span, message, begin});
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
  return ends(steps_, placement_, spans, message, begin);
}

std::vector<Duration> PassSchedule::latest_ends(const std::vector<std::vector<PassSpans>>& spans, Duration message,
                                                const std::vector<Duration>& begin) const {
  if (at_best(mode_) == mode_) return ends(steps_, placement_, spans, message, begin);
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
