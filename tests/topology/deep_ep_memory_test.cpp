#include "topology/deep_ep_memory.hpp"

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::deep_ep_memory_test {
namespace {

using namespace literals;

// By hand, of DeepSeek-V3's tokens in bf16: ten channels, each with 256 places for each of eight peers, and of each
// place 14,336 bytes of hidden state, 8 of source, 1,024 of choices, 512 of weights and 512 of scales.
TEST(DeepEpMemory, OfOneNodeIsItsBufferAndItsWorkspace) {
  const Estimate found = deep_ep_memory({.ranks = 8, .hidden_bytes = 14336, .processors = 20});
  static_assert(10 * 8 * 5 * 4 + 10 * 8 * 256 * (14336 + 8 + 1024 + 512 + 512) == 335'709'760);  // 320.2 MiB
  EXPECT_EQ(found.bytes, 322_MiB + 32_MiB);
  EXPECT_EQ(found.low, found.bytes);
  EXPECT_EQ(found.high, found.bytes);
}

TEST(DeepEpMemory, BetweenNodesHasAPieceOfNvshmemsHeapToo) {
  const Estimate found = deep_ep_memory({.ranks = 64, .hidden_bytes = 14336, .processors = 20});
  // Places for messages of 28 tokens and of 20: 140 of each.
  const std::int64_t nvlink = 10 * 8 * 19 * 4 + 10 * 8 * 288 * 16392,
                     network = 10 * 8 * 18 * 2 * 4 + 2 * 10 * 8 * 140 * (16392 + 16);
  EXPECT_EQ((found.low - 32_MiB).count(), (nvlink + 2097151) / 2097152 * 2097152 + (network + 127) / 128 * 128);
  EXPECT_EQ(found.bytes - found.low, 512_MiB - Bytes{(network + 127) / 128 * 128});
  EXPECT_EQ(found.high - found.bytes, 512_MiB);
}

TEST(DeepEpMemory, FewerMultiprocessorsHaveFewerChannels) {
  EXPECT_LT(deep_ep_memory({.ranks = 8, .hidden_bytes = 14336, .processors = 12}).bytes,
            deep_ep_memory({.ranks = 8, .hidden_bytes = 14336, .processors = 24}).bytes);
}

}  // namespace
}  // namespace tidemark::tests::deep_ep_memory_test
