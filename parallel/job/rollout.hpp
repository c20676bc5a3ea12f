#pragma once

#include <cstdint>

#include "parallel/namespace.hpp"
#include "sim/base/dtype.hpp"
#include "sim/base/units.hpp"

namespace tidemark::parallel {

/// Whose weights an engine of generation reads: a copy of its own, cut its own way, or the training's.
enum class EngineWeights : std::uint8_t { Own, Shared };

/// What an engine of generation (vLLM, SGLang) holds while its devices train, by the engines' levels of sleep.
enum class EngineSleep : std::uint8_t {
  Awake,          ///< weights and the room reserved for its cache
  WeightsToHost,  ///< nothing: weights are on the host
  Discarded,      ///< nothing
};

/// Generation on the devices that train, before the passes of each step, as PPO and GRPO run it.
struct Rollout {
  std::int64_t batch = 0;                               ///< prompts of a step that one engine answers, all at once
  std::int64_t samples = 1;                             ///< answers to each prompt, each with a cache of its own
  std::int64_t prompt_length = 0, response_length = 0;  ///< tokens, of the longest
  std::int64_t block_size = 16;                         ///< tokens of a block of the paged cache
  DType kv_dtype = DType::BF16;
  std::int32_t tensor = 1;     ///< ranks of an engine, which share its heads and weights
  double memory_fraction = 0;  ///< of the device, which weights and cache take when the engine wakes; 0: as blocks fill
  Bytes reserved;              ///< that part of the device
  EngineSleep sleep = EngineSleep::Awake;
  EngineWeights weights = EngineWeights::Own;

  [[nodiscard]] bool sleeps() const { return sleep != EngineSleep::Awake; }
  [[nodiscard]] std::int64_t sequences() const { return batch * samples; }
  bool operator==(const Rollout&) const = default;
};

}  // namespace tidemark::parallel
