#pragma once

#include <vector>

#include "scenarios/convert/formats.hpp"

namespace tidemark::scenarios {

/// Finds the model that Megatron's flags describe: one that is shipped, or the nearest with what differs as
/// [model_override]. A remark where there is none. Takes those flags.
void describe_model(Given& flags, const ShippedModels& models, Draft& draft);

/// Whether a flag says what the model is.
[[nodiscard]] bool describes_model(std::string_view flag);

/// Flags of the model with Megatron's defaults, as TOML writes them: those that are worth a word.
struct ModelFlag {
  std::string_view flag;
  std::string_view usual;  ///< empty: is always said
  bool of_experts = false, of_latent = false, of_hybrid = false;
};
[[nodiscard]] const std::vector<ModelFlag>& model_flags();

}  // namespace tidemark::scenarios
