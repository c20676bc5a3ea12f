#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scenarios/validate/arithmetic/findings.hpp"
#include "scenarios/validate/arithmetic/rank_parameters.hpp"
#include "scenarios/validate/math_check.hpp"

namespace tidemark::scenarios {

/// What ranks found, held against what one rank found that held the whole model.
class Comparison {
 public:
  /// `check` says what is allowed.
  Comparison(MathCheck check, Optimizer optimizer, std::string_view of_one_rank);

  void add(Rank rank, const RankParameters& parameters, std::string_view findings);
  [[nodiscard]] MathCheck finish() &&;

 private:
  struct Loss {
    double sum = 0;
    std::int64_t count = 0;
    std::int64_t op = 0;  ///< of the last one
    void add(const Finding& finding);
    [[nodiscard]] double mean() const { return sum / static_cast<double>(count); }
  };
  struct Difference {
    MathDifference reported;
    std::int64_t op = 0;  ///< of the one rank's program, that wrote to the tensor last
  };
  using Key = std::pair<std::int32_t, std::string>;  // step, name

  [[nodiscard]] bool comparable(const Finding& finding) const;
  void compare(Rank rank, const RankParameters& parameters, const Finding& finding);

  MathCheck check_;
  Optimizer optimizer_;
  std::map<std::int32_t, Loss> losses_, expected_losses_;  // by step
  std::map<Key, Finding> gradients_, updated_;             // of the one rank
  std::vector<Difference> differences_;
};

}  // namespace tidemark::scenarios
