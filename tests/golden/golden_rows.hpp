#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/predict/prediction.hpp"
#include "tests/golden/claims.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::golden {

inline double mib(Bytes bytes) { return static_cast<double>(bytes.count()) / (1 << 20); }

/// What was measured for one scenario; lists have one entry per pipeline stage, in MiB.
struct Row {
  std::string name;
  std::filesystem::path scenario;
  std::string source;
  bool independent = true;  ///< false: repeats another row's memory
  std::vector<double> allocated_max;
  std::vector<double> reserved_median, reserved_min, reserved_max;
  double step_ms = 0;

  /// Its layers have no experts.
  [[nodiscard]] bool dense() const { return name.find("deepseek") == std::string::npos; }
};

/// What was measured on the last rank of one scenario.
struct LastRankRow {
  std::string name;
  std::string source;
  std::string excluded;  ///< the feature that keeps it out of the scores; then the rest is empty
  std::filesystem::path scenario;
  bool fully_specified = false;
  bool only_one_step = false;                  ///< the run ended after it
  Bytes static_bytes;                          ///< allocated after the last step
  std::optional<Bytes> peak_bytes;             ///< highest allocated of the whole run, where that was published
  std::optional<Bytes> first_step_peak_bytes;  ///< … up to the end of the first step, where that was measured
};

/// Such rows that share their assumptions.
struct LastRankFamily {
  std::string name;
  std::string precision;  ///< to which the figures were published
  std::string remarks;    ///< on what the predictions are off by
  std::vector<LastRankRow> rows;
};

/// Every family under tests/golden/last_rank, rows by name.
[[nodiscard]] std::vector<LastRankFamily> last_rank_families();

/// A figure that may be of allocated or of reserved memory, of the fullest rank.
struct BandRow {
  std::string name;
  std::string source;
  std::filesystem::path scenario;
  double reported = 0;  ///< GiB, or GB where the source does not say
};
struct BandFamily {
  std::string name;
  std::vector<BandRow> rows;
};
struct Band {
  double allocated = 0, reserved = 0;  ///< GiB, of the rank with the highest of each
  Bytes lacks;
};

/// Every family under tests/golden/bands, rows by name.
[[nodiscard]] std::vector<BandFamily> band_families();
[[nodiscard]] Band predicted(const BandRow& row);
/// From what was reported to the nearer end of the band, as a share of the former; 0 within.
[[nodiscard]] double gap_of(const BandRow& row, const Band& band);

/// What an allocator has reserved at its peak, as it is told, and where frees that other streams delay, batches that
/// outlive their step and routing may take it. In GiB.
struct ReservedRange {
  double central = 0, high = 0;
};

/// What a run's allocator had reserved at most, in GiB, or had given out.
struct ReservedRow {
  std::string name;
  std::string source;
  std::string excluded;  ///< the feature that keeps it out of the scores; then the rest is empty
  std::filesystem::path scenario;
  double reserved = 0;
};
struct ReservedFamily {
  std::string name;
  bool allocated = false;  ///< its figures are of allocated bytes
  std::string remarks;     ///< on what the predictions are off by
  std::vector<ReservedRow> rows;
};

/// Every family under tests/golden/reserved, rows by name.
[[nodiscard]] std::vector<ReservedFamily> reserved_families();
struct ReservedFigure {
  double gib = 0;
  ReservedRange range;
  Bytes lacks;
};
/// Of the first rank, which is the one that logs.
[[nodiscard]] ReservedFigure predicted_reserved(const ReservedFamily& family, const ReservedRow& row);
[[nodiscard]] std::string figure_of(const ReservedFamily& family);

/// How long a step takes, and the range that is told with it.
struct PredictedStep {
  double s = 0, low_s = 0, high_s = 0;
  [[nodiscard]] bool holds(double measured_s) const { return low_s <= measured_s && measured_s <= high_s; }
};

/// A run of which only that is known whether it had enough memory.
struct RanRow {
  std::string name;
  std::string source;
  std::string excluded;  ///< the feature that keeps it out; then the rest is empty
  std::filesystem::path scenario;
  bool ran = false;
  bool slow = false;  ///< to predict: more than some seconds
};
/// Those of tests/golden/ran/facts.toml, by name.
[[nodiscard]] std::vector<RanRow> ran_rows();
/// Those of tests/golden/ran/reports.toml, which people reported (docs/reported-runs.md).
[[nodiscard]] std::vector<RanRow> reported_rows();
/// The verdict: "fits", "does_not_fit" or "cannot_say".
[[nodiscard]] std::string stated(const RanRow& row);

/// A family of rows that share their assumptions.
struct Family {
  std::string name;
  std::vector<Row> rows;
};

/// Every family under tests/golden, rows by name.
[[nodiscard]] std::vector<Family> families();

/// A step's time of a run, as told or as the tokens that it told of come to.
struct StepRow {
  std::string name;
  std::filesystem::path scenario;
  std::string source;
  double step_s = 0;
};
struct StepFamily {
  std::string name;
  std::vector<StepRow> rows;
};
/// Every family under tests/golden/steps, rows by name.
[[nodiscard]] std::vector<StepFamily> step_families();
[[nodiscard]] PredictedStep predicted(const StepRow& row);

/// Predicted figures of one stage, in MiB: the maxima and the median over its ranks.
struct StageFigures {
  double allocated_max = 0;
  double reserved_median = 0, reserved_min = 0, reserved_max = 0;
  double least_cached = 0;  ///< reserved less allocated, each at its peak, where that is least
  ReservedRange range;      ///< of the rank that reserves most
};

struct Figures {
  std::vector<StageFigures> stages;
  PredictedStep step;
  Bytes lacks;
};
[[nodiscard]] Figures predicted(const Row& row);

/// How far reserved is off at the stages of independent rows, as shares of the median of their ranks; and what the best
/// constant factor on measured allocated would give for each stage, chosen on all the others (the median of their
/// ratios).
struct ReservedScore {
  std::vector<Error> predicted;
  std::vector<double> by_factor;
};
[[nodiscard]] ReservedScore reserved_score(const std::vector<Family>& families);

/// What a last rank's counters are predicted to show.
struct LastRankFigures {
  Bytes static_bytes, peak_bytes, first_step_peak_bytes, lacks;
  PredictedStep step;
};
[[nodiscard]] LastRankFigures predicted(const LastRankRow& row);

/// How far predictions are off, as shares of what was measured.
struct Errors {
  double median = 0, worst = 0;
  double within_0_6_percent = 0;  ///< share of the rows
};
[[nodiscard]] Errors errors(std::vector<double> of_rows);

}  // namespace tidemark::tests::golden
