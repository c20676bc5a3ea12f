#pragma once

#include <string>
#include <vector>

#include "parallel/known_flows/known_flows.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "sim/program/data_flow.hpp"

namespace tidemark::scenarios {

/// What the lint over data flow finds in some rank's program, and why the framework does so.
struct FlowNote {
  FlowFinding finding;  ///< of all programs together
  Rank rank;            ///< the first on which it is so
  std::string reason;   ///< empty: nobody knows
};

/// In the order of ranks and ops.
[[nodiscard]] std::vector<FlowNote> flow_check(const Workload& workload, FlowsOf framework);
[[nodiscard]] FlowsOf flows_of(const Runtime& runtime);

/// "rank 0, layers.*.mlp.norm.rstd: …", one line of one that nobody knows.
[[nodiscard]] std::string text(const FlowNote& note);

}  // namespace tidemark::scenarios
