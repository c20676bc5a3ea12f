#include "scenarios/predict/measured/measured_rows.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "sim/base/ensure.hpp"

// The assembler takes the table as it is.
__asm__(
    ".pushsection .rodata\n"
    "tidemark_measured_rows_begin:\n.incbin \"" TIDEMARK_MEASURED_ROWS
    "\"\ntidemark_measured_rows_end:\n"
    ".global tidemark_measured_rows_begin\n.global tidemark_measured_rows_end\n"
    ".byte 0\n.popsection\n");
extern "C" const char tidemark_measured_rows_begin[];
extern "C" const char tidemark_measured_rows_end[];

namespace tidemark::scenarios {
namespace {

constexpr std::array<std::string_view, 3> figures{"allocated", "reserved", "step_time"};

std::string_view cut(std::string_view& text, char at) {
  const std::size_t end = std::min(text.find(at), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

}  // namespace

std::vector<MeasuredRow> parse_measured_rows(std::string_view text) {
  std::vector<MeasuredRow> rows;
  while (!text.empty()) {
    std::string_view line = cut(text, '\n');
    if (line.empty() || line.starts_with('#')) continue;
    MeasuredRow& its = rows.emplace_back();
    const auto* const figure = std::ranges::find(figures, cut(line, '\t'));
    ensure(figure != figures.end(), "a row of a figure that is measured");
    its.figure = static_cast<MeasuredFigure>(figure - figures.begin());
    its.runtime = cut(line, '\t');
    its.release = cut(line, '\t');
    its.device = cut(line, '\t');
    its.name = cut(line, '\t');
    ensure(std::from_chars(line.data(), line.data() + line.size(), its.off).ec == std::errc(), "a share");
  }
  return rows;
}

const std::vector<MeasuredRow>& measured_rows() {
  static const std::vector<MeasuredRow> all =
      parse_measured_rows({tidemark_measured_rows_begin,
                           static_cast<std::size_t>(tidemark_measured_rows_end - tidemark_measured_rows_begin)});
  return all;
}

}  // namespace tidemark::scenarios
