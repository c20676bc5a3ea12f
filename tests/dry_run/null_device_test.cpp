// The null device by itself, without PyTorch: the library is loaded and asked as CUDA's runtime is.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace tidemark::tests::null_device_test {
namespace {

constexpr std::size_t mebi = 1 << 20, giga = 1 << 30;
constexpr int out_of_memory = 2, invalid_device = 101;

class NullDevice : public testing::Test {
 protected:
  void SetUp() override {
    // It is asked once, and tests of one process share it.
    for (const auto& [name, value] :
         {std::pair("NULL_CUDA_CAPABILITY", "90"), std::pair("NULL_CUDA_DEVICES", "2"),
          std::pair("NULL_CUDA_MEMORY", "4294967296"), std::pair("NULL_CUDA_LIMIT", "3221225472"),
          std::pair("NULL_CUDA_MULTIPROCESSORS", "132"), std::pair("NULL_CUDA_NAME", "a card")})
      setenv(name, value, 1);
    library_ = dlopen(TIDEMARK_NULL_DEVICE, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  template <class Function>
  Function* function(const char* name) {
    void* const found = dlsym(library_, name);
    EXPECT_NE(found, nullptr) << name;
    return reinterpret_cast<Function*>(found);
  }
  int set_device(int device) { return function<int(int)>("cudaSetDevice")(device); }
  int allocate(void** pointer, std::size_t bytes) {
    return function<int(void**, std::size_t)>("cudaMalloc")(pointer, bytes);
  }
  int release(void* pointer) { return function<int(void*)>("cudaFree")(pointer); }
  std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    EXPECT_EQ(function<int(std::size_t*, std::size_t*)>("cudaMemGetInfo")(&free, &total), 0);
    EXPECT_EQ(total, 4 * giga);
    return free;
  }

  void* library_ = nullptr;
};

TEST_F(NullDevice, RunsOutWhereItsCardWould) {
  ASSERT_EQ(set_device(0), 0);
  const std::size_t before = free_bytes();
  EXPECT_EQ(before, 3 * giga);
  std::vector<void*> blocks;
  void* block = nullptr;
  while (allocate(&block, 512 * mebi) == 0) blocks.push_back(block);
  EXPECT_EQ(blocks.size(), 6U);
  EXPECT_EQ(allocate(&block, 1), out_of_memory);
  ASSERT_EQ(set_device(1), 0);  // another one has its own
  EXPECT_EQ(allocate(&block, mebi), 0);
  EXPECT_EQ(release(block), 0);
  ASSERT_EQ(set_device(0), 0);
  for (void* its : blocks) EXPECT_EQ(release(its), 0);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(NullDevice, PagesOfVirtualMemoryCountToo) {
  auto* const create = function<int(unsigned long long*, std::size_t, const int*, unsigned long long)>("cuMemCreate");
  auto* const give_back = function<int(unsigned long long)>("cuMemRelease");
  const int on_device_1[] = {1, 0, 1, 1};
  unsigned long long pages = 0, more = 0;
  EXPECT_EQ(create(&pages, 3 * giga, on_device_1, 0), 0);
  EXPECT_EQ(create(&more, 2 * mebi, on_device_1, 0), out_of_memory);
  EXPECT_EQ(give_back(pages), 0);
  EXPECT_EQ(create(&more, 2 * mebi, on_device_1, 0), 0);
  EXPECT_EQ(give_back(more), 0);
}

TEST_F(NullDevice, HasItsCardsProperties) {
  int value = 0;
  auto* const attribute = function<int(int*, int, int)>("cudaDeviceGetAttribute");
  EXPECT_EQ(attribute(&value, 16, 0), 0);
  EXPECT_EQ(value, 132);
  EXPECT_EQ(attribute(&value, 75, 0), 0);
  EXPECT_EQ(value, 9);
  EXPECT_EQ(set_device(2), invalid_device);
  // Where CUDA 12 and 13 keep the number of multiprocessors.
  for (const auto& [name, bytes, place] :
       {std::tuple("cudaGetDeviceProperties_v2", 1032, 388), std::tuple("cudaGetDeviceProperties", 1008, 384)}) {
    std::vector<char> properties(static_cast<std::size_t>(bytes) + 8, '\x55');
    EXPECT_EQ((function<int(char*, int)>(name))(properties.data(), 0), 0);
    std::memcpy(&value, properties.data() + place, sizeof value);
    EXPECT_EQ(value, 132) << name;
    EXPECT_EQ(std::string(properties.data()), "a card");
    EXPECT_EQ(properties[static_cast<std::size_t>(bytes)], '\x55') << name << " writes behind its end";
  }
}

TEST_F(NullDevice, HoldsWhatTheHostCopiesToIt) {
  void* block = nullptr;
  ASSERT_EQ(set_device(0), 0);
  ASSERT_EQ(allocate(&block, 4096), 0);
  auto* const copy = function<int(void*, const void*, std::size_t, int)>("cudaMemcpy");
  std::int32_t there = 7, back = 1;
  EXPECT_EQ(copy(&back, block, sizeof back, 2), 0);
  EXPECT_EQ(back, 0);
  EXPECT_EQ(copy(block, &there, sizeof there, 1), 0);
  EXPECT_EQ(copy(&back, block, sizeof back, 2), 0);
  EXPECT_EQ(back, 7);
  struct {
    int type, device;
    void *on_device, *on_host;
    char more[64];
  } its{};
  EXPECT_EQ((function<int(void*, const void*)>("cudaPointerGetAttributes"))(&its, block), 0);
  EXPECT_EQ(its.type, 2);
  EXPECT_EQ((function<int(void*, const void*)>("cudaPointerGetAttributes"))(&its, &its), 0);
  EXPECT_EQ(its.type, 0);
  EXPECT_EQ(release(block), 0);
}

TEST_F(NullDevice, AnswersOnceWhatItIsTold) {
  void* block = nullptr;
  ASSERT_EQ(set_device(0), 0);
  ASSERT_EQ(allocate(&block, 4096), 0);
  auto* const copy = function<int(void*, const void*, std::size_t, int)>("cudaMemcpy");
  function<void(long long)>("null_cuda_answer")(42);
  std::int64_t numbers[2] = {1, 1}, number = 1;
  EXPECT_EQ(copy(numbers, block, sizeof numbers, 2), 0);  // not one number
  EXPECT_EQ(numbers[0], 0);
  EXPECT_EQ(copy(&number, block, sizeof number, 2), 0);
  EXPECT_EQ(number, 42);
  EXPECT_EQ(copy(&number, block, sizeof number, 2), 0);
  EXPECT_EQ(number, 0);
  EXPECT_EQ(release(block), 0);
}

// A file's code as compilers lay it out: a header, and pieces with a header each.
std::vector<std::uint32_t> code_for(const std::vector<std::pair<bool, std::uint32_t>>& pieces) {
  constexpr std::uint32_t words = 16, bytes = 4 * words, payload = 8;
  std::vector<std::uint32_t> code{0xba55ed50, 1 | 16 << 16,
                                  static_cast<std::uint32_t>(pieces.size()) * (bytes + payload), 0};
  for (const auto& [ptx, architecture] : pieces) {
    std::vector<std::uint32_t> piece(words + payload / 4);
    piece[0] = ptx ? 1 : 2;
    piece[1] = bytes;
    piece[2] = payload;
    piece[7] = architecture;
    code.insert(code.end(), piece.begin(), piece.end());
  }
  return code;
}

TEST_F(NullDevice, RunsTheNewestCodeThatTheCardCan) {
  auto* const add_code = function<void**(void*)>("__cudaRegisterFatBinary");
  auto* const add_kernel =
      function<void(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*)>(
          "__cudaRegisterFunction");
  auto* const ask = function<int(int*, const void*)>("cudaFuncGetAttributes");
  auto* const launch = function<int(const void*, const void*, void**)>("cudaLaunchKernelExC");
  auto* const last_error = function<int()>("cudaGetLastError");
  const std::vector<std::uint32_t> all = code_for({{false, 80}, {false, 86}, {false, 90}, {false, 100}});
  const std::vector<std::uint32_t> old = code_for({{false, 70}, {true, 70}});
  static const char kernel_of_all = 0, kernel_of_old = 0, unknown = 0;
  for (const auto& [code, kernel] : {std::pair(&all, &kernel_of_all), {&old, &kernel_of_old}}) {
    struct Wrapper {
      std::uint32_t magic, version;
      const void *code, *more;
    };
    static std::vector<std::unique_ptr<Wrapper>> kept;
    kept.push_back(std::make_unique<Wrapper>(Wrapper{0x466243b1, 1, code->data(), nullptr}));
    void** const handle = add_code(kept.back().get());
    add_kernel(handle, kernel, nullptr, "kernel", -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  }
  constexpr int no_code = 209;
  for (const auto& [card, kernel, ran] : {std::tuple("80", &kernel_of_all, 80),
                                          {"89", &kernel_of_all, 86},
                                          {"90", &kernel_of_all, 90},
                                          {"103", &kernel_of_all, 100},
                                          {"75", &kernel_of_all, 0},
                                          {"120", &kernel_of_all, 0},
                                          {"75", &kernel_of_old, 70},
                                          {"90", &kernel_of_old, 70},
                                          {"60", &kernel_of_old, 0},
                                          {"89", &unknown, 89}}) {
    setenv("NULL_CUDA_CAPABILITY", card, 1);
    int attributes[36] = {};
    EXPECT_EQ(ask(attributes, kernel), ran == 0 ? no_code : 0) << card;
    EXPECT_EQ(launch(nullptr, kernel, nullptr), ran == 0 ? no_code : 0) << card;
    EXPECT_EQ(last_error(), ran == 0 ? no_code : 0) << card;
    EXPECT_EQ(last_error(), 0) << "it is told once";
    EXPECT_EQ(attributes[8], ran) << card;  // ptxVersion, behind three sizes and two numbers
  }
}

}  // namespace
}  // namespace tidemark::tests::null_device_test
