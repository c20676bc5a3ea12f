#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/namespace.hpp"

// The verb in a folder of its own: with any Python, and with one that has a CUDA build of PyTorch.

namespace tidemark::tests {

struct DrySaid {
  int code = -1;
  std::string out, err;
};

class DryRunCli : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("tidemark_dry_run_") + testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
               std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  [[nodiscard]] DrySaid run(const std::string& arguments) const {
    const std::string out = (folder_ / "out").string(), err = (folder_ / "err").string();
    const int status = std::system(("cd '" + folder_.string() + "' && '" TIDEMARK_BINARY "' dry-run " + arguments +
                                    " >'" + out + "' 2>'" + err + "'")
                                       .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content(out), content(err)};
  }
  void script(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

  std::filesystem::path folder_;
};

class DryRunWithPython : public DryRunCli {
 protected:
  void SetUp() override {
    DryRunCli::SetUp();
    if (std::system("python3 -c pass") != 0) GTEST_SKIP() << "there is no python3";
  }
};

class DryRunWithTorch : public DryRunCli {
 protected:
  void SetUp() override {
    DryRunCli::SetUp();
    const char* const python = std::getenv("TIDEMARK_TORCH_PYTHON");
    if (python == nullptr) GTEST_SKIP() << "TIDEMARK_TORCH_PYTHON names no Python that has a CUDA build of PyTorch";
    python_ = "'" + std::string(python) + "'";
    std::filesystem::copy_file(TIDEMARK_SOURCE_DIR "/tests/dry_run/train.py", folder_ / "train.py");
  }
  std::string python_;
};

}  // namespace tidemark::tests
