// What people get wrong, as data: tests/bad_inputs/cases/*.toml. Each case is a command line in a folder with copies of
// tests/bad_inputs/files, one of them changed, and what has to be said. Whatever a case is about: the exit code is as
// it says, nothing crashes or waits for ever, a mistake is said with its place and a hint, in words of ours, and no
// file but those the case names is touched.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::bad_inputs_test {
namespace {

namespace fs = std::filesystem;

constexpr int left_out = 77;
const fs::path data = fs::path(TIDEMARK_SOURCE_DIR) / "tests" / "bad_inputs";

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

/// What a table says of a key, or what those around it say.
class Said {
 public:
  Said(const TomlTable& outer, const TomlTable& inner) : outer_(outer), inner_(inner) {}

  template <class T>
  [[nodiscard]] const T* find(std::string_view key) const {
    for (const TomlTable* table : {&inner_, &outer_})
      for (const TomlKey& its : table->keys)
        if (its.name == key) return &std::get<T>(its.value.value);
    return nullptr;
  }
  [[nodiscard]] std::string text(std::string_view key, std::string otherwise = {}) const {
    const auto* found = find<std::string>(key);
    return found == nullptr ? otherwise : *found;
  }
  [[nodiscard]] std::vector<std::string> texts(std::string_view key) const {
    std::vector<std::string> all;
    if (const auto* found = find<std::vector<TomlValue>>(key))
      for (const TomlValue& value : *found) all.push_back(std::get<std::string>(value.value));
    return all;
  }

 private:
  const TomlTable& outer_;
  const TomlTable& inner_;
};

struct Ran {
  int code = -1;
  std::string out, err;
};

class BadInputs : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "tidemark-bad-XXXXXX").string();
    top_ = mkdtemp(path.data());
    folder_ = top_ / "case";
    fs::create_directory(folder_);
    for (const auto& file : fs::directory_iterator(data / "files"))
      files_[file.path().filename().string()] = content(file);
    for (const auto& [name, text] : files_) write(folder_ / name, text);
  }
  void TearDown() override { fs::remove_all(top_); }

  /// By a shell that stands in the folder; $T is the program.
  Ran run(const std::string& line) const {
    const std::string out = (top_ / "out").string(), err = (top_ / "err").string();
    // Nothing here takes a second; on a machine that is a hundred times as busy it does not hang either.
    // Leaks are not looked for: what Open MPI leaves when a run ends before it began is in no library any more that a
    // suppression could name.
    const std::string shell = fmt::format(
        "cd '{}' && export ASAN_OPTIONS=\"${{ASAN_OPTIONS-}}:detect_leaks=0\" && "
        "T='timeout 100 {}' && {{ {} ; }} > '{}' 2> '{}'",
        folder_.string(), TIDEMARK_BINARY, line, out, err);
    const int status = std::system(shell.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, content(out), content(err)};
  }

  void judge(const std::string& what, const Ran& ran, const Said& said) const {
    const auto* code = said.find<std::int64_t>("code");
    const std::int64_t expected = code == nullptr ? 2 : *code;
    EXPECT_EQ(ran.code, expected) << what << '\n' << ran.out.substr(0, 300) << ran.err;
    if (ran.code != expected) return;
    for (const char* word : {"std::", "what():", "basic_", "vector::", "stoi", "stod", "terminate called", "bad_alloc",
                             "Assertion", "[json.exception", "must hold"})
      EXPECT_EQ(ran.err.find(word), std::string::npos) << what << '\n' << ran.err;
    for (const std::string& words : said.texts("says"))
      EXPECT_NE(ran.err.find(words), std::string::npos) << what << "\nsays: " << words << '\n' << ran.err;
    if (ran.code != 2) return;
    EXPECT_EQ(ran.out, "") << what;
    // Each problem is a line with its place, and perhaps a hint below it.
    static const std::regex problem("[^\n]+: error: [^\n]+(\n  hint: [^\n]+)?");
    std::istringstream lines(ran.err);
    std::string block, line;
    const auto judge_block = [&] {
      if (block.empty()) return;
      EXPECT_TRUE(std::regex_match(block, problem)) << what << '\n' << block;
    };
    while (std::getline(lines, line)) {
      if (line.starts_with("  ")) {
        block += '\n' + line;
        continue;
      }
      judge_block();
      block = line;
    }
    judge_block();
    const std::string at = said.text("at");
    if (!at.empty()) {
      EXPECT_TRUE(ran.err.starts_with(at + ": error: ")) << what << "\nat: " << at << '\n' << ran.err;
    }
    const std::string hint = said.text("hint");
    if (hint == "none") return;
    const std::size_t its = ran.err.find("\n  hint: ");
    EXPECT_NE(its, std::string::npos) << what << ": no hint\n" << ran.err;
    if (its == std::string::npos) return;
    EXPECT_NE(ran.err.find(hint, its), std::string::npos) << what << "\nhint: " << hint << '\n' << ran.err;
  }

  /// Everything is as it was but for `changed`; restores those.
  void expect_untouched(const std::string& what, const std::map<std::string, std::string>& changed,
                        const std::vector<std::string>& made) {
    std::map<std::string, std::string> found;
    std::error_code none;
    for (const auto& file : fs::recursive_directory_iterator(folder_)) {
      const std::string name = file.path().lexically_relative(folder_).string();
      if (std::find(made.begin(), made.end(), name) != made.end()) continue;
      found[name] = file.is_regular_file(none) ? content(file.path()) : "no file";
    }
    std::map<std::string, std::string> expected = files_;
    for (const auto& [name, text] : changed) expected[name] = text;
    EXPECT_EQ(found.size(), expected.size()) << what;
    for (const auto& [name, text] : expected)
      EXPECT_TRUE(found.contains(name) && found[name] == text) << what << ": " << name;
    for (const auto& [name, text] : changed) {
      if (files_.contains(name))
        write(folder_ / name, files_[name]);
      else
        fs::remove_all(folder_ / name);
    }
    for (const std::string& name : made) fs::remove_all(folder_ / name);
  }

  void play(const std::string& name, const TomlTable& file, const TomlTable& its) {
    const Said said(file, its);
    const std::string in = said.text("in");
    std::map<std::string, std::string> changed;
    const auto* whole = said.find<std::string>("text");
    const std::vector<std::string> swap = said.texts("swap");
    if (whole != nullptr) changed[in] = *whole;
    if (!swap.empty()) {
      changed[in] = files_[in];
      for (std::size_t s = 0; s + 1 < swap.size(); s += 2) {
        const std::size_t at = changed[in].find(swap[s]);
        ASSERT_NE(at, std::string::npos) << name << ": " << in << " has no " << swap[s];
        changed[in].replace(at, swap[s].size(), swap[s + 1]);
      }
    }
    for (const auto& [changed_name, text] : changed) write(folder_ / changed_name, text);
    const std::string line = said.text("run");
    if (line.find("mpirun") != std::string::npos && !mpi_) return;
    const std::string what = fmt::format("{}: {}{}", name, line, swap.empty() ? "" : "\n  " + swap[1]);
    const Ran ran = run(line);
    if (ran.code == left_out)
      std::printf("left out, this machine does not give what it needs: %s\n", line.c_str());
    else
      judge(what, ran, said);
    expect_untouched(what, changed, said.texts("makes"));
    ++played_;
  }

  fs::path top_, folder_;
  std::map<std::string, std::string> files_;
  bool mpi_ = std::system("command -v mpirun > /dev/null 2>&1") == 0;
  int played_ = 0;
};

class BadInputCases : public BadInputs, public testing::WithParamInterface<std::string> {};

TEST_P(BadInputCases, AreRefusedWithPlaceAndHintAndTouchNothing) {
  const fs::path path = data / "cases" / (GetParam() + ".toml");
  const TomlTable file = parse_toml(read_text(path), path.string());
  const auto cases =
      std::find_if(file.keys.begin(), file.keys.end(), [](const TomlKey& key) { return key.name == "cases"; });
  ASSERT_NE(cases, file.keys.end());
  for (const TomlValue& one : std::get<std::vector<TomlValue>>(cases->value.value)) {
    play(fmt::format("{}:{}", path.filename().string(), one.place.line), file, std::get<TomlTable>(one.value));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(played_, 0);
  if (!mpi_) std::puts("there is no mpirun: cases that start it were left out");
}

std::vector<std::string> case_files() {
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(data / "cases")) names.push_back(file.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, BadInputCases, testing::ValuesIn(case_files()),
                         [](const auto& parameter) { return parameter.param; });

// Every key of every table, with values of every other kind.
struct Kind {
  std::string_view name;
  std::vector<std::string_view> wrong;
};
const std::vector<Kind> kinds{
    {"whole",
     {"-1", "1.5", "nan", "\"8\"", "\"\"", "true", "[]", "{}", "1979-05-27", "99999999999", "-9223372036854775808"}},
    {"flag", {"1", "0.0", "\"true\"", "\"yes\"", "[true]", "{}", "1979-05-27"}},
    {"part", {"-0.1", "1.5", "nan", "inf", "-inf", "\"0.1\"", "true", "[0.1]", "{}", "0.00000001"}},
    {"word", {"1", "0.5", "nan", "true", "\"banana\"", "\"\"", "[\"none\"]", "{}", "1979-05-27", "\"\\u0000\""}},
    {"text", {"1", "0.5", "true", "[\"none\"]", "{}", "1979-05-27"}},
    {"size",
     {"80", "1.5", "\"80\"", "\"80 GB/s\"", "\"-1 GiB\"", "\"nan GiB\"", "\"1e30 GiB\"", "\"99999999999 GiB\"", "true",
      "[\"1 GiB\"]", "{}"}},
    {"rate", {"80", "\"80\"", "\"80 GiB\"", "\"-1 GB/s\"", "\"0 GB/s\"", "\"99999999 TB/s\"", "true", "[]", "{}"}},
    {"speed",
     {"80", "\"80\"", "\"80 GiB\"", "\"-1 TFLOP/s\"", "\"0 TFLOP/s\"", "\"99999999 PFLOP/s\"", "false", "[]", "{}"}},
    {"time", {"5", "\"5\"", "\"5 GiB\"", "\"-1 us\"", "\"99 s\"", "\"1e3 us\"", "true", "[]", "{}"}},
    {"power",
     {"700", "\"700\"", "\"700 GB\"", "\"-1 W\"", "\"0 W\"", "\"0.5 W\"", "\"99999999 kW\"", "true", "[]", "{}"}},
    {"table", {"1", "0.5", "true", "\"x\"", "[]", "1979-05-27"}},
};

TEST_F(BadInputs, EveryKeyRefusesValuesOfOtherKinds) {
  const fs::path path = data / "kinds.toml";
  const TomlTable keys = parse_toml(read_text(path), path.string());
  const TomlTable none;
  for (const TomlKey& file : keys.keys)
    for (const TomlKey& its : std::get<TomlTable>(file.value.value).keys) {
      const std::string& kind = std::get<std::string>(its.value.value);
      const auto wrong = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.name == kind; });
      ASSERT_NE(wrong, kinds.end()) << kind;
      // "train.steps": the line of that table that gives it.
      const std::size_t dot = its.name.rfind('.');
      const std::string key = dot == std::string::npos ? its.name : its.name.substr(dot + 1);
      const std::string table = dot == std::string::npos ? "" : "[" + its.name.substr(0, dot) + "]\n";
      const std::string name = file.name + ".toml", text = files_[name];
      const std::size_t begin = text.find(table), line = text.find("\n" + key + " = ", begin) + 1;
      ASSERT_TRUE(begin != std::string::npos && line != 0) << name << ": " << its.name;
      const std::size_t value = line + key.size() + 3, end = text.find('\n', line);
      const auto number = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(line), '\n') + 1;
      const std::string at = fmt::format("{}:{}:{}", name, number, key.size() + 4);
      for (const std::string_view bad : wrong->wrong) {
        std::string changed = text;
        changed.replace(value, end - value, bad);
        write(folder_ / name, changed);
        const TomlTable expected{{{"at", {}, {at, {}}}}};
        judge(fmt::format("{}: {} = {}", name, its.name, bad), run("$T predict scenario.toml"), Said(none, expected));
        if (HasFatalFailure()) return;
      }
      write(folder_ / name, text);
    }
}

}  // namespace
}  // namespace tidemark::tests::bad_inputs_test
