#include <cstdlib>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "kernels/execute/content.hpp"
#include "kernels/execute/detail/cuda_memory.hpp"
#include "kernels/execute/detail/cuda_virtual_memory.hpp"
#include "kernels/execute/detail/payload_kernels.hpp"
#include "kernels/execute/page_scale.hpp"
#include "sim/memory/caching_allocator.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::cuda_test {
namespace {

using namespace literals;

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    if (code != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU here: " << cudaGetErrorString(code);
  }
};

TEST_F(CudaTest, SegmentsTakeWhatTheDriverSays) {
  CudaSegments segments;
  check_cuda(cudaFree(nullptr), "cudaFree");
  const Bytes before = device_bytes_used();
  const std::optional<Address> address = segments.allocate(20_MiB, {0});
  ASSERT_TRUE(address);
  EXPECT_EQ(device_bytes_used() - before, 20_MiB);
  EXPECT_EQ(segments.take_highest() - before, 20_MiB);
  segments.release(*address, 20_MiB);
  EXPECT_EQ(device_bytes_used(), before);
}

TEST_F(CudaTest, MoreThanTheDeviceHasIsAnAnswer) {
  CudaSegments segments;
  EXPECT_FALSE(segments.allocate(Bytes{std::int64_t{1} << 50}, {0}));
  EXPECT_TRUE(segments.allocate(2_MiB, {0}));
}

// Pages come and go as the simulation's, and hold what is written to them wherever they are.
TEST_F(CudaTest, ExpandableSegmentsAreThoseOfTheSimulation) {
  const AllocatorOptions options{.expandable_segments = true, .device_memory = 8_GiB};
  CachingAllocator<CudaVirtualSegments> real{CudaVirtualSegments{}, options};
  CachingAllocator<InventedAddresses> simulated{{}, options};
  std::vector<std::pair<BlockId, BlockId>> blocks;
  std::uint64_t random = 1;
  const Bytes before = device_bytes_used();
  for (int round = 0; round < 400; ++round) {
    random = random * 6364136223846793005 + 1442695040888963407;
    if (blocks.size() > 20 || (random >> 60) < 6) {
      if (blocks.empty()) continue;
      std::swap(blocks[(random >> 20) % blocks.size()], blocks.back());
      real.free(blocks.back().first);
      simulated.free(blocks.back().second);
      blocks.pop_back();
    } else {
      const Bytes size{1 + static_cast<std::int64_t>((random >> 20) % (30 << 20))};
      blocks.emplace_back(std::get<BlockId>(real.malloc(size, {0})), std::get<BlockId>(simulated.malloc(size, {0})));
      check_cuda(cudaMemset(real.source().at(real.address(blocks.back().first)), round & 255,
                            static_cast<std::size_t>(size.count())),
                 "cudaMemset");
    }
    if (round % 97 == 0) {
      real.empty_cache();
      simulated.empty_cache();
    }
    ASSERT_EQ(real.allocated(), simulated.allocated());
    ASSERT_EQ(real.reserved(), simulated.reserved());
    ASSERT_EQ(device_bytes_used() - before, real.reserved());
  }
}

TEST_F(CudaTest, BlocksAreThoseOfTheSimulation) {
  CudaMemory real(64);
  CachingAllocator<InventedAddresses> simulated;
  std::vector<std::optional<BlockId>> blocks(64);
  std::uint64_t random = 1;
  for (int round = 0; round < 2000; ++round) {
    random = random * 6364136223846793005 + 1442695040888963407;
    const BufferId buffer{static_cast<std::int32_t>(random >> 58)};
    std::optional<BlockId>& block = blocks[buffer.index()];
    if (block) {
      real.free(buffer);
      simulated.free(*block);
      block.reset();
    } else {
      const Bytes size{1 + static_cast<std::int64_t>((random >> 20) % (4 << 20))};
      real.allocate(buffer, size, {0}, MemorySpace::Device);
      block = std::get<BlockId>(simulated.malloc(size, {0}));
    }
    ASSERT_EQ(real.allocated(), simulated.allocated());
    ASSERT_EQ(real.reserved(), simulated.reserved());
  }
}

TEST_F(CudaTest, AWrongWordIsFoundAndNamed) {
  constexpr std::int64_t words = 100'000;
  std::uint64_t* memory = nullptr;
  DeviceFindings* findings = nullptr;
  check_cuda(cudaMalloc(reinterpret_cast<void**>(&memory), words * sizeof(std::uint64_t)), "cudaMalloc");
  check_cuda(cudaMalloc(reinterpret_cast<void**>(&findings), sizeof(DeviceFindings)), "cudaMalloc");
  check_cuda(cudaMemset(findings, 0, sizeof(DeviceFindings)), "cudaMemset");
  const ContentRun run = stamped(42, words).front();
  fill_words(memory, words, run.base, run.slope, nullptr);
  check_words(memory, run, 1, findings, nullptr);
  const std::uint64_t wrong = 7;
  const std::int64_t at = 3 * PageScale::words_per_page;
  check_cuda(cudaMemcpy(memory + at, &wrong, sizeof wrong, cudaMemcpyHostToDevice), "cudaMemcpy");
  check_words(memory, run, 2, findings, nullptr);
  DeviceFindings found;
  check_cuda(cudaMemcpy(&found, findings, sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
  ASSERT_EQ(found.count, 1u);
  EXPECT_EQ(found.first[0].reading, 2u);
  EXPECT_EQ(found.first[0].word, at);
  EXPECT_EQ(found.first[0].found, wrong);
  EXPECT_EQ(found.first[0].expected, run.at(at));
  cudaFree(findings);
  cudaFree(memory);
}

// A whole job: ranks are forked, NCCL moves bytes, the driver measures.
class GpuJob : public testing::TestWithParam<const char*> {};

TEST_P(GpuJob, AgreesWithItsPrediction) {
  // In another process: this one must not hold a context while ranks measure theirs.
  const std::string scenario = std::string(TIDEMARK_SOURCE_DIR) + "/tests/gpu/scenarios/" + GetParam() + ".toml";
  const std::string job = testing::TempDir() + "tidemark-" + GetParam() + ".job";
  ASSERT_EQ(std::system((std::string(TIDEMARK_BINARY) + " validate " + scenario + " --write-job " + job).c_str()), 0);
  int devices = 0;  // asking how many makes no context
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU here: " << cudaGetErrorString(code);
  EXPECT_EQ(std::system((std::string(TIDEMARK_GPU_BINARY) + " --time-limit 1200 " + job).c_str()), 0);
}

INSTANTIATE_TEST_SUITE_P(Jobs, GpuJob, testing::Values("one", "tp2", "pp2", "tp2_dp2"),
                         [](const auto& job) { return std::string(job.param); });

// A model that is trained on GPUs, and by one rank on the host.
class GpuTraining : public testing::TestWithParam<const char*> {};

TEST_P(GpuTraining, IsThatOfOneRankOnTheHost) {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU here: " << cudaGetErrorString(code);
  const std::string source = TIDEMARK_SOURCE_DIR;
  EXPECT_EQ(std::system((std::string(TIDEMARK_GPU_MATH_BINARY) + " " + source + "/tests/gpu/math/" + GetParam() +
                         ".toml --data " + source + "/scenarios")
                            .c_str()),
            0);
}

INSTANTIATE_TEST_SUITE_P(Jobs, GpuTraining, testing::Values("math_one", "math_tp2_pp2"),
                         [](const auto& job) { return std::string(job.param); });

}  // namespace
}  // namespace tidemark::tests::cuda_test
