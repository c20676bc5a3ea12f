#pragma once

#include <string>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/predict/prediction.hpp"

namespace tidemark::cli {

/// How much is told beside an answer.
struct Loudness {
  bool quiet = false;
};

/// Shows how far a long computation is, on standard error: on a terminal after the first second, else a line a minute.
[[nodiscard]] Progress progress_on_terminal(std::string what, Loudness loudness);
/// The same of a search, whose parts follow each other: how much is done, how fast, and how long what is left takes.
[[nodiscard]] PlanProgress plan_progress_on_terminal(Loudness loudness);

}  // namespace tidemark::cli
