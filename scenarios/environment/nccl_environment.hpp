#pragma once

#include <string>
#include <string_view>

#include "scenarios/formats/toml_reader.hpp"
#include "topology/nccl_settings.hpp"

// NCCL's environment variables: those that its device memory depends on, those that it does not, and those that it does
// in ways that are not modelled. docs/device.md lists them.

namespace tidemark::scenarios {

/// Whether the variable is NCCL's: its name begins with NCCL_.
[[nodiscard]] bool is_nccl_variable(std::string_view name);

/// Whether it leaves memory as it is, whatever it says.
[[nodiscard]] bool is_harmless_nccl_variable(std::string_view name);

/// Takes in what the variable says of memory. What NCCL would not take, or what is not modelled, is a problem of the
/// key of that name.
void read_nccl_variable(TomlReader& table, const std::string& name, const std::string& value, NcclSettings& settings);

}  // namespace tidemark::scenarios
