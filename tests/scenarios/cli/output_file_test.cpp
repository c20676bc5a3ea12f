#include "scenarios/formats/output_file.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scenarios/formats/input_error.hpp"
#include "tests/namespace.hpp"

// More of it, as people meet it, is in tests/bad_inputs/cases/outputs.toml.

namespace tidemark::tests::output_file_test {
namespace {

namespace fs = std::filesystem;

class OutputFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "tidemark-output-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }
  static std::string refused(const std::vector<Output>& outputs, const std::vector<fs::path>& inputs = {}) {
    try {
      check_outputs(outputs, inputs);
      return "";
    } catch (const InputError& error) {
      return error.problems().front().message;
    }
  }

  fs::path folder_;
};

TEST_F(OutputFile, AppearsWholeOrNotAtAll) {
  const fs::path path = folder_ / "o";
  std::ofstream(path) << "old";
  EXPECT_THROW(write_file(path,
                          [](std::ostream& out) {
                            out << std::string(1 << 20, 'x');
                            throw std::runtime_error("no more");
                          }),
               std::runtime_error);
  EXPECT_EQ(content(path), "old");
  EXPECT_EQ(files(), 1);
  const std::string large(3 << 20, 'y');
  write_file(path, [&](std::ostream& out) { out << large << 'z'; });
  EXPECT_EQ(content(path), large + 'z');
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFile, KeepsItsMode) {
  const fs::path path = folder_ / "o";
  std::ofstream(path) << "old";
  fs::permissions(path, fs::perms{0604});
  write_file(path, [](std::ostream& out) { out << "new"; });
  EXPECT_EQ(fs::status(path).permissions(), fs::perms{0604});
  EXPECT_EQ(content(path), "new");
}

TEST_F(OutputFile, IsWrittenWhereLinksLead) {
  fs::create_directory(folder_ / "there");
  fs::create_symlink("there/o", folder_ / "inner");
  fs::create_symlink(folder_ / "inner", folder_ / "link");
  for (const char* text : {"first", "second"}) {
    write_file(folder_ / "link", [&](std::ostream& out) { out << text; });
    EXPECT_EQ(content(folder_ / "there" / "o"), text);
    EXPECT_TRUE(fs::is_symlink(folder_ / "link") && fs::is_symlink(folder_ / "inner"));
  }
}

TEST_F(OutputFile, CheckingLeavesNothing) {
  EXPECT_EQ(refused({{"--json", (folder_ / "o").string()}, {"--csv", (folder_ / "p").string()}}), "");
  check_output_folder({"--write-scenarios", (folder_ / "a" / "b").string()});
  EXPECT_EQ(files(), 0);
  EXPECT_EQ(refused({{"--json", "-"}, {"--csv", ""}}), "");
}

TEST_F(OutputFile, OneFileByTwoNamesIsOneFile) {
  const fs::path path = folder_ / "o";
  const std::string same = folder_.string() + "/./o";
  EXPECT_EQ(refused({{"--json", path.string()}, {"--csv", same}}), "--json and --csv name one file");
  std::ofstream(path) << "old";
  fs::create_hard_link(path, folder_ / "hard");
  fs::create_symlink("hard", folder_ / "soft");
  EXPECT_EQ(refused({{"--json", path.string()}, {"--csv", (folder_ / "soft").string()}}),
            "--json and --csv name one file");
  EXPECT_EQ(refused({{"--json", (folder_ / "soft").string()}}, {path}),
            "--json would overwrite " + path.string() + ", which is read");
  EXPECT_EQ(content(path), "old");
}

TEST_F(OutputFile, WhatCannotBeWrittenIsSaidBefore) {
  EXPECT_EQ(refused({{"--json", (folder_ / "no" / "o").string()}}),
            "cannot be written: there is no folder " + (folder_ / "no").string());
  EXPECT_EQ(refused({{"--json", folder_.string()}}), "cannot be written: it is a folder");
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THROW(check_output_folder({"--write-scenarios", (folder_ / "file" / "d").string()}), InputError);
}

}  // namespace
}  // namespace tidemark::tests::output_file_test
