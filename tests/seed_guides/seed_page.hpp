#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/seed_guides/lab.hpp"

// docs/seed-guides.md: every formula, table, technique and worked example of the two guides that the project grew from,
// beside what is simulated.

namespace tidemark::tests::seeds {

struct Row {
  std::string says;                         ///< the guide, in a few words, with its number
  std::function<std::string(Lab&)> number;  ///< the simulated one
  std::string verdict;                      ///< agrees, or why not
};

struct Section {
  std::string title;  ///< of the guide
  std::vector<Row> rows;
};

[[nodiscard]] std::vector<Section> training_guide();
[[nodiscard]] std::vector<Section> training_techniques();  ///< of it
[[nodiscard]] std::vector<Section> training_advice();      ///< of it
[[nodiscard]] std::vector<Section> estimation_guide();

/// The whole page.
[[nodiscard]] std::string seed_page();

}  // namespace tidemark::tests::seeds
