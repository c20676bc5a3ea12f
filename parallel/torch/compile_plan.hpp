#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/torch/trace.hpp"
#include "sim/program/kernel.hpp"

// What torch.compile makes of a traced region: what it keeps, what runs in which pass and in which order, and where
// results lie.

namespace tidemark::parallel::torch {

struct Placement {
  enum class Where : std::uint8_t { Memory, Registers, InPlace };
  Where where = Where::Memory;
  std::size_t of = no_value;  ///< in whose place
};

/// One pass: steps of the trace in the order in which they run.
struct CompiledPass {
  struct Run {
    std::size_t step = 0;
    std::optional<FusedStep> fused;    ///< with its neighbours
    std::vector<std::size_t> dropped;  ///< values that nobody needs afterwards
  };
  std::vector<Run> runs;
  std::vector<Placement> placements;  ///< by value
};

struct CompilePlan {
  Trace trace;
  std::vector<std::size_t> saved;  ///< values that are kept, given ones among them
  CompiledPass forward, backward;
};

/// `budget`: activation_memory_budget.
[[nodiscard]] CompilePlan plan_of(Trace trace, double budget = 1);

}  // namespace tidemark::parallel::torch
