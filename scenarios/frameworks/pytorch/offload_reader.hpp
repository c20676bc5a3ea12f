#pragma once

#include <optional>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/toml_reader.hpp"

namespace tidemark::scenarios {

/// What [offload] asks to have on the host.
struct OffloadRequest {
  bool parameters = false;          ///< shards of parameters, their gradients, and so the optimizer
  bool activations = false;         ///< what autograd saves; Megatron's: of so many layers as a switch says
  std::optional<double> optimizer;  ///< Megatron's: of that part of all elements
};
/// Hears of what is not modelled yet.
[[nodiscard]] OffloadRequest read_offload(TomlReader table, const RuntimeKind& runtime);

}  // namespace tidemark::scenarios
