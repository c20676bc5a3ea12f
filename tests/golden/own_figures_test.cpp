#include "tests/golden/own_figures.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/seeds.hpp"

// Each golden is as far off as tests/golden/own_figures/off_by.toml says, to the byte and with its sign: what is not
// there is equal.

namespace tidemark::tests::own_figures_test {
namespace {

using namespace golden;

const std::map<std::string, FiguresOfRows>& recorded() {
  static const std::map<std::string, FiguresOfRows> all = recorded_figures();
  return all;
}

class OwnFigure : public testing::TestWithParam<Golden> {};

TEST_P(OwnFigure, IsHeld) {
  const Golden& its = GetParam();
  OwnFigures known;
  if (const auto family = recorded().find(its.family); family != recorded().end())
    if (const auto row = family->second.find(its.row); row != family->second.end()) known = row->second;
  EXPECT_EQ(its.now(), known)
      << "scripts/accuracy writes tests/golden/own_figures/off_by.toml anew; look at what has become "
         "worse before you commit it";
}

// By push, every row that was published and is not slow, and one recording in three of each family.
std::vector<Golden> tried() {
  std::vector<Golden> all = goldens(), some;
  if (every_case()) return all;
  std::map<std::string, int> of_family;
  for (Golden& its : all)
    if (!its.slow && (!its.recorded || of_family[its.family]++ % 3 == 0)) some.push_back(std::move(its));
  return some;
}

INSTANTIATE_TEST_SUITE_P(Goldens, OwnFigure, testing::ValuesIn(tried()), [](const auto& test) {
  std::string name = test.param.family + "_" + test.param.row;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

// At the peak of every step, not rounded.
TEST(OwnFigures, TensorsOfMegatronsTrainingsAreEqualInMost) {
  const auto family = recorded().find("megatron_core");
  int all = 0, equal = 0;
  for (const Golden& its : goldens()) {
    if (its.family != "megatron_core") continue;
    ++all;
    const bool has_row = family != recorded().end() && family->second.contains(its.row);
    if (!has_row || !family->second.at(its.row).contains("requested")) ++equal;
  }
  EXPECT_GE(all, 60);
  EXPECT_GE(100 * equal, 90 * all);
}

// A line of a golden that is no more would hold nothing.
TEST(OwnFigures, AreOfGoldensThatAreThere) {
  std::set<std::pair<std::string, std::string>> there;
  for (const Golden& its : goldens()) EXPECT_TRUE(there.emplace(its.family, its.row).second) << its.row;
  for (const auto& [family, rows] : recorded())
    for (const auto& [row, figures] : rows) EXPECT_TRUE(there.contains({family, row})) << family << ", " << row;
}

}  // namespace
}  // namespace tidemark::tests::own_figures_test
