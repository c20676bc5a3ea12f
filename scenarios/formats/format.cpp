#include "scenarios/formats/format.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

namespace tidemark::scenarios {

std::string mib(Bytes bytes) { return fmt::format("{:.2f} MiB", static_cast<double>(bytes.count()) / (1 << 20)); }
std::string gib(Bytes bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes.count()) / (1 << 30)); }

std::string without_layer(const Label& label) {
  return label.layer < 0 ? label.text : fmt::format("layers.*{}", label.within_layer());
}

namespace {

// A spreadsheet computes what begins with one of these (https://owasp.org/www-community/attacks/CSV_Injection).
bool is_formula(const std::string& text) {
  if (text.empty() || std::string_view("=+-@\t\r").find(text.front()) == std::string_view::npos) return false;
  char* end = nullptr;
  static_cast<void>(std::strtod(text.c_str(), &end));
  return end != text.c_str() + text.size();  // a number, negative perhaps, is none
}

}  // namespace

std::string csv_field(const std::string& text) {
  const std::string cell = is_formula(text) ? "'" + text : text;
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string out = "\"";
  for (const char c : cell) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

std::string rank_list(const std::vector<Rank>& ranks) {
  std::string out;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i;
    while (end + 1 < ranks.size() && ranks[end + 1].value == ranks[end].value + 1) ++end;
    out += fmt::format("{}{}", out.empty() ? "" : ", ", ranks[i].value);
    if (end > i) out += fmt::format("-{}", ranks[end].value);
    i = end + 1;
  }
  return out;
}

std::string where(const Moment& moment, const std::string& op) {
  const Mark& mark = moment.mark;
  std::string out = mark.step == 0 ? "construction" : fmt::format("step {}, {}", mark.step, name(mark.phase));
  if (mark.micro_batch >= 0) out += fmt::format(" of micro-batch {}", mark.micro_batch);
  return out + ", " + op;
}

std::string table(const std::vector<std::vector<std::string>>& rows, LastColumn last) {
  std::vector<std::size_t> width;
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c == width.size()) width.push_back(0);
      width[c] = std::max(width[c], row[c].size());
    }
  std::string out;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t c = 0; c < row.size(); ++c)
      line += c == 0                                               ? fmt::format(" {:<{}}", row[c], width[c])
              : last == LastColumn::Words && c + 1 == width.size() ? "  " + row[c]
                                                                   : fmt::format("  {:>{}}", row[c], width[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

namespace {

// Letters, not bytes, of UTF-8.
std::size_t letters(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

std::vector<std::string> wrapped(const std::string& text, std::size_t columns, std::size_t later) {
  std::vector<std::string> lines{""};
  for (std::size_t start = 0; start < text.size();) {
    // A word with the spaces before it: an indent stays, and so do columns of a table.
    const std::size_t word = std::min(text.find_first_not_of(' ', start), text.size());
    const std::size_t end = std::min(text.find(' ', word), text.size());
    const std::size_t room = lines.size() == 1 ? columns : columns - std::min(columns, later);
    const bool begins = lines.back().find_first_not_of(' ') == std::string::npos;
    const std::string piece = text.substr(start, end - start);
    if (begins || letters(lines.back() + piece) <= room)
      lines.back() += piece;
    else
      lines.push_back(text.substr(word, end - word));
    start = end;
  }
  return lines;
}

std::string folded(const std::string& text, std::size_t columns) {
  if (columns == 0) return text;
  std::string out;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    std::string line = text.substr(start, end - start);
    std::size_t indent = std::min(line.find_first_not_of(' '), line.size()) + 4;
    // What goes on below a wide column would stand where there is no room.
    if (const std::size_t most = columns / 2; indent > most && line.size() > columns) {
      line.erase(0, indent - most);
      indent = most;
    }
    for (std::size_t n = 0; const std::string& part : wrapped(line, columns, indent))
      out += n++ == 0 ? part : '\n' + std::string(indent, ' ') + part;
    if (end < text.size()) out += '\n';
    start = end + 1;
  }
  return out;
}

}  // namespace tidemark::scenarios
