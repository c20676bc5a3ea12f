#include "parallel/job/batch.hpp"

#include <numeric>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::batch_test {
namespace {

using namespace literals;

// Four micro-batches of four sequences of 1024 tokens on each of two data-parallel ranks.
const Train train{.sequence_length = 1024, .micro_batch = 4, .global_batch = 32};
const Layout four_stages{.pipeline = 4, .data = 2};

Bytes held_for_rerun(Version megatron_core, const Layout& layout, std::int32_t pipeline, bool attention_mask = true) {
  Versions versions;
  versions.megatron = megatron_core;
  RuntimeSettings settings;
  settings.attention_mask = attention_mask;
  const Runtime runtime = megatron_runtime(versions, settings, Target{});
  const std::vector<Bytes> sizes = rerun_batches({}, layout, train, runtime, pipeline);
  return std::accumulate(sizes.begin(), sizes.end(), Bytes{});
}

TEST(Batch, OutlivesItsPassesInCore018Only) {
  EXPECT_EQ(held_for_rerun({0, 14}, four_stages, 3), 0_B);
  EXPECT_EQ(held_for_rerun({0, 17}, four_stages, 3), 0_B);
  EXPECT_EQ(held_for_rerun({0, 19}, four_stages, 3), 0_B);
  // Labels and loss mask, 12 bytes a token, and a byte for each pair of tokens of a sequence.
  EXPECT_EQ(held_for_rerun({0, 18}, four_stages, 3), 4 * (4096 * 12_B + 4_MiB));
  EXPECT_EQ(held_for_rerun({0, 18}, four_stages, 3, false), 4 * 4096 * 12_B);
  // Tokens and positions.
  EXPECT_EQ(held_for_rerun({0, 18}, four_stages, 0, false), 4 * 4096 * 16_B);
  EXPECT_EQ(held_for_rerun({0, 18}, four_stages, 1), 0_B);
  EXPECT_EQ(held_for_rerun({0, 18}, {.data = 2}, 0, false), 4 * 4096 * 28_B);
}

}  // namespace
}  // namespace tidemark::tests::batch_test
