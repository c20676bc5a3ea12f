#include "scenarios/plan/pass_schedule.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "parallel/lower.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

std::int32_t narrow(std::int64_t n) { return static_cast<std::int32_t>(n); }

// Ranks that hand over as Megatron's own functions without virtual stages do: what one pass sends goes out together
// with what the other kind of pass waits for, and both sides wait until it is there.
class Rendezvous {
 public:
  Rendezvous(const Layout& layout, std::int64_t micro_batches, const std::vector<std::vector<PassSpans>>& spans,
             Duration message, const std::vector<Duration>& begin)
      : message_(message), spans_(spans), ranks_(static_cast<std::size_t>(layout.pipeline)) {
    for (std::size_t p = 0; p < ranks_.size(); ++p) {
      ranks_[p].schedule = schedule_of(layout, narrow(static_cast<std::int64_t>(p)), narrow(micro_batches));
      ranks_[p].now = begin[p];
    }
    for (auto& of_pass : came_)
      for (auto& of_side : of_pass) of_side.resize(ranks_.size());
  }

  std::vector<Duration> ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t p = 0; p < ranks_.size(); ++p)
        while (advance(p)) moved = true;
    }
    std::vector<Duration> ends;
    for (const Rank& rank : ranks_) {
      ensure(rank.next > rank.schedule.size(), "a schedule that runs to its end does so here");
      ends.push_back(rank.now);
    }
    return ends;
  }

 private:
  enum Side : std::size_t { Sends, Receives };
  struct Half {
    bool forward;
    Side side;
    std::size_t number;
  };
  struct Rank {
    Schedule schedule;
    std::size_t next = 0;                 // pass; before it, its hand-over
    std::vector<std::vector<Half>> open;  // exchanges yet to come before the pass, in order
    bool listed = false, posted = false;
    Duration now;
    std::array<std::array<std::size_t, 2>, 2> count{};  // by pass and side
  };

  [[nodiscard]] bool sends(std::size_t p, const Action& s) const {
    return is_forward(s.kind) ? p + 1 < ranks_.size() : p > 0;
  }
  [[nodiscard]] bool receives(std::size_t p, const Action& s) const {
    return is_forward(s.kind) ? p > 0 : p + 1 < ranks_.size();
  }

  // What goes between the pass before `next` and it.
  void list(std::size_t p) {
    Rank& rank = ranks_[p];
    const Action* done = rank.next > 0 ? &rank.schedule[rank.next - 1] : nullptr;
    const Action* next = rank.next < rank.schedule.size() ? &rank.schedule[rank.next] : nullptr;
    const bool sending = done != nullptr && sends(p, *done), receiving = next != nullptr && receives(p, *next);
    const auto half = [&](bool forward, Side side) { return Half{forward, side, rank.count[forward ? 0 : 1][side]++}; };
    if (sending) rank.open.push_back({half(is_forward(done->kind), Sends)});
    if (receiving && sending && is_forward(done->kind) != is_forward(next->kind))
      rank.open.back().push_back(half(is_forward(next->kind), Receives));
    else if (receiving)
      rank.open.push_back({half(is_forward(next->kind), Receives)});
    std::reverse(rank.open.begin(), rank.open.end());
    rank.listed = true;
  }

  // When the other side of a message came to it.
  [[nodiscard]] std::optional<Duration> other(std::size_t p, const Half& half) const {
    const bool to_next = half.forward == (half.side == Sends);
    const std::size_t peer = to_next ? p + 1 : p - 1;
    const Side side = half.side == Sends ? Receives : Sends;
    const std::vector<Duration>& came = came_[half.forward ? 0 : 1][side][peer];
    if (half.number >= came.size()) return std::nullopt;
    return came[half.number];
  }

  // One exchange or pass further, where that can be.
  bool advance(std::size_t p) {
    Rank& rank = ranks_[p];
    if (rank.next > rank.schedule.size()) return false;
    if (!rank.listed) list(p);
    if (!rank.open.empty()) {
      if (!rank.posted)
        for (const Half& half : rank.open.back()) came_[half.forward ? 0 : 1][half.side][p].push_back(rank.now);
      const bool first = !std::exchange(rank.posted, true);
      Duration end = rank.now;
      for (const Half& half : rank.open.back()) {
        const std::optional<Duration> met = other(p, half);
        if (!met) return first;
        end = std::max(end, std::max(rank.now, *met) + message_);
      }
      rank.now = end;
      rank.open.pop_back();
      rank.posted = false;
      return true;
    }
    if (rank.next < rank.schedule.size()) {
      const PassSpans& its = spans_[p].front();
      rank.now += is_forward(rank.schedule[rank.next].kind) ? its.forward : its.backward;
    }
    ++rank.next;
    rank.listed = false;
    return true;
  }

  Duration message_;
  const std::vector<std::vector<PassSpans>>& spans_;
  std::vector<Rank> ranks_;
  std::array<std::array<std::vector<std::vector<Duration>>, 2>, 2> came_;  // by pass, side, rank, number
};

// Passes in each rank's order, each once its input is there; nothing waits for what it sends.
std::vector<Duration> without_waiting(const Layout& layout, std::int64_t micro_batches,
                                      const std::vector<std::vector<PassSpans>>& spans, Duration message,
                                      const std::vector<Duration>& begin) {
  const auto ranks = static_cast<std::size_t>(layout.pipeline), chunks = static_cast<std::size_t>(layout.chunks);
  const std::size_t stages = ranks * chunks, all = static_cast<std::size_t>(micro_batches);
  const Duration open{-1};
  std::vector<Duration> forward(stages * all, open), backward(stages * all, open), now = begin;
  const StagePlacement placement = layout.placement();
  std::vector<Schedule> schedules;
  for (std::size_t p = 0; p < ranks; ++p)
    schedules.push_back(schedule_of(layout, narrow(static_cast<std::int64_t>(p)), narrow(micro_batches)));
  std::vector<std::size_t> next(ranks, 0);
  const auto advance = [&](std::size_t p) {
    if (next[p] == schedules[p].size()) return false;
    const Action& step = schedules[p][next[p]];
    const std::size_t stage = static_cast<std::size_t>(
                          placement.stage_of({narrow(static_cast<std::int64_t>(p)), step.chunk})),
                      m = static_cast<std::size_t>(step.micro_batch);
    const bool ahead = is_forward(step.kind);
    const bool waits = ahead ? stage > 0 : stage + 1 < stages;
    Duration from = now[p];
    if (waits) {
      const Duration given = ahead ? forward[(stage - 1) * all + m] : backward[(stage + 1) * all + m];
      if (given == open) return false;
      from = std::max(from, given + message);
    }
    const PassSpans& its = spans[p][static_cast<std::size_t>(step.chunk)];
    now[p] = from + (ahead ? its.forward : its.backward);
    (ahead ? forward : backward)[stage * all + m] = now[p];
    ++next[p];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t p = 0; p < ranks; ++p)
      while (advance(p)) moved = true;
  }
  for (std::size_t p = 0; p < ranks; ++p)
    ensure(next[p] == schedules[p].size(), "a schedule that runs to its end does so here");
  return now;
}

}  // namespace

std::int64_t run_ahead(const Layout& layout, std::int32_t pipeline, std::int64_t micro_batches) {
  switch (layout.schedule) {
    case ScheduleKind::OneFOneB:
      return std::min<std::int64_t>(layout.pipeline - 1 - std::int64_t{pipeline}, micro_batches - 1);
    case ScheduleKind::GPipe:
      return micro_batches - 1;
    case ScheduleKind::Interleaved:
      break;
  }
  ensure(false, "how far interleaved schedules run ahead is no one number");
  return 0;
}

std::vector<Duration> earliest_ends(const Layout& layout, std::int64_t micro_batches,
                                    const std::vector<std::vector<PassSpans>>& spans, Duration message,
                                    const std::vector<Duration>& begin) {
  if (is_interleaved(layout.schedule)) return without_waiting(layout, micro_batches, spans, message, begin);
  return Rendezvous(layout, micro_batches, spans, message, begin).ends();
}

std::vector<Duration> latest_ends(const Layout& layout, std::int64_t micro_batches,
                                  const std::vector<std::vector<PassSpans>>& spans, Duration message,
                                  const std::vector<Duration>& begin) {
  if (!is_interleaved(layout.schedule)) return Rendezvous(layout, micro_batches, spans, message, begin).ends();
  // Something is always under way, so all of it one after the other takes longest: each pass, and with it what it hands
  // over and is handed.
  Duration all = *std::max_element(begin.begin(), begin.end());
  for (const std::vector<PassSpans>& of_rank : spans)
    for (const PassSpans& its : of_rank) all += (its.forward + its.backward + message * 4) * micro_batches;
  return std::vector<Duration>(spans.size(), all);
}

InFlight most_in_flight(const Layout& layout, std::int32_t pipeline, std::int64_t micro_batches) {
  // Later groups find what the ones before them found.
  const std::int64_t few = std::min<std::int64_t>(micro_batches, 4 * layout.group() + micro_batches % layout.group());
  std::vector<std::int32_t> open(static_cast<std::size_t>(layout.chunks), 0);
  InFlight most;
  for (const Action& step : schedule_of(layout, pipeline, narrow(few))) {
    const auto chunk = static_cast<std::size_t>(step.chunk);
    if (!is_forward(step.kind)) --open[chunk];
    const InFlight::At at{step.kind, step.chunk, open};
    if (is_forward(step.kind)) ++open[chunk];
    const auto beats = [](const InFlight::At& a, const InFlight::At& b) {
      if (a.kind != b.kind || a.chunk != b.chunk) return false;
      for (std::size_t c = 0; c < a.others.size(); ++c)
        if (a.others[c] < b.others[c]) return false;
      return true;
    };
    if (std::any_of(most.moments.begin(), most.moments.end(), [&](const InFlight::At& m) { return beats(m, at); }))
      continue;
    std::erase_if(most.moments, [&](const InFlight::At& m) { return beats(at, m); });
    most.moments.push_back(at);
  }
  return most;
}

}  // namespace tidemark::scenarios
