#include "scenarios/frameworks/pytorch/offload_reader.hpp"

#include <vector>

#include <fmt/format.h>

namespace tidemark::scenarios {
namespace {

// Whether a key moves things to the host.
bool read_to_host(TomlReader& table, std::string_view key, Modelled here) {
  const std::vector<Option> options{{"none"}, {"cpu", here}, {"nvme", Modelled::NotYet}};
  return table.option(key, options).value_or(0) == 1;
}

// Of what is updated on the host: all, unless the file says which part.
std::optional<double> read_fraction(TomlReader& table, bool optimizer) {
  const Ratio fraction = table.ratio("optimizer_fraction", Ratio{}, one).value_or(one);
  if (optimizer) return static_cast<double>(fraction.count()) / static_cast<double>(one.count());
  if (table.has("optimizer_fraction") && table.sound("optimizer") && fraction != Ratio{})
    table.problem("optimizer_fraction", "optimizer_fraction: nothing of the optimizer is on the host",
                  "leave it out, or set optimizer = \"cpu\"");
  return {};
}

}  // namespace

OffloadRequest read_offload(TomlReader table, const RuntimeKind& runtime) {
  OffloadRequest requested;
  if (!table.present()) return requested;
  const bool sharded = runtime.shards_units();
  const bool hybrid = runtime.id == RuntimeId::Megatron;
  const auto where = [](bool modelled) { return modelled ? Modelled::Yes : Modelled::NotYet; };
  requested.parameters = read_to_host(table, "parameters", where(sharded));
  const bool optimizer = read_to_host(table, "optimizer", where(sharded || hybrid));
  requested.activations = read_to_host(table, "activations", where(hybrid || runtime.id == RuntimeId::PyTorch));
  if (hybrid)
    requested.optimizer = read_fraction(table, optimizer);
  else
    table.refuse("optimizer_fraction", "offloading a part of the optimizer is", {"0.0", "0"});
  // CPUOffloadPolicy and CPUOffload move shards, and what works on them goes with them.
  if (sharded && table.sound("parameters") && table.sound("optimizer") && table.has("optimizer") &&
      optimizer != requested.parameters)
    table.problem(
        "optimizer",
        fmt::format("optimizer = \"{}\": PyTorch has it where the parameters are", optimizer ? "cpu" : "none"),
        "leave it out");
  table.refuse_unknown_keys();
  return requested;
}

}  // namespace tidemark::scenarios
