#include <fstream>

#include <gtest/gtest.h>

#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::readme_test {
namespace {

const std::filesystem::path root = TIDEMARK_SOURCE_DIR;

TEST(Readme, ShowsWhatTheFirstCommandPrints) {
  std::ifstream file(root / "README.md");
  const std::string readme{std::istreambuf_iterator<char>(file), {}};
  const Scenario scenario = read_scenario(root / "scenarios/examples/llama-3.1-70b-64xh100.toml", root / "scenarios");
  const std::string answer = brief_text(predict(scenario), "scenarios/examples/llama-3.1-70b-64xh100.toml");
  EXPECT_NE(readme.find("```\n" + answer + "```\n"), std::string::npos) << "put this into README.md:\n" << answer;
}

}  // namespace
}  // namespace tidemark::tests::readme_test
