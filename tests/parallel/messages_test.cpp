#include "parallel/schedule/messages.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/schedule/dry_run.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::messages_test {
namespace {

std::vector<Schedule> of_ranks(std::int32_t ranks, const std::function<Schedule(std::int32_t)>& schedule) {
  std::vector<Schedule> all;
  for (std::int32_t rank = 0; rank < ranks; ++rank) all.push_back(schedule(rank));
  return all;
}

std::vector<Schedule> read(const std::vector<const char*>& texts) {
  std::vector<Schedule> all;
  for (const char* its : texts) all.push_back(parse_schedule(its));
  return all;
}

constexpr StagePlacement two_ranks{PlacementShape::Loop, 2, 1}, four_ranks{PlacementShape::Loop, 4, 1};

TEST(Messages, WhatAPassSendsGoesWithWhatTheOtherKindWaitsFor) {
  const auto steps = with_messages(read({"F0 F1 B0 B1", "F0 B0 F1 B1"}), two_ranks, P2pMode::Batched);
  EXPECT_EQ(text(steps[0]), "F0 [F0>1] F1 [F1>1 B0<1] B0 [B1<1] B1");
  EXPECT_EQ(text(steps[1]), "[F0<0] F0 B0 [B0>0 F1<0] F1 B1 [B1>0]");
}

TEST(Messages, WeightGradientsSendNothing) {
  const auto steps = with_messages(read({"F0 B0 W0", "F0 B0 W0"}), two_ranks, P2pMode::Batched);
  EXPECT_EQ(text(steps[0]), "F0 [F0>1 B0<1] B0 W0");
  EXPECT_EQ(text(steps[1]), "[F0<0] F0 B0 [B0>0] W0");
}

TEST(Messages, ChunksInStepReceiveWhatIsSentMeanwhile) {
  // Two ranks of two chunks, two micro-batches: the first rank gets its second chunk's input from the last one.
  const StagePlacement loop{PlacementShape::Loop, 2, 2};
  const auto schedules = of_ranks(2, [](std::int32_t rank) { return interleaved(rank, 2, 2, 2, 2); });
  const auto steps = with_messages(schedules, loop, P2pMode::Overlapped);
  EXPECT_EQ(text(steps[0]),
            "F0.0 [F0.0>1] F1.0 [F1.0>1 F0.1<1] F0.1 [F0.1>1 F1.1<1] F1.1 [F1.1>1] [B0.1<1] B0.1 [B0.1>1 B1.1<1] B1.1 "
            "[B1.1>1 B0.0<1] B0.0 [B1.0<1] B1.0");
  EXPECT_EQ(text(steps[1]),
            "[F0.0<0] F0.0 [F0.0>0 F1.0<0] F1.0 [F1.0>0 F0.1<0] F0.1 {F1.1<0} B0.1 {B0.1>0} F1.1 B1.1 {B1.1>0 "
            "B0.0<0} B0.0 [B0.0>0 B1.0<0] B1.0 [B1.0>0]");
}

TEST(Messages, WhatPassesNeedIsReceivedAPassAhead) {
  // The same ranks, with hand-overs of warm-up and cool-down beside the passes. The rank that leads does not know yet.
  const StagePlacement loop{PlacementShape::Loop, 2, 2};
  const auto schedules = of_ranks(2, [](std::int32_t rank) { return interleaved(rank, 2, 4, 2, 2); });
  const auto steps = with_messages(schedules, loop, P2pMode::OverlappedWithFlush);
  EXPECT_EQ(text(steps[0]),
            "F0.0 {F0.0>1} F1.0 {F1.0>1 F0.1<1} F0.1 {F0.1>1 F1.1<1} F1.1 {F1.1>1} {B0.1<1} F2.0 {F2.0>1} B0.1 {B0.1>1 "
            "B1.1<1} F3.0 {F3.0>1 F2.1<1} B1.1 {B1.1>1 B0.0<1} F2.1 {F2.1>1 F3.1<1} B0.0 {B1.0<1} F3.1 {F3.1>1} B1.0 "
            "{B2.1<1} {B3.1<1} B2.1 {B2.1>1} {B2.0<1} B3.1 {B3.1>1} {B3.0<1} B2.0 B3.0");
  EXPECT_EQ(
      text(steps[1]),
      "[F0.0<0] {F1.0<0} F0.0 {F0.0>0} {F0.1<0} F1.0 {F1.0>0} F0.1 {F1.1<0} B0.1 {B0.1>0} F1.1 {F2.0<0} B1.1 "
      "{B1.1>0 B0.0<0} F2.0 {F2.0>0 F3.0<0} B0.0 {B0.0>0 B1.0<0} F3.0 {F3.0>0 F2.1<0} B1.0 {B1.0>0} F2.1 {F3.1<0} "
      "B2.1 {B2.1>0} F3.1 B3.1 {B3.1>0 B2.0<0} B2.0 {B2.0>0 B3.0<0} B3.0 {B3.0>0}");
  EXPECT_EQ(deadlock(steps, loop), "");
}

TEST(Messages, ARankHandsItselfWhatAVTurns) {
  const StagePlacement v{PlacementShape::V, 2, 2};
  const auto schedules = read({"F0.0 F0.1 B0.1 B0.0", "F0.0 F0.1 B0.1 B0.0"});
  const auto steps = with_messages(schedules, v, P2pMode::Free);
  EXPECT_EQ(text(steps[0]), "F0.0 {F0.0>1} {F0.1<1} F0.1 B0.1 {B0.1>1} {B0.0<1} B0.0");
  EXPECT_EQ(text(steps[1]), "{F0.0<0} F0.0 F0.1 {F0.1>0} {B0.1<0} B0.1 B0.0 {B0.0>0}");
  EXPECT_EQ(deadlock(steps, v), "");
}

TEST(Messages, EverySendIsReceivedByTheRankThatNeedsIt) {
  for (std::int32_t p = 2; p <= 4; ++p)
    for (std::int32_t v = 2; v <= 3; ++v)
      for (std::int32_t group = p; group <= p + 2; ++group)
        for (std::int32_t groups = 1; groups <= 3; ++groups) {
          const StagePlacement loop{PlacementShape::Loop, p, v};
          const auto schedules =
              of_ranks(p, [&](std::int32_t r) { return interleaved(r, p, groups * group, v, group); });
          for (const P2pMode mode : {P2pMode::Free, P2pMode::Overlapped, P2pMode::OverlappedWithFlush}) {
            std::vector<Message> sent, received;
            const auto steps = with_messages(schedules, loop, mode);
            for (const Steps& its : steps)
              for (const Step& step : its)
                if (const auto* p2p = std::get_if<P2pExchange>(&step)) {
                  if (p2p->send) sent.push_back(*p2p->send);
                  if (p2p->receive) received.push_back(*p2p->receive);
                }
            EXPECT_EQ(sent.size(), received.size());
            EXPECT_TRUE(std::is_permutation(sent.begin(), sent.end(), received.begin(), received.end()));
            EXPECT_EQ(deadlock(steps, loop), "") << p << " ranks, " << v << " chunks, " << groups << " x " << group;
          }
        }
}

TEST(Deadlock, IsSaidOfRanksThatWaitForEachOther) {
  // Rank 0 wants the gradient of the second micro-batch first, which rank 1 makes last.
  const auto steps = with_messages(read({"F0 F1 B1 B0", "F0 B0 F1 B1"}), two_ranks, P2pMode::Batched);
  EXPECT_EQ(deadlock(steps, two_ranks), "rank 0 waits in [F1>1 B1<1]; rank 1 waits in [B0>0 F1<0]");
  EXPECT_EQ(deadlock(with_messages(read({"F0 F1 B1 B0", "F0 B0 F1 B1"}), two_ranks, P2pMode::Free), two_ranks), "");
}

TEST(Deadlock, IsSaidOfARankThatWaitsForWhatNobodySends) {
  const auto steps = with_messages(read({"F0 B0", "F0 B0 F1 B1"}), two_ranks, P2pMode::Batched);
  EXPECT_EQ(deadlock(steps, two_ranks), "rank 1 waits in [B0>0 F1<0]");
}

TEST(Deadlock, NoScheduleHasOne) {
  for (std::int32_t m = 1; m <= 9; ++m) {
    const auto one = of_ranks(4, [&](std::int32_t rank) { return one_f_one_b(rank, 4, m); });
    EXPECT_EQ(deadlock(with_messages(one, four_ranks, P2pMode::Batched), four_ranks), "");
    const auto all = of_ranks(4, [&](std::int32_t) { return gpipe(m); });
    EXPECT_EQ(deadlock(with_messages(all, four_ranks, P2pMode::Batched), four_ranks), "");
  }
}

}  // namespace
}  // namespace tidemark::tests::messages_test
