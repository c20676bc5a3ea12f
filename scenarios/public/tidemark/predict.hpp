#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tidemark/scenario.hpp>

namespace tidemark {

/// Does it fit, and how long does a step take? Bytes are of the fullest rank: *allocated* is what
/// torch.cuda.max_memory_allocated means, *reserved* what PyTorch's allocator holds, *device* what nvidia-smi shows.
struct Prediction {
  bool fits = false;                ///< at the upper ends of estimates, with the headroom asked for
  std::int64_t capacity_bytes = 0;  ///< of a device, as cudaMemGetInfo has it
  std::int64_t allocated_bytes = 0, reserved_bytes = 0, device_bytes = 0;
  std::int64_t device_upper_bytes = 0;  ///< at the upper ends of estimates
  double step_s = 0;                    ///< seconds of a step
  double tokens_per_s_per_device = 0;
  double mfu = 0;    ///< of the device's dense peak, from 0 to 1
  std::string text;  ///< one screen
  std::string json;  ///< "tidemark.prediction/1": every class of ranks, its peaks and what they are made of
};

/// Simulates a step on every rank. Nothing where `options.progress` gave up; so it is with all questions. Throws
/// InputError and InternalError.
[[nodiscard]] std::optional<Prediction> predict(const Scenario& scenario, const Options& options);

}  // namespace tidemark
