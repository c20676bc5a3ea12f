#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/plan/space.hpp"
#include "sim/time.hpp"
#include "sim/units.hpp"

namespace tidemark {

/// What a candidate takes and gives, as `predict` says it: memory of its fullest rank, a step's time.
struct Figures {
  Bytes allocated;     ///< torch.cuda.max_memory_allocated, highest of all ranks
  Bytes device;        ///< at central values of estimates
  Bytes device_upper;  ///< at their upper ends, which `fits` is judged at
  bool completed = false;
  Duration step;
  double throughput = 0;  ///< tokens per second and device
  bool operator==(const Figures&) const = default;
};

/// A candidate whose figures are exact.
struct Found {
  std::int64_t candidate = 0;
  Figures figures;
  bool operator==(const Found&) const = default;
};

/// A candidate that does not fit, and how much its fullest device lacks, headroom included; a lower bound where bounds
/// alone rejected it.
struct Miss {
  std::int64_t candidate = 0;
  Bytes lacks;
  bool exact = false;
  double throughput = 0;  ///< of an upper bound where it is not exact
  bool operator==(const Miss&) const = default;
};

/// Whether `a` is the better answer of two that fit: throughput, then memory, then the order of the space.
[[nodiscard]] bool better(const Found& a, const Found& b);

struct PlanOptions {
  std::size_t top = 10;  ///< how many of the best are listed, and near misses
};

/// The answer of `plan`.
struct Plan {
  std::int64_t combinations = 0;
  std::map<std::string, std::int64_t> dropped;  ///< combinations that are no candidates, by reason
  std::int64_t candidates = 0;
  std::int64_t fitting = 0;
  std::vector<Found> best;   ///< that fit, best first
  std::vector<Found> front;  ///< that fit and that no other beats in memory and throughput both: by falling memory
  std::vector<Miss> near_misses;
};

/// Told what is done, of how much.
using PlanProgress = std::function<void(const std::string& what, std::int64_t done, std::int64_t all)>;

[[nodiscard]] Plan plan(const Space& space, const PlanOptions& options, const PlanProgress& progress = {});

}  // namespace tidemark
