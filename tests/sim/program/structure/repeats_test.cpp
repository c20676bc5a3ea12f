#include "sim/program/structure/repeats.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "sim/clock/timed_program.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/liveness.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/text/program_text.hpp"
#include "sim/program/verify.hpp"
#include "tests/sim/clock/written_out.hpp"
#include "tests/sim/program/random_program.hpp"
#include "tests/sim/program/viewed.hpp"

// What no lowering writes yet. (Of what they do, see tests/parallel/repeats_test.cpp.)

namespace tidemark::tests::repeats_test {
namespace {

// Each micro-batch sends its tokens to others, keeps what it made in host memory, and fetches it two passes later.
Program offloaded(std::int32_t micro_batches, std::int64_t kept = 3000) {
  ProgramBuilder program;
  const LabelId label = program.label("x");
  program.mark(Phase::Construction, 0, -1, label);
  program.push(CreateCommunicator{CommSlot{0}});
  const MatrixRow row{MatrixId{0}, {Bytes{100}, Bytes{200}}, {Bytes{100}, Bytes{0}}};
  std::vector<BufferId> on_host;
  std::int32_t events = 0;
  const auto copy = [&](BufferId from, BufferId to) {
    program.push(Memcpy{StreamId{1}, from, to, Bytes{kept}});
    program.push(Record{EventId{events}, StreamId{1}});
    program.push(Wait{StreamId{0}, EventId{events++}});
  };
  const auto backward = [&](std::int32_t m) {
    program.mark(Phase::Backward, 1, m, label);
    const BufferId back = program.alloc(Bytes{4096}, Category::Temporaries, label);
    copy(on_host[static_cast<std::size_t>(m)], back);
    const ViewedOperand in = viewed(program, back, DType::BF16, {4, 4});
    program.launch({Operation::Matmul, {1}}, {in, in, {}, {}}, {in});
  };
  for (std::int32_t m = 0; m < micro_batches; ++m) {
    program.mark(Phase::Forward, 1, m, label);
    const BufferId made = program.alloc(Bytes{4096}, Category::SavedActivations, label);
    const BufferId received = program.alloc(Bytes{512}, Category::CommEp, label);
    program.collective(CommSlot{0}, {CollectiveKind::AllToAll, DType::FP32}, made, received, row);
    on_host.push_back(program.alloc(Bytes{kept}, Category::SavedActivations, label, StreamId{0}, MemorySpace::Pinned));
    program.push(CrossStreamUse{made, StreamId{1}});
    copy(made, on_host.back());
    if (m >= 2) backward(m - 2);
  }
  for (std::int32_t m = micro_batches - 2; m < micro_batches; ++m) backward(m);
  program.mark(Phase::OptimizerStep, 1, -1, label);
  return with_frees(std::move(program).finish());
}

TEST(HandMadeRepeats, CopiesAndUnevenCollectivesUnrollToWhatEveryPassByItselfGives) {
  const Program few = offloaded(8), many = offloaded(40);
  ASSERT_EQ(verify(many), std::vector<std::string>{});
  const std::optional<std::vector<Repeat>> repeats = find_repeats(few, {{32, 1}});
  ASSERT_TRUE(repeats);
  const RepeatingProgram program{few, *repeats};
  EXPECT_EQ(text(unrolled(program)), text(many));
  EXPECT_EQ(unrolled(program).rows, many.rows);
  EXPECT_EQ(replay(program, free_of_charge(), {}), replay(many, free_of_charge(), {}));
  const std::vector<Duration> kernels(many.kernels.size(), Duration{7});
  // Short enough for a queue to fill, and for the host thread to look at it in each body.
  const LaunchQueue short_queue{.depth = 16, .channels = 2};
  for (const LaunchQueue& queue : {endless_queue, short_queue}) {
    const TimedProgram found = timed(program, Duration{5}, kernels, Kernels::Each, {}, queue);
    ASSERT_EQ(found.loops.size(), 1U);
    EXPECT_EQ(written_out(found), timed(many, Duration{5}, kernels, Kernels::Each, {}, queue));
    for (std::size_t s = 0; s < found.streams.size(); ++s) {
      OpCursor there(found, s);
      for (OpCursor next(found, s); !next.is_over(); next.advance()) {
        there.go_to(next.place());
        EXPECT_EQ(there.op(), next.op());
      }
    }
  }
  const TimedProgram looped = timed(program, Duration{5}, kernels, Kernels::Each, {}, short_queue);
  EXPECT_GT(looped.loops[0].bodies, 30);
  EXPECT_LT(looped.streams[0].size(), written_out(looped).streams[0].size() / 3) << "bodies are held once";
}

// One of them does something else.
template <class T, class Change>
std::optional<std::vector<Repeat>> with_another(int which, Change change) {
  Program few = offloaded(8);
  int seen = 0;
  for (Op& op : few.ops)
    if (T* const its = std::get_if<T>(&op); its != nullptr && change(few, *its, seen == which)) ++seen;
  EXPECT_GT(seen, which);
  return find_repeats(few, {{32, 1}});
}

// In the seventh of eight micro-batches.
TEST(HandMadeRepeats, AnotherSpaceSizeOrRowIsNoRepetition) {
  EXPECT_FALSE(with_another<Alloc>(6, [](Program&, Alloc& o, bool now) {
    const bool on_host = o.space != MemorySpace::Device;
    if (on_host && now) o.space = MemorySpace::Pageable;
    return on_host;
  }));
  EXPECT_FALSE(with_another<Memcpy>(10, [](Program&, Memcpy& o, bool now) {
    if (now) o.size = Bytes{1};
    return true;
  }));
  EXPECT_FALSE(with_another<Collective>(6, [](Program& program, Collective& o, bool now) {
    if (!now) return true;
    program.rows.push_back({MatrixId{1}, {Bytes{100}, Bytes{200}}, {Bytes{100}, Bytes{0}}});
    o.row = RowId{1};
    return true;
  }));
}

}  // namespace
}  // namespace tidemark::tests::repeats_test
