#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "tests/golden/accuracy_page.hpp"
#include "tests/golden/own_figures.hpp"
#include "tests/golden/range_rows.hpp"
#include "tests/seeds.hpp"

// accuracy [ROOT [FAMILY...]]: docs/accuracy.md to standard output; of a source tree, writes docs/accuracy.md,
// docs/accuracy.toml, README's table, tests/golden/own_figures/off_by.toml and
// scenarios/predict/measured/measured_rows.tsv, and tells which claims have changed. Of families that are not named,
// where some are, everything stays as the tree has it.

namespace tidemark::tests::golden {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(fmt::format("{} could not be written", path.string()));
}

void tell_changes(const std::vector<Claim>& before, const std::vector<Claim>& now) {
  for (const Claim& claim : now) {
    const auto old = std::find_if(before.begin(), before.end(),
                                  [&](const Claim& c) { return c.family == claim.family && c.figure == claim.figure; });
    if (old == before.end() || *old == claim) continue;
    const bool worse = claim.median > old->median || std::abs(claim.worst) > std::abs(old->worst);
    fmt::print(stderr, "{}, {}: {}rows {}, median {:.4f} %, worst {:.4f} % ({}); was {}, {:.4f} %, {:.4f} %\n",
               claim.family, claim.figure, worse ? "WORSE: " : "", claim.rows, claim.median, claim.worst,
               claim.worst_row, old->rows, old->median, old->worst);
  }
}

// In the order of the file that they are written to.
std::vector<Claim> claims_in_order(const std::filesystem::path& data) {
  std::vector<Claim> claims = read_claims(data);
  const std::string text = read(data);
  const auto place = [&](const Claim& c) { return text.find(fmt::format("[{}.\"{}\"]", c.family, c.figure)); };
  std::sort(claims.begin(), claims.end(), [&](const Claim& a, const Claim& b) { return place(a) < place(b); });
  return claims;
}

// The section in place of the one that has its heading. A family's steps follow under a heading that is a section of
// its own; other sections have one like it within them.
void replace_section(std::string& page, const std::string& section) {
  constexpr std::string_view steps = "\n### Step time\n";
  const std::string heading = section.substr(0, section.find('\n') + 1);
  const std::size_t begin = page.find(heading);
  if (begin == std::string::npos) throw std::runtime_error("no section of the page begins so: " + heading);
  std::size_t behind = page.find(steps, begin + 1);
  for (std::size_t own = section.find(steps); own != std::string::npos; own = section.find(steps, own + 1))
    behind = page.find(steps, behind + 1);
  const std::size_t end = std::min(page.find("\n## ", begin), behind);
  page.replace(begin, end == std::string::npos ? end : end + 1 - begin, section);
}

int run(int argc, char** argv) {
  std::string page;
  std::vector<Claim> claims;
  const std::set<std::string> requested(argv + std::min(argc, 2), argv + argc);
  if (!requested.empty()) {
    page = read(std::filesystem::path(argv[1]) / "docs/accuracy.md");
    claims = claims_in_order(std::filesystem::path(argv[1]) / "docs/accuracy.toml");
  }
  for (const SectionWriter& writer : section_writers()) {
    if (!requested.empty() && !requested.contains(writer.name)) continue;
    Section section = writer.write();
    if (!requested.empty()) {
      replace_section(page, section.text);
      for (const Claim& claim : section.claims)
        for (Claim& old : claims)
          if (old.family == claim.family && old.figure == claim.figure) old = claim;
      continue;
    }
    page += section.text;
    if (writer.name == "head") page += fmt::format("{}{}\n", table_begin, table_end);
    claims.insert(claims.end(), section.claims.begin(), section.claims.end());
  }
  page = with_table(std::move(page), claims_table(claims));
  std::fputs(page.c_str(), stdout);
  if (argc < 2) return 0;
  const std::filesystem::path root = argv[1], data = root / "docs/accuracy.toml";
  if (std::filesystem::exists(data)) tell_changes(read_claims(data), claims);
  write(root / "docs/accuracy.md", page);
  write(data, claims_text(claims));
  std::map<std::string, FiguresOfRows> own;
  const std::map<std::string, FiguresOfRows> before = recorded_figures();
  for (const Golden& its : goldens()) {
    if ((requested.empty() || requested.contains(its.family)) && (!its.slow || every_case()))
      own[its.family][its.row] = its.now();
    else if (const auto family = before.find(its.family); family != before.end() && family->second.contains(its.row))
      own[its.family][its.row] = family->second.at(its.row);
  }
  write(own_figures_file(root), figures_text(own));
  const std::filesystem::path rows = root / "scenarios/predict/measured/measured_rows.tsv";
  const std::string measured = measured_rows_text(range_rows());
  if (read(rows) != measured) {
    fmt::print(stderr, "{} is another one: build, and run this again, since what fits depends on it\n", rows.string());
    write(rows, measured);
  }
  write(root / "README.md", with_table(read(root / "README.md"), summary_table(claims)));
  return 0;
}

}  // namespace
}  // namespace tidemark::tests::golden

int main(int argc, char** argv) {
  try {
    return tidemark::tests::golden::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 3;
  }
}
