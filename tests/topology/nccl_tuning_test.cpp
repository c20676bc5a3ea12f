#include "topology/nccl_tuning.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::nccl_tuning_test {
namespace {

using namespace literals;

// src/enqueue.cc: four channels of 32 for each of eight ranks, and twice as many until a piece is at most 16 MiB. Sends
// on eight B200 take 793, 798 and 810 us for 64, 128 and 256 MiB (tests/golden/kernels/b200_nccl_tests.toml): that is
// it.
TEST(MessageChannels, MoreOnesForLongerMessages) {
  const MessageChannels eight = message_channels({24, 24, 32, 32}, 8, false, true, 100);
  EXPECT_EQ(eight.of(1_B), 1);
  EXPECT_EQ(eight.of(64_KiB), 1);
  EXPECT_EQ(eight.of(64_KiB + 1_B), 2);
  EXPECT_EQ(eight.of(1_MiB), 4);
  EXPECT_EQ(eight.of(64_MiB), 4);
  EXPECT_EQ(eight.of(64_MiB + 1_B), 8);
  EXPECT_EQ(eight.of(128_MiB), 8);
  EXPECT_EQ(eight.of(256_MiB), 16);
  EXPECT_EQ(eight.of(8_GiB), 32);
  EXPECT_EQ(message_channels({24, 24, 32, 32}, 2, false, true, 100).of(64_MiB), 16);
  // One remote rank leaves two for every peer, or one where there are very many.
  EXPECT_EQ(message_channels({16, 16, 32, 2}, 16, true, true, 100).of(1_GiB), 2);
  EXPECT_EQ(message_channels({16, 16, 32, 2}, 128, true, true, 100).of(1_GiB), 1);
}

TEST(MessageChannels, AreBusyForTheirPiece) {
  const MessageChannels eight = message_channels({24, 24, 32, 32}, 8, false, true, 100);
  EXPECT_EQ(eight.busy(64_MiB), 16_MiB / Bandwidth{21'300'000'000});
  EXPECT_EQ(message_besides_links(eight, 64_MiB, 200_us),
            128_KiB / Bandwidth{21'300'000'000} + 16_MiB / Bandwidth{21'300'000'000} - 200_us);
  EXPECT_EQ(message_besides_links(eight, 64_MiB, 1'000_us), 128_KiB / Bandwidth{21'300'000'000});
}

// src/enqueue.cc, calcCollChunking. All-reduces among eight B200 become faster at 16 and 128 MiB and at 2 GiB (the same
// rows), and among eight H100 at 8 and 64 MiB and 1 GiB: 24 channels, and 16.
TEST(NvlsChunks, GrowWithThePayload) {
  const NvlsTime blackwell{.compute_capability = 100, .channels = 24}, hopper{};
  const auto chunk = [](const NvlsTime& way, Bytes size) { return nvls_chunks(way, size).chunk; };
  EXPECT_EQ(chunk(blackwell, 8_MiB), 16_KiB);
  EXPECT_EQ(chunk(blackwell, 16_MiB), 32_KiB);
  EXPECT_EQ(chunk(blackwell, 64_MiB), 32_KiB);
  EXPECT_EQ(chunk(blackwell, 128_MiB), 64_KiB);
  EXPECT_EQ(chunk(blackwell, 1_GiB), 64_KiB);
  EXPECT_EQ(chunk(blackwell, 2_GiB), 128_KiB);
  EXPECT_EQ(chunk(hopper, 4_MiB), 16_KiB);
  EXPECT_EQ(chunk(hopper, 8_MiB), 32_KiB);
  EXPECT_EQ(chunk(hopper, 64_MiB), 64_KiB);
  EXPECT_EQ(chunk(hopper, 1_GiB), 128_KiB);
  EXPECT_EQ(nvls_chunks(hopper, 1_GiB).loop, 16_MiB);
}

TEST(NvlsTime, GrowsWithThePayload) {
  const NvlsTime way{};
  Duration before;
  for (Bytes size = 1_KiB; size < 16_GiB; size = size * 5 / 4) {
    const Duration its = took(way, size, std::min(nvls_chunks(way, size).loop, size) / Bandwidth{300'000'000'000});
    if (nvls_chunks(way, size).chunk == nvls_chunks(way, size * 4 / 5).chunk) {
      EXPECT_GE(its, before) << size.count();
    }
    before = its;
  }
}

TEST(Protocols, TheQuickestIsTaken) {
  // Rings among eight Hopper devices: 7 steps, 360 GB/s.
  const std::vector<ProtocolTime> ways{{Protocol::Ll, 10'800_ns, 2000, Bandwidth{161'000'000'000}},
                                       {Protocol::Ll128, 27'300_ns, 1087, Bandwidth{500'000'000'000}},
                                       {Protocol::Simple, 32'200_ns}};
  const auto picks = [&](Bytes size) { return chosen(ways, size, size / Bandwidth{411'000'000'000}).protocol; };
  EXPECT_EQ(picks(1_KiB), Protocol::Ll);
  EXPECT_EQ(picks(8_MiB), Protocol::Ll128);
  EXPECT_EQ(picks(64_MiB), Protocol::Simple);
  EXPECT_EQ(took(ways.front(), 161_MiB, 1_us), 10'800_ns + 161_MiB / Bandwidth{161'000'000'000});
}

TEST(Protocols, TreesOfMiddlingSizeSag) {
  const ProtocolTime tree{.protocol = Protocol::Simple, .latency = 10_us, .sags = true};
  EXPECT_EQ(took(tree, 64_B, 90_us), 10_us + 100_us);    // 0.9
  EXPECT_EQ(took(tree, 64_KiB, 90_us), 10_us + 150_us);  // 0.6
  EXPECT_EQ(took(tree, 1_GiB, 90_us), 100_us);
}

}  // namespace
}  // namespace tidemark::tests::nccl_tuning_test
