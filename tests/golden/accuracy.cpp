#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "tests/golden/accuracy_page.hpp"
#include "tests/golden/own_figures.hpp"
#include "tests/golden/range_rows.hpp"
#include "tests/seeds.hpp"

// accuracy [ROOT]: docs/accuracy.md to standard output; of a source tree, writes docs/accuracy.md, docs/accuracy.toml,
// README's table, tests/golden/own_figures/off_by.toml and scenarios/predict/measured_rows.tsv, and tells which claims
// have changed.

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

int run(int argc, char** argv) {
  std::string page;
  std::vector<Claim> claims;
  for (const SectionWriter& writer : section_writers()) {
    Section section = writer.write();
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
    if (!its.slow || every_case())
      own[its.family][its.row] = its.now();
    else if (const auto family = before.find(its.family); family != before.end() && family->second.contains(its.row))
      own[its.family][its.row] = family->second.at(its.row);
  }
  write(own_figures_file(root), figures_text(own));
  const std::filesystem::path rows = root / "scenarios/predict/measured_rows.tsv";
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
