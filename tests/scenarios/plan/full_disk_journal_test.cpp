#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "scenarios/plan/journal.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/plan/tasks.hpp"
#include "scenarios/report/text/plan_text.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::full_disk_journal_test {
namespace {

namespace fs = std::filesystem;

// Programs of several classes of ranks, which are simulated in loops within the tasks of the search.
constexpr const char* small_space = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 4
[layout]
tensor = 2
sequence_parallel = true
pipeline = 2
sharding = "zero1"
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 16
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
[space]
layout.tensor = [1, 2, 4]
layout.pipeline = [1, 2]
train.micro_batch = [1, 2]
)";

/// No file of this process gets longer: writes that meet the limit fail with EFBIG, as they do with ENOSPC on a full
/// disk.
class LongestFile {
 public:
  explicit LongestFile(std::uint64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~LongestFile() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  LongestFile(const LongestFile&) = delete;
  LongestFile& operator=(const LongestFile&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

class FullDisk : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "tidemark-full-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string answer_with(const fs::path& journal) const {
    const std::unique_ptr<TaskRunner> threads = thread_runner(task_function(space_));
    const Plan found =
        plan(space_, {.top = 20}, *journal_runner(*threads, journal, question_of(space_, {.top = 20}, "this build")));
    return plan_text(space_, found) + plan_json(space_, found);
  }

  Space space_ = space_of(parse_toml(small_space, "small"), "small", folders);
  fs::path folder_;
};

// Sizes from no byte at all to the whole journal: heads, records and what lies between them are cut in many places.
TEST_F(FullDisk, LeavesAJournalThatGoesOnToTheSameAnswer) {
  const std::string fresh = answer_with(folder_ / "whole");
  const std::uint64_t whole = fs::file_size(folder_ / "whole");
  const std::uint64_t sizes = every_case() ? 48 : 6;
  for (std::uint64_t i = 0; i < sizes; ++i) {
    const std::uint64_t size = whole * i / sizes + i % 3;
    const fs::path journal = folder_ / std::to_string(size);
    try {
      const LongestFile limit(size);
      (void)answer_with(journal);
      ADD_FAILURE() << "a journal of " << whole << " B was written to " << size << " B";
    } catch (const std::system_error& error) {
      EXPECT_EQ(error.code().value(), EFBIG) << size;
      EXPECT_NE(std::string(error.what()).find(journal.string()), std::string::npos);
    }
    ASSERT_LE(fs::file_size(journal), size);
    EXPECT_EQ(answer_with(journal), fresh) << size;
  }
}

TEST_F(FullDisk, WritesNoMoreRecordsOnceOneDidNotGetIn) {
  class TellsOnThoughItFails final : public TaskRunner {
   public:
    std::vector<std::string> run(const std::vector<std::string>& tasks, const Done& done) override {
      for (std::size_t i = 0; i < tasks.size(); ++i) try {
          done(i, tasks[i]);
        } catch (const std::system_error&) {
          ++refused;
        }
      return tasks;
    }
    int refused = 0;
  } tells_on;
  const std::string large(4096, 'x');
  const fs::path path = folder_ / "journal";
  const Question question{"of which", {}, "this build"};
  const std::unique_ptr<TaskRunner> journal = journal_runner(tells_on, path, question);
  const std::uint64_t head = fs::file_size(path);
  {
    const LongestFile limit(head + 2000);
    (void)journal->run({"small", large, "one that would fit"}, {});
  }
  EXPECT_EQ(tells_on.refused, 1);
  EXPECT_EQ(fs::file_size(path), head + 2 * 8 + 2 * 5 + 8);  // sizes, "small" twice, a checksum
}

// `done` is called under a lock, so it throws before any other call of it.
TEST_F(FullDisk, AfterAnExceptionARunnerTellsNothingMore) {
  const std::unique_ptr<TaskRunner> threads = thread_runner([](const std::string& task) { return task; });
  int reported = 0;
  EXPECT_THROW((void)threads->run(std::vector<std::string>(500, "task"),
                                  [&](std::size_t, const std::string&) {
                                    ++reported;
                                    throw std::runtime_error("no");
                                  }),
               std::runtime_error);
  EXPECT_EQ(reported, 1);
}

}  // namespace
}  // namespace tidemark::tests::full_disk_journal_test
