#include "parallel/schedule/schedule.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace tidemark {
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
        for (const ScheduleStep& step : one_f_one_b(stage, p, m)) {
          std::int32_t& next = step.pass == Pass::Forward ? forwards : backwards;
          EXPECT_EQ(step.micro_batch, next);
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
          const ScheduleStep step = schedules[s][at[s]];
          const bool forward = step.pass == Pass::Forward;
          const bool ready = forward ? s == 0 || forwards[s - 1] > step.micro_batch
                                     : s + 1 == schedules.size() || backwards[s + 1] > step.micro_batch;
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

}  // namespace
}  // namespace tidemark
