#include "scenarios/report/format_page.hpp"

#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "scenarios/formats/text_file.hpp"
#include "scenarios/reader/scenario_keys.hpp"
#include "tests/convert/recipes.hpp"

namespace tidemark::tests::format_page_test {
namespace {

TEST(FormatPage, SaysWhatTheReaderOfScenariosTellsOfItself) {
  const std::filesystem::path file = std::filesystem::path(TIDEMARK_SOURCE_DIR) / "docs" / "scenario-format.md";
  const std::string page = format_page(shipped_data());
  if (std::getenv("TIDEMARK_WRITE_DOCS") != nullptr) std::ofstream(file) << page;
  EXPECT_EQ(page, read_text(file)) << "TIDEMARK_WRITE_DOCS=1 convert_test --gtest_filter='FormatPage.*' writes it";
}

TEST(FormatPage, EveryKeyHasAMeaning) {
  for (const ScenarioKey& key : scenario_keys(shipped_data())) {
    if (key.table.starts_with("runtime.switches")) continue;
    EXPECT_NE(meaning_of(key.path()), "") << key.path() << ": scenarios/reader/detail/key_meanings.inc";
  }
}

}  // namespace
}  // namespace tidemark::tests::format_page_test
