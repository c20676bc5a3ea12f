#pragma once

#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "scenarios/scenario/zero_keys.hpp"

namespace tidemark::scenarios {

/// A scenario file while it is being read. Its checks report where a value stands, and leave alone what could not be
/// read: one slip is one message.
struct ScenarioTables {
  TomlReader top;
  TomlReader model_override;
  TomlReader layout;
  TomlReader train;
  TomlReader runtime;
  TomlReader moe;
  TomlReader adapter;
  TomlReader quantization;
  ZeroRequest zero = {};       ///< of DeepSpeed
  bool model_sound = false;    ///< the config.json was read well
  bool cluster_sound = false;  ///< so was the cluster file
};

}  // namespace tidemark::scenarios
