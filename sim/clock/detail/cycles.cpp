#include "sim/clock/detail/cycles.hpp"

#include <algorithm>
#include <limits>
#include <ranges>

#include "sim/base/ensure.hpp"
#include "sim/clock/queue_points.hpp"

namespace tidemark::sim {
namespace {

// A cycle takes that many bodies at most.
constexpr std::size_t most_samples = 16;

std::int64_t place_of(const ClassState& its, std::size_t stream) { return its.streams[stream].next.place(); }
std::int64_t place_of_host(const ClassState& its) { return std::ssize(its.starts); }

bool is_within(const TimedLoop::Part& part, std::int64_t bodies, std::int64_t place) {
  return place >= part.first && place < part.end(bodies);
}

// How many launches on the channel have to be done before that stretch begins; none or less where the queue has room.
std::int64_t rid_of(const ClassState& its, std::size_t stretch, std::size_t channel) {
  return QueuePoints::rid_of(
      its.queue, its.timed->launched_before(static_cast<std::int64_t>(stretch), channel, its.free_since.size()));
}

// A class's loop, and what of it the class is about.
struct InLoop {
  const TimedLoop& loop;
  std::int64_t host_body = 0;            // that the host thread is in
  std::int64_t lowest = 0, highest = 0;  // bodies: of its streams too
  std::int64_t first = 0, last = 0;      // events: of bodies whose events may still be waited for

  // Nothing where a stream or the host thread is outside of the loop.
  static std::optional<InLoop> of(const ClassState& its, const TimedLoop& loop) {
    if (!is_within(loop.host, loop.bodies, place_of_host(its))) return std::nullopt;
    const std::int64_t host = (place_of_host(its) - loop.host.first) / loop.host.length;
    std::int64_t lowest = host, highest = host;
    for (std::size_t s = 0; s < loop.streams.size(); ++s) {
      const TimedLoop::Part& part = loop.streams[s];
      if (part.length == 0) continue;
      if (!is_within(part, loop.bodies, place_of(its, s))) return std::nullopt;
      const std::int64_t body = (place_of(its, s) - part.first) / part.length;
      lowest = std::min(lowest, body);
      highest = std::max(highest, body);
    }
    const auto events = [&](std::int64_t body) {
      return std::clamp<std::int64_t>(loop.first_event + body * loop.events, 0, std::ssize(its.events));
    };
    return InLoop{loop, host, lowest, highest, events(lowest - loop.reach), events(host + 1)};
  }

  [[nodiscard]] bool is_outer(std::int32_t event) const {
    return std::ranges::find(loop.outer_events, static_cast<std::uint32_t>(event)) != loop.outer_events.end();
  }
  [[nodiscard]] bool is_stretch(std::uint32_t stretch) const { return is_within(loop.host, loop.bodies, stretch); }

  // Whether what the host thread asks for on the channel is of the loop. Otherwise it is over long since, until a leap
  // goes too far (`known_to_be_over`).
  [[nodiscard]] bool asks_within(const ClassState& its, std::size_t channel) const {
    return its.fills_queue && rid_of(its, its.starts.size(), channel) > 0 && is_stretch(its.free_since[channel]);
  }
  [[nodiscard]] bool asks_for_stretches_of(const ClassState& its, std::size_t stream) const {
    return its.fills_queue && asks_within(its, stream % its.free_since.size());
  }
};

// So many launches on the channel the host thread may ask for without waiting, now and later.
std::int64_t known_to_be_over(const ClassState& its, std::size_t channel) {
  std::int64_t stretch = its.timed->stretches();
  for (std::size_t s = channel; s < its.streams.size(); s += its.free_since.size()) {
    std::int64_t last = 0;
    for (const StretchesDone& done : its.streams[s].done)
      if (done.at <= its.host) last = done.before;
    stretch = std::min(stretch, last);
  }
  return std::max<std::int64_t>(
      its.timed->launched_before(std::min(stretch, its.timed->stretches() - 1), channel, its.free_since.size()), 0);
}

}  // namespace

// Writes a state down. Times count from now, bodies from the one that the class's host thread is in.
class Cycles::Taking {
 public:
  Taking(const Parts& parts, Instant now) : parts_(parts), now_(now) {}

  bool note(std::int32_t c, const TimedLoop& loop) {
    const ClassState& its = parts_.state.of(c);
    const std::optional<InLoop> in = InLoop::of(its, loop);
    if (!in) return false;
    sample_.bodies.push_back({in->host_body, in->lowest, in->highest});
    if (!note_host(its, *in)) return false;
    Instant floor = its.host;
    std::vector<std::size_t>& transfers = sample_.transfers.emplace_back();
    std::vector<std::int64_t>& done = sample_.done.emplace_back();
    for (std::size_t s = 0; s < its.streams.size(); ++s) {
      floor = std::min(floor, note_stream(its, s, *in));
      transfers.push_back(its.trace.transfers[s].size());
      const Fifo<StretchesDone>& stretches = its.streams[s].done;
      done.push_back(stretches.empty() ? -1 : std::int64_t{std::prev(stretches.end())->before});
    }
    note_events(its, *in, floor);
    std::vector<std::int64_t>& over = sample_.over.emplace_back();
    for (std::size_t channel = 0; its.fills_queue && channel < its.free_since.size(); ++channel)
      over.push_back(known_to_be_over(its, channel));
    sample_.meetings.push_back(its.meetings);
    for (std::size_t comm = 0; comm < its.meetings.size(); ++comm) {
      const std::int32_t group = parts_.state.group_of(c, {static_cast<std::int32_t>(comm)});
      const auto& meetings = parts_.state.meetings;
      if (static_cast<std::size_t>(group) < meetings.size())
        add(its.meetings[comm] - meetings[static_cast<std::size_t>(group)].first);
    }
    return true;
  }

  Sample finish(const std::vector<std::int32_t>& exchanges) && {
    for (const Meetings& meetings : parts_.state.meetings) {
      sample_.closed.push_back(meetings.first);
      std::int64_t number = 0;
      for (const Meeting& meeting : meetings.open) {
        ++number;
        if (meeting.arrived.empty()) continue;
        add(number);
        add(meeting.last);
        add_sorted(meeting.arrived);
      }
      add(-1);
    }
    for (std::size_t i = 0; i < parts_.state.channels.size(); ++i) {
      const Channel& channel = parts_.state.channels[i];
      if (channel.waiting.empty()) continue;
      add(static_cast<std::int64_t>(i));
      add(static_cast<std::int64_t>(channel.side));
      for (const HalfMessage& half : channel.waiting) {
        add(parts_.state.exchanges[half.exchange].waiter);
        add(half.ready);
        add(half.cost);
      }
    }
    add(-1);
    note_exchanges(exchanges);
    note_transfers();
    sample_.at = now_;
    sample_.events = parts_.trace.events;
    return std::move(sample_);
  }

 private:
  void add(std::int64_t number) { sample_.state.push_back(number); }
  void add(Instant instant) { add((instant - now_).count()); }
  void add(const Waiter& waiter) {
    add(waiter.rank_class);
    add(waiter.stream.value);
  }
  // As a number that tells costs apart.
  void add(const TransferCost* cost) { add(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(cost))); }
  void add_sorted(const std::vector<Waiter>& waiters) {
    std::vector<std::pair<std::int32_t, std::int32_t>> sorted;
    for (const Waiter& waiter : waiters) sorted.emplace_back(waiter.rank_class, waiter.stream.value);
    std::ranges::sort(sorted);
    for (const auto& [rank_class, stream] : sorted) add(rank_class), add(stream);
    add(-1);
  }

  void add_stretch(std::uint32_t stretch, const InLoop& in) {
    add(in.is_stretch(stretch) ? 1 : 0);
    add(in.is_stretch(stretch) ? stretch - in.host_body * in.loop.host.length : std::int64_t{stretch});
  }
  void add_event(std::int32_t event, const InLoop& in) {
    const bool own = event >= 0 && !in.is_outer(event);
    add(own ? 1 : 0);
    add(own ? event - in.host_body * in.loop.events : std::int64_t{event});
  }

  bool note_host(const ClassState& its, const InLoop& in) {
    const std::int64_t bodies_later = in.host_body * in.loop.host.length;
    add(place_of_host(its) - bodies_later);
    add(its.host);
    add(its.host_waits_for_room ? 1 : 0);
    add_event(its.host_waits_for_event, in);
    // Streams ask for the starts of the stretches that they have been handed.
    auto oldest = static_cast<std::uint32_t>(its.starts.size());
    for (const StreamState& stream : its.streams) oldest = std::min(oldest, stream.stretch());
    if (oldest < its.starts.size() && oldest < in.loop.host.first) return false;
    add(oldest - bodies_later);
    for (std::size_t i = oldest; i < its.starts.size(); ++i) add(its.starts[i]);
    if (!its.fills_queue) return true;
    const auto channels = its.free_since.size();
    for (std::size_t channel = 0; channel < channels; ++channel) {
      const bool asks = in.asks_within(its, channel);
      add(asks ? 1 : 0);
      if (asks) add_stretch(its.free_since[channel], in);
    }
    return true;
  }

  // Returns what the stream's work is never earlier than.
  Instant note_stream(const ClassState& its, std::size_t s, const InLoop& in) {
    const StreamState& stream = its.streams[s];
    const bool loops = s < in.loop.streams.size() && in.loop.streams[s].length > 0;
    add(place_of(its, s) - (loops ? in.host_body * in.loop.streams[s].length : 0));
    // What has not been handed anything does not go on before the host thread is there.
    const bool handed = stream.stretch() < its.starts.size();
    const Instant tail = handed ? stream.tail : std::max(stream.tail, its.host);
    add(tail);
    add(stream.in_transfer ? 1 : 0);
    if (stream.in_transfer) add(stream.arrived);
    add_event(stream.waits_for_event, in);
    if (!in.asks_for_stretches_of(its, s)) return tail;
    for (const StretchesDone& done : stream.done) {
      add_stretch(done.before, in);
      add(std::max(done.at, its.host));
    }
    add(-1);
    return tail;
  }

  // What is over before anything that waits for it may come does not matter.
  void note_events(const ClassState& its, const InLoop& in, Instant floor) {
    const auto note = [&](Instant event) {
      add(is_recorded(event) ? 1 : 0);
      if (is_recorded(event))
        add(std::max(event, floor));
      else
        add(event == awaited ? 1 : 0);
    };
    add(in.first - in.host_body * in.loop.events);
    add(in.last - in.first);
    for (std::int64_t e = in.first; e < in.last; ++e) note(its.events[static_cast<std::size_t>(e)]);
    for (const std::uint32_t e : in.loop.outer_events) note(its.events[e]);
  }

  void note_exchanges(const std::vector<std::int32_t>& exchanges) {
    std::vector<std::array<std::int64_t, 6>> all;
    for (const std::int32_t id : exchanges) {
      const ExchangeState& its = parts_.state.exchanges[id];
      const bool begun = its.begin != never;
      all.push_back({its.waiter.rank_class, its.waiter.stream.value, its.open,
                     begun ? (its.begin - now_).count() : std::numeric_limits<std::int64_t>::max(),
                     (its.last_begin - now_).count(), (its.end - now_).count()});
    }
    std::ranges::sort(all);
    for (const auto& exchange : all)
      for (const std::int64_t number : exchange) add(number);
    add(-1);
  }

  // In whatever order they began: rates do not depend on it.
  void note_transfers() {
    std::vector<std::vector<std::int64_t>> all;
    parts_.queue.for_each([&](Instant at, const QueuedEvent& event) {
      const bool starts = event.kind == QueuedEvent::Kind::BytesStart;
      if (!starts && !parts_.network.is_current(event.transfer, event.version)) return;
      std::vector<std::int64_t> outer = std::move(sample_.state);
      sample_.state = {};
      const ActiveTransfer& transfer = parts_.transfers[event.transfer];
      add(starts ? 1 : 0);
      add(at);
      add(transfer.cost);
      add(transfer.begin);
      add_sorted(transfer.members);
      for (const std::int32_t id : transfer.exchanges)
        if (id != nobody) add(parts_.state.exchanges[id].waiter);
      if (!starts) {
        const Network::Progress progress = parts_.network.progress(event.transfer, now_);
        add(progress.remaining_high);
        add(progress.remaining_low);
        add(progress.rate.count());
        add(progress.since.count());
      }
      all.push_back(std::exchange(sample_.state, std::move(outer)));
    });
    std::ranges::sort(all);
    for (const std::vector<std::int64_t>& transfer : all) {
      add(std::ssize(transfer));
      sample_.state.insert(sample_.state.end(), transfer.begin(), transfer.end());
    }
  }

  const Parts& parts_;
  Instant now_;
  Sample sample_;
};

Cycles::Cycles(const Parts& parts) : parts_(parts) { watch(); }

// The first stream that takes part in the loop; none where some class has no such loop.
void Cycles::watch() {
  watched_ = nullptr;
  samples_.clear();
  for (;; ++loop_) {
    bool alike = true;
    for (const ClassState& its : parts_.state.classes) {
      if (loop_ >= its.timed->loops.size()) return;
      alike &= its.timed->loops[loop_].bodies > 2;
    }
    if (!alike) continue;
    for (const ClassState& its : parts_.state.classes)
      for (std::size_t s = 0; s < its.timed->loops[loop_].streams.size(); ++s) {
        const TimedLoop::Part& part = its.timed->loops[loop_].streams[s];
        if (part.length == 0) continue;
        watched_ = &its.streams[s];
        next_look_ = part.end(1);
        return;
      }
  }
}

void Cycles::end_loop() {
  ++loop_;
  watch();
}

std::vector<std::int32_t> Cycles::open_exchanges() const {
  std::vector<std::int32_t> found;
  parts_.queue.for_each([&](Instant, const QueuedEvent& event) {
    if (event.kind == QueuedEvent::Kind::BytesEnd && !parts_.network.is_current(event.transfer, event.version)) return;
    for (const std::int32_t id : parts_.transfers[event.transfer].exchanges)
      if (id != nobody) found.push_back(id);
  });
  for (const Channel& channel : parts_.state.channels)
    for (const HalfMessage& half : channel.waiting) found.push_back(half.exchange);
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

void Cycles::look(Instant now) {
  for (const ClassState& its : parts_.state.classes)
    for (std::size_t s = 0; s < its.streams.size(); ++s) {
      if (&its.streams[s] != watched_) continue;
      const TimedLoop& loop = its.timed->loops[loop_];
      const TimedLoop::Part& part = loop.streams[s];
      const std::int64_t body = (place_of(its, s) - part.first) / part.length;
      if (body + 2 >= loop.bodies) return end_loop();
      next_look_ = part.end(body + 1);
    }
  Taking taking(parts_, now);
  for (std::int32_t c = 0; c < parts_.state.class_count(); ++c)
    if (!taking.note(c, parts_.state.of(c).timed->loops[loop_])) return samples_.clear();
  Sample here = std::move(taking).finish(open_exchanges());
  const auto known = std::ranges::find(samples_ | std::views::reverse, here.state, &Sample::state);
  if (known == samples_.rend()) {
    samples_.push_back(std::move(here));
    if (samples_.size() > most_samples) samples_.pop_front();
    return;
  }
  if (const std::int64_t cycles = cycles_left(*known, here); cycles > 0) leap(*known, here, cycles);
  end_loop();
}

// So that the host thread and all streams are in the loop's last body but one at most.
std::int64_t Cycles::cycles_left(const Sample& known, const Sample& here) const {
  std::int64_t left = std::numeric_limits<std::int64_t>::max();
  for (std::size_t c = 0; c < parts_.state.classes.size(); ++c) {
    const ClassState& its = parts_.state.classes[c];
    const TimedLoop& loop = its.timed->loops[loop_];
    const std::int64_t bodies = here.bodies[c].host - known.bodies[c].host;
    if (bodies <= 0) return 0;
    const auto see = [&](const TimedLoop::Part& part, std::int64_t place) {
      if (part.length > 0) left = std::min(left, (part.end(loop.bodies - 1) - 1 - place) / (part.length * bodies));
    };
    see(loop.host, place_of_host(its));
    for (std::size_t s = 0; s < loop.streams.size(); ++s) see(loop.streams[s], place_of(its, s));
    if (!its.fills_queue) continue;
    const std::optional<InLoop> in = InLoop::of(its, loop);
    for (std::size_t channel = 0; channel < its.free_since.size() && left > 0; ++channel) {
      if (in->asks_within(its, channel)) continue;
      // As it was from the known sample to here.
      if (rid_of(its, its.starts.size(), channel) > known.over[c][channel]) return 0;
      const std::int64_t over = known_to_be_over(its, channel);
      const std::size_t stretches = static_cast<std::size_t>(bodies) * loop.host.length;
      const auto needed = [&](std::int64_t cycles) {
        return rid_of(its, its.starts.size() + static_cast<std::size_t>(cycles) * stretches, channel);
      };
      while (left > 0 && needed(left) > over) --left;
    }
  }
  return left;
}

void Cycles::leap(const Sample& known, const Sample& here, std::int64_t cycles) {
  const Duration by = cycles * (here.at - known.at);
  note_cycles(known, here, cycles);
  const std::vector<std::int32_t> exchanges = open_exchanges();
  for (std::int32_t c = 0; c < parts_.state.class_count(); ++c) leap(c, known, here, cycles);
  for (std::size_t g = 0; g < parts_.state.meetings.size(); ++g) {
    Meetings& meetings = parts_.state.meetings[g];
    meetings.first += cycles * (here.closed[g] - known.closed[g]);
    for (Meeting& meeting : meetings.open)
      if (!meeting.arrived.empty()) meeting.last = meeting.last + by;
  }
  for (Channel& channel : parts_.state.channels)
    for (HalfMessage& half : channel.waiting) half.ready = half.ready + by;
  for (const std::int32_t id : exchanges) {
    ExchangeState& its = parts_.state.exchanges[id];
    if (its.begin != never) its.begin = its.begin + by;
    its.last_begin = its.last_begin + by;
    its.end = its.end + by;
  }
  std::vector<std::int32_t> moving;
  parts_.queue.for_each([&](Instant, const QueuedEvent& event) {
    if (event.kind == QueuedEvent::Kind::BytesStart || parts_.network.is_current(event.transfer, event.version))
      moving.push_back(event.transfer);
  });
  for (const std::int32_t id : moving) parts_.transfers[id].begin = parts_.transfers[id].begin + by;
  parts_.queue.shift(by);
  parts_.network.shift(by);
  const std::int64_t events = cycles * (here.events - known.events);
  parts_.trace.events += events;
  parts_.trace.leapt += events;
}

// All that a class did from a body on which nobody had begun at the known sample, until what the slowest had come to
// when the leap was over.
void Cycles::note_cycles(const Sample& known, const Sample& here, std::int64_t cycles) {
  constexpr std::int64_t fewest = 4;  // who leaves some out keeps a few
  std::int64_t more = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> of_program(parts_.state.classes.size(), 0);  // bodies of a cycle
  for (std::size_t c = 0; c < parts_.state.classes.size(); ++c) {
    const std::int64_t bodies = here.bodies[c].host - known.bodies[c].host;
    const std::int64_t alike = known.bodies[c].lowest + (cycles + 1) * bodies - (known.bodies[c].highest + 1);
    more = std::min(more, alike / bodies - 1);
    std::int64_t& its = of_program[static_cast<std::size_t>(parts_.state.folding.classes[c].program)];
    if (its != 0 && its != bodies) return;
    its = bodies;
  }
  if (more < fewest) return;
  for (std::size_t c = 0; c < parts_.state.classes.size(); ++c) {
    ClassState& its = parts_.state.classes[c];
    const TimedLoop& loop = its.timed->loops[loop_];
    const std::int64_t bodies = here.bodies[c].host - known.bodies[c].host;
    const auto first = static_cast<std::uint32_t>(loop.first_op + (known.bodies[c].highest + 1) * loop.ops);
    its.trace.cycles.push_back(
        {loop_, {first, static_cast<std::uint32_t>(bodies * loop.ops), more, here.at - known.at}});
  }
}

void Cycles::leap(std::int32_t c, const Sample& known, const Sample& here, std::int64_t cycles) {
  ClassState& its = parts_.state.of(c);
  const TimedLoop& loop = its.timed->loops[loop_];
  const std::optional<InLoop> in = InLoop::of(its, loop);
  ensure(in.has_value(), "a class leaps within its loop");
  const auto index = static_cast<std::size_t>(c);
  const Duration cycle = here.at - known.at, by = cycles * cycle;
  const std::int64_t bodies_of_cycle = here.bodies[index].host - known.bodies[index].host,
                     bodies = cycles * bodies_of_cycle;
  const auto stretches = static_cast<std::uint32_t>(bodies * loop.host.length);

  const auto starts_of_cycle = static_cast<std::size_t>(bodies_of_cycle) * loop.host.length;
  for (std::size_t s = 0; s < its.streams.size(); ++s) {
    Fifo<StretchesDone>& all = its.streams[s].done;
    if (!in->asks_for_stretches_of(its, s)) {
      // What was done before it will be asked for, and all that the leap does.
      const auto of_cycle = static_cast<std::size_t>(std::ranges::count_if(
          all, [&](const StretchesDone& done) { return std::int64_t{done.before} > known.done[index][s]; }));
      for (std::size_t i = 0; i < static_cast<std::size_t>(cycles) * of_cycle; ++i) {
        const StretchesDone& before = *(all.end() - static_cast<std::ptrdiff_t>(of_cycle));
        all.push({before.before + static_cast<std::uint32_t>(starts_of_cycle), before.at + cycle});
      }
      continue;
    }
    for (StretchesDone& done : all) {
      if (in->is_stretch(done.before)) done.before += stretches;
      done.at = done.at + by;
    }
  }
  if (its.fills_queue)
    for (std::size_t channel = 0; channel < its.free_since.size(); ++channel)
      if (in->asks_within(its, channel)) its.free_since[channel] += stretches;
  for (std::uint32_t i = 0; i < stretches; ++i)
    its.starts.push_back(its.starts[its.starts.size() - starts_of_cycle] + cycle);
  its.host = its.host + by;

  const std::int64_t later = bodies * loop.events;
  for (std::int64_t e = in->last - 1; e >= in->first; --e) {
    const Instant event = its.events[static_cast<std::size_t>(e)];
    its.events[static_cast<std::size_t>(e + later)] = is_recorded(event) ? event + by : event;
  }
  const auto waits_later = [&](std::int32_t& event) {
    if (event >= 0 && !in->is_outer(event)) event += static_cast<std::int32_t>(later);
  };
  waits_later(its.host_waits_for_event);
  for (std::size_t s = 0; s < its.streams.size(); ++s) {
    StreamState& stream = its.streams[s];
    if (s < loop.streams.size() && loop.streams[s].length > 0)
      stream.next.go_to(stream.next.place() + bodies * loop.streams[s].length);
    stream.tail = stream.tail + by;
    stream.arrived = stream.arrived + by;
    waits_later(stream.waits_for_event);
    std::vector<TransferTimes>& transfers = its.trace.transfers[s];
    const std::size_t of_cycle = transfers.size() - known.transfers[index][s];
    for (std::size_t i = 0; i < static_cast<std::size_t>(cycles) * of_cycle; ++i) {
      const TransferTimes& before = transfers[transfers.size() - of_cycle];
      transfers.push_back({before.begin + cycle, before.end + cycle, before.meeting});
    }
  }
  for (std::size_t comm = 0; comm < its.meetings.size(); ++comm)
    its.meetings[comm] += cycles * (here.meetings[index][comm] - known.meetings[index][comm]);
}

}  // namespace tidemark::sim
