#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/golden/accuracy_page.hpp"
#include "tests/golden/golden_rows.hpp"
#include "tests/golden/range_rows.hpp"
#include "tests/seeds.hpp"

// What the docs claim is what is predicted now: docs/accuracy.md section by section, docs/accuracy.toml claim by claim.

namespace tidemark::tests::golden::accuracy_test {
namespace {

const std::filesystem::path root = TIDEMARK_SOURCE_DIR;
constexpr const char* remedy = "scripts/accuracy writes it anew; look at what has become worse before you commit it";

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string first_missing_line(const std::string& text, const std::string& page) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    const std::string line = text.substr(at, end - at);
    if (page.find(line) == std::string::npos) return line;
    at = end;
  }
  return "lines in another order";
}

class AccuracyPage : public testing::TestWithParam<SectionWriter> {};

TEST_P(AccuracyPage, SaysWhatIsPredictedNow) {
  const Section section = GetParam().write();
  const std::string page = text_of(root / "docs/accuracy.md");
  EXPECT_NE(page.find(section.text), std::string::npos) << first_missing_line(section.text, page) << remedy;
  for (const Claim& claim : section.claims)
    EXPECT_EQ(claims_text({claimed(claim.family, claim.figure)}), claims_text({claim})) << remedy;
}

// By push, but for rows whose own figures say the same and which take long, and for what is counted over all rows.
std::vector<SectionWriter> tried() {
  std::vector<SectionWriter> all = section_writers();
  if (!every_case())
    std::erase_if(all, [](const SectionWriter& its) { return its.name == "fms_a100" || its.name == "ranges"; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sections, AccuracyPage, testing::ValuesIn(tried()),
                         [](const auto& writer) { return writer.param.name; });

TEST(AccuracyTable, OfReadmeShowsAFewClaims) {
  const std::string readme = text_of(root / "README.md");
  EXPECT_EQ(readme, with_table(readme, summary_table(read_claims(root / "docs/accuracy.toml")))) << remedy;
  EXPECT_THROW((void)summary_table({}), std::runtime_error);
}

TEST(AccuracyTable, OfThePageShowsEveryClaimWorstLast) {
  const std::string page = text_of(root / "docs/accuracy.md");
  EXPECT_EQ(page, with_table(page, claims_table(read_claims(root / "docs/accuracy.toml")))) << remedy;
  const std::string table = claims_table({{"fms_full", "peak", 2, 1, 0.003, -11.8, "far"},
                                          {"megatron_ci", "peak", 3, 0, 0.04, 0.5, "near"},
                                          {"megatron_ci", "peak, fully specified", 1, 0, 0.03, 0.03, "part"},
                                          {"simumax_b200", "peak", 3, 0, 0.00005, 0.0001, "exact"}});
  EXPECT_EQ(
      table,
      "| measured | figure | rows | median | worst |\n|---|---|---|---|---|\n"
      "| Megatron-LM, Llama-3 and DeepSeek slices on 8 B200 (SimuMax) | peak | 3 | below 0.0001 % | below 0.0001 % |\n"
      "| Megatron-LM's CI: small GPT-3, last rank, A100, H100, GB200 | peak | 3 | 0.04 % | 0.5 % |\n"
      "| fine-tuning on one to four A100 (fms-acceleration) | peak | 2 | 0.003 % | -11.8 % |\n");
}

TEST(Claims, AreRoundedAwayFromZeroAndNameTheRowFarthestOff) {
  EXPECT_EQ(claim_of("f", "g", {{"low", -0.00012341}, {"high", 0.00002}, {"equal", 0}}),
            (Claim{"f", "g", 3, 1, 0.0020, -0.0124, "low"}));
}

// What ranges are made of: every row that was measured, and no other. How far each is off its own figures say.
TEST(MeasuredRows, AreAllThatWereMeasured) {
  std::vector<std::string> names;
  for (const MeasuredRow& row : measured_rows()) names.emplace_back(row.name);
  std::ranges::sort(names);
  EXPECT_EQ(names, names_of_range_rows()) << remedy;
}

TEST(MeasuredRows, AreOffAsMuchAsIsPredictedNow) {
  for (const ReservedFamily& family : reserved_families()) {
    if (family.name != "fine_tuning_tables" && !every_case()) continue;
    for (const ReservedRow& row : family.rows) {
      if (!row.excluded.empty()) continue;
      const auto its = std::ranges::find(measured_rows(), row.name, &MeasuredRow::name);
      ASSERT_NE(its, measured_rows().end()) << row.name;
      EXPECT_NEAR(its->off, row.reserved / predicted_reserved(family, row).gib - 1, 1e-6) << row.name << remedy;
    }
  }
  if (!every_case()) return;
  EXPECT_EQ(measured_rows_text(range_rows()), text_of(root / "scenarios/predict/measured/measured_rows.tsv")) << remedy;
}

// The collected measurements lie beside the repository.
TEST(LastRankGolden, FiguresAreThoseThatWerePublished) {
  const std::filesystem::path path = root / "../shared/data/measured.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs shared/data/measured.json beside the repository";
  std::map<std::string, nlohmann::json> published;
  for (const nlohmann::json& row : nlohmann::json::parse(text_of(path)))
    published[row.at("id").get<std::string>()] = row.at("measured");
  const auto bytes = [](const nlohmann::json& measured, const char* exact,
                        const char* rounded) -> std::optional<Bytes> {
    if (measured.contains(exact)) return Bytes{measured.at(exact).get<std::int64_t>()};
    if (!measured.contains(rounded) || measured.at(rounded).is_null()) return std::nullopt;
    return Bytes{std::llround(measured.at(rounded).get<double>() * (1 << 30))};
  };
  for (const LastRankFamily& family : last_rank_families())
    for (const LastRankRow& row : family.rows) {
      if (!row.excluded.empty()) continue;
      const auto found = published.find(published.contains(row.name) ? row.name : "mglm_ci_" + row.name);
      ASSERT_NE(found, published.end()) << row.name;
      EXPECT_EQ(row.static_bytes, bytes(found->second, "static_bytes", "static_alloc_gib")) << row.name;
      EXPECT_EQ(row.peak_bytes,
                bytes(found->second, found->second.contains("max_bytes") ? "max_bytes" : "peak_bytes", "max_alloc_gib"))
          << row.name;
      EXPECT_EQ(row.first_step_peak_bytes, bytes(found->second, "max_bytes_first_step", "none")) << row.name;
    }
}

// Every row that was collected is scored, or excluded by name.
TEST(ReservedGolden, FiguresAreThoseThatWerePublished) {
  const std::filesystem::path path = root / "../shared/data/measured.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs shared/data/measured.json beside the repository";
  const nlohmann::json collected = nlohmann::json::parse(text_of(path));
  for (const ReservedFamily& family : reserved_families()) {
    std::size_t found = 0;
    std::set<std::string> names;  // a family here may be several small ones there
    for (const nlohmann::json& measured : collected)
      if (std::ranges::find(family.rows, measured.at("id").get<std::string>(), &ReservedRow::name) != family.rows.end())
        names.insert(measured.at("family").get<std::string>());
    for (const nlohmann::json& measured : collected) {
      if (!names.contains(measured.at("family").get<std::string>())) continue;
      ++found;
      const auto row = std::ranges::find(family.rows, measured.at("id").get<std::string>(), &ReservedRow::name);
      ASSERT_NE(row, family.rows.end()) << measured.at("id");
      if (row->excluded.empty()) {
        EXPECT_EQ(row->reserved,
                  measured.at("measured").at(family.allocated ? "max_alloc_gib" : "max_reserved_gib").get<double>())
            << row->name;
      }
      EXPECT_EQ(row->source, measured.at("source").get<std::string>()) << row->name;
    }
    EXPECT_EQ(found, family.rows.size()) << family.name;
  }
}

}  // namespace
}  // namespace tidemark::tests::golden::accuracy_test
