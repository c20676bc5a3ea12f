#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/job/job.hpp"
#include "parallel/schedule/messages.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::lowered_messages_test {
namespace {

std::string word(Direction direction, std::int32_t step) {
  return fmt::format("{}{:+}", direction == Direction::Send ? "send" : "receive", step);
}

// The exchanges of a program, one after the other: "[send+1 receive+1]", in braces where passes go on meanwhile.
std::string exchanges(const Program& program) {
  std::string out;
  for (const Op& op : program.ops) {
    const auto* exchange = std::get_if<Exchange>(&op);
    if (exchange == nullptr) continue;
    std::vector<std::string> words;
    for (const Transfer& t : program[exchange->transfers]) words.push_back(word(t.direction, t.step));
    const bool beside = exchange->stream.value > 1;
    out += fmt::format("{}{}{}", beside ? '{' : '[', fmt::join(words, " "), beside ? '}' : ']');
  }
  return out;
}

std::string exchanges(const Steps& steps) {
  const auto step = [](const Message& m, Direction direction) {
    return (m.payload == Payload::Output) == (direction == Direction::Send) ? +1 : -1;
  };
  std::string out;
  for (const Step& its : steps) {
    const auto* p2p = std::get_if<P2pExchange>(&its);
    if (p2p == nullptr) continue;
    std::vector<std::string> words;
    if (const auto& m = p2p->send) words.push_back(word(Direction::Send, step(*m, Direction::Send)));
    if (const auto& m = p2p->receive) words.push_back(word(Direction::Receive, step(*m, Direction::Receive)));
    out += fmt::format("{}{}{}", p2p->beside ? '{' : '[', fmt::join(words, " "), p2p->beside ? '}' : ']');
  }
  return out;
}

TEST(LoweredMessages, AreThoseOfTheSchedules) {
  for (const auto& [kind, ahead] : {std::pair{ScheduleKind::OneFOneB, false},
                                    {ScheduleKind::GPipe, false},
                                    {ScheduleKind::Interleaved, false},
                                    {ScheduleKind::Interleaved, true},
                                    {ScheduleKind::ZeroBubbleH1, false}})
    for (std::int32_t pipeline = 2; pipeline <= 4; ++pipeline)
      for (std::int32_t micro_batches : {1, 2, 3, 4, 5, 6, 8, 9, 10}) {
        TestJob job;
        job.layout.pipeline = pipeline;
        job.layout.schedule = kind;
        if (kind == ScheduleKind::Interleaved) {
          job.layout.chunks = 2;
          job.layout.chunk_group = pipeline + micro_batches % 2;
          if (micro_batches < job.layout.group() || micro_batches % job.layout.group() != 0) continue;
        }
        job.model.layers.resize(job.layout.stages());
        job.train.steps = 1;
        job.settings.overlaps_flush = ahead;
        job.train.global_batch = micro_batches;
        SCOPED_TRACE(
            fmt::format("schedule {}, {} ranks, {} micro-batches", static_cast<int>(kind), pipeline, micro_batches));
        const Lowered lowered(job);
        const auto steps = with_messages(schedules_of(job.layout, micro_batches), job.layout.placement(),
                                         ahead ? P2pMode::OverlappedWithFlush : traits_of(kind).p2p);
        for (const Role& role : lowered.roles)
          EXPECT_EQ(exchanges(lower_every_pass(lowered.input, role)),
                    exchanges(steps[static_cast<std::size_t>(role.first.pipeline)]));
      }
}

}  // namespace
}  // namespace tidemark::tests::lowered_messages_test
