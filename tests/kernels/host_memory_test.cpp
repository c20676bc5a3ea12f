#include "kernels/execute/host_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <random>
#include <set>
#include <variant>

#include <gtest/gtest.h>

#include "kernels/execute/process_memory.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/liveness.hpp"
#include "tests/sim/program/random_program.hpp"

namespace tidemark::tests::host_memory_test {
namespace {

using namespace literals;

#if defined(__SANITIZE_THREAD__)
constexpr bool shadowed = true;
#elif defined(__has_feature)
constexpr bool shadowed = __has_feature(thread_sanitizer);
#else
constexpr bool shadowed = false;
#endif
constexpr std::int64_t slack = 1 << 20;

TEST(HostMemory, BlocksAreResidentWhileTheyAreAllocated) {
  if (shadowed) GTEST_SKIP() << "ThreadSanitizer keeps memory of its own for all that is touched";
  for (const std::int64_t divisor : {1, 4}) {
    HostMemory memory(2, {divisor});
    const Bytes before = resident_anonymous();
    const auto grown = [&] { return (resident_anonymous() - before).count() * divisor; };
    memory.allocate({0}, 64_MiB, {0});
    EXPECT_NEAR(static_cast<double>(grown()), 64 << 20, static_cast<double>(slack * divisor));
    memory.allocate({1}, 100_MiB, {0});
    EXPECT_NEAR(static_cast<double>(grown()), 164 << 20, static_cast<double>(slack * divisor));
    memory.release({0});
    EXPECT_NEAR(static_cast<double>(grown()), 100 << 20, static_cast<double>(slack * divisor));
    memory.release({1});
    EXPECT_NEAR(static_cast<double>(grown()), 0, static_cast<double>(slack * divisor));
    EXPECT_EQ(memory.allocated(), 0_B);
    EXPECT_EQ(memory.reserved(), 164_MiB);
  }
}

TEST(HostMemory, WhatIsOnTheHostIsResidentToo) {
  if (shadowed) GTEST_SKIP() << "ThreadSanitizer keeps memory of its own for all that is touched";
  HostMemory memory(2, {});
  const Bytes before = resident_anonymous();
  const auto grown = [&] { return (resident_anonymous() - before).count(); };
  memory.allocate({0}, 64_MiB, {0}, MemorySpace::Pinned);
  memory.allocate({1}, 32_MiB, {0}, MemorySpace::Pageable);
  EXPECT_NEAR(static_cast<double>(grown()), 96 << 20, static_cast<double>(slack));
  EXPECT_EQ(memory.allocated(), 0_B);  // on the device
  EXPECT_EQ(memory.words({1}).size(), std::size_t{4} << 20);
  memory.release({0});
  EXPECT_NEAR(static_cast<double>(grown()), 32 << 20, static_cast<double>(slack));
  memory.release({1});
  EXPECT_NEAR(static_cast<double>(grown()), 0, static_cast<double>(slack));
}

// One growing segment of host memory: what is unmapped is gone, what is not stays.
TEST(HostSegments, ExpandAndShrinkByPages) {
  CachingAllocator<HostSegments> allocator{HostSegments{},
                                           {.expandable_segments = true, .device_memory = Bytes{1LL << 30}}};
  const auto take = [&](Bytes size) { return std::get<BlockId>(allocator.malloc(size, {0})); };
  const auto first_byte = [&](BlockId block) -> std::byte& {
    return *allocator.source().pages_at(allocator.address(block));
  };
  const BlockId a = take(4_MiB);
  const BlockId b = take(40_MiB);
  first_byte(a) = first_byte(b) = std::byte{7};
  allocator.free(b);
  EXPECT_EQ(allocator.empty_cache(), 40_MiB);
  EXPECT_EQ(allocator.reserved(), 20_MiB);
  EXPECT_EQ(first_byte(a), std::byte{7});
  const BlockId c = take(30_MiB);  // behind the first, over pages that went and came back
  EXPECT_EQ(allocator.address(c) - allocator.address(a), 4_MiB);
  EXPECT_EQ(allocator.source().pages_at(allocator.address(c) + 20_MiB)[0], std::byte{0});
  EXPECT_EQ(allocator.reserved(), 40_MiB);
  allocator.free(a);
  allocator.free(c);
  EXPECT_EQ(allocator.empty_cache(), 40_MiB);
}

TEST(HostMemory, WhoeverReadsOnAfterAReleaseFindsZeros) {
  HostMemory memory(1, {});
  memory.allocate({0}, 3_MiB, {0});
  const std::span<std::uint64_t> words = memory.words({0});
  ASSERT_EQ(words.size(), 3u << 17);
  std::fill(words.begin(), words.end(), 7u);
  memory.release({0});
  EXPECT_EQ(memory.words({0}).data(), words.data());
  EXPECT_TRUE(std::all_of(words.begin(), words.end(), [](std::uint64_t word) { return word == 0; }));
}

TEST(HostMemory, ABlockThatIsTakenAgainStartsFromZeros) {
  HostMemory memory(2, {});
  memory.allocate({0}, 600_B, {0});
  std::ranges::fill(memory.words({0}), 7u);
  memory.release({0});
  memory.allocate({1}, 600_B, {0});
  EXPECT_EQ(memory.words({1}).data(), memory.words({0}).data());  // the same block
  EXPECT_EQ(std::ranges::count(memory.words({1}), 0u), 512);
}

TEST(HostMemory, BlocksNeverShareAPage) {
  std::mt19937_64 random(3);
  constexpr std::int32_t buffers = 600;
  HostMemory memory(buffers, {});
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> pages;
  for (std::int32_t b = 0; b < buffers; ++b) {
    memory.allocate({b}, Bytes{1 + static_cast<std::int64_t>(random() % 20000)}, {0});
    const std::span<std::uint64_t> words = memory.words({b});
    std::ranges::fill(words, static_cast<std::uint64_t>(b) + 1);
    const auto begin = reinterpret_cast<std::uintptr_t>(words.data());
    EXPECT_EQ(begin % 4096, 0u);
    pages.emplace_back(begin, begin + words.size_bytes());
  }
  for (std::int32_t b = 0; b < buffers; ++b)
    ASSERT_EQ(std::ranges::count(memory.words({b}), static_cast<std::uint64_t>(b) + 1), std::ssize(memory.words({b})));
  std::ranges::sort(pages);
  for (std::size_t i = 1; i < pages.size(); ++i) ASSERT_LE(pages[i - 1].second, pages[i].first);
}

TEST(HostMemory, HoldsTheBlocksThatAReplayHolds) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Program program = with_frees(random_program(seed));
    std::vector<MemoryEvent> events;
    (void)replay(program, free_of_charge(), {}, [&](const MemoryEvent& event) {
      if (std::holds_alternative<TensorEvent>(event.what)) events.push_back(event);
    });
    HostMemory memory(program.buffers, {1 << 12});
    std::size_t next = 0;
    std::set<BufferId> on_host;
    for (const Op& op : program.ops) {
      const auto* alloc = std::get_if<Alloc>(&op);
      const auto* free = std::get_if<Free>(&op);
      if (alloc == nullptr && free == nullptr) continue;
      const BufferId buffer = alloc != nullptr ? alloc->buffer : free->buffer;
      if (alloc != nullptr && alloc->space != MemorySpace::Device) on_host.insert(buffer);
      if (alloc != nullptr)
        memory.allocate(buffer, alloc->size, alloc->stream, alloc->space);
      else
        memory.release(buffer);
      if (on_host.contains(buffer)) {  // no effect on the device
        ASSERT_EQ(memory.allocated(), next > 0 ? events[next - 1].allocated : Bytes{});
        continue;
      }
      ASSERT_LT(next, events.size());
      ASSERT_EQ(memory.allocated(), events[next].allocated) << "seed " << seed << ", event " << next;
      ASSERT_EQ(memory.reserved(), events[next].reserved) << "seed " << seed << ", event " << next;
      ++next;
    }
    EXPECT_EQ(next, events.size());
  }
}

TEST(HostMemory, SaysWhatTheSystemRefuses) {
  HostMemory memory(1, {1 << 30});
  try {
    memory.allocate({0}, Bytes{std::int64_t{1} << 46}, {0});  // 512 TiB of address space
    FAIL() << "it was there";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()).find("out of memory: the operating system refuses 536870912 MiB"), 0u)
        << error.what();
  }
}

}  // namespace
}  // namespace tidemark::tests::host_memory_test
