#include "scenarios/io/offload_reader.hpp"

#include <vector>

#include <fmt/format.h>

namespace tidemark::scenarios {
namespace {

// Whether a key moves things to the host.
bool read_to_host(TomlReader& table, std::string_view key, Modelled here) {
  const std::vector<Option> options{{"none"}, {"cpu", here}, {"nvme", Modelled::NotYet}};
  return table.option(key, options).value_or(0) == 1;
}

}  // namespace

OffloadAsked read_offload(TomlReader table, const RuntimeKind& runtime) {
  OffloadAsked asked;
  if (!table.present()) return asked;
  const bool sharded = runtime.shards_units();
  const Modelled here = sharded ? Modelled::Yes : Modelled::NotYet;
  asked.parameters = read_to_host(table, "parameters", here);
  const bool optimizer = read_to_host(table, "optimizer", here);
  asked.activations =
      read_to_host(table, "activations", runtime.id == RuntimeId::PyTorch ? Modelled::Yes : Modelled::NotYet);
  table.refuse("optimizer_fraction", "offloading a part of the optimizer is", {"0.0", "0"});
  // CPUOffloadPolicy and CPUOffload move shards, and what works on them goes with them.
  if (sharded && table.sound("parameters") && table.sound("optimizer") && table.has("optimizer") &&
      optimizer != asked.parameters)
    table.problem(
        "optimizer",
        fmt::format("optimizer = \"{}\": PyTorch has it where the parameters are", optimizer ? "cpu" : "none"),
        "leave it out");
  table.refuse_unknown_keys();
  return asked;
}

}  // namespace tidemark::scenarios
