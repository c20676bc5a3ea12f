#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <tidemark/problem.hpp>

// What is asked about: docs/scenario-format.md says what a scenario file holds.

namespace tidemark {

/// A scenario as its file has it (TOML).
struct Scenario {
  std::string text;
  std::filesystem::path file = "scenario.toml";  ///< gives it its name; files it names are first looked for beside it
};
/// From a file. Throws InputError where it cannot be read; what it says is judged once a question is asked.
[[nodiscard]] Scenario read_scenario(const std::filesystem::path& file);

/// What all questions take.
struct Options {
  /// Where models and clusters are looked for that do not lie beside the scenario: share/tidemark of an installation.
  std::filesystem::path data_root;
  /// Hears how much of the question is done, one call at a time, from any thread. False: give up, and the
  /// answer is none.
  std::function<bool(std::int64_t done, std::int64_t all)> progress;
};

}  // namespace tidemark
