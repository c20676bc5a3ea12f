#include "scenarios/plan/changes/fine_tuning_changes.hpp"

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/plan/changes/change.hpp"

namespace tidemark::scenarios {
namespace {

// QLoRA's own experiments (arXiv:2305.14314, A.2): adapters beside all linears. Their rank there is 64; 16 is PEFT's
// documentation's.
constexpr std::int64_t rank = 16;

// bitsandbytes' linears as the runtime can have them: shards are numbers with a point, of the type of what they are
// sharded with, which is then left as it is.
std::vector<std::pair<KeyPath, TomlValue>> four_bits(const Scenario& s) {
  std::vector<std::pair<KeyPath, TomlValue>> settings{{{"quantization", "format"}, value("nf4")},
                                                      {{"quantization", "double_quant"}, value(true)}};
  const RuntimeId id = runtime_kind(s.runtime.name).id;
  if (id == RuntimeId::PyTorch) return settings;
  const DType stored = id == RuntimeId::Fsdp ? s.train.master_dtype : s.train.precision;
  settings.push_back({{"quantization", "storage_dtype"}, value(name(stored))});
  settings.push_back({{"quantization", "prepare"}, value("none")});
  return settings;
}

std::vector<KeyPath> keys_of(const std::vector<std::pair<KeyPath, TomlValue>>& settings) {
  std::vector<KeyPath> keys;
  for (const auto& [key, its] : settings) keys.push_back(key);
  return keys;
}

std::vector<TomlValue> values_of(const std::vector<std::pair<KeyPath, TomlValue>>& settings) {
  std::vector<TomlValue> values;
  for (const auto& [key, its] : settings) values.push_back(its);
  return values;
}

}  // namespace

bool takes_adapters(const Scenario& s) {
  const EagerSettings& eager = s.runtime.eager;
  if (s.model.experts() || s.model.latent() || s.train.rollout || eager.compiled != CompiledParts::None) return false;
  switch (runtime_kind(s.runtime.name).id) {
    case RuntimeId::PyTorch:
    case RuntimeId::Fsdp:
    case RuntimeId::Fsdp2:
      return eager.modules == ModuleLibrary::Transformers;
    case RuntimeId::DeepSpeed:
      return s.layout.sharding != Sharding::Zero3;
    case RuntimeId::Megatron:
    case RuntimeId::TorchTitan:
      return false;
  }
  return false;
}

bool takes_quantized_bases(const Scenario& s) {
  const RuntimeId id = runtime_kind(s.runtime.name).id;
  const bool one_type = s.train.master_dtype == s.train.precision;
  return takes_adapters(s) &&
         (id == RuntimeId::PyTorch || id == RuntimeId::Fsdp || (id == RuntimeId::Fsdp2 && one_type));
}

bool takes_liger(const Scenario& s) {
  const EagerSettings& eager = s.runtime.eager;
  const Model& m = s.model;
  const RuntimeId id = runtime_kind(s.runtime.name).id;
  const bool plain = m.norms == NormPlacement::Before && m.positions == Positions::Rotary && !m.zero_centered_norms &&
                     m.activation == Activation::SwiGlu && m.normalization == Normalization::Rms &&
                     m.architecture != "phi3" && m.rotary_dim() == m.head_dim && m.logit_softcap == 0;
  return (id == RuntimeId::PyTorch || id == RuntimeId::Fsdp || id == RuntimeId::Fsdp2) && plain &&
         eager.modules == ModuleLibrary::Transformers && eager.compiled == CompiledParts::None &&
         eager.liger == FusedModules{} && eager.foak == FusedModules{} && !eager.fake_tensors;
}

void add_adapters(const TomlTable& document, const Scenario& s, std::vector<Axis>& axes) {
  if (!takes_adapters(s)) return;
  std::vector<std::pair<KeyPath, TomlValue>> codes = four_bits(s);
  if (s.train.adapter) {
    const bool decomposed = s.train.adapter->method == AdapterMethod::Dora;
    if (!s.train.quantization && !decomposed && takes_quantized_bases(s))
      Change(document, "quantization", keys_of(codes), "none")
          .to("nf4, scales quantized too", values_of(codes))
          .add_to(axes);
    Change ranks = one_key(document, {"adapter", "rank"}, std::to_string(s.train.adapter->rank));
    for (const std::int64_t part : {2, 4})
      if (s.train.adapter->rank % part == 0)
        ranks.to(std::to_string(s.train.adapter->rank / part), {value(s.train.adapter->rank / part)});
    return ranks.add_to(axes);
  }
  std::vector<std::pair<KeyPath, TomlValue>> all{{{"adapter", "rank"}, value(rank)},
                                                 {{"adapter", "alpha"}, value(rank)},
                                                 {{"adapter", "target_modules"}, value("all-linear")}};
  const std::vector<TomlValue> lora = values_of(all);
  all.insert(all.end(), codes.begin(), codes.end());
  Change trained(document, "trained", keys_of(all), "all parameters");
  trained.to(fmt::format("LoRA of rank {} on all linears", rank), lora);
  if (takes_quantized_bases(s)) trained.to(fmt::format("QLoRA (nf4) of rank {} on all linears", rank), values_of(all));
  trained.add_to(axes);
}

}  // namespace tidemark::scenarios
