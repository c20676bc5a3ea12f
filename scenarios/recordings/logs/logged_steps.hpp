#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/base/time.hpp"

namespace tidemark::scenarios {

/// What a line of a training log says of a step's time: one of these.
struct LoggedStep {
  std::optional<double> seconds;
  std::optional<double> samples_per_s;            ///< of the whole job
  std::optional<double> tokens_per_s_per_device;  ///< the same, of one of its devices
  std::size_t line = 0;                           ///< of the log, from 1

  friend bool operator==(const LoggedStep&, const LoggedStep&) = default;
};

/// Finds the step times of Megatron-LM, Megatron-DeepSpeed and Megatron-Bridge ("elapsed time per iteration (ms): N",
/// training_log in megatron/training/training.py), torchtitan ("step: 10 … tps: 5,000", which is of a device: log in
/// components/metrics.py), DeepSpeed ("CurrSamplesPerSec=N", ThroughputTimer in deepspeed/utils/timer.py), NeMo
/// ("train_step_timing in s: N"), nanotron ("elapsed_time_per_iteration_ms: 2.43K") and OLMo-core
/// ("throughput/device/TPS=N"), in order. Lines that ranks repeat count once each; lines of validation do not count.
[[nodiscard]] std::vector<LoggedStep> logged_steps(std::string_view text);

/// How long steps took: the median of all after the first, which warms up, unless there is no other.
struct MeasuredStep {
  Duration median;
  std::size_t steps = 0;  ///< that it is of
  friend bool operator==(const MeasuredStep&, const MeasuredStep&) = default;
};

/// Nothing where no line says a time. `samples` and `tokens` are those of a step of the whole job.
[[nodiscard]] std::optional<MeasuredStep> measured_step(const std::vector<LoggedStep>& steps, double samples,
                                                        double tokens, double devices);

}  // namespace tidemark::scenarios
