// What spreadsheets and pages make of texts that users choose: names of axes, values, files.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/formats/format.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/small_job.hpp"

namespace tidemark::tests::tables_for_others_test {
namespace {

namespace fs = std::filesystem;

TEST(Csv, AFormulaIsAText) {
  EXPECT_EQ(csv_field("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
  EXPECT_EQ(csv_field("+1+2"), "'+1+2");
  EXPECT_EQ(csv_field("-a"), "'-a");
  EXPECT_EQ(csv_field("@SUM(A1)"), "'@SUM(A1)");
  EXPECT_EQ(csv_field("\t=1"), "'\t=1");
  EXPECT_EQ(csv_field("=1,2"), "\"'=1,2\"");
  for (const char* number : {"-1", "+2.5", "-1e-3"}) EXPECT_EQ(csv_field(number), number);
  for (const char* plain : {"", "a=b", "1f1b", "tp-cp-ep-dp-pp"}) EXPECT_EQ(csv_field(plain), plain);
}

TEST(Csv, LinesEndWithRecords) {
  EXPECT_EQ(csv_field("a\rb"), "\"a\rb\"");
  EXPECT_EQ(csv_field("a\nb"), "\"a\nb\"");
  EXPECT_EQ(csv_field("\r"), "\"'\r\"");
}

class Figures : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "tidemark-figures-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string content(const fs::path& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Its figures are in `figures`.
  void report(const std::string& name, const std::string& scenario) const {
    std::ofstream(folder_ / name) << scenario;
    const std::string command = fmt::format("cd '{}' && '{}' report './{}' -o page.html --figures figures > /dev/null",
                                            folder_.string(), TIDEMARK_BINARY, name);
    ASSERT_EQ(std::system(command.c_str()), 256) << "it does not fit, which is what the exit code says";
  }
  fs::path folder_;
};

// Sequences so long that it does not fit.
std::string too_large() {
  std::string text = small_job;
  const std::string at = "sequence_length = 4096";
  return text.replace(text.find(at), at.size(), "sequence_length = 262144");
}

// SVG draws in the order of its elements.
TEST_F(Figures, TheLineOfCapacityIsAboveTheAreasThatCrossIt) {
  report("job.toml", too_large());
  for (const char* name : {"figures/memory-stage-0.svg", "figures/composition.svg"}) {
    const std::string svg = content(name);
    const std::size_t line = svg.rfind("stroke=\"#b3372f\""), area = svg.rfind("fill=\"#2a8f83\"");
    ASSERT_NE(line, std::string::npos) << name;
    ASSERT_NE(area, std::string::npos) << name;
    EXPECT_GT(line, area) << name;
  }
}

}  // namespace
}  // namespace tidemark::tests::tables_for_others_test
