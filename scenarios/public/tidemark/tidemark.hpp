#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// Tidemark as a library: the three questions that programs ask, values in and values out. The command line says the
// same: `json` is, byte for byte, what its --json writes, and is the form that stays stable from release to release.

namespace tidemark {

/// One thing that is wrong with the input: where, what was found and why it cannot work, and what would. Lines and
/// columns count from 1; 0 where the place is not known.
struct Problem {
  std::string file;
  int line = 0, column = 0;
  std::string message, hint;
  bool operator==(const Problem&) const = default;
};

/// The input is wrong. `what()` shows every problem that was found.
class InputError : public std::runtime_error {
 public:
  InputError(const std::string& what, std::vector<Problem> problems)
      : std::runtime_error(what), problems_(std::move(problems)) {}
  [[nodiscard]] const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

/// Tidemark or its machine failed: an invariant does not hold, memory ran out. Nothing else is thrown.
class InternalError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A scenario as its file has it (TOML).
struct Scenario {
  std::string text;
  std::filesystem::path file = "scenario.toml";  ///< gives it its name; files it names are first looked for beside it
};
/// From a file.
[[nodiscard]] Scenario read_scenario(const std::filesystem::path& file);

struct Options {
  /// Where models and clusters are looked for that do not lie beside the scenario: share/tidemark of an installation.
  std::filesystem::path data_root;
  /// Told how much of the question is done, one call at a time, from any thread. False: give up.
  std::function<bool(std::int64_t done, std::int64_t all)> progress;
};

/// Does it fit, and how long does a step take?
struct Prediction {
  bool fits = false;                ///< at the upper ends of estimates, with the headroom asked for
  std::int64_t capacity_bytes = 0;  ///< of a device
  /// Of the fullest rank.
  std::int64_t allocated_bytes = 0, reserved_bytes = 0, device_bytes = 0, device_upper_bytes = 0;
  double step_s = 0, tokens_per_s_per_device = 0, mfu = 0;
  std::string text;  ///< one screen
  std::string json;  ///< "tidemark.prediction/1"
};
/// Nothing where `options.progress` gave up; so it is with all questions.
[[nodiscard]] std::optional<Prediction> predict(const Scenario& scenario, const Options& options);

/// Which of the scenarios in a space fits and is best? The space is a scenario with a table [space].
struct Plan {
  struct Candidate {
    std::int64_t number = 0;  ///< in the space
    std::string scenario;     ///< as a scenario file has it
    std::int64_t device_upper_bytes = 0;
    double step_s = 0, tokens_per_s_per_device = 0;
  };
  std::vector<Candidate> best;   ///< that fit, best first
  std::vector<Candidate> front;  ///< that fit, and that no other beats in memory and throughput both
  std::string text;
  std::string json;  ///< "tidemark.plan/1"
};
struct PlanOptions : Options {
  std::size_t top = 10;           ///< how many of the best
  std::vector<std::string> with;  ///< axes that are asked for by name: "allocator", "runtime"
};
[[nodiscard]] std::optional<Plan> plan(const Scenario& space, const PlanOptions& options);

/// Does a real run agree? `measured` is a memory snapshot of torch.cuda.memory, or the log of Megatron-LM or
/// torchtitan.
struct Comparison {
  bool agrees = false;
  std::string text;
  std::string json;  ///< "tidemark.comparison/1"; empty where the job deadlocks
};
struct CompareOptions : Options {
  std::vector<std::int32_t> ranks;     ///< of a snapshot the one that wrote it; none: rank 0, or all that a log has
  std::optional<std::int64_t> device;  ///< of a snapshot that has several
  double tolerance = 0.02;             ///< largest difference, as a share of the measurement
};
[[nodiscard]] std::optional<Comparison> compare(const Scenario& scenario, const std::filesystem::path& measured,
                                                const CompareOptions& options);

}  // namespace tidemark
