#include "sim/clock/timed_program.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/clock/class_timeline.hpp"
#include "sim/clock/engine.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"
#include "tests/seeds.hpp"
#include "tests/sim/clock/outlined.hpp"

namespace tidemark::tests::timed_program_test {
namespace {

using namespace literals;

using Random = std::mt19937_64;

std::int64_t below(Random& random, std::int64_t n) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
}

struct Job {
  Workload workload;
  TimeCosts costs;

  [[nodiscard]] Folding folding() const {
    return unfolded(workload, std::vector<std::int32_t>(workload.program_of_rank.size(), 0));
  }
  [[nodiscard]] Trace op_by_op() const { return simulate(workload, folding(), costs); }
  [[nodiscard]] Trace quickly() const { return simulate(outlined(workload), folding(), costs); }
  [[nodiscard]] std::vector<ClassTimeline> timelines(const Trace& trace) const {
    return tidemark::sim::timelines(workload, folding(), costs, trace);
  }
};

constexpr std::int32_t streams = 3, kernels = 5, events = 6;

Phase some_phase(Random& random) { return static_cast<Phase>(below(random, static_cast<std::int64_t>(phases))); }

// What one rank does by itself: kernels on any stream, streams and the host thread that wait, marks. Events are
// recorded again and again; none is waited for before it is.
class Alone {
 public:
  explicit Alone(Random& random) : random_(random) {}

  void push(ProgramBuilder& program) {
    switch (below(random_, 10)) {
      case 0:
        return record(program);
      case 1:
        if (recorded_.empty()) return record(program);
        return program.push(Wait{some_stream(), some_event()});
      case 2:
        if (recorded_.empty()) return record(program);
        if (below(random_, 3) == 0) program.push(Sync{some_event()});
        return;
      case 3:
        return program.mark(some_phase(random_), step_ += static_cast<std::int32_t>(below(random_, 2)), -1,
                            program.label("x"));
      default:
        for (std::int64_t n = 1 + below(random_, 5); n > 0; --n)
          program.launch({Operation::Fill, {static_cast<double>(below(random_, kernels))}}, {}, {}, some_stream());
    }
  }

 private:
  void record(ProgramBuilder& program) {
    const EventId event{static_cast<std::int32_t>(below(random_, events))};
    program.push(Record{event, some_stream()});
    recorded_.push_back(event);
  }
  StreamId some_stream() { return {static_cast<std::int32_t>(below(random_, streams))}; }
  EventId some_event() {
    return recorded_[static_cast<std::size_t>(below(random_, static_cast<std::int64_t>(recorded_.size())))];
  }

  Random& random_;
  std::vector<EventId> recorded_;
  std::int32_t step_ = 0;
};

// Launches that take longer than kernels, shorter, and nothing.
OpTimes random_times(Random& random, const Program& program) {
  OpTimes times;
  const std::int64_t launches[] = {0, 3, 40};
  times.host.launch = Duration{launches[below(random, 3)]};
  if (below(random, 2) == 0) {  // a framework that takes its time, and more to share out parameters
    for (Duration& code : times.host.code) code = Duration{below(random, 20)};
    for (Duration& hooks : times.host.hooks) hooks = Duration{below(random, 50)};
    times.host.hooked = {static_cast<std::int32_t>(below(random, 4))};
  }
  for (std::size_t k = 0; k < program.kernels.size(); ++k) times.kernels.push_back(Duration{below(random, 30)});
  return times;
}

// Four ranks, in pairs next to each other and two apart and in a ring, which take other times and do other things in
// between. Each of those communicators has a stream of its own; collectives of a group that counts as one class run on
// any, on links that no other class uses, and those of 3000 bytes on links that others do.
Job random_job(std::uint64_t seed, std::int32_t length) {
  Random random(seed);
  std::vector<ProgramBuilder> programs(4);
  std::vector<Alone> alone(4, Alone(random));
  std::vector<BufferId> buffers;  // alike on all ranks
  for (ProgramBuilder& program : programs)
    for (const Bytes size : {512_B, 1000_B, 3000_B}) {
      const BufferId buffer = program.alloc(size, Category::Temporaries, program.label("x"));
      if (&program == &programs.front()) buffers.push_back(buffer);
    }
  for (std::int32_t i = 0; i < length; ++i) {
    for (std::size_t r = 0; r < programs.size(); ++r)
      for (std::int64_t n = below(random, 6); n > 0; --n) {
        alone[r].push(programs[r]);
        if (below(random, 4) > 0) continue;
        const Bytes size = Bytes{1000 * (1 + below(random, 3))};
        programs[r].collective({3}, {CollectiveKind::Broadcast, DType::BOOL}, buffers[0], buffers[0], size,
                               {static_cast<std::int32_t>(seed % 2 == 0 ? 0 : below(random, streams))});
      }
    const BufferId b = buffers[static_cast<std::size_t>(below(random, 3))];
    const std::int64_t call = below(random, 5);
    for (ProgramBuilder& program : programs) {
      if (call < 2)
        program.collective({0}, {CollectiveKind::AllReduce, DType::BOOL}, b, b, Bytes{1000 * (call + 1)}, {0});
      else if (call < 4)
        program.collective({1}, {CollectiveKind::AllGather, DType::BOOL}, b, b, Bytes{1000 * call}, {1});
      else
        program.exchange({2}, {{Direction::Send, 1, b}, {Direction::Receive, -1, b}}, {2});
    }
  }
  Job job;
  job.workload.communicators = {
      {"near", {{2, 1, 1}}}, {"far", {{2, 2, 1}}}, {"ring", {{4, 1, 1}}}, {"alone", {{1, 1, 1}}}};
  job.costs.links.assign(12, 1_GBps);
  job.costs.links[1] = Bandwidth{3'000'000'000};
  for (std::size_t r = 0; r < programs.size(); ++r) {
    Program& program = job.workload.programs.emplace_back(std::move(programs[r]).finish());
    program.events = events;
    job.workload.program_of_rank.push_back(static_cast<std::int32_t>(r));
    OpTimes& times = job.costs.classes.emplace_back(random_times(random, program));
    const LinkId link{static_cast<std::int32_t>(r / 2)};
    for (const Bytes size : {512_B, 1000_B, 3000_B}) times.messages[{{2}, 1, size}] = {20_ps, {{link, size, 1}}};
  }
  for (const GroupClass& group : unfolded(job.workload, {0, 0, 0, 0}).groups) {
    std::map<CollectiveKey, TransferCost>& costs = job.costs.collectives.emplace_back();
    const std::int32_t r = group.classes.front();  // each rank is one
    const LinkId link{r / 2}, own{2 + r}, other{6 + r};
    for (const Bytes size : {1000_B, 2000_B}) costs[{{0}, CollectiveKind::AllReduce, size}] = {5_ps, {{link, size, 1}}};
    for (const Bytes size : {2000_B, 3000_B})
      costs[{{1}, CollectiveKind::AllGather, size}] = {7_ps, {{{0}, size, 1}, {{1}, size, 2}}};
    costs[{{3}, CollectiveKind::Broadcast, 1000_B}] = {3_ps, {{own, 1000_B, 1}}};
    costs[{{3}, CollectiveKind::Broadcast, 2000_B}] = {3_ps, {{other, 2000_B, 1}, {own, 500_B, 2}}};
    costs[{{3}, CollectiveKind::Broadcast, 3000_B}] = {3_ps, {{other, 3000_B, 1}, {link, 3000_B, 1}}};
  }
  return job;
}

void expect_same(const Trace& ends, const Trace& timeline) {
  EXPECT_EQ(ends.outcome, timeline.outcome);
  EXPECT_EQ(ends.end, timeline.end);
  EXPECT_EQ(ends.events, timeline.events);
  for (std::size_t c = 0; c < ends.classes.size(); ++c)
    EXPECT_EQ(ends.classes[c].step_ends, timeline.classes[c].step_ends) << "class " << c;
}

// Without other ranks, everything is known in the order in which the host thread calls it.
Trace one_after_another(const Program& program, const OpTimes& times) {
  Instant host, tails[streams], recorded[events];
  Phase phase = Phase::Construction;
  Trace trace;
  trace.classes.resize(1);
  std::int32_t step = 0;
  for (const Op& op : program.ops) {
    if (const auto* launch = std::get_if<Launch>(&op)) {
      host = host + times.host.launch + times.host.code[static_cast<std::size_t>(phase)];
      Instant& tail = tails[launch->stream.index()];
      tail = std::max(tail, host) + times.kernels[launch->kernel.index()];
      ++trace.events;
    } else if (const auto* record = std::get_if<Record>(&op)) {
      recorded[record->event.index()] = std::max(tails[record->stream.index()], host);
    } else if (const auto* wait = std::get_if<Wait>(&op)) {
      Instant& tail = tails[wait->stream.index()];
      if (recorded[wait->event.index()] > host) tail = std::max(tail, recorded[wait->event.index()]);
    } else if (const auto* sync = std::get_if<Sync>(&op)) {
      host = std::max(host, recorded[sync->event.index()]);
    } else if (const auto* mark = std::get_if<Mark>(&op)) {
      if (mark->step != step) trace.classes[0].step_ends.push_back(host);
      step = mark->step;
      phase = mark->phase;
    }
  }
  trace.end = std::max(host, *std::max_element(std::begin(tails), std::end(tails)));
  trace.classes[0].step_ends.push_back(trace.end);
  return trace;
}

// The same, as spans and as what the host thread does.
ClassTimeline timeline_one_after_another(const Job& job) {
  const Program& program = job.workload.programs[0];
  const OpTimes& times = job.costs.classes[0];
  Instant host, tails[streams], recorded[events];
  Phase phase = Phase::Construction;
  ClassTimeline its;
  for (std::uint32_t i = 0; i < program.ops.size(); ++i) {
    its.host.push_back(host);
    const Op& op = program.ops[i];
    if (const auto* launch = std::get_if<Launch>(&op)) {
      host = host + times.host.launch + times.host.code[static_cast<std::size_t>(phase)];
      Instant& tail = tails[launch->stream.index()];
      const Instant begin = std::max(tail, host);
      tail = begin + times.kernels[launch->kernel.index()];
      its.spans.push_back({i, launch->stream, begin, begin, tail});
    } else if (const auto* record = std::get_if<Record>(&op)) {
      recorded[record->event.index()] = std::max(tails[record->stream.index()], host);
    } else if (const auto* wait = std::get_if<Wait>(&op)) {
      Instant& tail = tails[wait->stream.index()];
      const Instant begin = std::max(tail, host), end = recorded[wait->event.index()];
      if (end > begin) its.spans.push_back({i, wait->stream, begin, begin, tail = end});
    } else if (const auto* sync = std::get_if<Sync>(&op)) {
      host = std::max(host, recorded[sync->event.index()]);
    } else if (const auto* mark = std::get_if<Mark>(&op)) {
      phase = mark->phase;
    }
  }
  return its;
}

// What ranks did by themselves is told by their own programs, and the engine has seen the same: collectives begin when
// the last of their members is ready, and all is over when the trace says so.
void expect_to_meet(const Job& job, const Trace& trace) {
  const std::vector<ClassTimeline> timelines = job.timelines(trace);
  std::map<std::pair<std::int32_t, std::vector<Rank>>, std::map<Instant, Instant>> last_ready;  // by group and begin
  for (std::size_t r = 0; r < timelines.size(); ++r) {
    Instant end = timelines[r].host.back();
    for (const Span& span : timelines[r].spans) {
      end = std::max(end, span.end);
      const auto* call = std::get_if<Collective>(&job.workload.programs[r].ops[span.op]);
      if (call == nullptr) continue;
      const Communicator& communicator = job.workload.communicators[call->comm.index()];
      Instant& ready =
          last_ready[{call->comm.value, group_members(communicator, Rank{static_cast<std::int32_t>(r)})}][span.begin];
      ready = std::max(ready, span.ready);
    }
    EXPECT_LE(end, trace.classes[r].step_ends.back());
  }
  for (const auto& [group, calls] : last_ready)
    for (const auto& [begin, ready] : calls) EXPECT_EQ(ready, begin);
}

// The driver's launch, the framework's code by phase, and hooks of modules where their parameters are gathered.
TEST(TimedProgram, HostsTakeWhatTheirPhaseCosts) {
  ProgramBuilder program;
  const BufferId buffer = program.alloc(512_B, Category::Parameters, program.label("x"));
  const auto call = [&](std::int32_t comm) {
    program.collective({comm}, {CollectiveKind::AllGather, DType::BOOL}, buffer, buffer, 512_B, {0});
  };
  program.mark(Phase::Forward, 1, -1, program.label("x"));
  program.launch({Operation::Fill, {1}}, {}, {}, StreamId{0});
  call(0);
  program.mark(Phase::Backward, 1, -1, program.label("x"));
  call(1);
  call(0);
  HostCosts host = 1_ps;
  host.code[static_cast<std::size_t>(Phase::Forward)] = 10_ps;
  host.code[static_cast<std::size_t>(Phase::Backward)] = 20_ps;
  host.hooks[static_cast<std::size_t>(Phase::Forward)] = 100_ps;
  host.hooks[static_cast<std::size_t>(Phase::Backward)] = 200_ps;
  host.hooked = {0};
  const TimedProgram found = timed(std::move(program).finish(), host, {0_ps}, Kernels::Each);
  std::vector<Duration> handed_over;
  for (const TimedOp& op : found.streams.at(0)) handed_over.push_back(op.after);
  EXPECT_EQ(handed_over, (std::vector<Duration>{11_ps, 122_ps, 143_ps, 364_ps}));
}

TEST(TimedProgram, KernelsInARowAreOneEntry) {
  const Program program = parse_program(
      "launch s0 copy ->\nlaunch s1 add ->\nlaunch s0 add ->\nlaunch s0 copy ->\n"
      "record e0 s0\nlaunch s0 copy ->\nsync e0\nlaunch s0 copy ->\n");
  const TimedProgram found = timed(program, 10_ps, {4_ps, 25_ps}, Kernels::Together);
  using Kind = TimedOp::Kind;
  ASSERT_EQ(found.streams.size(), 2U);
  // Handed over at 10, 30 and 40: the second keeps the third waiting until 55.
  EXPECT_EQ(found.streams[0], (std::vector<TimedOp>{{59_ps, 33_ps, 0, 3, 0, Kind::Kernels},
                                                    {40_ps, 0_ps, 4, 0, 0, Kind::Record},
                                                    {54_ps, 4_ps, 5, 1, 0, Kind::Kernels},
                                                    {14_ps, 4_ps, 7, 1, 1, Kind::Kernels}}));
  EXPECT_EQ(found.streams[1], (std::vector<TimedOp>{{45_ps, 25_ps, 1, 1, 0, Kind::Kernels}}));
  EXPECT_EQ(found.host, (std::vector<HostStretch>{{50_ps, 0, 7, 0}, {10_ps, 7, 8, -1}}));
  EXPECT_EQ(timed(program, 10_ps, {4_ps, 25_ps}, Kernels::Each).streams[0].size(), 6U);
}

// Two kernels beside a collective, one after it.
std::vector<Duration> beside_a_collective(Duration collective, Duration second_wave) {
  const Program program = parse_program(
      "alloc b0 512 temporaries s0 x\nlaunch s0 copy ->\nrecord e0 s0\nwait s1 e0\n"
      "collective s1 g0 all_reduce sum bool 512 b0 -> b0\nlaunch s0 copy ->\nlaunch s0 copy ->\n"
      "record e1 s1\nwait s0 e1\nlaunch s0 copy ->\n");
  const Beside beside{{second_wave}, {{{{0}, CollectiveKind::AllReduce, 512_B}, collective}}};
  const TimedProgram found = timed(program, 1_ps, {10_ps}, Kernels::Each, beside);
  std::vector<Duration> durations;
  for (const TimedOp& op : found.streams[0])
    if (op.kind == TimedOp::Kind::Kernels) durations.push_back(op.duration);
  return durations;
}

TEST(TimedProgram, KernelsThatComeToTakenMultiprocessorsHaveASecondWave) {
  EXPECT_EQ(beside_a_collective(4_ps, 10_ps), (std::vector{10_ps, 14_ps, 10_ps, 10_ps})) << "until it is over";
  EXPECT_EQ(beside_a_collective(15_ps, 10_ps), (std::vector{10_ps, 20_ps, 10_ps, 10_ps})) << "after the first";
  EXPECT_EQ(beside_a_collective(23_ps, 10_ps), (std::vector{10_ps, 20_ps, 13_ps, 10_ps})) << "and that one too";
  EXPECT_EQ(beside_a_collective(23_ps, 0_ps), (std::vector{10_ps, 10_ps, 10_ps, 10_ps})) << "of others, nothing";
}

TEST(TimedProgram, EqualCallsAreOne) {
  const Program program = parse_program(
      "alloc b0 512 temporaries s0 x\nalloc b1 512 temporaries s0 x\nalloc b2 513 temporaries s0 x\n"
      "exchange s0 g0 send +1 b0\nexchange s0 g0 send +1 b2\nexchange s0 g0 send +1 b1\n"
      "collective s0 g0 all_reduce sum bool 512 b0 -> b0\ncollective s0 g0 all_reduce sum bool 512 b1 -> b1\n");
  const TimedProgram found = timed(program, Duration{}, {}, Kernels::Together);
  EXPECT_EQ(found.exchanges.size(), 2U);
  EXPECT_EQ(found.collectives, (std::vector<CollectiveKey>{{{0}, CollectiveKind::AllReduce, 512_B}}));
  std::vector<std::uint32_t> calls;
  for (const TimedOp& op : found.streams[0]) calls.push_back(op.what);
  EXPECT_EQ(calls, (std::vector<std::uint32_t>{0, 1, 0, 0, 0}));
}

TEST(TimedProgram, AnEventThatIsRecordedAgainIsAnother) {
  const TimedProgram found =
      timed(parse_program("record e0 s0\nwait s1 e0\nrecord e1 s0\nrecord e0 s0\nwait s1 e0\nsync e1\n"), Duration{},
            {}, Kernels::Together);
  EXPECT_EQ(found.events, 3U);
  EXPECT_EQ(found.streams[1][0].what, 0U);
  EXPECT_EQ(found.streams[1][1].what, 2U);
  EXPECT_EQ(found.host[0].sync, 1);
}

TEST(TimedProgram, TakesAsLongAsOneOpAfterAnother) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    ProgramBuilder program;
    Alone alone(random);
    for (int i = 0; i < 120; ++i) alone.push(program);
    Job job;
    job.workload.programs = {std::move(program).finish()};
    job.workload.programs[0].events = events;
    job.workload.program_of_rank = {0};
    job.costs.classes = {random_times(random, job.workload.programs[0])};
    const Trace expected = one_after_another(job.workload.programs[0], job.costs.classes[0]);
    expect_same(job.quickly(), expected);
    expect_same(job.op_by_op(), expected);
    EXPECT_EQ(job.timelines(job.quickly()).front(), timeline_one_after_another(job));
  }
}

TEST(TimedProgram, KernelsTogetherChangeNoTimeOfAnyRank) {
  for (std::uint64_t seed = 0; seed < static_cast<std::uint64_t>(seeds(600)); ++seed) {
    SCOPED_TRACE(seed);
    const Job job = random_job(seed, 40);
    const Trace each = job.op_by_op(), quick = job.quickly();
    ASSERT_TRUE(std::holds_alternative<Completed>(each.outcome));
    expect_same(quick, each);
    EXPECT_EQ(job.timelines(quick), job.timelines(each));
    expect_to_meet(job, each);
  }
}

TEST(TimedProgram, KernelsTogetherStandWhereEachWould) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Job job = random_job(seed, 20);
    std::vector<Op>& ops = job.workload.programs[seed % 4].ops;
    ops.erase(std::find_if(ops.begin() + static_cast<std::ptrdiff_t>(ops.size() / 2), ops.end(), [](const Op& op) {
      const auto* collective = std::get_if<Collective>(&op);
      return collective != nullptr ? collective->comm != CommSlot{3} : std::holds_alternative<Exchange>(op);
    }));
    const Trace each = job.op_by_op();
    ASSERT_TRUE(std::holds_alternative<Deadlock>(each.outcome));
    // Calls of other sizes met before, which cost what whoever came last says: times are nobody's.
    EXPECT_EQ(job.quickly().outcome, each.outcome);
  }
}

}  // namespace
}  // namespace tidemark::tests::timed_program_test
