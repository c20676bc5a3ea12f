// PyTorch's own allocator of pinned memory under random requests, while copies are under way (recorded by
// tests/ground_truth/host_allocator.py, which says what the lines mean): the same blocks, and as much held.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "sim/memory/caching_host_allocator.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::golden::host_allocator_test {
namespace {

using namespace literals;

struct Setting {
  std::string name;
  HostAllocatorOptions options;
};

class HostAllocatorRecorded : public testing::TestWithParam<Setting> {};

TEST_P(HostAllocatorRecorded, GivesTheSameBlocks) {
  const std::filesystem::path folder = std::filesystem::path(TIDEMARK_SOURCE_DIR) / "tests/golden/host_allocator";
  std::ifstream file(folder / (GetParam().name + ".txt"));
  ASSERT_TRUE(file.is_open());
  CachingHostAllocator allocator(GetParam().options);
  std::map<std::int64_t, BlockId> of_tensor;
  std::map<BlockId, std::int64_t> number;  // of blocks that there are, by when they were made
  std::int64_t made = 0, requests = 0;
  for (std::string line; std::getline(file, line);) {
    SCOPED_TRACE(line);
    std::istringstream words(line);
    char what{};
    std::int64_t id = 0, held = -1;
    words >> what;
    switch (what) {
      case '=':
        allocator = CachingHostAllocator(GetParam().options);
        of_tensor.clear(), number.clear();
        made = 0;
        continue;
      case 'a': {
        std::int64_t bytes = 0, block = 0, size = 0;
        words >> id >> bytes >> block >> size >> held;
        allocator.process_events();
        const Bytes before = allocator.held();
        const BlockId got = allocator.malloc(Bytes{bytes});
        if (allocator.held() > before) number[got] = ++made;
        of_tensor[id] = got;
        ASSERT_EQ(number.at(got), block);
        ASSERT_EQ(allocator.size(got), Bytes{size});
        ++requests;
        break;
      }
      case 'u': {
        std::int32_t stream = 0;
        words >> id >> stream;
        allocator.record_event(of_tensor.at(id), StreamId{stream});
        continue;
      }
      case 'd': {
        std::int32_t stream = 0;
        words >> stream;
        allocator.events().finish(StreamId{stream});
        continue;
      }
      case 'f':
        words >> id >> held;
        allocator.free(of_tensor.at(id));
        break;
      case 'e':
        words >> held;
        (void)allocator.empty_cache();
        break;
      default:
        FAIL() << "no such line";
    }
    ASSERT_EQ(allocator.held(), Bytes{held});
  }
  EXPECT_EQ(requests, 900);
}

INSTANTIATE_TEST_SUITE_P(Recordings, HostAllocatorRecorded,
                         testing::Values(Setting{"default", {}}, Setting{"rounded_to_1_mib", {.max_rounded = 1_MiB}},
                                         Setting{"cached_to_4_mib", {.max_cached = 4_MiB}}),
                         [](const testing::TestParamInfo<Setting>& row) { return row.param.name; });

}  // namespace
}  // namespace tidemark::tests::golden::host_allocator_test
