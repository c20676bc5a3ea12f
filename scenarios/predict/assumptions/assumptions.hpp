#pragma once

#include <string>
#include <vector>

#include "scenarios/predict/prediction.hpp"

namespace tidemark::scenarios {

/// What a prediction takes for granted: habits of frameworks, kernels, links, the allocator, and what widens its upper
/// ends, a sentence each.
[[nodiscard]] std::vector<std::string> assumptions_of(const Job& job, const std::vector<RankGroup>& groups,
                                                      const PredictOptions& options);

}  // namespace tidemark::scenarios
