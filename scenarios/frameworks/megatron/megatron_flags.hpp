#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// An argument of Megatron-LM's, or of a fork's, as the tables beside this file have it: megatron_flags.tsv, which
/// scripts/megatron_flags makes of each release, and megatron_forks.tsv.
struct MegatronArgument {
  enum class Kind : std::uint8_t {
    Modelled,      ///< the reader of launch files reads it
    Nothing,       ///< leaves memory and time as they are
    Bound,         ///< changes memory by no more than `why` says
    Unmodelled,    ///< changes them in a way that is not modelled
    Unclassified,  ///< nobody has looked at what it changes
  };
  std::string_view flag;
  std::string_view whose;  ///< releases of core that have it, as in "0.10-0.12 0.15"; or the fork
  Kind kind{};
  std::string_view place;  ///< where the newest of them reads it; empty of a fork's
  std::string_view why;
  bool of_fork = false;
};

/// By flag, in their order.
[[nodiscard]] const std::vector<MegatronArgument>& megatron_arguments_known();
/// Null where no table has it. Megatron's own goes before a fork's.
[[nodiscard]] const MegatronArgument* megatron_argument(std::string_view flag);
/// "Megatron-LM core 0.10-0.19", "Pai-Megatron-Patch".
[[nodiscard]] std::string whose(const MegatronArgument& argument);

}  // namespace tidemark::scenarios
