#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "parallel/runtime/runtimes.hpp"
#include "tests/namespace.hpp"

// `plan` as people start it: under mpirun, killed and started again.

namespace tidemark::tests::plan_cli_test {
namespace {

constexpr const char* small = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 4
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 32
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
[space.layout]
tensor = [1, 2, 4]
pipeline = [1, 2]
sharding = ["none", "zero1"]
[space]
recompute = [{train.recompute = "none"}, {train.recompute = "full"}]
)";

class PlanCli : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "tidemark-plan-XXXXXX").string();
    folder_ = mkdtemp(path.data());
    std::ofstream(folder_ / "small.toml") << small;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Text and JSON of a run; its exit code in `code`.
  std::string answer(const std::string& before, const std::string& after, int* code = nullptr) {
    const std::string out = (folder_ / "out").string(), json = (folder_ / "json").string();
    const bool searches = after.find("--show-space") == after.npos;  // else there is no JSON to write
    const int status = std::system(fmt::format("{} {} plan {} {} {} > {} 2> {}", before, TIDEMARK_BINARY,
                                               (folder_ / "small.toml").string(), searches ? "--json " + json : "",
                                               after, out, (folder_ / "err").string())
                                       .c_str());
    if (code != nullptr) *code = WEXITSTATUS(status);
    return read(out) + (searches ? read(json) : "");
  }
  static std::string read(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path folder_;
};

TEST_F(PlanCli, SaysTheSameWhateverTheNumberOfProcesses) {
  if (std::system("command -v mpirun > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no mpirun";
  int code = -1;
  const std::string alone = answer("", "", &code);
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(alone.starts_with("yes"));
  // What Open MPI and the libraries that it loads and unloads leave behind is not ours (tests/validate/check).
  const std::string sanitizers = fmt::format(
      "env LSAN_OPTIONS=\"suppressions='{}/tests/validate/lsan.supp':print_suppressions=0\" "
      "ASAN_OPTIONS=\"$ASAN_OPTIONS:fast_unwind_on_malloc=0\"",
      TIDEMARK_SOURCE_DIR);
  for (const int ranks : {1, 2, 4}) {
    const std::string mpirun = fmt::format("{} mpirun --allow-run-as-root --oversubscribe -np {}", sanitizers, ranks);
    EXPECT_EQ(answer(mpirun, "", &code), alone) << ranks << " ranks\n" << read(folder_ / "err");
    EXPECT_EQ(code, 0);
  }
}

TEST_F(PlanCli, ASearchKilledTenTimesEndsAsIfItHadNotBeen) {
  const std::string journal = (folder_ / "journal").string(), scenario = (folder_ / "small.toml").string();
  const std::string whole = answer("", "--journal " + journal);
  const auto size = std::filesystem::file_size(journal);
  std::filesystem::remove(journal);
  for (std::uintmax_t kill = 0; kill < 10; ++kill) {
    const pid_t child = fork();
    if (child == 0) {
      const int quiet = ::open((folder_ / "killed").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
      dup2(quiet, 1);
      dup2(quiet, 2);
      execl(TIDEMARK_BINARY, TIDEMARK_BINARY, "plan", scenario.c_str(), "--journal", journal.c_str(), nullptr);
      _exit(127);
    }
    // Once a tenth more is written, however long that takes.
    const auto written = [&] {
      std::error_code none;
      const auto bytes = std::filesystem::file_size(journal, none);
      return none ? 0 : bytes;
    };
    int status = 0;
    bool ended = false;
    while (!ended && written() < size * kill / 10) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ended = waitpid(child, &status, WNOHANG) != 0;
    }
    if (ended) continue;
    ::kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  EXPECT_EQ(answer("", "--journal " + journal), whole);
  // Once more, from the journal alone.
  EXPECT_EQ(answer("", "--journal " + journal), whole);
}

TEST_F(PlanCli, AJournalCutOffAnywhereIsReadUpToThere) {
  const std::string journal = (folder_ / "journal").string();
  const std::string whole = answer("", "--journal " + journal);
  const auto size = std::filesystem::file_size(journal);
  for (const auto at : {std::uintmax_t{0}, std::uintmax_t{5}, size / 3, size / 2, size - 1}) {
    std::filesystem::resize_file(journal, at);
    EXPECT_EQ(answer("", "--journal " + journal), whole) << at;
  }
}

TEST_F(PlanCli, AJournalAnswersOneQuestion) {
  const std::string journal = (folder_ / "journal").string();
  (void)answer("", "--journal " + journal);
  int code = 0;
  (void)answer("", "--top 3 --journal " + journal, &code);
  EXPECT_EQ(code, 2);
  EXPECT_NE(read(folder_ / "err").find("is the journal of another search"), std::string::npos);
}

TEST_F(PlanCli, AJournalOfASmallerSpaceIsOfAnotherQuestion) {
  const std::string journal = (folder_ / "journal").string();
  (void)answer("", "--journal " + journal);
  int code = 0;
  (void)answer("", "--with allocator --journal " + journal, &code);
  EXPECT_EQ(code, 2);
  EXPECT_NE(read(folder_ / "err").find("is the journal of another search"), std::string::npos);
}

TEST_F(PlanCli, AnAxisAskedForByNameIsInEveryAnswer) {
  const std::string best = (folder_ / "best").string();
  int code = -1;
  const std::string found = answer("", "--with allocator --top 40 --write-scenarios " + best, &code);
  EXPECT_EQ(code, 0) << read(folder_ / "err");
  EXPECT_NE(found.find("\"runtime.allocator\": \"expandable_segments:True\""), std::string::npos);
  int with = 0, without = 0;
  for (const auto& entry : std::filesystem::directory_iterator(best))
    ++(read(entry.path()).find("allocator = \"expandable_segments:True\"") != std::string::npos ? with : without);
  EXPECT_GT(with, 0);
  EXPECT_GT(without, 0);
}

TEST_F(PlanCli, HeadroomThatTheFileDoesNotAskForIsAskedOnTheCommandLine) {
  const std::string best = (folder_ / "best").string();
  int code = -1;
  const std::string found = answer("", "--headroom '3 GiB' --top 1 --write-scenarios " + best, &code);
  EXPECT_EQ(code, 0) << read(folder_ / "err");
  EXPECT_NE(found.find("  3.00 GiB must stay free on every device"), std::string::npos) << found;
  for (const auto& entry : std::filesystem::directory_iterator(best))
    EXPECT_NE(read(entry.path()).find("headroom = \"3 GiB\""), std::string::npos);
}

TEST_F(PlanCli, ShowSpaceSaysWhatElseCanBeSearched) {
  int code = -1;
  const std::string space = answer("", "--show-space", &code);
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(space.starts_with("24 combinations of\n"));
  std::vector<std::string_view> names;
  for (const RuntimeKind& kind : runtimes()) names.push_back(kind.name);
  const std::string all = fmt::format("{}", fmt::join(names, ", "));
  const std::string offload =
      "--with offload (none, half of the optimizer, optimizer, activations of 2 layers, activations of 3 layers)\n";
  EXPECT_TRUE(
      space.ends_with("can be searched too: --with allocator (default, expandable_segments:True), --with runtime (" +
                      all + "), " + offload))
      << space;
  EXPECT_EQ(answer("", "--show-space --with runtime --with allocator", &code),
            fmt::format("{} combinations of\n", 24 * 2 * names.size()) +
                "  runtime.allocator         default, expandable_segments:True\n"
                "  runtime                   " +
                all + "\n" + space.substr(space.find("\n  ") + 1, space.find("can be") - space.find("\n  ") - 1) +
                "can be searched too: --with offload (none, half of the optimizer, optimizer, activations of 2 layers, "
                "activations of 3 layers, activations, activations, pinned, parameters, parameters, pageable, "
                "optimizer, pageable), --with reshard (default, within nodes, always, never), --with prefetch "
                "(default, two layers ahead, backward_post, none, no bucket)\n");
  (void)answer("", "--with alocator", &code);
  EXPECT_EQ(code, 2);
  EXPECT_NE(read(folder_ / "err").find("hint: allocator, runtime or offload would do"), std::string::npos);
}

// A scenario file without [space]: the default axes, and what is asked for.
TEST_F(PlanCli, TheDefaultSpaceTakesFurtherAxes) {
  std::string base = small;
  base.erase(base.find("[space.layout]"));
  std::ofstream(folder_ / "small.toml") << base;
  const auto combinations = [&](const std::string& flags) { return std::stoul(answer("", "--show-space " + flags)); };
  const std::size_t all = combinations("");
  EXPECT_GT(all, 1000);
  EXPECT_EQ(combinations("--with allocator"), 2 * all);
  // All runtimes, and four stages of sharding instead of two.
  EXPECT_EQ(combinations("--with runtime --with allocator --with allocator"), 2 * runtimes().size() * 2 * all);
}

// … and whatever the file's runtime, what that has.
TEST_F(PlanCli, EachRuntimeHasADefaultSpace) {
  for (const RuntimeKind& kind : runtimes()) {
    std::ofstream(folder_ / "small.toml")
        << "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 16\n"
           "[model_override]\nnum_hidden_layers = 2\n[train]\nsequence_length = 1024\nglobal_batch = 32\n"
           "cross_entropy = \"unfused\"\n[runtime]\nname = \""
        << kind.name << "\"\n";
    int code = -1;
    const std::string answered = answer("", kind.eager() ? "" : "--show-space", &code);
    EXPECT_EQ(code, 0) << kind.name << '\n' << answered;
    EXPECT_EQ(answered.find("yes: the best of ") != std::string::npos, kind.eager()) << kind.name;
  }
}

TEST_F(PlanCli, ScenarioFilesOfTheBestAreWhatPredictTakes) {
  const std::string best = (folder_ / "best").string();
  (void)answer("", "--top 2 --write-scenarios " + best);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(best)) {
    ++files;
    const std::string out = (folder_ / "predicted").string();
    EXPECT_EQ(
        std::system(
            fmt::format("{} predict {} --json {} > /dev/null", TIDEMARK_BINARY, entry.path().string(), out).c_str()),
        0);
    // "#…: 1234 tokens/s per device", as planned.
    const std::string first = read(entry.path());
    const std::string planned = first.substr(first.find(": ") + 2, first.find(" tokens") - first.find(": ") - 2);
    const std::string predicted = read(out);
    const double tokens =
        std::strtod(predicted.c_str() + predicted.find("\"tokens_per_s_per_device\": ") + 27, nullptr);
    EXPECT_EQ(planned, fmt::format("{:.0f}", tokens));
  }
  EXPECT_EQ(files, 2);
}

}  // namespace
}  // namespace tidemark::tests::plan_cli_test
