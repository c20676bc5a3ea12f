#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

// How far predictions are off, as data: docs/accuracy.toml holds what README.md and docs/accuracy.md claim.

namespace tidemark::tests::golden {

/// How far one prediction is off, as a share of what was measured; negative where it is too low.
struct Error {
  std::string row;
  double share = 0;
};

/// How far the rows of a family are off in one figure, in percent of what was measured, rounded away from zero.
struct Claim {
  std::string family, figure;
  std::int64_t rows = 0;
  std::int64_t equal = 0;  ///< of them predicted to the last digit
  double median = 0;       ///< of absolute errors
  double worst = 0;        ///< negative where the row farthest off is predicted too low
  std::string worst_row;

  bool operator==(const Claim&) const = default;
};

[[nodiscard]] Claim claim_of(std::string family, std::string figure, const std::vector<Error>& errors);

/// In percent.
[[nodiscard]] double percent(double share);

/// The text of docs/accuracy.toml, and what is read from it.
[[nodiscard]] std::string claims_text(const std::vector<Claim>& claims);
[[nodiscard]] std::vector<Claim> read_claims(const std::filesystem::path& path);

/// What docs/accuracy.toml claims; throws where it claims nothing of that figure.
[[nodiscard]] const Claim& claimed(std::string_view family, std::string_view figure);

/// The table of all claims in docs/accuracy.md, best first and worst last, without those of some of another's rows.
[[nodiscard]] std::string claims_table(std::vector<Claim> claims);
/// README's: a few lines of it. Throws where one of them is not claimed.
[[nodiscard]] std::string summary_table(const std::vector<Claim>& claims);

/// What stands before and after a table that is written into a page.
inline constexpr std::string_view table_begin = "<!-- written by scripts/accuracy -->\n",
                                  table_end = "<!-- to here -->\n";
/// The page with `table` in its place between the marks; throws where there are none.
[[nodiscard]] std::string with_table(std::string page, const std::string& table);

}  // namespace tidemark::tests::golden
