// What must hold of any program, on generated ones.
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "sim/memory/replay.hpp"
#include "sim/program/liveness.hpp"
#include "sim/program/text/program_text.hpp"
#include "sim/program/verify.hpp"
#include "tests/sim/program/random_program.hpp"

namespace tidemark::tests::program_property_test {
namespace {

class ProgramProperty : public testing::TestWithParam<std::uint64_t> {
 protected:
  const Program program_ = with_frees(random_program(GetParam()));
  const DriverCosts costs_ = free_of_charge();
};

TEST_P(ProgramProperty, ComputedFreesVerifyClean) {
  const std::vector<std::string> findings = verify(program_);
  EXPECT_TRUE(findings.empty()) << findings.front();
}

TEST_P(ProgramProperty, TheTextRoundTrips) {
  const std::string once = text(program_);
  const Program parsed = parse_program(once);
  EXPECT_EQ(text(parsed), once);
  EXPECT_EQ(parsed, parse_program(text(parsed)));
  EXPECT_EQ(replay(parsed, costs_, {}).allocated.bytes, replay(program_, costs_, {}).allocated.bytes);
}

TEST_P(ProgramProperty, EqualSeedsGiveEqualPrograms) {
  EXPECT_EQ(random_program(GetParam()), random_program(GetParam()));
}

TEST_P(ProgramProperty, TwoReplaysAreEqual) { EXPECT_EQ(replay(program_, costs_, {}), replay(program_, costs_, {})); }

TEST_P(ProgramProperty, CompositionsSumToTheirPeaks) {
  const MemoryRecord record = replay(program_, costs_, {});
  EXPECT_EQ(record.allocated.composition.total(), record.allocated.bytes);
  EXPECT_EQ(record.device.composition.total(), record.device.bytes);
  EXPECT_GE(record.peak_reserved, record.allocated.bytes);
  EXPECT_EQ(record.device.bytes, record.peak_reserved);  // drivers take nothing here
  EXPECT_EQ(*std::max_element(record.peak_allocated_by_step.begin(), record.peak_allocated_by_step.end()),
            record.allocated.bytes);
}

TEST_P(ProgramProperty, LiveBlocksSumToAllocated) {
  Bytes highest;
  std::size_t highest_at = 0;
  Bytes reserved;
  for (const MemorySample& sample : memory_timeline(program_, costs_)) {
    Bytes sum;
    for (const LiveBuffer& buffer : live_buffers(program_, costs_, sample.at.op)) {
      EXPECT_GE(buffer.block, buffer.requested);
      sum += buffer.block;
    }
    EXPECT_EQ(sum, sample.allocated);
    if (sample.allocated > highest) highest = sample.allocated, highest_at = sample.at.op;
    reserved = std::max(reserved, sample.reserved);
  }
  const MemoryRecord record = replay(program_, costs_, {});
  EXPECT_EQ(highest, record.allocated.bytes);
  EXPECT_EQ(highest_at, record.allocated.at.op);
  EXPECT_EQ(reserved, record.peak_reserved);
}

TEST_P(ProgramProperty, OnlyWhatANameHoldsLivesOn) {
  std::set<BufferId> live;
  std::vector<BufferId> bound(program_.names.size());
  for (const Op& op : program_.ops) {
    if (const Alloc* o = std::get_if<Alloc>(&op)) live.insert(o->buffer);
    if (const Free* o = std::get_if<Free>(&op)) live.erase(o->buffer);
    if (const Bind* o = std::get_if<Bind>(&op)) bound[o->name.index()] = o->buffer;
    if (const Unbind* o = std::get_if<Unbind>(&op)) bound[o->name.index()] = {};
  }
  std::set<BufferId> held(bound.begin(), bound.end());
  held.erase(BufferId{});
  EXPECT_EQ(live, held);
}

// A device that is just large enough never fails; the record is then the unlimited one.
TEST_P(ProgramProperty, ADeviceOfThePeaksSizeIsEnough) {
  const MemoryRecord unlimited = replay(program_, costs_, {});
  EXPECT_EQ(replay(program_, costs_, {.capacity = unlimited.device.bytes}), unlimited);
  const MemoryRecord limited = replay(program_, costs_, {.capacity = unlimited.allocated.bytes - Bytes{512}});
  ASSERT_TRUE(limited.failure);
  EXPECT_GT(limited.failure->requested, limited.failure->free);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ProgramProperty, testing::Range<std::uint64_t>(1, 13));

}  // namespace
}  // namespace tidemark::tests::program_property_test
