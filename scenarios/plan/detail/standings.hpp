#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "scenarios/plan/evaluate.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/plan/space/space.hpp"

namespace tidemark::scenarios {

/// What has been found of a search so far: the best, at most as many as are listed, and the front.
class Standings {
 public:
  /// `options.found` hears of the best whenever they have changed.
  Standings(const Space& space, const PlanOptions& options) : space_(space), options_(options) {}

  void clear();
  void keep(const Found& found);
  /// Changes what is known of each; what it gives false for is no answer any more.
  void correct(const std::function<bool(Found&)>& change);

  [[nodiscard]] const std::vector<Found>& best() const { return best_; }
  [[nodiscard]] const std::vector<Found>& front() const { return front_; }
  /// What others have to beat. Until as many are found as are listed, each is of interest.
  [[nodiscard]] Bar bar() const;
  /// The front, and so many of the best.
  [[nodiscard]] std::vector<Found> recommended(std::size_t best) const;

 private:
  [[nodiscard]] bool are_twins(const Found& a, const Found& b) const;
  void keep_best(const Found& found);

  const Space& space_;
  const PlanOptions& options_;
  std::vector<Found> best_, front_;
};

}  // namespace tidemark::scenarios
