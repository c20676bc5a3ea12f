// The program when a signal ends it.
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scenarios/formats/output_file.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::interrupts_test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// Long enough to be interrupted on any machine.
constexpr const char* long_search = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 64
[train]
sequence_length = 4096
global_batch = 512
)";

class Interrupts : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "tidemark-interrupts-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string content(const char* name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] std::vector<std::string> unfinished() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.path().extension() == ".part") found.push_back(entry.path().filename().string());
    return found;
  }

  [[nodiscard]] pid_t start(std::vector<std::string> words) const {
    const pid_t child = fork();
    if (child != 0) return child;
    const int err = open((folder_ / "err").c_str(), O_CREAT | O_WRONLY, 0600), null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO), dup2(null, STDOUT_FILENO), dup2(err, STDERR_FILENO);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(TIDEMARK_BINARY, arguments.data());
    _exit(127);
  }
  /// Whether it came before the child ended.
  template <class Condition>
  [[nodiscard]] static bool comes(const Condition& condition) {
    for (int i = 0; i < 3000; ++i, std::this_thread::sleep_for(10ms))
      if (condition()) return true;
    return false;
  }

  fs::path folder_;
};

TEST_F(Interrupts, ASearchSaysTheBestSoFarAndHowToGoOn) {
  std::ofstream(folder_ / "search.toml") << long_search;
  for (const bool remembers : {true, false}) {
    std::vector<std::string> words{"tidemark", "plan", (folder_ / "search.toml").string(), "-q"};
    const fs::path journal = folder_ / "journal";
    if (remembers) words.insert(words.end(), {"--journal", journal.string()});
    const pid_t child = start(words);
    std::error_code none;
    // Its records, or the thread that waits for signals.
    const fs::path tasks = fmt::format("/proc/{}/task", child);
    ASSERT_TRUE(comes([&] {
      if (remembers) return fs::exists(journal, none) && fs::file_size(journal, none) > 500;
      return std::distance(fs::directory_iterator(tasks, none), fs::directory_iterator()) > 1;
    }));
    std::this_thread::sleep_for(50ms);
    kill(child, SIGINT);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
    const std::string said = content("err");
    EXPECT_NE(said.find("interrupted"), std::string::npos) << said;
    EXPECT_NE(said.find(remembers ? "next: the same command goes on from what " + journal.string() + " remembers"
                                  : "next: with --journal FILE"),
              std::string::npos)
        << said;
  }
}

// A file of 20 MB, of which some has been written when the signal comes.
TEST_F(Interrupts, NothingUnfinishedIsLeft) {
  for (const int signal : std::array{SIGINT, SIGTERM, SIGHUP}) {
    const pid_t child = start(
        {"tidemark", "predict", "llama-3.1-70b-64xh100", "--snapshot", (folder_ / "snapshot.pickle").string(), "-q"});
    const bool begun = comes([&] { return !unfinished().empty() || waitpid(child, nullptr, WNOHANG) != 0; });
    ASSERT_TRUE(begun);
    if (unfinished().empty()) GTEST_SKIP() << "this machine is too quick: the file was written between two looks";
    kill(child, signal);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(unfinished().empty()) << unfinished().front();
  }
}

TEST_F(Interrupts, WhatIsWrittenCanBeRemovedAtAnyMoment) {
  write_file(folder_ / "whole", [&](std::ostream& out) { out << "all of it"; });
  EXPECT_THROW(write_file(folder_ / "half",
                          [&](std::ostream& out) {
                            out << "half" << std::flush;
                            EXPECT_EQ(unfinished().size(), 1);
                            remove_unfinished_files();
                            EXPECT_TRUE(unfinished().empty());
                          }),
               std::exception);
  EXPECT_TRUE(fs::exists(folder_ / "whole"));
  EXPECT_FALSE(fs::exists(folder_ / "half"));
}

}  // namespace
}  // namespace tidemark::tests::interrupts_test
