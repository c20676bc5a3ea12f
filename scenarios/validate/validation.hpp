#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "kernels/execute/agreement.hpp"
#include "kernels/execute/mutation/mutation.hpp"
#include "kernels/execute/world/world.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "scenarios/validate/flow_check.hpp"
#include "scenarios/validate/math_check.hpp"
#include "scenarios/validate/math_times.hpp"
#include "sim/base/time.hpp"

// A scenario run for real on the ranks of a world, and laid beside its prediction.

namespace tidemark::scenarios {

struct ValidateOptions {
  PageScale scale;
  Mutation mutation = Mutation::None;  ///< something wrong on purpose
  Progress progress = {};              ///< of this rank's ops
};

/// The answer of `validate`.
struct Validation {
  Scenario scenario;
  ValidateOptions options;
  std::vector<RankAgreement> ranks;
  bool oversubscribed = false;  ///< more ranks than cores: times mean little
  std::vector<MathCheck> math;  ///< with real numbers, by type
  std::string without_math;     ///< why there were none; empty where there were
  std::vector<FlowNote> flow;   ///< what programs do that their arithmetic has no use for
  MathTimes math_times;         ///< how long training with real numbers takes, where a machine's file was named

  /// What ranks held and read is what was predicted.
  [[nodiscard]] bool memory_agrees() const;
  /// What is odd about how data flows is a habit of the framework.
  [[nodiscard]] bool flows() const;
  /// All of that, and numbers are one rank's, where there were any.
  [[nodiscard]] bool agrees() const;
};

/// What a GPU machine needs to run the scenario, as text (kernels/execute/gpu/device_job.hpp).
[[nodiscard]] std::string device_job_file(const Scenario& scenario);

/// Runs a workload, whose programs hold frees, on the world's ranks: all of them at rank 0, this one's part elsewhere.
/// Throws as `validate` does.
[[nodiscard]] std::vector<RankAgreement> run_and_compare(const Workload& workload, World& world,
                                                         const ValidateOptions& options);

/// Runs the scenario on the world's ranks, whose number is the scenario's. The whole answer at rank 0, this rank's part
/// elsewhere. Throws InputError, on all ranks alike, where the world cannot hold the job; RunFailure where the run
/// ended early.
[[nodiscard]] Validation validate(const Scenario& scenario, World& world, const ValidateOptions& options);

}  // namespace tidemark::scenarios
