#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/golden/claims.hpp"

// docs/accuracy.md: predicted, measured and error of every golden row, as tables of Markdown.

namespace tidemark::tests::golden {

/// A part of the page, and what it claims.
struct Section {
  std::string text;
  std::vector<Claim> claims;
};

/// Predicts the rows of a section, and writes it.
struct SectionWriter {
  std::string name;
  std::function<Section()> write;
};

/// In the order of the page.
[[nodiscard]] std::vector<SectionWriter> section_writers();

}  // namespace tidemark::tests::golden
