#pragma once

#include <string>
#include <vector>

#include "scenarios/cli/namespace.hpp"

namespace tidemark::cli {

/// A figure of a report as SVG, its numbers as CSV, a table as CSV or Markdown.
struct FigureFile {
  std::string name;
  std::string content;
};

/// The figures and tables of a report's data: made by the page's own script, in an engine that is no browser.
[[nodiscard]] std::vector<FigureFile> figure_files(const std::string& data);

/// Writes them into a folder, which is made where there is none, and each figure as PNG, too, where rsvg-convert is
/// installed. What was written, in words.
[[nodiscard]] std::string write_figures(const std::string& folder, const std::vector<FigureFile>& files);

}  // namespace tidemark::cli
