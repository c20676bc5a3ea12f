#include "parallel/schedule/schedule.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::schedule_test {
namespace {

TEST(OneFOneB, FourStagesSixMicroBatches) {
  EXPECT_EQ(text(one_f_one_b(0, 4, 6)), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  EXPECT_EQ(text(one_f_one_b(1, 4, 6)), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
  EXPECT_EQ(text(one_f_one_b(2, 4, 6)), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
  EXPECT_EQ(text(one_f_one_b(3, 4, 6)), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
}

TEST(OneFOneB, FewerMicroBatchesThanStages) {
  EXPECT_EQ(text(one_f_one_b(0, 4, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(text(one_f_one_b(2, 4, 2)), "F0 F1 B0 B1");
  EXPECT_EQ(text(one_f_one_b(3, 4, 2)), "F0 B0 F1 B1");
}

TEST(OneFOneB, OneStageAlternates) {
  EXPECT_EQ(text(one_f_one_b(0, 1, 3)), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(text(one_f_one_b(0, 1, 1)), "F0 B0");
}

TEST(OneFOneB, EveryPassRunsOnceBackwardAfterForwardInOrder) {
  for (std::int32_t p = 1; p <= 8; ++p)
    for (std::int32_t stage = 0; stage < p; ++stage)
      for (std::int32_t m = 1; m <= 12; ++m) {
        std::int32_t forwards = 0, backwards = 0, most = 0;
        for (const Action& action : one_f_one_b(stage, p, m)) {
          std::int32_t& next = is_forward(action.kind) ? forwards : backwards;
          EXPECT_EQ(action.micro_batch, next);
          ++next;
          EXPECT_LE(backwards, forwards);
          most = std::max(most, forwards - backwards);
        }
        EXPECT_EQ(forwards, m);
        EXPECT_EQ(backwards, m);
        EXPECT_EQ(most, std::min(p - stage, m)) << "stage " << stage << " of " << p << ", " << m << " micro-batches";
      }
}

// What a stage waits for is always on its way: run in lockstep, all stages finish.
TEST(OneFOneB, NeighboursNeverWaitForEachOther) {
  for (std::int32_t p = 1; p <= 6; ++p)
    for (std::int32_t m = 1; m <= 8; ++m) {
      std::vector<Schedule> schedules;
      for (std::int32_t s = 0; s < p; ++s) schedules.push_back(one_f_one_b(s, p, m));
      std::vector<std::size_t> at(schedules.size());
      std::vector<std::int32_t> forwards(schedules.size()), backwards(schedules.size());
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t s = 0; s < schedules.size(); ++s) {
          if (at[s] == schedules[s].size()) continue;
          const Action action = schedules[s][at[s]];
          const bool forward = is_forward(action.kind);
          const bool ready = forward ? s == 0 || forwards[s - 1] > action.micro_batch
                                     : s + 1 == schedules.size() || backwards[s + 1] > action.micro_batch;
          if (!ready) continue;
          ++(forward ? forwards : backwards)[s];
          ++at[s];
          moved = true;
        }
      }
      for (std::size_t s = 0; s < schedules.size(); ++s) EXPECT_EQ(at[s], schedules[s].size());
    }
}

TEST(GPipe, AllForwardPassesComeFirst) {
  EXPECT_EQ(text(gpipe(3)), "F0 F1 F2 B2 B1 B0");
  EXPECT_EQ(text(gpipe(0)), "");
}

TEST(Interleaved, TwoStagesTwoChunks) {
  EXPECT_EQ(text(interleaved(0, 2, 4, 2, 2)),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(text(interleaved(1, 2, 4, 2, 2)),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

TEST(Interleaved, FiveMicroBatchesInGroupsOfThree) {
  // Narayanan et al.'s order; the table of Megatron-LM's schedules.py for pp 2, N 3, M 5, vp 2.
  std::string forward;
  for (const Action& action : interleaved(1, 2, 5, 2, 3))
    if (is_forward(action.kind)) forward += std::to_string(action.micro_batch) + std::to_string(action.chunk) + " ";
  EXPECT_EQ(forward, "00 10 20 01 11 21 30 40 31 41 ");
}

TEST(Interleaved, EveryPassRunsOnceBackwardAfterForward) {
  for (std::int32_t p = 2; p <= 4; ++p)
    for (std::int32_t stage = 0; stage < p; ++stage)
      for (std::int32_t v = 2; v <= 4; ++v)
        for (std::int32_t group = p; group <= p + 2; ++group)
          for (const std::int32_t m : {group, 2 * group, 3 * group}) {
            std::vector<int> state(static_cast<std::size_t>(m * v));
            std::int32_t in_flight = 0, most = 0;
            for (const Action& action : interleaved(stage, p, m, v, group)) {
              int& its = state[static_cast<std::size_t>(action.chunk * m + action.micro_batch)];
              EXPECT_EQ(its, is_forward(action.kind) ? 0 : 1);
              ++its;
              in_flight += is_forward(action.kind) ? 1 : -1;
              most = std::max(most, in_flight);
            }
            EXPECT_EQ(state, std::vector<int>(state.size(), 2));
            EXPECT_EQ(most, std::min(2 * (p - stage - 1) + (v - 1) * group + 1, m * v));
            EXPECT_EQ(most, most_in_flight(interleaved(stage, p, m, v, group)));
            EXPECT_EQ(interleaved_warmup(stage, p, m, v, group),
                      std::min(2 * (p - stage - 1) + (v - 1) * group, m * v));
          }
}

// How long all stages take when a chunk's forward pass takes 1, its backward pass 2 and messages nothing.
std::int64_t step_time(std::int32_t p, std::int32_t m, std::int32_t v) {
  const auto place = [&](std::int32_t virtual_stage, std::int32_t micro_batch) {
    return static_cast<std::size_t>(virtual_stage * m + micro_batch);
  };
  constexpr std::int64_t not_yet = -1;
  std::vector<std::int64_t> forward(static_cast<std::size_t>(p * v * m), not_yet), backward = forward;
  std::vector<Schedule> schedules;
  for (std::int32_t s = 0; s < p; ++s) schedules.push_back(interleaved(s, p, m, v, p));
  std::vector<std::size_t> at(schedules.size());
  std::vector<std::int64_t> clock(schedules.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::int32_t s = 0; s < p; ++s) {
      const auto rank = static_cast<std::size_t>(s);
      if (at[rank] == schedules[rank].size()) continue;
      const Action action = schedules[rank][at[rank]];
      const std::int32_t here = action.chunk * p + s;
      std::int64_t ready = 0;
      if (is_forward(action.kind))
        ready = here == 0 ? 0 : forward[place(here - 1, action.micro_batch)];
      else
        ready = here == p * v - 1 ? forward[place(here, action.micro_batch)]
                                  : backward[place(here + 1, action.micro_batch)];
      if (ready == not_yet) continue;
      clock[rank] = std::max(clock[rank], ready) + (is_forward(action.kind) ? 1 : 2);
      (is_forward(action.kind) ? forward : backward)[place(here, action.micro_batch)] = clock[rank];
      ++at[rank];
      moved = true;
    }
  }
  for (std::size_t s = 0; s < at.size(); ++s) EXPECT_EQ(at[s], schedules[s].size()) << "stage " << s << " is stuck";
  return *std::max_element(clock.begin(), clock.end());
}

TEST(Interleaved, TheBubbleIsTheClosedForm) {
  // Narayanan et al. 2021, 2.2.2: (p - 1)/v of the time of one micro-batch, where chunks are 1/v of a stage.
  for (const std::int32_t p : {2, 3, 4, 8})
    for (const std::int32_t v : {2, 3, 4})
      for (const std::int32_t groups : {1, 2, 4})
        EXPECT_EQ(step_time(p, groups * p, v), 3 * (groups * p * v + p - 1)) << p << " stages, " << v << " chunks";
}

TEST(LoopedBreadthFirst, ChunksOneAfterTheOtherAndBackInReverse) {
  EXPECT_EQ(text(looped_breadth_first(2, 2)), "F0.0 F1.0 F0.1 F1.1 B1.1 B0.1 B1.0 B0.0");
}

TEST(InterleavedZeroBubble, WeightGradientsComeAsMuchLaterAsThereAreRanksBefore) {
  EXPECT_EQ(text(interleaved_zero_bubble(0, 2, 2, 2, 2)),
            "F0.0 F1.0 F0.1 F1.1 B0.1 W0.1 B1.1 W1.1 B0.0 W0.0 B1.0 W1.0");
  EXPECT_EQ(text(interleaved_zero_bubble(1, 2, 2, 2, 2)),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 W0.1 B0.0 W1.1 B1.0 W0.0 W1.0");
}

TEST(ZeroBubbleV, TheFirstRankHasBothEnds) {
  EXPECT_EQ(text(zero_bubble_v(0, 1, 2)), "F0.0 F0.1 B0.1 W0.1 F1.0 B0.0 W0.0 F1.1 B1.1 W1.1 B1.0 W1.0");
  EXPECT_EQ(text(zero_bubble_v(1, 2, 3)),
            "F0.0 F0.1 F1.0 F1.1 B0.1 W0.1 F2.0 B0.0 W0.0 F2.1 B1.1 W1.1 B1.0 B2.1 B2.0 W1.0 W2.1 W2.0");
}

TEST(DualPipeV, ForwardPassesAreJoinedWithBackwardOnes) {
  EXPECT_EQ(text(dual_pipe_v(1, 2, 4)),
            "F0.0 F0.1 F1.0 F1.1 F2.0 BW0.1 F2.1+BW0.0 F3.0+BW1.1 F3.1+BW1.0 BW2.1 BW2.0 B3.1 B3.0 W3.1 W3.0");
}

// Of all ranks: every pass once, weights after the input's gradient, and nobody waits for ever.
TEST(PartedBackward, EveryPassRunsOnceInOrder) {
  for (std::int32_t p = 1; p <= 5; ++p)
    for (std::int32_t m = 1; m <= 13; ++m)
      for (std::int32_t stage = 0; stage < p; ++stage) {
        std::vector<Schedule> all{zero_bubble_v(stage, p, m)};
        if (m % p == 0) all.push_back(interleaved_zero_bubble(stage, p, m, 2, p));
        if (m >= 2 * p) all.push_back(dual_pipe_v(stage, p, m));
        for (const Schedule& schedule : all) {
          std::vector<std::int32_t> passes(static_cast<std::size_t>(2 * m));  // F, then B, then W: 1, 3, 7
          for (const Action& action : schedule) {
            std::int32_t& its = passes[static_cast<std::size_t>(action.chunk * m + action.micro_batch)];
            const bool forward = is_forward(action.kind), weights = action.kind == ActionKind::WeightGradient;
            EXPECT_EQ(its, forward ? 0 : weights ? 3 : 1) << text(schedule);
            its = forward ? 1 : action.kind == ActionKind::InputGradient ? 3 : 7;
          }
          EXPECT_TRUE(std::all_of(passes.begin(), passes.end(), [](std::int32_t its) { return its == 7; }))
              << text(schedule);
        }
      }
}

TEST(ScheduleText, ReadsBackWhatItWrites) {
  for (const Schedule& schedule :
       {one_f_one_b(1, 4, 12), gpipe(3), interleaved(1, 2, 4, 3, 2), Schedule{}, parse_schedule("F0 B0 F1 W0 BW1"),
        parse_schedule("F0.0 F0.1 B0.1 B0.0 W0.1 W0.0"), dual_pipe_v(0, 2, 5)})
    EXPECT_EQ(parse_schedule(text(schedule)), schedule) << text(schedule);
}

TEST(ScheduleText, BIsAllOfBackwardWhereNoWeightGradientIsApart) {
  EXPECT_EQ(parse_schedule("F0 B0"), (Schedule{{ActionKind::Forward, 0}, {ActionKind::Backward, 0}}));
  EXPECT_EQ(parse_schedule("F0 B0 W0 F1 BW1"), (Schedule{{ActionKind::Forward, 0},
                                                         {ActionKind::InputGradient, 0},
                                                         {ActionKind::WeightGradient, 0},
                                                         {ActionKind::Forward, 1},
                                                         {ActionKind::Backward, 1}}));
}

TEST(ScheduleText, NamesWhatIsNoAction) {
  for (const char* word : {"G0", "F", "0", "F0.", "F0.1.2", "F0x", "WB0", "F-1"}) {
    try {
      FAIL() << text(parse_schedule(std::string("F0 ") + word));
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), std::string("\"") + word + "\" is no action of a schedule");
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::schedule_test
