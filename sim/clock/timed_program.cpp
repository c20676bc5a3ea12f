#include "sim/clock/timed_program.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "sim/base/overloaded.hpp"
#include "sim/clock/detail/rank_alone.hpp"
#include "sim/clock/queue_points.hpp"

namespace tidemark::sim {
namespace {

// Equal calls get equal numbers. Programs repeat themselves: what followed a call the last time mostly follows it
// again.
template <class Call>
class Numbers {
 public:
  std::uint32_t of(const Call& call) {
    if (last_ != nullptr && last_->second.next != nullptr && last_->second.next->first == call) {
      last_ = last_->second.next;
      return last_->second.number;
    }
    Entry& found = *numbers_.try_emplace(call, Place{static_cast<std::uint32_t>(numbers_.size()), nullptr}).first;
    if (last_ != nullptr) last_->second.next = &found;
    last_ = &found;
    return found.second.number;
  }
  [[nodiscard]] std::vector<Call> calls() const {
    std::vector<Call> calls(numbers_.size());
    for (const auto& [call, place] : numbers_) calls[place.number] = call;
    return calls;
  }

 private:
  struct Place;
  using Entry = std::pair<const Call, Place>;
  struct Place {
    std::uint32_t number = 0;
    Entry* next = nullptr;
  };
  std::map<Call, Place> numbers_;
  Entry* last_ = nullptr;
};

// ---- lists that hold the first body of each loop

const TimedLoop::Part& host_part(const TimedLoop& loop) { return loop.host; }
struct StreamPart {
  std::size_t stream;
  TimedLoop::Part operator()(const TimedLoop& loop) const {
    return stream < loop.streams.size() ? loop.streams[stream] : TimedLoop::Part{};
  }
};

// How many entries of a list are not held.
template <class PartOf>
std::int64_t not_held(const std::vector<TimedLoop>& loops, const PartOf& part_of) {
  std::int64_t entries = 0;
  for (const TimedLoop& loop : loops)
    if (loop.bodies > 0) entries += (loop.bodies - 1) * part_of(loop).length;
  return entries;
}

// What is held for an entry, and from where on what follows is not what follows in the list that is held.
struct Held {
  std::int64_t entry = 0, end = std::numeric_limits<std::int64_t>::max();
  const TimedLoop* loop = nullptr;  // none: it is of no body
  std::int64_t body = 0;
};
template <class PartOf>
Held held(const std::vector<TimedLoop>& loops, std::int64_t entry, const PartOf& part_of) {
  std::int64_t not_held = 0;
  for (const TimedLoop& loop : loops) {
    const TimedLoop::Part part = part_of(loop);
    if (loop.bodies == 0 || part.length == 0) continue;
    if (entry < part.first) return {entry - not_held, part.held, nullptr, 0};
    if (entry < part.end(loop.bodies)) {
      const std::int64_t since = entry - part.first;
      return {part.held + since % part.length, part.held + part.length, &loop, since / part.length};
    }
    not_held += (loop.bodies - 1) * part.length;
  }
  return {entry - not_held};
}

bool is_outer(const TimedLoop& loop, std::uint32_t event) {
  return std::ranges::find(loop.outer_events, event) != loop.outer_events.end();
}

// Ops to fetch ahead of time: most of the time of a visit is waiting for memory.
constexpr std::size_t ahead = 32;

class Timing {
 public:
  Timing(const Program& program, std::span<const Repeat> repeats, const HostCosts& host,
         const std::vector<Duration>& kernels, Kernels how, const Beside& beside, const LaunchQueue& queue)
      : program_(program),
        repeats_(repeats),
        host_(host),
        kernels_(kernels),
        how_(how),
        sizes_(static_cast<std::size_t>(program.buffers)),
        spaces_(sizes_.size(), MemorySpace::Device),
        events_(static_cast<std::size_t>(program.events)),
        alone_(beside, events_.size()),
        is_beside_(alone_.any()),
        queue_(queue, fills(queue, program, repeats)) {
    note_launched();
    for (std::size_t e = 0; e < events_.size(); ++e) events_[e].number = static_cast<std::uint32_t>(e);
    timed_.events = events_.size();
  }

  /// Nothing where bodies that are alike are not as long on the clock: what repeats has to be unrolled.
  std::optional<TimedProgram> program() && {
    const std::vector<Op>& ops = program_.ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      __builtin_prefetch(&ops[std::min(i + ahead, ops.size() - 1)]);
      if (!repeats_.empty() && !come_to(i)) return std::nullopt;
      const Op& op = ops[i];
      at_ = static_cast<std::uint32_t>(i) + repeated_ops_;
      // Most ops only matter to memory, and most others are launches and marks: none of them needs the detour below.
      if (const auto* alloc = std::get_if<Alloc>(&op))
        allocate(*alloc);
      else if (const auto* kernel = std::get_if<Launch>(&op))
        launch(*kernel);
      else if (const auto* place = std::get_if<Mark>(&op))
        mark(*place);
      else if (!std::holds_alternative<Free>(op) && !std::holds_alternative<Bind>(op) &&
               !std::holds_alternative<Unbind>(op))
        add(op);
    }
    at_ = static_cast<std::uint32_t>(ops.size()) + repeated_ops_;
    end_stretch(-1);
    if (queue_.fills()) timed_.launched.resize(timed_.host.size() * queue_.launched().size());
    timed_.collectives = collectives_.calls();
    timed_.exchanges = exchanges_.calls();
    timed_.copies = copies_.calls();
    return std::move(timed_);
  }

 private:
  struct Event {
    std::uint32_t number = 0;  // of its last record; before one, of its first
    bool recorded = false;
  };

  void add(const Op& op) {
    std::visit(Overloaded{
                   [&](const Collective& o) {
                     p2p(o.stream, host_.of_collective(phase_, o.comm));
                     const CollectiveKey key = key_of(program_, o);
                     if (is_beside_) alone_.collective(o.stream, key);
                     push(o.stream, TimedOp::Kind::Collective, collectives_.of(key));
                   },
                   [&](const Exchange& o) {
                     p2p(o.stream, host_.of(phase_));
                     push(o.stream, TimedOp::Kind::Exchange, exchanges_.of(exchange(o)));
                   },
                   [&](const Memcpy& o) {
                     p2p(o.stream, host_.of(phase_));
                     push(o.stream, TimedOp::Kind::Copy,
                          copies_.of({spaces_[o.from.buffer.index()], spaces_[o.to.buffer.index()], o.size}));
                   },
                   [&](const Record& o) {
                     if (is_beside_) alone_.record(o.stream, o.event);
                     push(o.stream, TimedOp::Kind::Record, record(o.event));
                   },
                   [&](const Wait& o) {
                     if (is_beside_) alone_.wait(o.stream, o.event);
                     push(o.stream, TimedOp::Kind::Wait, events_[o.event.index()].number);
                   },
                   [&](const Sync& o) { end_stretch(static_cast<std::int32_t>(events_[o.event.index()].number)); },
                   Ignored<Alloc, Free, CrossStreamUse, Launch, CreateDriver, CreateCommunicator, Bind, Unbind, Mark>{},
               },
               op);
  }

  void allocate(const Alloc& o) {
    sizes_[o.buffer.index()] = o.size;
    if (o.space != MemorySpace::Device) spaces_[o.buffer.index()] = o.space;
  }

  void launch(const Launch& o) {
    Duration duration = kernels_[o.kernel.index()];
    if (!o.stream.valid()) {
      now_ += duration;
      return;
    }
    if (!program_[o.kernel].follows()) p2p(o.stream, host_.of(phase_));
    if (is_beside_) duration = alone_.kernel(o.stream, o.kernel, duration);
    std::vector<TimedOp>& its = stream(o.stream);
    if (how_ == Kernels::Each || its.size() <= fence(o.stream) || its.back().kind != TimedOp::Kind::Kernels ||
        its.back().stretch != stretch()) {
      its.push_back({now_ + duration, duration, at_, 1, stretch(), TimedOp::Kind::Kernels});
      return;
    }
    TimedOp& before = its.back();
    before.after = std::max(before.after, now_) + duration;
    before.duration += duration;
    ++before.what;
  }

  // The host thread takes its time, once there is room for it.
  void p2p(StreamId to, Duration takes) {
    if (queue_.is_before_launch(to)) end_stretch(-1);
    queue_.launch(to);
    now_ += takes;
  }

  void mark(const Mark& o) {
    if (queue_.is_at(o)) end_stretch(-1);
    phase_ = o.phase;
    if (std::exchange(step_, o.step) != o.step) timed_.step_ends.push_back({stretch(), now_});
  }

  void push(StreamId to, TimedOp::Kind kind, std::uint32_t what) {
    stream(to).push_back({now_, {}, at_, what, stretch(), kind});
  }

  std::vector<TimedOp>& stream(StreamId id) {
    if (id.index() >= timed_.streams.size()) timed_.streams.resize(id.index() + 1);
    std::vector<TimedOp>& its = timed_.streams[id.index()];
    // Seldom less, and what is not used costs nothing.
    if (how_ == Kernels::Each && its.capacity() == 0) its.reserve(program_.ops.size() / 4);
    return its;
  }

  [[nodiscard]] std::uint32_t stretch() const {
    return static_cast<std::uint32_t>(std::ssize(timed_.host) + repeated_stretches_);
  }

  void end_stretch(std::int32_t sync) {
    const std::uint32_t last = sync < 0 ? at_ : at_ + 1;
    timed_.host.push_back({now_, std::exchange(first_, last), last, sync});
    now_ = {};
    queue_.pass();
    note_launched();
  }
  // Before the stretch that begins.
  void note_launched() {
    if (queue_.fills())
      timed_.launched.insert(timed_.launched.end(), queue_.launched().begin(), queue_.launched().end());
  }

  std::uint32_t record(EventId id) {
    Event& event = events_[id.index()];
    if (std::exchange(event.recorded, true)) {
      recorded_again_ = true;
      event.number = static_cast<std::uint32_t>(timed_.events++);
    }
    return event.number;
  }

  // ---- what repeats: the last two bodies tell what comes after them

  // Where the lists are between two ops.
  struct Place {
    std::vector<std::size_t> streams;
    std::size_t host = 0;
    Duration now;
    std::vector<Duration> tails;  // of streams on their own clock
    QueuePoints queue;
  };

  bool come_to(std::size_t op) {
    const Repeat& next = repeats_.front();
    if (op == next.before) before_ = place();
    if (op == next.first) first_body_ = place();
    if (op != next.last) return true;
    const bool regular = !recorded_again_ && repeat(next);
    repeats_ = repeats_.subspan(1);
    return regular;
  }

  // Kernels on both sides of it stay apart.
  Place place() {
    Place here{{}, timed_.host.size(), now_, alone_.tails(), queue_};
    for (const std::vector<TimedOp>& ops : timed_.streams) here.streams.push_back(ops.size());
    fences_ = here.streams;
    return here;
  }
  [[nodiscard]] std::size_t fence(StreamId stream) const {
    return stream.index() < fences_.size() ? fences_[stream.index()] : 0;
  }

  bool repeat(const Repeat& repeat) {
    const Place here = place();
    const std::size_t stretches = here.host - first_body_.host;
    // The host's time since its stretch began is the same at each end of a body, or it grows by as much.
    const bool same = first_body_.now == here.now && before_.now == here.now;
    const bool grows = here.now - first_body_.now == first_body_.now - before_.now;
    if (first_body_.host - before_.host != stretches || !(stretches > 0 ? same : grows)) return false;
    if (before_.streams.size() != here.streams.size()) return false;
    for (std::size_t s = 0; s < here.streams.size(); ++s)
      if (here.streams[s] - first_body_.streams[s] != first_body_.streams[s] - before_.streams[s]) return false;
    if (is_beside_ && !repeat_beside(here, repeat.more)) return false;
    if (!queue_.repeat(before_.queue, first_body_.queue, repeat.more)) return false;
    const auto body_ops = static_cast<std::uint32_t>(repeat.last - repeat.first);
    const auto made = std::count_if(program_.ops.begin() + static_cast<std::ptrdiff_t>(repeat.first),
                                    program_.ops.begin() + static_cast<std::ptrdiff_t>(repeat.last),
                                    [](const Op& op) { return std::holds_alternative<Record>(op); });
    timed_.loops.push_back(loop_to(here, body_ops, made));
    TimedLoop& loop = timed_.loops.back();
    if (loop.bodies > 0) {
      loop.bodies += repeat.more;
      repeated_stretches_ += repeat.more * loop.host.length;
      // What comes before the stretch that has begun.
      for (std::size_t c = 0; c < loop.launches.size(); ++c)
        timed_.launched[here.host * loop.launches.size() + c] += repeat.more * loop.launches[c];
    } else {
      for (std::size_t s = 0; s < here.streams.size(); ++s)
        go_on(timed_.streams[s], here.streams[s] - first_body_.streams[s], repeat.more);
      go_on(timed_.host, stretches, repeat.more);
      if (queue_.fills()) go_on(timed_.launched, stretches * queue_.launched().size(), repeat.more);
    }
    if (stretches == 0) now_ += repeat.more * (here.now - first_body_.now);
    const std::uint32_t ops = static_cast<std::uint32_t>(repeat.more) * body_ops;
    repeated_ops_ += ops;
    if (stretches > 0) first_ += ops;
    const auto later = static_cast<std::uint32_t>(repeat.more * made);
    for (auto e = static_cast<std::size_t>(repeat.later_events); e < events_.size(); ++e) events_[e].number += later;
    timed_.events += later;
    fences_ = place().streams;
    return true;
  }

  // The last body as the first of a loop; it is as the one before it, entry by entry, or the loop has no bodies.
  [[nodiscard]] TimedLoop loop_to(const Place& here, std::uint32_t ops, std::int64_t records) const {
    TimedLoop loop;
    const auto part = [&](std::size_t first, std::size_t last, const auto& part_of) {
      return TimedLoop::Part{static_cast<std::int64_t>(first) + not_held(timed_.loops, part_of),
                             static_cast<std::uint32_t>(last - first), static_cast<std::uint32_t>(first)};
    };
    loop.host = part(first_body_.host, here.host, &host_part);
    loop.events = records;
    std::vector<std::int64_t> recorded, waited;
    bool alike = loop.host.length > 0;
    // Whether the event is another one in each body, or the same in all.
    const auto see_wait = [&](std::int64_t last, std::int64_t before) {
      if (last == before)
        loop.outer_events.push_back(static_cast<std::uint32_t>(last));
      else
        waited.push_back(last);
      alike &= last == before || last - before == records;
    };
    for (std::size_t s = 0; s < here.streams.size(); ++s) {
      const std::vector<TimedOp>& its = timed_.streams[s];
      const std::size_t first = first_body_.streams[s], length = here.streams[s] - first;
      loop.streams.push_back(part(first, here.streams[s], StreamPart{s}));
      for (std::size_t i = first; i < here.streams[s]; ++i) {
        const TimedOp &last = its[i], &before = its[i - length];
        alike &= last.after == before.after && last.duration == before.duration && last.kind == before.kind &&
                 last.op - before.op == ops && last.stretch - before.stretch == loop.host.length;
        if (last.kind == TimedOp::Kind::Wait)
          see_wait(last.what, before.what);
        else if (last.kind == TimedOp::Kind::Record)
          recorded.push_back(last.what), alike &= last.what - before.what == records;
        else
          alike &= last.what == before.what;
      }
    }
    for (std::size_t i = first_body_.host; i < here.host; ++i) {
      const HostStretch &last = timed_.host[i], &before = timed_.host[i - loop.host.length];
      alike &= last.length == before.length && (last.sync < 0) == (before.sync < 0);
      if (last.sync >= 0) see_wait(last.sync, before.sync);
    }
    if (queue_.fills() && alike) {
      const std::size_t channels = queue_.launched().size(), row = loop.host.length * channels;
      for (std::size_t c = 0; c < channels; ++c)
        loop.launches.push_back(timed_.launched[here.host * channels + c] -
                                timed_.launched[first_body_.host * channels + c]);
      for (std::size_t i = first_body_.host * channels; i < (here.host + 1) * channels; ++i)
        alike &= timed_.launched[i] - timed_.launched[i - row] == loop.launches[i % channels];
    }
    const auto [lowest, highest] = std::ranges::minmax_element(recorded);
    alike &= std::ssize(recorded) == records;
    if (!alike) return {};
    if (records > 0) {
      loop.first_event = *lowest;
      if (*highest - *lowest + 1 != records) return {};
    }
    for (const std::int64_t event : waited)
      if (event < loop.first_event) loop.reach = std::max(loop.reach, 1 + (loop.first_event - 1 - event) / records);
    loop.bodies = 1;
    loop.first_op = at_ + 1 - ops;  // behind the op that was last
    loop.ops = ops;
    return loop;
  }

  // The last two bodies take as long, and leave streams as far from each other. Streams that only send or receive stand
  // still on the rank's own clock.
  bool repeat_beside(const Place& here, std::int64_t more) {
    const auto tail = [](const Place& place, std::size_t s) {
      return s < place.tails.size() ? place.tails[s] : Duration{};
    };
    Duration body;
    for (std::size_t s = 0; s < here.streams.size(); ++s) {
      const std::vector<TimedOp>& its = timed_.streams[s];
      const std::size_t length = here.streams[s] - first_body_.streams[s];
      for (std::size_t i = first_body_.streams[s]; i < here.streams[s]; ++i)
        if (its[i].duration != its[i - length].duration) return false;
      const Duration took = tail(here, s) - tail(first_body_, s);
      if (took != Duration{} && body != Duration{} && took != body) return false;
      if (took != Duration{}) body = took;
    }
    alone_.shift(more * body);
    return true;
  }

  // Appends `more` times what comes after the last two runs of `length` entries.
  template <class Entry>
  static void go_on(std::vector<Entry>& list, std::size_t length, std::int64_t more) {
    if (length == 0) return;
    const std::size_t all = length * static_cast<std::size_t>(more);
    list.reserve(list.size() + all);
    for (std::size_t i = 0; i < all; ++i)
      list.push_back(next(list[list.size() - length], list[list.size() - 2 * length]));
  }
  template <class Number>
  static Number next(Number last, Number before) {
    return static_cast<Number>(last + (last - before));
  }
  static TimedOp next(const TimedOp& last, const TimedOp& before) {
    return {next(last.after, before.after),     last.duration, next(last.op, before.op), next(last.what, before.what),
            next(last.stretch, before.stretch), last.kind};
  }
  static HostStretch next(const HostStretch& last, const HostStretch& before) {
    return {last.length, next(last.first, before.first), next(last.last, before.last), next(last.sync, before.sync)};
  }

  [[nodiscard]] TimedExchange exchange(const Exchange& o) const {
    TimedExchange its{o.comm, {}};
    for (const Transfer& t : program_[o.transfers])
      its.messages.push_back({t.direction, t.step, t.size(sizes_[t.buffer.index()])});
    return its;
  }

  const Program& program_;
  std::span<const Repeat> repeats_;  // to come
  const HostCosts& host_;
  const std::vector<Duration>& kernels_;
  Kernels how_;

  std::uint32_t at_ = 0;     // op of all
  std::uint32_t first_ = 0;  // of the stretch
  Duration now_;             // since its start
  std::int32_t step_ = 0;
  Phase phase_ = Phase::Construction;
  std::vector<Bytes> sizes_;         // by buffer
  std::vector<MemorySpace> spaces_;  // by buffer
  std::vector<Event> events_;        // by EventId
  RankAlone alone_;
  bool is_beside_;
  QueuePoints queue_;
  Numbers<CollectiveKey> collectives_;
  Numbers<TimedExchange> exchanges_;
  Numbers<CopyKey> copies_;
  TimedProgram timed_;

  Place before_{{}, 0, {}, {}, queue_}, first_body_ = before_;  // where the last two bodies begin
  std::vector<std::size_t> fences_;                             // by stream
  std::uint32_t repeated_ops_ = 0;                              // so far
  std::int64_t repeated_stretches_ = 0;                         // that are not held
  bool recorded_again_ = false;                                 // some event
};

}  // namespace

std::int64_t TimedProgram::stretches() const { return std::ssize(host) + not_held(loops, &host_part); }

HostStretch TimedProgram::stretch(std::int64_t which) const {
  const Held its = held(loops, which, &host_part);
  HostStretch found = host[static_cast<std::size_t>(its.entry)];
  if (its.body == 0) return found;
  const auto ops = static_cast<std::uint32_t>(its.body) * its.loop->ops;
  found.first += ops;
  found.last += ops;
  if (found.sync >= 0 && !is_outer(*its.loop, static_cast<std::uint32_t>(found.sync)))
    found.sync += static_cast<std::int32_t>(its.body * its.loop->events);
  return found;
}

std::int64_t TimedProgram::launched_before(std::int64_t stretch, std::size_t channel, std::size_t channels) const {
  const Held its = held(loops, stretch, &host_part);
  return launched[static_cast<std::size_t>(its.entry) * channels + channel] +
         (its.body == 0 ? 0 : its.body * its.loop->launches[channel]);
}

void OpCursor::go_to(std::int64_t place) {
  const std::vector<TimedOp>& list = program_->streams[stream_];
  const Held its = held(program_->loops, place, StreamPart{stream_});
  place_ = place;
  held_ = list.data() + its.entry;
  last_ = list.data() + std::min<std::int64_t>(its.end, std::ssize(list));
  loop_ = its.loop;
  body_ = its.body;
  over_ = its.entry == std::ssize(list);
  if (!over_) load();
}

void OpCursor::come_later() {
  op_.op += static_cast<std::uint32_t>(body_) * loop_->ops;
  op_.stretch += static_cast<std::uint32_t>(body_) * loop_->host.length;
  const bool of_body =
      op_.kind == TimedOp::Kind::Record || (op_.kind == TimedOp::Kind::Wait && !is_outer(*loop_, op_.what));
  if (of_body) op_.what += static_cast<std::uint32_t>(body_ * loop_->events);
}

TimedProgram timed(const Program& program, const HostCosts& host, const std::vector<Duration>& kernels, Kernels how,
                   const Beside& beside, const LaunchQueue& queue) {
  return *Timing(program, {}, host, kernels, how, beside, queue).program();
}

TimedProgram timed(const RepeatingProgram& program, const HostCosts& host, const std::vector<Duration>& kernels,
                   Kernels how, const Beside& beside, const LaunchQueue& queue) {
  auto found = Timing(program.rolled, program.repeats, host, kernels, how, beside, queue).program();
  return found ? std::move(*found) : timed(unrolled(program), host, kernels, how, beside, queue);
}

}  // namespace tidemark::sim
