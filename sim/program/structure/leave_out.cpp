#include "sim/program/structure/leave_out.hpp"

#include <algorithm>

namespace tidemark::sim {
namespace {

// Bodies that memory has to come to repeat itself: that of 1F1B does after 1, 3 or 6 (decision 0017), of all of which
// what is left out is a multiple.
constexpr std::int64_t looks = 8, multiple = 6;

// Once so many came, bodies refer to nothing but what came again.
std::int64_t resolved(const Repeat& repeat) { return repeat.distance / repeat.period + 2; }

std::size_t body_of(const Repeat& repeat) { return repeat.last - repeat.first; }

// Of a loop: how many bodies come until nothing but what came again is referred to, and some more; then these are gone.
struct Gap {
  std::int64_t kept = 0, left_out = 0;
};

// By repeat.
std::vector<LeftOut> leave_out(RepeatingProgram& program, const std::vector<Gap>& gaps) {
  std::vector<LeftOut> found;
  std::size_t before = 0;  // ops that came again so far
  for (std::size_t r = 0; r < gaps.size(); ++r) {
    Repeat& repeat = program.repeats[r];
    const std::size_t body = body_of(repeat), copies = repeat.last + before;
    if (gaps[r].left_out > 0) {
      repeat.more -= gaps[r].left_out;
      found.push_back({.step = repeat.step,
                       .copies = copies,
                       .first = copies + static_cast<std::size_t>(resolved(repeat)) * body,
                       .body = body,
                       .bodies = gaps[r].kept,
                       .left_out = gaps[r].left_out,
                       .period = repeat.period});
    }
    before += static_cast<std::size_t>(repeat.more) * body;
  }
  return found;
}

// Of so many bodies, a multiple of `unit`.
Gap gap_of(const Repeat& repeat, std::int64_t bodies, std::int64_t kept, std::int64_t unit) {
  const std::int64_t rest = std::min(bodies, repeat.more) - resolved(repeat) - kept;
  return {kept, std::max<std::int64_t>(rest, 0) / unit * unit};
}

}  // namespace

std::vector<LeftOut> leave_out(RepeatingProgram& program) {
  std::vector<Gap> gaps;
  for (const Repeat& repeat : program.repeats) gaps.push_back(gap_of(repeat, repeat.more, looks, multiple));
  return leave_out(program, gaps);
}

std::vector<LeftOut> leave_out(RepeatingProgram& program, std::span<const LeaptCycle> clock) {
  std::vector<Gap> gaps(program.repeats.size());
  std::int64_t before = 0;  // ops that come again
  for (std::size_t r = 0; r < program.repeats.size(); ++r) {
    const Repeat& repeat = program.repeats[r];
    const auto body = static_cast<std::int64_t>(body_of(repeat));
    const std::int64_t copies = static_cast<std::int64_t>(repeat.last) + before;
    before += repeat.more * body;
    const auto its = std::ranges::find(clock, r, &LeaptCycle::loop);
    if (its == clock.end()) continue;
    // In bodies that come again: from where on the clock repeats itself, how often, and to where.
    const Cycle& cycle = its->cycle;
    const std::int64_t bodies = std::max<std::int64_t>(cycle.ops / body, 1);
    const std::int64_t begin = std::max<std::int64_t>((cycle.first - copies + body - 1) / body, 0);
    const std::int64_t end = (cycle.first + (cycle.more + 1) * cycle.ops - copies) / body;
    const std::int64_t kept = std::max<std::int64_t>(begin - resolved(repeat), 0) + looks + 2 * bodies;
    gaps[r] = gap_of(repeat, end, kept, multiple * bodies);
  }
  return leave_out(program, gaps);
}

std::optional<std::vector<LeftOut>> leave_out_like(RepeatingProgram& program, std::span<const LeftOut> like) {
  std::vector<Gap> gaps(program.repeats.size());
  for (const LeftOut& its : like) {
    const auto repeat = std::ranges::find(program.repeats, its.step, &Repeat::step);
    if (repeat == program.repeats.end() || repeat->period != its.period) return std::nullopt;
    if (repeat->more < its.left_out + its.bodies + resolved(*repeat)) return std::nullopt;
    gaps[static_cast<std::size_t>(repeat - program.repeats.begin())] = {its.bodies, its.left_out};
  }
  return leave_out(program, gaps);
}

}  // namespace tidemark::sim
