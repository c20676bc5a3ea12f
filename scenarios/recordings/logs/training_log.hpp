#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/base/units.hpp"

namespace tidemark::scenarios {

/// What a training log says of one rank's memory.
struct LoggedPeak {
  /// Whose line it is; nvidia-smi's tables, and what PyTorch says where memory runs out, are among them.
  enum class Framework : std::uint8_t {
    Megatron,
    Torchtitan,
    DeepSpeed,
    Nemo,
    Bridge,
    Nanotron,
    OlmoCore,
    NvidiaSmi,
    OutOfMemory
  };

  Rank rank;
  Framework framework = Framework::Megatron;
  std::int64_t step = 0;           ///< after which the line was written; 0: the job's construction; -1: it does not say
  std::optional<Bytes> allocated;  ///< highest so far; some do not say
  std::optional<Bytes> reserved;   ///< the same
  std::size_t line = 0;            ///< of the log, from 1
  std::optional<Bytes> device = {};  ///< all that the process has of its device: nvidia-smi's

  std::optional<Bytes> capacity = {};  ///< of the device, where PyTorch says it as memory runs out

  friend bool operator==(const LoggedPeak&, const LoggedPeak&) = default;
};
/// "megatron", "nvidia-smi", …
[[nodiscard]] std::string_view name(LoggedPeak::Framework framework);

/// Finds the memory lines of Megatron-LM (`report_memory` in megatron/training/utils.py) and torchtitan (`log` in
/// torchtitan/components/metrics.py) among others:
///
///     [Rank 3] (after 2 iterations) memory (MB) | allocated: 1.5 | max allocated: 2.5 | reserved: 3.0 | max
///     reserved: 3.0 [rank0]:… step: 10  loss:  7.1  grad_norm:  2.9  memory: 47.15GiB(49.59%)  tps: …
///
/// and of others, each by the words that it begins with: Megatron-LM's older "after 5 iterations memory (MB) | …",
/// DeepSpeed's "MA … Max_MA … CA … Max_CA … GB" (see_memory_usage in deepspeed/runtime/utils.py), NeMo's
/// "max_memory_allocated: N", Megatron-Bridge's "mem-max-allocated-gigabytes: N", nanotron's "Peak allocated …MiB. Peak
/// reserved: …MiB", OLMo-core's "GPU reserved mem (GiB)=N", PyTorch's "CUDA out of memory. …" of both forms, and
/// nvidia-smi's CSV with a column memory.used, where each index is a rank's.
///
/// What DeepSpeed writes while its engine is made is of step 0.
///
/// One entry for each rank, in order: of Megatron's lines the last one counts, whose peaks are those of the whole run;
/// of torchtitan's the highest, which are each of one interval. Where torchtitan's lines name no rank, they are of
/// `unnamed`. Throws InputError, which names `file` and line, if a line has that form but not such numbers, or if there
/// is none and no step's time either (logged_steps.hpp).
[[nodiscard]] std::vector<LoggedPeak> training_log(std::string_view text, const std::string& file = {},
                                                   Rank unnamed = Rank{0});

}  // namespace tidemark::scenarios
