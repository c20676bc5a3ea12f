#include "sim/memory/allocator_options.hpp"

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::allocator_options_test {
namespace {

using namespace literals;

AllocatorOptions divided_by(std::uint64_t divisions) {
  AllocatorOptions options;
  options.roundup_divisions.fill(divisions);
  return options;
}

// roundup_power2_next_division, c10/cuda/CUDACachingAllocator.cpp: steps of the power of two below, divided.
TEST(AllocatorOptions, DivisionsRoundUpInStepsOfThePowerOfTwoBelow) {
  EXPECT_EQ(block_size(2500_B, divided_by(4)), 2560_B);      // 2048 + 512
  EXPECT_EQ(block_size(2561_B, divided_by(4)), 3072_B);      // 2048 + 2 x 512
  EXPECT_EQ(block_size(4095_B, divided_by(4)), 4096_B);      // up to the next power of two
  EXPECT_EQ(block_size(1200_MiB, divided_by(8)), 1280_MiB);  // 1024 + 2 x 128
  EXPECT_EQ(block_size(1_GiB + 102_MiB, divided_by(4)), 1_GiB + 256_MiB);
  EXPECT_EQ(block_size(1_GiB, divided_by(4)), 1_GiB);
}

// round_size: divisions > 1 && size > kMinBlockSize * divisions.
TEST(AllocatorOptions, DivisionsLeaveSmallSizesAlone) {
  EXPECT_EQ(block_size(1_B, divided_by(4)), 512_B);
  EXPECT_EQ(block_size(1200_B, divided_by(4)), 1536_B);
  EXPECT_EQ(block_size(2048_B, divided_by(4)), 2048_B);
  EXPECT_EQ(block_size(2049_B, divided_by(4)), 2560_B);
  EXPECT_EQ(block_size(5_KiB + 1_B, divided_by(16)), 5_KiB + 512_B);
  EXPECT_EQ(block_size(3_GiB + 1_B, divided_by(1ULL << 40)), 3_GiB + 512_B) << "no overflow either";
}

TEST(AllocatorOptions, NoneAndOneDivisionAreNoRounding) {
  for (const std::uint64_t none : {0U, 1U}) EXPECT_EQ(block_size(2500_B, divided_by(none)), 2560_B);
  EXPECT_EQ(block_size(1_GiB + 1_B, divided_by(1)), 1_GiB + 512_B);
  EXPECT_EQ(block_size(1_GiB + 1_B, {}), 1_GiB + 512_B);
}

// AllocatorConfig::roundup_power2_divisions: floor(log2(size)) - 20, clamped to 0 ... 15.
TEST(AllocatorOptions, EachPowerOfTwoHasItsOwnDivisions) {
  AllocatorOptions options;
  options.roundup_divisions[0] = 2;
  options.roundup_divisions[8] = 8;
  options.roundup_divisions[15] = 2;
  EXPECT_EQ(block_size(5_KiB, options), 6_KiB) << "the first entry is for everything below 2 MiB";
  EXPECT_EQ(block_size(1_MiB + 1_B, options), 1536_KiB);
  EXPECT_EQ(block_size(2_MiB + 1_B, options), 2_MiB + 512_B);
  EXPECT_EQ(block_size(256_MiB + 1_B, options), 288_MiB);
  EXPECT_EQ(block_size(512_MiB + 1_B, options), 512_MiB + 512_B);
  EXPECT_EQ(block_size(100_GiB, options), 128_GiB) << "the last one for everything above";
}

TEST(AllocatorOptions, AFractionOfTheDeviceIsALimitBelowOneOnly) {
  EXPECT_EQ(AllocatorOptions{}.memory_limit(), std::nullopt);
  EXPECT_EQ((AllocatorOptions{.memory_fraction = 0.5, .device_memory = 80_GiB}.memory_limit()), 40_GiB);
  EXPECT_EQ((AllocatorOptions{.memory_fraction = 0.3, .device_memory = 1001_B}.memory_limit()), 300_B);
  EXPECT_FALSE(AllocatorOptions{.garbage_collection_threshold = 0.8}.collects_garbage());
  EXPECT_TRUE((AllocatorOptions{.garbage_collection_threshold = 0.8, .memory_fraction = 0.9}.collects_garbage()));
}

// find_expandable_block: 1 1/8 of the device, in whole pages.
TEST(AllocatorOptions, AnExpandableSegmentReservesMoreThanTheDevice) {
  const AllocatorOptions options{.device_memory = 80_GiB};
  EXPECT_EQ(expandable_address_space(PoolKind::Small, options), 90_GiB);
  EXPECT_EQ(expandable_address_space(PoolKind::Large, options), 92'160_MiB);
  EXPECT_EQ(expandable_address_space(PoolKind::Large, {.device_memory = 81_GiB}), 93'320_MiB);
}

}  // namespace
}  // namespace tidemark::tests::allocator_options_test
