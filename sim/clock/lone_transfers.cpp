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

// Where bodies of loops begin and end in one stream, and what entries they are in another list of it.
class Boundaries {
 public:
  Boundaries(const std::vector<TimedLoop>& loops, std::size_t stream) {
    for (std::size_t l = 0; l < loops.size(); ++l) {
      const TimedLoop& loop = loops[l];
      if (stream >= loop.streams.size() || loop.streams[stream].length == 0) continue;
      const TimedLoop::Part& part = loop.streams[stream];
      for (std::int64_t body = 0; body <= loop.bodies; ++body)
        all_.push_back({static_cast<std::size_t>(part.end(body)), l, body});
    }
  }

  /// Whether one is in front of that entry, which is to be that one of the other list.
  bool come_to(std::size_t entry, std::size_t other, std::vector<TimedLoop>& loops, std::size_t stream) {
    bool found = false;
    for (; next_ < all_.size() && all_[next_].entry <= entry; ++next_) {
      TimedLoop::Part& part = loops[all_[next_].loop].streams[stream];
      if (all_[next_].body == 0) part.first = static_cast<std::uint32_t>(other);
      if (all_[next_].body == 1) part.length = static_cast<std::uint32_t>(other) - part.first;
      found = true;
    }
    return found;
  }

 private:
  struct Boundary {
    std::size_t entry = 0, loop = 0;
    std::int64_t body = 0;
  };
  std::vector<Boundary> all_;
  std::size_t next_ = 0;
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
  TimedProgram known = program;
  known.streams.clear();
  for (std::size_t s = 0; s < program.streams.size(); ++s) {
    const std::vector<TimedOp>& ops = program.streams[s];
    std::vector<TimedOp>& joined = known.streams.emplace_back();
    Boundaries boundaries(program.loops, s);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      TimedOp op = ops[i];
      const bool begins = boundaries.come_to(i, joined.size(), known.loops, s);
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
    (void)boundaries.come_to(ops.size(), joined.size(), known.loops, s);
  }
  return known;
}

}  // namespace tidemark::sim
