#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/namespace.hpp"

namespace tidemark::tests {

// Small, so that an answer takes no time; it fits.
inline constexpr std::string_view small_cli_job = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 2
[layout]
tensor = 2
sequence_parallel = true
sharding = "zero1"
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 8
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "megatron"
headroom = "1 GiB"
)";

struct CliRun {
  int code = -1;
  std::string out, err;
};

/// Runs the program in a folder of the test's own.
class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("tidemark_cli_" + std::string(test.name()) + "_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  [[nodiscard]] CliRun run(const std::string& arguments) const {
    const std::string out = (folder_ / "out").string(), err = (folder_ / "err").string();
    const int status = std::system(("'" TIDEMARK_BINARY "' " + arguments + " >'" + out + "' 2>'" + err + "'").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content(out), content(err)};
  }

  /// The path of the small job's file, a part of it replaced.
  [[nodiscard]] std::string scenario(const std::string& replace = "", const std::string& by = "") const {
    std::string text(small_cli_job);
    const std::size_t at = text.find(replace);
    EXPECT_NE(at, std::string::npos) << replace;
    text.replace(at, replace.size(), by);
    const std::filesystem::path path = folder_ / "scenario.toml";
    std::ofstream(path) << text;
    return path.string();
  }

  std::filesystem::path folder_;
};

}  // namespace tidemark::tests
