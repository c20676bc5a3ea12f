// The allocator against reference_allocator.hpp, on generated requests over several streams, under generated options.
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "sim/memory/caching_allocator.hpp"
#include "tests/namespace.hpp"
#include "tests/seeds.hpp"
#include "tests/sim/memory/reference_allocator.hpp"

namespace tidemark::tests::allocator_reference_test {
namespace {

using namespace literals;

constexpr Bytes device_memory = 1_GiB;  // an expandable segment fits between two addresses below

// Addresses in no order at all, so that ties on the address are decided in every direction.
class ScatteredAddresses {
 public:
  ScatteredAddresses() = default;
  ScatteredAddresses(Bytes capacity, std::uint64_t seed) : available_(capacity), random_(seed) {}

  std::optional<Address> allocate(Bytes size, StreamId) {
    if (size > available_) return std::nullopt;
    available_ -= size;
    return next();
  }
  void release(Address, Bytes size) { available_ += size; }
  [[nodiscard]] Bytes available() const { return available_; }
  std::optional<Address> reserve(Bytes, Bytes, StreamId) { return next(); }
  void unreserve(Address, Bytes) {}
  bool map(Address, Bytes size) {
    if (size > available_) return false;
    available_ -= size;
    return true;
  }
  void unmap(Address, Bytes size) { available_ += size; }

 private:
  Address next() {
    Address address;
    do address = {(random_() % (1U << 24)) << 32};
    while (!used_.insert(address).second);
    return address;
  }

  Bytes available_;
  std::mt19937_64 random_;
  std::set<Address> used_;
};

using Allocator = CachingAllocator<ScatteredAddresses>;

reference::Device device(Bytes capacity, std::uint64_t seed) {
  const auto memory = std::make_shared<ScatteredAddresses>(capacity, seed);
  return {.allocate =
              [memory](std::int64_t size) {
                const auto address = memory->allocate(Bytes{size}, {});
                return address ? std::optional(address->value) : std::nullopt;
              },
          .release = [memory](std::int64_t size) { memory->release({}, Bytes{size}); },
          .reserve = [memory](std::int64_t size) { return memory->reserve(Bytes{size}, {}, {})->value; },
          .map = [memory](std::int64_t size) { return memory->map({}, Bytes{size}); }};
}

template <class T>
T one_of(std::mt19937_64& random, std::initializer_list<T> choices) {
  return std::data(choices)[random() % choices.size()];
}

AllocatorOptions any_options(std::mt19937_64& random) {
  AllocatorOptions options;
  options.expandable_segments = random() % 3 == 0;
  options.max_split_size = one_of(random, {AllocatorOptions::unlimited, 20_MiB, 30_MiB, 44_MiB});
  options.max_non_split_rounding = one_of(random, {20_MiB, 26_MiB});
  options.large_segment = one_of(random, {20_MiB, 20_MiB, 12_MiB});
  for (std::uint64_t& divisions : options.roundup_divisions)
    divisions = random() % 2 == 0 ? 0 : one_of<std::uint64_t>(random, {1, 2, 4, 16});
  options.garbage_collection_threshold = one_of(random, {0.0, 0.5, 0.8});
  options.memory_fraction = one_of(random, {1.0, 0.6, 0.9});
  options.device_memory = device_memory;
  return options;
}

reference::Options plain(const AllocatorOptions& options) {
  reference::Options plain;
  plain.large_segment = options.large_segment.count();
  plain.max_split = options.max_split_size.count();
  plain.max_rounding = options.max_non_split_rounding.count();
  plain.divisions.assign(options.roundup_divisions.begin(), options.roundup_divisions.end());
  plain.collect = options.garbage_collection_threshold;
  plain.expandable = options.expandable_segments;
  plain.device = device_memory.count();
  if (options.memory_fraction < 1)
    plain.limit = static_cast<std::int64_t>(options.memory_fraction * static_cast<double>(device_memory.count()));
  return plain;
}

// Few distinct sizes, as in training, with some arbitrary ones between them: many exact fits, some fragments.
Bytes any_request(std::mt19937_64& random) {
  static constexpr Bytes usual[] = {4_B,    512_B,  40_KiB, 1_MiB,  1_MiB + 1_B, 2_MiB,  8_MiB, 9_MiB,
                                    10_MiB, 12_MiB, 19_MiB, 24_MiB, 30_MiB,      44_MiB, 60_MiB};
  if (random() % 4 != 0) return usual[random() % std::size(usual)];
  const std::uint64_t magnitude = 1ULL << (random() % 27);
  return Bytes{static_cast<std::int64_t>(1 + random() % magnitude)};
}

// Address, size and state, and for the whole: segments that differ in nothing else are the same ones.
using Picture = std::vector<std::tuple<std::uint64_t, std::int64_t, int>>;

Picture picture(const Allocator& allocator) {
  Picture all;
  for (const SegmentLayout& segment : allocator.layout())
    for (const BlockLayout& b : segment.blocks)
      all.emplace_back(b.address.value, b.size.count(), static_cast<int>(b.state));
  return all;
}

Picture picture(const reference::Allocator& allocator) {
  static const std::map<reference::State, BlockState> states = {{reference::State::Free, BlockState::Free},
                                                                {reference::State::Live, BlockState::Allocated},
                                                                {reference::State::Waiting, BlockState::PendingFree}};
  Picture all;
  for (const auto& [address, block] : allocator.blocks)
    if (block.state != reference::State::Unmapped)
      all.emplace_back(address, block.size, static_cast<int>(states.at(block.state)));
  return all;
}

// Drives both, and stops at the first difference.
class Pair {
 public:
  explicit Pair(std::uint64_t seed)
      : random_(seed),
        capacity_(seed % 3 == 0 ? 1_GiB * 1024 : 700_MiB),
        options_(any_options(random_)),
        ours_(ScatteredAddresses{capacity_, seed}, options_),
        theirs_(plain(options_), device(capacity_, seed)) {}

  void run(int steps) {
    for (step_ = 0; step_ < steps && !testing::Test::HasFatalFailure(); ++step_) {
      if (step_ % 211 == 0) target_ = random_() % 70;
      this->step();
      if (step_ % 50 == 0) compare();
    }
    compare();
  }

 private:
  void step() {
    const std::uint64_t kind = random_() % 100;
    if (kind < 4) return share();
    if (kind < 7) return finish();
    if (kind == 7 && random_() % 8 == 0) return empty_cache();
    if (kind == 8) return change_pools();
    if (live_.size() < target_ ? random_() % 3 != 0 : random_() % 3 == 0) return malloc();
    free();
  }

  void malloc() {
    const Bytes size = any_request(random_);
    const auto stream = static_cast<int>(random_() % 3);
    const auto result = ours_.malloc(size, StreamId{stream});
    const std::optional<std::uint64_t> expected = theirs_.malloc(size.count(), stream);
    ASSERT_EQ(std::holds_alternative<BlockId>(result), expected.has_value()) << where();
    if (!expected) return;
    live_.push_back(std::get<BlockId>(result));
    ASSERT_EQ(ours_.address(live_.back()).value, *expected) << where();
  }
  void free() {
    if (live_.empty()) return;
    std::swap(live_[random_() % live_.size()], live_.back());
    theirs_.free(ours_.address(live_.back()).value);
    ours_.free(live_.back());
    live_.pop_back();
  }
  void share() {
    if (live_.empty()) return;
    const BlockId block = live_[random_() % live_.size()];
    const auto stream = static_cast<int>(random_() % 3);
    theirs_.record_stream(ours_.address(block).value, stream);
    ours_.record_stream(block, StreamId{stream});
  }
  void finish() {
    const auto stream = static_cast<int>(random_() % 3);
    ASSERT_EQ(ours_.events().recorded(StreamId{stream}), theirs_.recorded[stream]) << where();
    if (theirs_.recorded[stream] == 0) return;
    const auto events = static_cast<std::int64_t>(random_()) & INT64_MAX;
    const std::int64_t done = events % theirs_.recorded[stream] + 1;
    ours_.events().finish(StreamId{stream}, done);
    theirs_.finish(stream, done);
  }
  void empty_cache() {
    ours_.empty_cache();
    theirs_.empty_cache();
  }
  void change_pools() {
    if (theirs_.active.size() < 2 && random_() % 3 == 0) {
      const auto pool = static_cast<int>(1 + random_() % 3);
      const int stream = random_() % 2 == 0 ? -1 : static_cast<int>(random_() % 3);
      MempoolOptions options{.use_on_oom = pool == 3};
      if (stream >= 0) options.stream = StreamId{stream};
      ours_.begin_allocate_to_pool({0, pool}, options);
      theirs_.active.emplace_back(pool, stream);
      ++theirs_.users[pool];
      if (pool == 3) theirs_.lends = pool;
    } else if (!theirs_.active.empty()) {
      const int pool = theirs_.active.back().first;
      ours_.end_allocate_to_pool({0, pool});
      theirs_.active.pop_back();
    } else if (const auto pool = static_cast<int>(1 + random_() % 3); theirs_.users[pool] > 0) {
      ours_.release_pool({0, pool});
      --theirs_.users[pool];
    }
  }

  void compare() {
    ASSERT_EQ(picture(ours_), picture(theirs_)) << where();
    ASSERT_EQ(ours_.reserved().count(), theirs_.reserved) << where();
    ASSERT_EQ(ours_.stats().alloc_retries, theirs_.retries) << where();
    ASSERT_EQ(ours_.stats().ooms, theirs_.ooms) << where();
    Bytes allocated, active, reserved, inactive_split;
    for (const SegmentLayout& segment : ours_.layout()) {
      reserved += segment.size;
      for (const BlockLayout& block : segment.blocks) {
        if (block.state == BlockState::Allocated) allocated += block.size;
        if (block.state != BlockState::Free) active += block.size;
        if (block.state == BlockState::Free && segment.blocks.size() > 1 && !segment.expandable)
          inactive_split += block.size;
      }
    }
    const PoolStats& all = ours_.stats().all;
    ASSERT_EQ(all.allocated.current, allocated) << where();
    ASSERT_EQ(all.active.current, active) << where();
    ASSERT_EQ(all.reserved.current, reserved) << where();
    ASSERT_EQ(all.inactive_split.current, inactive_split) << where();
    for (const auto stat : {&PoolStats::allocated, &PoolStats::active, &PoolStats::requested, &PoolStats::reserved})
      ASSERT_EQ((ours_.stats().small.*stat).current + (ours_.stats().large.*stat).current, (all.*stat).current);
  }

  [[nodiscard]] std::string where() const { return "step " + std::to_string(step_); }

  std::mt19937_64 random_;
  Bytes capacity_;
  AllocatorOptions options_;
  Allocator ours_;
  reference::Allocator theirs_;
  std::vector<BlockId> live_;
  std::size_t target_ = 30;  // of live blocks: it drifts, so that fragments come and go
  int step_ = 0;
};

class GeneratedOptions : public testing::TestWithParam<std::uint64_t> {};

TEST_P(GeneratedOptions, AgreeWithTheReference) { Pair(GetParam()).run(4000); }

INSTANTIATE_TEST_SUITE_P(Seeds, GeneratedOptions, testing::Range<std::uint64_t>(1, 61, seed_step()));

}  // namespace
}  // namespace tidemark::tests::allocator_reference_test
