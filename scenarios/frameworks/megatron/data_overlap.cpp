#include "scenarios/frameworks/megatron/data_overlap.hpp"

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace tidemark::scenarios {
namespace {

constexpr IntegerRange bucket_sizes{1, std::int64_t{1} << 40};  // elements
constexpr std::string_view reduce_switch = overlap_switches[0], gather_switch = overlap_switches[1];

}  // namespace

DataOverlap read_overlap(TomlReader& switches) {
  const auto on = [&](std::string_view flag) { return switches.boolean(flag).value_or(false); };
  return {.gradients = on(reduce_switch),
          .parameters = on(gather_switch),
          .gradients_aligned = !on(overlap_switches[2]),
          .parameters_aligned = !on(overlap_switches[3]),
          .bucket_elements = switches.integer(overlap_switches[4], bucket_sizes).value_or(0)};
}

// training/arguments.py validate_args.
void check_overlap(TomlReader& switches, const Scenario& requested, const ScenarioTables& tables) {
  if (!requested.runtime.overlap.parameters) return;
  const auto wrong = [&](const char* why, const char* hint) {
    switches.problem(gather_switch, fmt::format("{} = true: {}", gather_switch, why), hint);
  };
  if (!requested.runtime.overlap.gradients)
    wrong("Megatron-LM takes it with overlap-grad-reduce only", "add overlap-grad-reduce = true");
  else if (tables.layout.sound("sharding") && requested.layout.sharding == Sharding::None)
    wrong("parameters that are not sharded are not gathered", "leave it out, or set sharding = \"zero1\" in [layout]");
}

}  // namespace tidemark::scenarios
