#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Judges `[runtime.switches]`: Megatron-LM's own flags, without their dashes. A flag that repeats something `asked`
/// says elsewhere has to agree with it; one that does not touch memory passes; any other is a problem.
void check_megatron_switches(TomlReader switches, const Scenario& requested, const ScenarioTables& tables);

/// Reads the flags that nothing else in a scenario says; one that is left out has Megatron's default.
void read_own_switches(TomlReader& switches, RuntimeChoice& runtime);

/// What is known of a flag.
struct MegatronFlag {
  enum class Kind : std::uint8_t {
    Repeats,     ///< a key of the scenario, or of its model
    Own,         ///< a switch that nothing else says
    NoMatter,    ///< leaves memory and time as they are
    Bound,       ///< changes memory by no more than `why` says
    Unmodelled,  ///< changes them in a way that is not modelled
  };
  Kind kind{};
  std::string_view table{}, key{};  ///< of what it repeats: "layout" and "tensor"; of a model's the table is "model"
  std::string why{};                ///< of what is not modelled: "FP8 is not modelled yet"; of the rest, empty or more
};
[[nodiscard]] std::optional<MegatronFlag> megatron_flag(std::string_view flag);
/// All that are known, those that repeat something first.
[[nodiscard]] std::vector<std::string> megatron_flags();
/// The values by which a flag that repeats something agrees with a scenario, as TOML writes them, the usual one first.
[[nodiscard]] std::vector<std::string> agreeing_values(std::string_view flag, const Scenario& scenario);
/// A flag's value as those are written.
[[nodiscard]] std::string flag_text(const TomlValue& value);
/// Whether one that is not modelled has a value that asks for nothing.
[[nodiscard]] bool asks_for_nothing(std::string_view flag, const TomlValue& value);

}  // namespace tidemark::scenarios
