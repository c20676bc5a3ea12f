#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tidemark/scenario.hpp>

namespace tidemark {

/// Does it fit, and how long does a step take? Bytes are of the fullest rank: *allocated* is what
/// torch.cuda.max_memory_allocated means, *reserved* what PyTorch's allocator holds, *device* what nvidia-smi shows.
struct Prediction {
  bool fits = false;                ///< at the upper ends of what must be had, with the headroom asked for
  bool open = false;                ///< nobody can say: it does not fit at the upper ends, and does at the lower ones
  std::int64_t capacity_bytes = 0;  ///< of a device, as cudaMemGetInfo has it
  std::int64_t allocated_bytes = 0, reserved_bytes = 0, device_bytes = 0;
  std::int64_t device_upper_bytes = 0;  ///< at the upper ends of estimates
  /// What it must have of a device at the upper ends; the rest PyTorch's allocator gives back before it fails.
  std::int64_t required_device_upper_bytes = 0;
  double step_s = 0;  ///< seconds of a step
  double tokens_per_s_per_device = 0;
  double mfu = 0;    ///< of the device's dense peak, from 0 to 1
  std::string text;  ///< one screen
  std::string json;  ///< "tidemark.prediction/1": every class of ranks, its peaks and what they are made of
};

/// Simulates a step on every rank. Nothing where `options.progress` gave up; so it is with all questions. Throws
/// InputError and InternalError.
[[nodiscard]] std::optional<Prediction> predict(const Scenario& scenario, const Options& options);

}  // namespace tidemark
