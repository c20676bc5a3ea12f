#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/cli/namespace.hpp"

namespace tidemark::cli {

/// A figure of a report as SVG, its numbers as CSV, a table as CSV or Markdown.
struct FigureFile {
  std::string name;
  std::string content;
};

/// What they are for: a page of any width, or a paper's column and page, with tables for LaTeX.
enum class FiguresFor : std::uint8_t { Pages, Papers };

/// The figures and tables of a report's data: made by the page's own script, in an engine that is no browser.
[[nodiscard]] std::vector<FigureFile> figure_files(const std::string& data, FiguresFor what);

/// Writes them into a folder, which is made where there is none, and each figure as PNG, too, where rsvg-convert is
/// installed. What was written, in words.
[[nodiscard]] std::string write_figures(const std::string& folder, const std::vector<FigureFile>& files);

/// The same of a paper's: each figure as PDF, too, where rsvg-convert is installed, and BibTeX in tidemark.bib.
[[nodiscard]] std::string write_paper(const std::string& folder, const std::vector<FigureFile>& files);

/// How Tidemark is cited, as BibTeX: what CITATION.cff says.
[[nodiscard]] std::string citation();

}  // namespace tidemark::cli
