#include "sim/clock/lone_transfers.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tidemark::sim {
namespace {

// Goes through a program in the order of its host thread and notes what each stream knows to be over: of each stream,
// so many entries.
class Order {
 public:
  explicit Order(const TimedProgram& program)
      : program_(program),
        streams_(program.streams.size()),
        calls_(program.collectives.size() + program.exchanges.size()),
        next_(streams_, 0),
        known_(streams_ * streams_, 0),
        host_(streams_, 0),
        events_(program.events * streams_, 0),
        latest_(calls_ * streams_, 0),
        found_(calls_, std::vector<bool>(calls_, false)) {}

  Overlaps overlaps() && {
    for (std::size_t s = first(); s < streams_; s = first()) {
      const TimedOp& op = program_.streams[s][next_[s]];
      for (; stretch_ < op.stretch; ++stretch_)
        if (const std::int32_t sync = program_.host[stretch_].sync; sync >= 0)
          learn(host_.data(), &events_[static_cast<std::size_t>(sync) * streams_]);
      learn(&known_[s * streams_], host_.data());
      known_[s * streams_ + s] = next_[s]++;
      add(s, op);
    }
    return std::move(found_);
  }

 private:
  // The stream whose next entry the host hands over first; how many streams there are when all is over.
  [[nodiscard]] std::size_t first() const {
    std::size_t found = streams_;
    for (std::size_t s = 0; s < streams_; ++s)
      if (next_[s] < program_.streams[s].size() &&
          (found == streams_ || program_.streams[s][next_[s]].op < program_.streams[found][next_[found]].op))
        found = s;
    return found;
  }

  void learn(std::uint32_t* mine, const std::uint32_t* other) const {
    for (std::size_t s = 0; s < streams_; ++s) mine[s] = std::max(mine[s], other[s]);
  }

  void add(std::size_t s, const TimedOp& op) {
    std::uint32_t* its = &known_[s * streams_];
    switch (op.kind) {
      case TimedOp::Kind::Record:
        std::copy_n(its, streams_, &events_[op.what * streams_]);
        events_[op.what * streams_ + s] = next_[s];
        break;
      case TimedOp::Kind::Wait:
        learn(its, &events_[op.what * streams_]);
        break;
      case TimedOp::Kind::Collective:
        call(s, op.what);
        break;
      case TimedOp::Kind::Exchange:
        call(s, program_.collectives.size() + op.what);
        break;
      case TimedOp::Kind::Kernels:
      case TimedOp::Kind::Copy:  // never taken for alone
        break;
    }
  }

  void call(std::size_t s, std::size_t which) {
    for (std::size_t other = 0; other < calls_; ++other)
      for (std::size_t t = 0; t < streams_; ++t)
        if (latest_[other * streams_ + t] > known_[s * streams_ + t])
          found_[other][which] = found_[which][other] = true;
    latest_[which * streams_ + s] = next_[s];
  }

  const TimedProgram& program_;
  std::size_t streams_, calls_;
  std::vector<std::uint32_t> next_;    // entry, by stream
  std::uint32_t stretch_ = 0;          // of the host
  std::vector<std::uint32_t> known_;   // by stream: what it knows
  std::vector<std::uint32_t> host_;    // what the host thread does
  std::vector<std::uint32_t> events_;  // by event: what who waits for it learns
  std::vector<std::uint32_t> latest_;  // by call and stream: up to which entry it was called
  Overlaps found_;
};

// Where bodies of loops begin and end in one stream's list, and what entries they are in another list of it.
class Boundaries {
 public:
  Boundaries(std::vector<TimedLoop>& loops, std::size_t stream) {
    for (TimedLoop& loop : loops) {
      if (stream >= loop.streams.size() || loop.streams[stream].length == 0) continue;
      TimedLoop::Part& part = loop.streams[stream];
      all_.push_back({part.held, &loop, &part, false});
      all_.push_back({part.held + part.length, &loop, &part, true});
    }
  }

  /// Whether one is in front of that entry, which is to be that one of the other list.
  bool come_to(std::size_t entry, std::size_t other) {
    bool found = false;
    for (; next_ < all_.size() && all_[next_].entry <= entry; ++next_) {
      const Boundary& here = all_[next_];
      if (here.ends) {
        here.part->length = static_cast<std::uint32_t>(other) - here.part->held;
        not_held_ += (here.loop->bodies - 1) * here.part->length;
      } else {
        here.part->held = static_cast<std::uint32_t>(other);
        here.part->first = here.part->held + not_held_;
      }
      found = true;
    }
    return found;
  }

 private:
  struct Boundary {
    std::size_t entry = 0;
    TimedLoop* loop;
    TimedLoop::Part* part;
    bool ends = false;
  };
  std::vector<Boundary> all_;
  std::size_t next_ = 0;
  std::int64_t not_held_ = 0;  // entries before, of the other list
};

// Kernels that follow one another: what the second adds to the first.
void join(TimedOp& first, const TimedOp& second) {
  first.after = std::max(first.after + second.duration, second.after);
  first.duration += second.duration;
  first.what += second.what;
}

}  // namespace

Overlaps overlaps(const TimedProgram& program) { return Order(program).overlaps(); }

TimedProgram with_known(const TimedProgram& program, const std::vector<std::optional<Duration>>& durations) {
  TimedProgram known = {{},
                        program.host,
                        program.launched,
                        program.step_ends,
                        program.collectives,
                        program.exchanges,
                        program.copies,
                        program.events,
                        program.loops};
  for (std::size_t s = 0; s < program.streams.size(); ++s) {
    const std::vector<TimedOp>& ops = program.streams[s];
    std::vector<TimedOp>& joined = known.streams.emplace_back();
    Boundaries boundaries(known.loops, s);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      TimedOp op = ops[i];
      const bool begins = boundaries.come_to(i, joined.size());
      if (op.kind == TimedOp::Kind::Collective && durations[op.what]) {
        op.duration = *durations[op.what];
        op.after += op.duration;
        op.kind = TimedOp::Kind::Kernels;
        op.what = 2;
      }
      const bool follows = !begins && !joined.empty() && op.kind == TimedOp::Kind::Kernels &&
                           joined.back().kind == TimedOp::Kind::Kernels && joined.back().stretch == op.stretch;
      if (follows)
        join(joined.back(), op);
      else
        joined.push_back(op);
    }
    (void)boundaries.come_to(ops.size(), joined.size());
  }
  return known;
}

}  // namespace tidemark::sim
