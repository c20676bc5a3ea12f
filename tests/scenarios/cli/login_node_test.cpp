// The program where many cores meet a limit of address space: login nodes of clusters.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::login_node_test {
namespace {

namespace fs = std::filesystem;

// What tells a process how many cores there are.
constexpr const char* many_cores = R"(#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>
long sysconf(int name) {
  static long (*real)(int);
  if (!real) real = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
  return name == _SC_NPROCESSORS_CONF || name == _SC_NPROCESSORS_ONLN ? 64 : real(name);
}
int sched_getaffinity(pid_t p, size_t size, cpu_set_t* set) {
  (void)p;
  memset(set, 0, size);
  for (int i = 0; i < 64; ++i) CPU_SET_S(i, size, set);
  return 0;
}
)";

class LoginNode : public testing::Test {
 protected:
  void SetUp() override {
#ifdef TIDEMARK_SANITIZED
    GTEST_SKIP() << "sanitizers reserve terabytes of addresses";
#endif
    std::string path = (fs::temp_directory_path() / "tidemark-login-XXXXXX").string();
    folder_ = mkdtemp(path.data());
    std::ofstream(folder_ / "cores.c") << many_cores;
    if (std::system(
            fmt::format("cc -shared -fPIC {0}/cores.c -o {0}/cores.so -ldl 2>/dev/null", folder_.string()).c_str()) !=
        0)
      GTEST_SKIP() << "no C compiler is called cc here";
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  /// The exit code; what it said is in `said_`.
  int run(int limit_kib, const std::string& arguments) {
    const std::string out = (folder_ / "out").string();
    const int status = std::system(fmt::format("(ulimit -v {}; LD_PRELOAD={}/cores.so exec timeout 60 {} {}) >{} 2>&1",
                                               limit_kib, folder_.string(), TIDEMARK_BINARY, arguments, out)
                                       .c_str());
    std::ifstream file(out);
    said_.assign(std::istreambuf_iterator<char>(file), {});
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  fs::path folder_;
  std::string said_;
};

TEST_F(LoginNode, AnswersWithinALimitOfAddresses) {
  EXPECT_EQ(run(8'000'000, "--version"), 0) << said_;
  EXPECT_EQ(run(1'000'000, "--version"), 0) << said_;
  for (const int limit : {8'000'000, 4'000'000})
    EXPECT_EQ(run(limit, "predict llama-3.1-8b-8xh100"), 0) << limit << said_;
}

TEST_F(LoginNode, ASearchDoesToo) {
  EXPECT_EQ(run(8'000'000, "plan --model gpt2 --cluster a100-sxm-40g --gpus 1 --sequence 1024 --global-batch 4"), 0)
      << said_;
}

// With less than it takes there is a message, and no signal: 2 where what the job takes was counted before it was
// taken.
TEST_F(LoginNode, TooLittleIsAMessage) {
  const int code = run(110'000, "predict llama-3.1-70b-64xh100 -q");
  EXPECT_TRUE(code == 0 || code == 2 || code == 3) << code << said_;
  EXPECT_EQ(said_.find("terminate"), std::string::npos) << said_;
}

TEST_F(LoginNode, NothingLoadsWhatComputes) {
  EXPECT_EQ(std::system(fmt::format("LD_TRACE_LOADED_OBJECTS=1 {} | grep -q openblas", TIDEMARK_BINARY).c_str()) >> 8,
            1);
}

}  // namespace
}  // namespace tidemark::tests::login_node_test
