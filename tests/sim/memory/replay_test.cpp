#include "sim/memory/replay.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sim/memory/flat.hpp"
#include "sim/program/liveness.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/sim/program/random_program.hpp"

namespace tidemark::tests::replay_test {
namespace {

using namespace literals;

MemoryRecord replayed(const std::string& program, const DriverCosts& costs = free_of_charge(), Bytes capacity = 1_GiB) {
  return replay(parse_program(program), costs, {.capacity = capacity});
}

constexpr std::int64_t mib = 1 << 20;
std::string alloc(int buffer, std::int64_t size, const std::string& category = "temporaries") {
  return fmt::format("alloc b{} {} {} s0 t\n", buffer, size, category);
}
std::string release(int buffer) { return fmt::format("free b{}\n", buffer); }

TEST(Replay, AnEmptyProgramHoldsNothing) {
  const MemoryRecord record = replayed("");
  EXPECT_EQ(record.allocated.bytes, 0_B);
  EXPECT_EQ(record.device.bytes, 0_B);
  EXPECT_EQ(record.peak_allocated_by_step, std::vector<Bytes>{0_B});
}

TEST(Replay, ThePeakIsTheHighestSumOfBlocksAndItsFirstMoment) {
  const MemoryRecord record = replayed(alloc(0, 1024) + alloc(1, 2048) + release(0) + alloc(2, 1024) + release(1));
  EXPECT_EQ(record.allocated.bytes, 3072_B);
  EXPECT_EQ(record.allocated.at.op, 1u);  // reached again at op 3
  EXPECT_EQ(record.final_allocated, 1024_B);
  EXPECT_EQ(record.peak_reserved, 2_MiB);
}

TEST(Replay, RequestsCountAsTheirBlocks) {
  EXPECT_EQ(replayed(alloc(0, 1)).allocated.bytes, 512_B);
  EXPECT_EQ(replayed(alloc(0, 513)).allocated.bytes, 1_KiB);
  EXPECT_EQ(replayed(alloc(0, 251 * mib)).allocated.bytes, 252_MiB);  // a segment of its own: 1 MiB is not cut off
  EXPECT_EQ(replayed(alloc(0, 250 * mib)).allocated.bytes, 250_MiB);
  EXPECT_EQ(replayed(alloc(0, 5 * mib)).allocated.bytes, 5_MiB);  // cut from 20 MiB
  EXPECT_EQ(replayed(alloc(0, 5 * mib)).peak_reserved, 20_MiB);
}

TEST(Replay, RunsTheAllocatorWithItsSettings) {
  const Program program = parse_program(alloc(0, 30 * mib) + alloc(1, 25 * mib));
  const auto reserved = [&](const AllocatorOptions& options) {
    return replay(program, free_of_charge(), {.allocator = options}).peak_reserved;
  };
  EXPECT_EQ(reserved({}), 56_MiB);
  EXPECT_EQ(reserved({.expandable_segments = true}), 60_MiB);
  AllocatorOptions rounded;
  rounded.roundup_divisions.fill(1);
  EXPECT_EQ(reserved(rounded), 56_MiB);
  rounded.roundup_divisions.fill(2);
  EXPECT_EQ(reserved(rounded), 32_MiB + 32_MiB);
  const MemoryRecord limited =
      replay(program, free_of_charge(), {.allocator = {.memory_fraction = 0.5, .device_memory = 80_MiB}});
  ASSERT_TRUE(limited.failure.has_value());
  EXPECT_EQ(limited.failure->requested, 26_MiB);
}

// The block is handed out again at once, or only once the host has waited for the stream that borrowed it.
TEST(Replay, BorrowedBlocksComeBackBetweenTheirFreeAndTheNextSync) {
  const std::string cross_stream = alloc(0, 30 * mib) + "borrow b0 s1\n" + release(0) + "record e0 s1\n";
  const auto reserved = [&](const std::string& text, CrossStreamFrees frees) {
    return replay(parse_program(text), free_of_charge(), {.cross_stream = frees}).peak_reserved;
  };
  EXPECT_EQ(reserved(cross_stream + alloc(1, 30 * mib), CrossStreamFrees::AtOnce), 30_MiB);
  EXPECT_EQ(reserved(cross_stream + alloc(1, 30 * mib), CrossStreamFrees::AtNextSync), 60_MiB);
  EXPECT_EQ(reserved(cross_stream + "sync e0\n" + alloc(1, 30 * mib), CrossStreamFrees::AtNextSync), 30_MiB);
  const std::string earlier = alloc(0, 30 * mib) + "borrow b0 s1\nrecord e0 s1\n" + release(0) + "sync e0\n";
  EXPECT_EQ(reserved(earlier + alloc(1, 30 * mib), CrossStreamFrees::AtNextSync), 60_MiB) << "the event came first";
}

// An event stands for what its stream waited for, too, by however many others.
TEST(Replay, ASyncFreesWhatItsStreamWaitedFor) {
  const auto reserved = [&](const std::string& text) {
    return replay(parse_program(text), free_of_charge(), {.cross_stream = CrossStreamFrees::AtNextSync}).peak_reserved;
  };
  const std::string cross_stream = alloc(0, 30 * mib) + "borrow b0 s2\n";
  const std::string sync = "record e2 s0\nsync e2\n" + alloc(1, 30 * mib);
  const std::string passed_on = "record e0 s2\nwait s1 e0\nrecord e1 s1\nwait s0 e1\n";
  EXPECT_EQ(reserved(cross_stream + release(0) + passed_on + sync), 30_MiB);
  EXPECT_EQ(reserved(cross_stream + release(0) + sync), 60_MiB) << "nobody waited for the stream";
  EXPECT_EQ(reserved(cross_stream + passed_on + release(0) + sync), 60_MiB) << "the event came first";
  EXPECT_EQ(reserved(cross_stream + release(0) + "record e0 s2\nrecord e1 s1\nwait s0 e1\n" + sync), 60_MiB);
}

TEST(Replay, TheCompositionOfThePeakSumsToIt) {
  const MemoryRecord record =
      replayed(alloc(0, 1000, "parameters") + alloc(1, 3 * mib, "gradients") + alloc(2, 500, "parameters") +
               release(0) + alloc(3, 100, "workspaces") + release(1) + alloc(4, 100, "workspaces"));
  EXPECT_EQ(record.allocated.bytes, 3_MiB + 1536_B);
  EXPECT_EQ(record.allocated.composition[Category::Parameters], 1536_B);
  EXPECT_EQ(record.allocated.composition[Category::Gradients], 3_MiB);
  EXPECT_EQ(record.allocated.composition[Category::Workspaces], 0_B);
  EXPECT_EQ(record.allocated.composition.total(), record.allocated.bytes);
}

TEST(Replay, APeakAtTheLastOpHasItsCompositionToo) {
  const MemoryRecord record = replayed(alloc(0, 512, "kv_cache") + alloc(1, 512, "adapters"));
  EXPECT_EQ(record.allocated.composition[Category::KvCache], 512_B);
  EXPECT_EQ(record.allocated.composition[Category::Adapters], 512_B);
}

TEST(Replay, ADevicePeakHoldsDriversAndFragmentation) {
  DriverCosts costs = free_of_charge();
  costs.context = {.bytes = 500_MiB, .low = 400_MiB, .high = 600_MiB, .source = "a"};
  costs.nccl_kernels = {.bytes = 50_MiB, .low = 20_MiB, .high = 100_MiB, .source = "b"};
  costs.communicators[2] = {.bytes = 100_MiB, .low = 100_MiB, .high = 300_MiB, .source = "c"};
  const MemoryRecord record =
      replayed("mark construction 0 -1 start_up\ncreate context\n" + alloc(0, 5 * mib, "parameters") +
                   "mark forward 1 0 head\ncreate nccl_kernels\ncreate communicator g2\n" + release(0),
               costs);
  EXPECT_EQ(record.device.bytes, 500_MiB + 20_MiB + 50_MiB + 100_MiB);
  EXPECT_EQ(record.device.composition[Category::Context], 500_MiB);
  EXPECT_EQ(record.device.composition[Category::Nccl], 150_MiB);
  EXPECT_EQ(record.device.composition[Category::Parameters], 5_MiB);
  EXPECT_EQ(record.device.composition[Category::Fragmentation], 15_MiB);
  EXPECT_EQ(record.device.composition.total(), record.device.bytes);
  EXPECT_EQ(record.device.at.op, 5u);
  EXPECT_EQ(record.peak_device_upper, 600_MiB + 20_MiB + 100_MiB + 300_MiB);
  EXPECT_EQ(record.allocated.composition[Category::Context], 0_B);
}

TEST(Replay, DriverRowsComeInOrderWithTheirMoments) {
  const MemoryRecord record = replayed(
      "mark construction 0 -1 start_up\ncreate context\ncreate communicator g1\nmark forward 1 2 fc1\n"
      "create modules\ncreate communicator g0\n");
  ASSERT_EQ(record.driver.size(), 4u);
  EXPECT_EQ(std::get<DriverResource>(record.driver[0].what), DriverResource::Context);
  EXPECT_EQ(std::get<CommSlot>(record.driver[1].what), CommSlot{1});
  EXPECT_EQ(std::get<DriverResource>(record.driver[2].what), DriverResource::Modules);
  EXPECT_EQ(std::get<CommSlot>(record.driver[3].what), CommSlot{0});
  EXPECT_EQ(record.driver[1].at.op, 2u);
  EXPECT_EQ(record.driver[1].at.mark.step, 0);
  EXPECT_EQ(record.driver[3].at.mark, (Mark{Phase::Forward, 1, 2, LabelId{1}}));
}

TEST(Replay, OutOfMemoryComesWithTheEvidence) {
  const MemoryRecord record =
      replayed("mark forward 1 0 fc1\n" + alloc(0, 60 * mib, "parameters") + alloc(1, 60 * mib) + alloc(2, 512),
               free_of_charge(), 100_MiB);
  ASSERT_TRUE(record.failure);
  EXPECT_EQ(record.failure->at.op, 2u);
  EXPECT_EQ(record.failure->at.mark.phase, Phase::Forward);
  EXPECT_EQ(record.failure->requested, 60_MiB);
  EXPECT_EQ(record.failure->free, 40_MiB);
  EXPECT_EQ(record.allocated.bytes, 60_MiB);  // the record ends there
  EXPECT_EQ(record.allocated.composition[Category::Parameters], 60_MiB);
  EXPECT_EQ(record.final_allocated, 60_MiB);
}

TEST(Replay, WhatFitsExactlyFits) {
  EXPECT_FALSE(replayed(alloc(0, 60 * mib) + alloc(1, 40 * mib), free_of_charge(), 100_MiB).failure);
  EXPECT_TRUE(replayed(alloc(0, 60 * mib) + alloc(1, 40 * mib), free_of_charge(), Bytes{100 * mib - 1}).failure);
}

TEST(Replay, TheRequestThatFailsIsTheSegmentAsked) {
  const MemoryRecord record = replayed(alloc(0, 5 * mib), free_of_charge(), 10_MiB);
  ASSERT_TRUE(record.failure);
  EXPECT_EQ(record.failure->requested, 20_MiB);
}

TEST(Replay, TheCacheIsGivenBackBeforeGivingUp) {
  const std::string program = alloc(0, 60 * mib) + release(0) + alloc(1, 80 * mib);
  EXPECT_EQ(replayed(program).peak_reserved, 140_MiB);
  const MemoryRecord record = replayed(program, free_of_charge(), 100_MiB);
  EXPECT_FALSE(record.failure);
  EXPECT_EQ(record.peak_reserved, 80_MiB);
  EXPECT_EQ(record.device.bytes, 80_MiB);
  EXPECT_EQ(record.allocated.bytes, 80_MiB);
}

TEST(Replay, ASegmentInUseIsNotGivenBack) {
  const std::string program = alloc(0, 15 * mib) + alloc(1, 3 * mib) + release(0) + alloc(2, 85 * mib);
  const MemoryRecord record = replayed(program, free_of_charge(), 100_MiB);
  ASSERT_TRUE(record.failure);  // b1 holds a 20 MiB segment
  EXPECT_EQ(record.failure->requested, 86_MiB);
  EXPECT_EQ(record.failure->free, 80_MiB);
}

TEST(Replay, DriversTakeFromTheSameDevice) {
  DriverCosts costs = free_of_charge();
  costs.context = {.bytes = 30_MiB, .low = 30_MiB, .high = 50_MiB, .source = ""};
  costs.modules = {.bytes = 30_MiB, .low = 30_MiB, .high = 50_MiB, .source = ""};
  const MemoryRecord ours = replayed("create context\n" + alloc(0, 80 * mib), costs, 100_MiB);
  ASSERT_TRUE(ours.failure);
  EXPECT_EQ(ours.failure->requested, 80_MiB);
  EXPECT_EQ(ours.failure->free, 70_MiB);
  const MemoryRecord theirs = replayed(alloc(0, 60 * mib) + "create context\ncreate modules\n", costs, 100_MiB);
  ASSERT_TRUE(theirs.failure);
  EXPECT_EQ(theirs.failure->at.op, 2u);
  EXPECT_EQ(theirs.failure->requested, 30_MiB);
  EXPECT_EQ(theirs.failure->free, 10_MiB);
  EXPECT_EQ(theirs.driver.size(), 1u);
}

TEST(Replay, EveryStepHasItsOwnPeak) {
  const MemoryRecord record =
      replayed("mark construction 0 -1 a\n" + alloc(0, 1024) + alloc(1, 1024) + release(1) + "mark forward 1 0 a\n" +
               "mark backward 1 0 a\n" + alloc(2, 512) + release(2) + "mark forward 2 0 a\n" + alloc(3, 4096));
  EXPECT_EQ(record.peak_allocated_by_step, (std::vector<Bytes>{2048_B, 1536_B, 5120_B}));
}

TEST(Replay, AStepThatAllocatesNothingPeaksAtWhatItFound) {
  const MemoryRecord record = replayed(alloc(0, 1024) + "mark forward 1 0 a\n" + release(0));
  EXPECT_EQ(record.peak_allocated_by_step, (std::vector<Bytes>{1024_B, 1024_B}));
}

TEST(Replay, LiveBuffersAreTheLargestFirstThenTheOldest) {
  const Program program =
      parse_program(alloc(0, 600) + alloc(1, 2000, "gradients") + alloc(2, 700) + release(0) + alloc(3, 1));
  const std::vector<LiveBuffer> before = live_buffers(program, free_of_charge(), 2);
  ASSERT_EQ(before.size(), 3u);
  EXPECT_EQ(before[0].buffer, BufferId{1});
  EXPECT_EQ(before[0].requested, 2000_B);
  EXPECT_EQ(before[0].block, 2048_B);
  EXPECT_EQ(before[0].category, Category::Gradients);
  EXPECT_EQ(before[0].allocated_at, 1u);
  EXPECT_EQ(program[before[0].label], "t");
  EXPECT_EQ(before[1].buffer, BufferId{0});
  EXPECT_EQ(before[2].buffer, BufferId{2});
  const std::vector<LiveBuffer> after = live_buffers(program, free_of_charge(), 3);
  ASSERT_EQ(after.size(), 2u);
  EXPECT_EQ(after[1].buffer, BufferId{2});
  EXPECT_EQ(live_buffers(program, free_of_charge(), 99).size(), 3u);  // after the last op
}

TEST(Replay, ATimelineHasASampleForEveryChange) {
  DriverCosts costs = free_of_charge();
  costs.context.bytes = 7_MiB;
  const std::vector<MemorySample> samples = memory_timeline(
      parse_program("create context\nmark forward 1 0 a\n" + alloc(0, 600) + "sync e0\n" + alloc(1, 512) + release(0)),
      costs);
  ASSERT_EQ(samples.size(), 4u);
  EXPECT_EQ(samples[0].driver, 7_MiB);
  EXPECT_EQ(samples[0].at.op, 0u);
  EXPECT_EQ(samples[1].allocated, 1_KiB);
  EXPECT_EQ(samples[1].reserved, 2_MiB);
  EXPECT_EQ(samples[1].at.mark.step, 1);
  EXPECT_EQ(samples[2].at.op, 4u);
  EXPECT_EQ(samples[3].allocated, 512_B);
}

TEST(Replay, TellsWhereTensorsAreAndWhatSegmentsTheyTook) {
  const Program program = parse_program(alloc(0, 1024) + alloc(1, 30 * mib) + release(0) + alloc(2, 512));
  std::vector<MemoryEvent> events;
  const ObservedMemory observed =
      replay(program, free_of_charge(), {.capacity = 1_GiB}, [&](const MemoryEvent& e) { events.push_back(e); });
  ASSERT_EQ(events.size(), 4u);
  const auto tensor = [&](std::size_t i) { return std::get<TensorEvent>(events[i].what); };
  const Address first = tensor(0).address, second = tensor(1).address;
  EXPECT_EQ(events[0].segments, (std::vector<SegmentEvent>{{SegmentEvent::Kind::Alloc, first, 2_MiB}}));
  EXPECT_EQ(events[1].segments, (std::vector<SegmentEvent>{{SegmentEvent::Kind::Alloc, second, 30_MiB}}));
  EXPECT_TRUE(events[2].segments.empty());
  EXPECT_EQ(tensor(2).address, first);
  EXPECT_EQ(tensor(3).address, first);  // what was freed is taken again
  EXPECT_EQ(tensor(3).stream, StreamId{0});
  ASSERT_EQ(observed.segments.size(), 2u);
  EXPECT_EQ(observed.segments[0].blocks.size(), 2u);
  EXPECT_EQ(observed.segments[1].address, second);
  EXPECT_EQ(observed.record.allocated.bytes, 30_MiB + 1_KiB);
}

TEST(Replay, FilesAreOfNoMemory) {
  const Program program = parse_program(R"(alloc b0 700 optimizer_moments s0 a nvme
alloc b1 300 gradients s0 a nvme
free b0
alloc b2 100 optimizer_master s0 a pageable
alloc b3 500 gradients s0 a nvme
)");
  const MemoryRecord record = replay(program, free_of_charge(), {});
  EXPECT_EQ(record.nvme, 1000_B);
  EXPECT_EQ(record.host.bytes, 100_B);
  EXPECT_EQ(record.host.composition[Category::Gradients], 0_B);
  EXPECT_EQ(record.allocated.bytes, 0_B);
}

TEST(Replay, HostMemoryHasARecordOfItsOwn) {
  const Program program = parse_program(R"(alloc b0 1024 temporaries s0 a
alloc b1 700 saved_activations s0 a pinned
memcpy s0 700 b0 -> b1
alloc b2 100 optimizer_master s0 a pageable
alloc b3 300 saved_activations s0 a pinned
free b1
free b0
alloc b4 300 saved_activations s0 a pinned
free b3
)");
  const MemoryRecord record = replay(program, free_of_charge(), {});
  EXPECT_EQ(record.allocated.bytes, 1024_B);
  EXPECT_EQ(record.allocated.composition.total(), 1024_B);
  EXPECT_EQ(record.final_allocated, 0_B);
  // 1,024 and 512; the first is free when the third comes, and is of another size.
  EXPECT_EQ(record.pinned, (HostRecord{2048_B, {7, {}}, 2048_B}));
  EXPECT_EQ(record.pageable, (HostRecord{100_B, {3, {}}, 100_B}));
  // Both together; what the pinned allocator holds besides tensors: what it rounds up, and a block that is free.
  EXPECT_EQ(record.host.bytes, 2148_B);
  EXPECT_EQ(record.host.at.op, 7u);
  EXPECT_EQ(record.host.composition[Category::SavedActivations], 600_B);
  EXPECT_EQ(record.host.composition[Category::OptimizerMaster], 100_B);
  EXPECT_EQ(record.host.composition[Category::Fragmentation], 1448_B);
}

// CachingHostAllocatorImpl::free records events on the streams that copied; its malloc asks for them.
TEST(Replay, PinnedMemoryWaitsForItsCopiesWhereFreesComeLate) {
  const auto held = [](const std::string& between, CrossStreamFrees frees) {
    const Program program = parse_program(
        "alloc b0 1024 temporaries s0 a\nalloc b1 1024 saved_activations s0 a pinned\n"
        "memcpy s0 1024 b0 -> b1\nrecord e0 s0\nfree b1\n" +
        between + "alloc b2 1024 saved_activations s0 a pinned\n");
    return replay(program, free_of_charge(), {.cross_stream = frees}).pinned.peak;
  };
  EXPECT_EQ(held("", CrossStreamFrees::AtOnce), 1024_B);
  EXPECT_EQ(held("", CrossStreamFrees::AtNextSync), 2048_B);
  EXPECT_EQ(held("sync e0\n", CrossStreamFrees::AtNextSync), 1024_B);
  // Another stream waits for it, and the host for that one.
  EXPECT_EQ(held("wait s1 e0\nrecord e1 s1\nsync e1\n", CrossStreamFrees::AtNextSync), 1024_B);
  EXPECT_EQ(held("record e1 s1\nsync e1\n", CrossStreamFrees::AtNextSync), 2048_B);
}

// What the host waited for before the free is over, whatever it waits for later.
TEST(Replay, PinnedMemoryThatWasWaitedForComesBackAtOnce) {
  const Program program = parse_program(
      "alloc b0 1024 temporaries s0 a\nalloc b1 1024 saved_activations s0 a pinned\nmemcpy s0 1024 b0 -> b1\n"
      "record e0 s0\nsync e0\nfree b1\nalloc b2 1024 saved_activations s0 a pinned\n");
  EXPECT_EQ(replay(program, free_of_charge(), {.cross_stream = CrossStreamFrees::AtNextSync}).pinned.peak, 1024_B);
}

TEST(Replay, RegistersTakeNoMemory) {
  const MemoryRecord record = replay(parse_program(R"(alloc b0 1024 temporaries s0 a
alloc b1 1048576 temporaries s0 a registers
launch s0 fill(value=0) -> b1:bool[1048576]
free b1
free b0
)"),
                                     free_of_charge(), {});
  EXPECT_EQ(record.allocated.bytes, 1024_B);
  EXPECT_EQ(record.pinned, HostRecord{});
  EXPECT_EQ(record.pageable, HostRecord{});
}

// The device does not see what the host holds.
TEST(Replay, RegisteredMemoryIsTheDevicesAndNoAllocators) {
  const MemoryRecord record = replayed("alloc b0 1048577 comm_tp s0 t registered\n" + alloc(1, 5 * mib, "gradients"));
  EXPECT_EQ(record.allocated.bytes, 5_MiB);
  EXPECT_EQ(record.peak_reserved, 20_MiB);
  EXPECT_EQ(record.device.bytes, 22_MiB) << "in pages of two MiB";
  EXPECT_EQ(record.device.composition[Category::CommTp], 2_MiB);
  EXPECT_EQ(record.peak_device_upper, 22_MiB);
  EXPECT_TRUE(replayed("alloc b0 5242880 comm_tp s0 t registered\n", free_of_charge(), 4_MiB).failure.has_value());
}

TEST(Replay, HostMemoryChangesNothingOnTheDevice) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Program program = with_frees(random_program(seed));
    std::vector<bool> on_host(static_cast<std::size_t>(program.buffers), false);
    Program without = program;
    for (Op& op : without.ops) {
      if (const auto* o = std::get_if<Alloc>(&op)) on_host[o->buffer.index()] = o->space != MemorySpace::Device;
      const auto* freed = std::get_if<Free>(&op);
      const auto* alloc = std::get_if<Alloc>(&op);
      if ((freed != nullptr && on_host[freed->buffer.index()]) || (alloc != nullptr && on_host[alloc->buffer.index()]))
        op = Unbind{};  // as long, and nothing to memory
    }
    ASSERT_TRUE(std::ranges::count(on_host, true) > 0);
    MemoryRecord with = replay(program, free_of_charge(), {});
    EXPECT_GT(with.pinned.peak + with.pageable.peak, 0_B);
    EXPECT_EQ(with.host.composition.total(), with.host.bytes);
    with.pinned = with.pageable = {};
    with.host = {};
    EXPECT_EQ(with, replay(without, free_of_charge(), {}));
    EXPECT_EQ(flat_changes(program), flat_changes(without));
    const auto at_end = [](const Program& p) { return live_buffers(p, free_of_charge(), p.ops.size() - 1).size(); };
    EXPECT_EQ(at_end(program), at_end(without));
  }
}

// A run says on which devices the rest of it would be the same: one byte more or less is another.
TEST(Replay, IsTheSameOnDevicesThatGiveAndRefuseTheSame) {
  int retried = 0, ran_out = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (const bool expandable : {false, true}) {
      const Program program = with_frees(random_program(seed));
      const auto on = [&](Bytes capacity) {
        MemoryRecord record =
            replay(program, free_of_charge(),
                   {.capacity = capacity, .allocator = {.expandable_segments = expandable}, .queue = {}});
        if (record.failure) record.failure->free = {};  // the one thing that is not
        return record;
      };
      const MemoryRecord unlimited = on(1024_GiB);
      EXPECT_EQ(unlimited.same_on.from, unlimited.device.bytes);
      for (const int percent : {70, 90, 99}) {
        const MemoryRecord limited = on(unlimited.device.bytes * percent / 100);
        const auto [from, below] = limited.same_on;
        EXPECT_EQ(on(from), limited);
        EXPECT_EQ(on(below - 1_B), limited);
        EXPECT_NE(on(from - 1_B), limited);
        EXPECT_NE(on(below), limited);
        retried += limited.first_retry && !limited.failure;
        ran_out += limited.failure.has_value();
      }
    }
  EXPECT_GT(retried, 5);
  EXPECT_GT(ran_out, 5);
}

}  // namespace
}  // namespace tidemark::tests::replay_test
