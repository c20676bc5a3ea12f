#include "scenarios/plan/journal.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/plan/tasks.hpp"
#include "scenarios/report/text/plan_text.hpp"
#include "tests/namespace.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::journal_test {
namespace {

namespace fs = std::filesystem;

const fs::path source = TIDEMARK_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Answers each task with itself, and counts them.
class Echo final : public TaskRunner {
 public:
  std::vector<std::string> run(const std::vector<std::string>& tasks, const Done& done) override {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      ++requested;
      if (done) done(i, "result of " + tasks[i]);
    }
    std::vector<std::string> results;
    for (const std::string& task : tasks) results.push_back("result of " + task);
    return results;
  }
  int requested = 0;
};

class Journal : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "tidemark-journal-XXXXXX").string();
    folder_ = mkdtemp(path.data());
    journal_ = folder_ / "journal";
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// What a journal of that name says of the question: a refusal, or nothing.
  [[nodiscard]] std::string refused(const fs::path& path, const Question& question) const {
    Echo inner;
    try {
      (void)journal_runner(inner, path, question);
      return {};
    } catch (const InputError& error) {
      std::string text = error.what();
      for (auto at = text.find(folder_.string()); at != text.npos; at = text.find(folder_.string()))
        text.erase(at, folder_.string().size() + 1);
      return text;
    }
  }
  int requested_of(const std::vector<std::string>& tasks, const Question& question) const {
    Echo inner;
    const std::vector<std::string> results = journal_runner(inner, journal_, question)->run(tasks, {});
    for (std::size_t i = 0; i < tasks.size(); ++i) EXPECT_EQ(results[i], "result of " + tasks[i]);
    return inner.requested;
  }

  fs::path folder_, journal_;
};

TEST_F(Journal, AsksOnceWhateverIsCutOff) {
  const Question question{"of which", {{"a.toml", "says"}}};
  const std::vector<std::string> tasks{"one", "two", "three"};
  EXPECT_EQ(requested_of(tasks, question), 3);
  EXPECT_EQ(requested_of(tasks, question), 0);
  const auto size = fs::file_size(journal_);
  const auto record = 2 * 8 + 3 + 13 + 8;  // sizes, "two", "result of two", a checksum
  for (auto at = size; at-- > 0;) {
    fs::resize_file(journal_, at);
    const int requested = requested_of(tasks, question);
    EXPECT_EQ(fs::file_size(journal_), size);
    EXPECT_EQ(requested, size - at <= record + 4 ? 1 : size - at <= 2 * record + 4 ? 2 : 3) << at;
  }
}

TEST_F(Journal, IsARegularFile) {
  const Question question{"of which", {}};
  const fs::path pipe = folder_ / "pipe", link = folder_ / "link", folder = folder_ / "folder";
  const fs::path socket_file = folder_ / "socket";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0644), 0);
  fs::create_directory(folder);
  fs::create_symlink("/dev/null", link);
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_file.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(listener);

  const char* hint = "\n  hint: give the name of a new file, or of the journal that was begun";
  const auto expected = [&](const char* name, const char* kind) {
    return fmt::format("{}: error: is {}, and a journal is a file{}", name, kind, hint);
  };
  EXPECT_EQ(refused(folder, question), expected("folder", "a folder"));
  EXPECT_EQ(refused(pipe, question), expected("pipe", "a pipe"));
  EXPECT_EQ(refused(socket_file, question), expected("socket", "a socket"));
  EXPECT_EQ(refused(link, question), expected("link", "a device"));
  EXPECT_EQ(refused("/dev/null", question), expected("/dev/null", "a device"));
  EXPECT_EQ(refused(folder_ / "none" / "journal", question),
            "none/journal: error: cannot be written: No such file or directory\n"
            "  hint: check the folder and its permissions");
  // A link to a file is as good as it.
  fs::create_symlink(journal_, folder_ / "to_journal");
  EXPECT_EQ(refused(folder_ / "to_journal", question), "");
  EXPECT_TRUE(fs::is_regular_file(journal_));
}

TEST_F(Journal, OfAnotherQuestionIsLeftAsItIs) {
  const Question question{"of which", {{"a.toml", "A"}, {"b.toml", "B"}}};
  (void)requested_of({"one", "two"}, question);
  const std::string whole = read(journal_);
  const auto of = [&](std::string text, std::map<std::string, std::string, std::less<>> files) {
    const std::string refusal = refused(journal_, {std::move(text), std::move(files)});
    EXPECT_EQ(read(journal_), whole);
    return refusal.substr(0, refusal.find('\n'));
  };
  const std::string another = "journal: error: is the journal of another search";
  EXPECT_EQ(of("of what", question.files), another);
  EXPECT_EQ(of("of which", {{"a.toml", "A"}}), another);
  EXPECT_EQ(of("of which", {{"a.toml", "A"}, {"c.toml", "B"}}), another);
  EXPECT_EQ(of("of what", {{"a.toml", "A"}, {"b.toml", "C"}}), another);
  EXPECT_EQ(of("of which", {{"a.toml", "A"}, {"b.toml", "C"}}), "journal: error: was begun with another b.toml");
  EXPECT_EQ(of("of which", question.files), "");
  EXPECT_EQ(
      refused(journal_, {question.text, question.files, "a later build"}),
      "journal: error: is the journal of another build of Tidemark\n  hint: give another file, or remove this one");
  for (const std::string& text : {std::string("a note"), whole.substr(1), "tidemark journal 1\n" + whole.substr(19)}) {
    std::ofstream(journal_, std::ios::binary) << text;
    EXPECT_EQ(refused(journal_, question),
              fmt::format("journal: error: is {}\n  hint: give another file, or remove this one",
                          text.starts_with("tidemark") ? "the journal of another build of Tidemark" : "not a journal"));
    EXPECT_EQ(read(journal_), text);
  }
}

constexpr const char* two_clusters = R"(model = "models/llama-3.1-8b.json"
cluster = "mine.toml"
gpus = 8
[model_override]
num_hidden_layers = 4
[train]
sequence_length = 4096
micro_batch = 1
[space]
cluster = ["mine.toml", "theirs.toml"]
model = ["models/llama-3.1-8b.json", "model.json"]
)";

TEST_F(Journal, IsOfWhatEveryFileOfTheSpaceSays) {
  for (const char* name : {"mine.toml", "theirs.toml"})
    fs::copy_file(source / "scenarios/clusters/h100-sxm-80g.toml", folder_ / name);
  fs::copy_file(source / "scenarios/models/qwen2.5-7b.json", folder_ / "model.json");
  std::ofstream(folder_ / "space.toml") << two_clusters;
  const auto question = [&] {
    return question_of(read_space(folder_ / "space.toml", source / "scenarios"), {}, "1.0");
  };
  EXPECT_EQ(question().files.size(), 4);
  (void)requested_of({"one"}, question());
  EXPECT_EQ(refused(journal_, question()), "");
  for (const char* name : {"mine.toml", "theirs.toml", "model.json"}) {
    const std::string before = read(folder_ / name);
    std::ofstream(folder_ / name, std::ios::app) << "\n";
    EXPECT_TRUE(
        refused(journal_, question()).starts_with(fmt::format("journal: error: was begun with another {}", name)));
    std::ofstream(folder_ / name) << before;
    EXPECT_EQ(refused(journal_, question()), "");
  }
}

// Two tasks bound its candidates: those of one schedule first, then those of the other.
std::string two_schedules() {
  std::string sizes = "1";
  for (int size = 2; size <= 256; ++size) sizes += fmt::format(", {}", size);
  return R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 8
[layout]
tensor = 2
pipeline = 4
[train]
sequence_length = 1024
global_batch = 8
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
[space]
chunks = [{layout.schedule = "1f1b"}, {layout.schedule = "interleaved", layout.chunks = 2}]
train.micro_batch = [)" +
         sizes + "]\n";
}

/// Where a journal's records begin, the first of them behind its head.
std::vector<std::size_t> records(const std::string& journal, std::size_t head) {
  std::vector<std::size_t> places;
  for (std::size_t at = head; at < journal.size();) {
    places.push_back(at);
    std::uint64_t sizes[2];
    std::memcpy(sizes, journal.data() + at, sizeof sizes);
    at += sizeof sizes + sizes[0] + sizes[1] + sizeof(std::uint64_t);
  }
  return places;
}

class KilledSearch : public Journal, public testing::WithParamInterface<std::size_t> {};

// As if it had been killed once so many records were written, and in the middle of the next.
TEST_P(KilledSearch, EndsInTheSameBytes) {
  const Space space = space_of(parse_toml(two_schedules(), "two"), "two", {source / "scenarios", source / "scenarios"});
  const PlanOptions options{.top = 20};
  const Question question = question_of(space, options, "1.0");
  const auto answer = [&](const Space& searched, TaskRunner& runner) {
    const Plan found = plan(searched, options, runner);
    return plan_text(searched, found) + plan_json(searched, found) + plan_csv(searched, found);
  };
  const auto on_journal = [&] {
    const std::unique_ptr<TaskRunner> threads = thread_runner(task_function(space));
    return answer(space, *journal_runner(*threads, journal_, question));
  };
  Echo nobody;
  (void)journal_runner(nobody, journal_, question);
  const std::size_t head = fs::file_size(journal_);
  const std::string whole = on_journal();
  const std::vector<std::size_t> places = records(read(journal_), head);
  EXPECT_LE(places.size(), 30);
  EXPECT_GE(places.size(), 10);
  if (GetParam() >= places.size()) return;  // so many did not come
  fs::resize_file(journal_, places[GetParam()] + 5);
  EXPECT_EQ(on_journal(), whole);
}

INSTANTIATE_TEST_SUITE_P(AfterRecord, KilledSearch, testing::Range<std::size_t>(0, 30, seed_step()));

}  // namespace
}  // namespace tidemark::tests::journal_test
