#include "scenarios/model_config/detail/transformers_families.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "scenarios/formats/detail/config_document.hpp"

namespace tidemark::scenarios {
namespace {

using namespace config_format;
using nlohmann::json;

double read_dropout(ConfigValues& config, const DropoutKey& of) {
  if (of.key.empty()) return of.usual;
  const json* value = config.find(of.key);
  if (value == nullptr) return of.usual;
  const bool none = value->is_number() && value->get<double>() == 0;
  return none ? 0 : config.number(of.key, *value, 0, 1);
}

void read_alone_biases(ConfigValues& config, AloneBiases biases, Model& model) {
  const auto all = [&](bool some) { model.qkv_bias = model.output_bias = some; };
  switch (biases) {
    case AloneBiases::None:
      return;
    case AloneBiases::All:
      all(true);
      model.mlp_bias = true;
      return;
    case AloneBiases::AttentionAndMlp:
      all(config.flag(attention_bias));
      model.mlp_bias = config.flag(mlp_bias);
      return;
    case AloneBiases::Attention:
      all(config.flag(attention_bias));
      return;
    case AloneBiases::Qkv:
      model.qkv_bias = config.flag(attention_bias, true);
      return;
    case AloneBiases::QkvAndOutput:
      model.qkv_bias = config.flag(attention_bias, true);
      model.output_bias = config.flag(attention_out_bias);
      model.mlp_bias = config.flag(mlp_bias);
      return;
    case AloneBiases::QkvKey:
      model.qkv_bias = config.flag(use_qkv_bias);
      return;
    case AloneBiases::UseBias:
      all(config.flag(use_bias, true));
      model.mlp_bias = model.qkv_bias;
      return;
  }
}

// SmolLM3Config: which layers turn queries and keys, 1 or 0 each; by itself all but every fourth.
void check_layers_without_rotary(ConfigValues& config, std::int64_t layers) {
  constexpr std::int64_t usual = 4;
  if (config.count({interval_without_rotary, most_layers}, usual) != usual)
    config.problem(interval_without_rotary, not_modelled("another interval than 4 is not modelled"));
  const json* listed = config.find(layers_without_rotary);
  if (listed == nullptr) return;
  bool as_usual = listed->is_array() && std::ssize(*listed) == layers;
  for (std::int64_t i = 0; as_usual && i < layers; ++i) {
    const json& turns = (*listed)[static_cast<std::size_t>(i)];
    as_usual = turns.is_number() && (turns.get<double>() != 0) == ((i + 1) % usual != 0);
  }
  if (!as_usual)
    config.problem(layers_without_rotary,
                   not_modelled("other layers than every fourth without rotary positions are not modelled"));
}

}  // namespace

const config_format::AloneFamily* config_format::alone_family(std::string_view name) {
  const auto its = std::ranges::find_if(alone_families, [&](const AloneFamily& f) { return f.family.name == name; });
  return its == alone_families.end() ? nullptr : &*its;
}

void read_alone_traits(ConfigValues& config, const AloneFamily& family, std::int64_t layers, Model& model) {
  model.normalization = family.normalization;
  model.norms = family.norms;
  model.qk_norm = family.qk_norm;
  model.window_rotary = family.window_rotary;
  model.parallel_residual = family.parallel || (family.may_be_parallel && config.flag(parallel_residual));
  if (!family.parallel && !family.may_be_parallel && config.flag(parallel_residual))
    config.problem(parallel_residual,
                   not_modelled(fmt::format("true is not modelled: {} has no such switch", family.family.name)));
  read_alone_biases(config, family.alone_biases, model);
  if (family.some_without_rotary) check_layers_without_rotary(config, layers);
  if (const json* clip = config.find(clip_of_qkv); clip != nullptr && family.family.name == "olmo")
    model.qkv_clip = config.number(clip_of_qkv, *clip, 0, most_softcap);
  model.hidden_dropout = read_dropout(config, family.hidden_dropout);
  model.attention_dropout = read_dropout(config, family.attention_dropout);
}

}  // namespace tidemark::scenarios
