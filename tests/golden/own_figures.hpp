#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/namespace.hpp"

// How far each golden is off, as data: tests/golden/own_figures/off_by.toml has what of which golden is not equal, with
// its sign, so that a prediction that moves in either direction is seen. scripts/accuracy writes it.

namespace tidemark::tests::golden {

/// What is predicted less what was measured: bytes, one number for each step where it is of steps, or percent with four
/// digits where no bytes were published. Figures that are equal are left out.
using OwnFigures = std::map<std::string, std::string>;

struct Golden {
  std::string family, row;
  std::function<OwnFigures()> now;  ///< predicts
  bool recorded = false;            ///< by tests/ground_truth, not published
  bool slow = false;                ///< tried where every case is
};

/// All of them, in the order of families, then rows.
[[nodiscard]] std::vector<Golden> goldens();

/// Of a family's rows.
using FiguresOfRows = std::map<std::string, OwnFigures>;
[[nodiscard]] std::string figures_text(const std::map<std::string, FiguresOfRows>& families);
/// What that file has.
[[nodiscard]] std::map<std::string, FiguresOfRows> recorded_figures();
[[nodiscard]] inline std::filesystem::path own_figures_file(const std::filesystem::path& of_sources) {
  return of_sources / "tests/golden/own_figures/off_by.toml";
}

}  // namespace tidemark::tests::golden
