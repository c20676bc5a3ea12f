#include "scenarios/reader/packed_sequences.hpp"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "parallel/runtime/runtimes.hpp"

namespace tidemark::scenarios {

void check_packed_sequences(const Scenario& requested, ScenarioTables& tables) {
  const Train& train = requested.train;
  if (train.packed == 0) return;
  constexpr std::string_view key = "packed_sequences";
  const auto refuse = [&](bool wrong, const ProblemText& what, std::string_view hint) {
    if (wrong && tables.train.sound(key))
      tables.train.problem(key, ProblemText(fmt::format("{} = {}: {}", key, train.packed, what.text), what.kind),
                           std::string(hint));
  };
  const RuntimeKind& runtime = runtime_kind(requested.runtime.name);
  const bool transformers = runtime.id == RuntimeId::PyTorch || runtime.id == RuntimeId::Fsdp ||
                            runtime.id == RuntimeId::Fsdp2 || runtime.id == RuntimeId::DeepSpeed;
  refuse(!transformers, not_modelled(fmt::format("under {} they are not modelled yet", runtime.name)), "leave it out");
  if (!transformers) return;
  const EagerSettings& switches = requested.runtime.eager;
  refuse(switches.modules == ModuleLibrary::LitGpt, "LitGPT packs none", "leave modules = \"litgpt\" out");
  refuse(switches.compiled != CompiledParts::None,
         not_modelled("torch_compile of packed sequences is not modelled yet"), "leave torch_compile out");
  refuse(train.rollout.has_value(), "generated sequences are not packed", "leave [rollout] out");
  if (!tables.train.sound("sequence_length") || !tables.train.sound("micro_batch")) return;
  refuse(train.sequence_length % train.packed != 0,
         fmt::format("it does not divide sequence_length = {}, and sequences are assumed to have one length",
                     train.sequence_length),
         "a divisor of it would do");
  refuse(train.packed * train.micro_batch == 1, "a single sequence is not packed", "leave it out");
  const std::string& family = requested.model.architecture;
  refuse(tables.model_sound && (family == "gpt2" || family == "gpt_bigcode" || family == "gpt_neox"),
         not_modelled(fmt::format("models of type {} with packed sequences are not modelled yet", family)),
         "leave it out");
}

}  // namespace tidemark::scenarios
