#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "scenarios/plan/plan.hpp"
#include "scenarios/plan/space/space.hpp"

namespace tidemark::scenarios {

/// Where nobody says how wide lines may be.
inline constexpr std::size_t usual_columns = 100;

/// The answer of `plan` in so many columns: yes or no, the best by what they differ in, and what to ask next.
[[nodiscard]] std::string brief_text(const Space& space, const Plan& plan, std::size_t columns = usual_columns);
/// All of it, however wide: yes or no, the best, the front, near misses, what was dropped and why.
[[nodiscard]] std::string plan_text(const Space& space, const Plan& plan);
/// What a search that is interrupted has found so far.
[[nodiscard]] std::string interrupted_text(const Space& space, const std::vector<Found>& best, std::size_t columns);
/// The same as JSON, "tidemark.plan/1".
[[nodiscard]] std::string plan_json(const Space& space, const Plan& plan);
/// The best, the front and the near misses, one line each.
[[nodiscard]] std::string plan_csv(const Space& space, const Plan& plan);
/// The axes and their values, and how many combinations they make.
[[nodiscard]] std::string space_text(const Space& space);

}  // namespace tidemark::scenarios
