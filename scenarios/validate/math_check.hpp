#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tidemark::scenarios {

/// How far apart a tensor of a rank and that of one rank are: the largest difference between two elements, over the
/// largest element of the one rank's.
struct MathDifference {
  std::string what;  ///< "gradient of layers.3.mlp.fc1.weight", "loss"
  std::int32_t step = 0;
  std::int32_t rank = 0;
  double relative = 0;
};

/// What came of training a model with real numbers, on all ranks of a job and on one that holds it whole.
struct MathCheck {
  std::string type;                      ///< of the numbers: "float64", "fp32"
  double tolerance = 0;                  ///< relative
  std::vector<double> losses;            ///< of all ranks together, by step
  std::vector<double> reference_losses;  ///< of the one rank
  std::int64_t tensors = 0;              ///< compared, in each step on each rank
  /// At most ten: what is farther apart than is allowed, in the order in which one rank comes to it, because an error
  /// spreads from there; behind it, or where nothing is, largest first.
  std::vector<MathDifference> worst;

  std::vector<std::string> wrong;  ///< what ranks read that nobody wrote, or that was freed: the first on each rank
  std::string spoiled;             ///< what was done wrong on purpose, and where

  [[nodiscard]] bool agrees() const {
    return tensors > 0 && wrong.empty() && (worst.empty() || worst.front().relative <= tolerance);
  }
};

}  // namespace tidemark::scenarios
