#pragma once

#include <optional>

#include "scenarios/scenario/scenario.hpp"

// How many tokens a router sends to a rank's experts is known before training only as far as loads are stated, or where
// experts are padded to a capacity. Programs go by what is stated; the upper ends of memory, by which `fits` is judged,
// hold what tokens that choose by themselves bring beyond that.

namespace tidemark::scenarios {

/// The scenario's training with as many tokens on every rank as come beyond no more often than its quantile says: in
/// that share of steps, no rank gets more in any layer of any micro-batch, if each token chooses for itself and experts
/// are chosen as often as stated. That not all ranks get more at once makes no difference to the memory of each.
/// Nothing where routing leaves nothing open.
[[nodiscard]] std::optional<Train> worst_case(const Scenario& scenario);

}  // namespace tidemark::scenarios
