// The allocator against a naive model of the same rules, and against what must hold of any allocator, on generated
// requests. The model is written from the rules alone: one std::map of blocks, one std::set of free ones.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "sim/memory/caching_allocator.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::caching_allocator_property_test {
namespace {

using namespace literals;

// Addresses in no order at all, so that ties on the address are decided in every direction.
class ScatteredAddresses {
 public:
  ScatteredAddresses(Bytes capacity, std::uint64_t seed) : available_(capacity), random_(seed) {}

  std::optional<Address> allocate(Bytes size, StreamId) {
    if (size > available_) return std::nullopt;
    available_ -= size;
    Address address;
    do address = {(random_() % (1U << 20)) << 32};
    while (!used_.insert(address).second);
    return address;
  }
  void release(Address, Bytes size) { available_ += size; }
  [[nodiscard]] Bytes available() const { return available_; }

 private:
  Bytes available_;
  std::mt19937_64 random_;
  std::set<Address> used_;
};
static_assert(SegmentSource<ScatteredAddresses>);

class NaiveAllocator {
 public:
  explicit NaiveAllocator(ScatteredAddresses source) : source_(std::move(source)) {}

  std::optional<Address> malloc(Bytes requested, StreamId stream) {
    const Bytes size = (requested + 511_B) / 512_B * 512_B;
    const bool small = size <= 1_MiB;
    auto fit = free_.lower_bound({!small, stream, size, Address{}});
    if (fit == free_.end() || std::get<0>(*fit) == small || std::get<1>(*fit) != stream) {
      const Bytes segment = small ? 2_MiB : (size < 10_MiB ? 20_MiB : (size + 2_MiB - 1_B) / 2_MiB * 2_MiB);
      std::optional<Address> address = source_.allocate(segment, stream);
      if (!address) {
        empty_cache();
        address = source_.allocate(segment, stream);
      }
      if (!address) return std::nullopt;
      segments_[*address] = segment;
      blocks_[*address] = {segment, *address, stream, small, true};
      fit = free_.insert({!small, stream, segment, *address}).first;
    }
    const Address address = std::get<3>(*fit);
    free_.erase(fit);
    Block& block = blocks_.at(address);
    block.free = false;
    const Bytes rest = block.size - size;
    if (small ? rest >= 512_B : rest > 1_MiB) {
      block.size = size;
      blocks_[address + size] = {rest, block.segment, stream, small, true};
      free_.insert({!small, stream, rest, address + size});
    }
    return address;
  }

  void free(Address address) {
    auto block = blocks_.find(address);
    block->second.free = true;
    if (block != blocks_.begin()) {
      const auto previous = std::prev(block);
      if (previous->second.free && previous->second.segment == block->second.segment) block = merge(previous, block);
    }
    const auto next = std::next(block);
    if (next != blocks_.end() && next->second.free && next->second.segment == block->second.segment) {
      block = merge(block, next);
    }
    free_.insert(key(*block));
  }

  std::vector<Address> empty_cache() {
    std::vector<Address> order;
    const auto copy = free_;
    for (const bool small : {false, true}) {
      for (const auto& entry : copy) {
        const auto& [large, stream, size, address] = entry;
        const auto segment = segments_.find(address);
        if (large == small || segment == segments_.end() || segment->second != size) continue;
        order.push_back(address);
        source_.release(address, size);
        segments_.erase(segment);
        blocks_.erase(address);
        free_.erase(entry);
      }
    }
    return order;
  }

  [[nodiscard]] std::vector<std::tuple<Address, Bytes, bool>> blocks() const {
    std::vector<std::tuple<Address, Bytes, bool>> all;
    for (const auto& [address, block] : blocks_) all.emplace_back(address, block.size, block.free);
    return all;
  }

 private:
  struct Block {
    Bytes size;
    Address segment;
    StreamId stream;
    bool small = false;
    bool free = false;
  };
  using Blocks = std::map<Address, Block>;
  using Key = std::tuple<bool, StreamId, Bytes, Address>;

  static Key key(const Blocks::value_type& block) {
    return {!block.second.small, block.second.stream, block.second.size, block.first};
  }
  Blocks::iterator merge(Blocks::iterator low, Blocks::iterator high) {
    free_.erase(key(*low));
    free_.erase(key(*high));
    low->second.size += high->second.size;
    blocks_.erase(high);
    return low;
  }

  ScatteredAddresses source_;
  std::map<Address, Bytes> segments_;
  Blocks blocks_;
  std::set<Key> free_;
};

using Allocator = CachingAllocator<LoggedSegments<ScatteredAddresses>>;

// Few distinct sizes, as in training, with some arbitrary ones between them: many exact fits, some fragments.
Bytes any_request(std::mt19937_64& random) {
  static constexpr Bytes usual[] = {4_B,   512_B, 40_KiB, 1_MiB,  1_MiB + 1_B, 2_MiB,
                                    8_MiB, 9_MiB, 10_MiB, 12_MiB, 19_MiB,      24_MiB};
  if (random() % 4 != 0) return usual[random() % std::size(usual)];
  const std::uint64_t magnitude = 1ULL << (random() % 26);
  return Bytes{static_cast<std::int64_t>(1 + random() % magnitude)};
}

void expect_consistent(const Allocator& allocator) {
  Bytes reserved;
  Bytes allocated;
  Bytes requested;
  Bytes inactive_split;
  std::int64_t live = 0;
  Address end;
  for (const SegmentLayout& segment : allocator.layout()) {
    ASSERT_GE(segment.address, end) << "segments overlap";
    ASSERT_FALSE(segment.blocks.empty());
    end = segment.address;
    bool after_free = false;
    for (const BlockLayout& block : segment.blocks) {
      const bool free = block.state == BlockState::Free;
      ASSERT_EQ(block.address, end) << "blocks tile their segment";
      ASSERT_GT(block.size, 0_B);
      ASSERT_EQ(block.size % 512_B, 0_B);
      ASSERT_FALSE(after_free && free) << "two free neighbours";
      ASSERT_LE(block.requested, block.size);
      after_free = free;
      end = end + block.size;
      if (free && segment.blocks.size() > 1) inactive_split += block.size;
      if (free) continue;
      allocated += block.size;
      requested += block.requested;
      ++live;
    }
    ASSERT_EQ(end, segment.address + segment.size);
    reserved += segment.size;
  }
  const AllocatorStats& stats = allocator.stats();
  EXPECT_EQ(stats.all.reserved.current, reserved);
  EXPECT_EQ(stats.all.allocated.current, allocated);
  EXPECT_EQ(stats.all.active.current, allocated);
  EXPECT_EQ(stats.all.requested.current, requested);
  EXPECT_EQ(stats.all.inactive_split.current, inactive_split);
  EXPECT_EQ(stats.all.allocations.current, live);
  EXPECT_EQ(stats.small.reserved.current + stats.large.reserved.current, reserved);
  EXPECT_EQ(stats.small.allocated.current + stats.large.allocated.current, allocated);
  EXPECT_LE(stats.all.allocated.current, stats.all.allocated.peak);
}

class GeneratedRequests : public testing::TestWithParam<std::uint64_t> {};

TEST_P(GeneratedRequests, AgreeWithTheNaiveModel) {
  const std::uint64_t seed = GetParam();
  const Bytes capacity = seed % 2 == 0 ? 1_GiB * 1024 : 768_MiB;  // every other run fills the device
  std::mt19937_64 random(seed);
  Allocator allocator{LoggedSegments<ScatteredAddresses>{ScatteredAddresses{capacity, seed}}};
  NaiveAllocator naive{ScatteredAddresses{capacity, seed}};
  std::vector<BlockId> live;
  std::size_t target = 100;  // of live blocks: it drifts, so that fragments come and go

  for (int step = 0; step < 20'000; ++step) {
    if (step % 997 == 0) target = random() % 400;
    if (random() % 5000 == 0) {
      allocator.source().take_events();
      allocator.empty_cache();
      std::vector<Address> released;
      for (const SegmentEvent& event : allocator.source().take_events()) released.push_back(event.address);
      ASSERT_EQ(released, naive.empty_cache());
    }
    if (live.size() < target ? random() % 3 != 0 : random() % 3 == 0) {
      const Bytes size = any_request(random);
      const StreamId stream{static_cast<std::int32_t>(random() % 3)};
      const auto result = allocator.malloc(size, stream);
      const std::optional<Address> expected = naive.malloc(size, stream);
      ASSERT_EQ(std::holds_alternative<BlockId>(result), expected.has_value()) << "step " << step;
      if (!expected) continue;
      live.push_back(std::get<BlockId>(result));
      ASSERT_EQ(allocator.address(live.back()), *expected) << "step " << step;
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      naive.free(allocator.address(live.back()));
      allocator.free(live.back());
      live.pop_back();
    }
    if (step % 500 != 0) continue;
    expect_consistent(allocator);
    if (HasFatalFailure()) return;
    std::vector<std::tuple<Address, Bytes, bool>> blocks;
    for (const SegmentLayout& segment : allocator.layout()) {
      for (const BlockLayout& b : segment.blocks) blocks.emplace_back(b.address, b.size, b.state == BlockState::Free);
    }
    ASSERT_EQ(blocks, naive.blocks()) << "step " << step;
  }
  EXPECT_EQ(allocator.stats().ooms > 0, capacity < 1_GiB) << "the small device was meant to be too small";
}

INSTANTIATE_TEST_SUITE_P(Seeds, GeneratedRequests, testing::Range<std::uint64_t>(1, 9));

}  // namespace
}  // namespace tidemark::tests::caching_allocator_property_test
