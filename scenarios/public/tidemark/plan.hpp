#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tidemark/scenario.hpp>

namespace tidemark {

/// Which of the scenarios in a space fits and is best? The space is a scenario with a table [space] (docs/planner.md).
struct Plan {
  struct Candidate {
    std::int64_t number = 0;              ///< in the space
    std::string scenario;                 ///< as a scenario file has it
    std::int64_t device_upper_bytes = 0;  ///< of the fullest rank, at the upper ends of estimates
    double step_s = 0, tokens_per_s_per_device = 0;
  };
  std::vector<Candidate> best;   ///< that fit, best first
  std::vector<Candidate> front;  ///< that fit, and that no other beats in memory and throughput both
  std::string text;
  std::string json;  ///< "tidemark.plan/1"
};
struct PlanOptions : Options {
  std::size_t top = 10;           ///< how many of the best
  std::vector<std::string> with;  ///< axes that are asked for by name: "allocator", "runtime", "offload"
};
/// Throws InputError, too, where no candidate is one that can run at all.
[[nodiscard]] std::optional<Plan> plan(const Scenario& space, const PlanOptions& options);

}  // namespace tidemark
