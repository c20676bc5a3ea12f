#include <algorithm>

#include "scenarios/model_config/hybrid_layers.hpp"
#include "scenarios/reader/detail/scenario_parts_json.hpp"
#include "scenarios/scenario/names.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {

namespace {

using Json = nlohmann::ordered_json;

std::vector<bool> layers_where(const Model& model, bool (*is)(const Layer&)) {
  std::vector<bool> found;
  for (std::int64_t i = 0; i < model.layers.size(); ++i) found.push_back(is(model.layers[i]));
  if (std::ranges::find(found, true) == found.end()) found.clear();
  return found;
}

Json as_json(const Experts& experts, const Model& model) {
  return {{"num_experts", experts.count},
          {"num_experts_per_tok", experts.chosen},
          {"moe_intermediate_size", experts.ffn},
          {"shared_expert_intermediate_size", experts.shared_ffn},
          {"shared_expert_gate", experts.shared_gate},
          {"biases", experts.biases},
          {"clamped_gate", experts.clamped_gate},
          {"scoring_func", word(router_score_names, experts.score)},
          {"n_group", experts.groups},
          {"topk_group", experts.topk_group},
          {"correction_bias", experts.correction_bias},
          {"routed_scaling_factor", experts.scale},
          {"dense_layers", layers_where(model, [](const Layer& layer) { return layer.experts() == nullptr; })}};
}

Json as_json(const MultiLatentAttention& latent) {
  return {{"q_lora_rank", latent.query_rank},
          {"kv_lora_rank", latent.kv_rank},
          {"qk_nope_head_dim", latent.qk_nope_head_dim},
          {"qk_rope_head_dim", latent.qk_rope_head_dim},
          {"v_head_dim", latent.value_head},
          {"normalized", latent.normalized}};
}

// What a model's mixers have beside its heads. They are alike where several layers have them.
void add_mixers(Json& json, const Model& model) {
  for (const Layer& layer : model.layers.kinds())
    std::visit(Overloaded{
                   [](const parallel::Attention&) {},  // sliding_window and whole_layers say it
                   [&](const MultiLatentAttention& its) { json["latent_attention"] = as_json(its); },
                   [&](const Mamba2& its) {
                     json["mamba"] = {{"mamba_num_heads", its.heads},
                                      {"mamba_head_dim", its.head_dim},
                                      {"n_groups", its.groups},
                                      {"ssm_state_size", its.state}};
                   },
                   [](const parallel::NoMixer&) {},
               },
               layer.mixer);
}

}  // namespace

nlohmann::ordered_json model_json(const Model& model) {
  Json json = {
      {"name", model.name},
      {"model_type", model.architecture},
      {"hidden_size", model.hidden},
      {"num_hidden_layers", model.layers.size()},
      {"num_attention_heads", model.heads},
      {"num_key_value_heads", model.kv_heads},
      {"head_dim", model.head_dim},
      {"intermediate_size", model.ffn},
      {"vocab_size", model.vocabulary},
      {"max_position_embeddings", model.max_positions},
      {"tie_word_embeddings", model.tied_embeddings},
      {"qkv_bias", model.qkv_bias},
      {"output_bias", model.output_bias},
      {"mlp_bias", model.mlp_bias},
      {"qk_norm", word(qk_norm_names, model.qk_norm)},
      {"normalization", word(normalization_names, model.normalization)},
      {"norms", word(norm_placement_names, model.norms)},
      {"use_parallel_residual", model.parallel_residual},
      {"activation", word(activation_names, model.activation)},
      {"position_embedding_type", word(positions_names, model.positions)},
      {"rotary_pct", model.rotary_fraction},
      {"sliding_window", model.window()},
      {"whole_layers", model.window() > 0 ? layers_where(model, [](const Layer& layer) { return layer.window() == 0; })
                                          : std::vector<bool>{}},
      {"attn_logit_softcapping", model.attention_softcap},
      {"final_logit_softcapping", model.logit_softcap},
      {"vocabulary_extra", model.vocabulary_extra},
      {"vocabulary_multiple", model.vocabulary_multiple}};
  add_mixers(json, model);
  if (model.hybrid()) json["hybrid_override_pattern"] = hybrid_pattern(model);
  if (model.heterogeneous()) json["layers"] = runs_of(model.layers);
  if (model.experts()) json["experts"] = as_json(*model.experts(), model);
  if (model.attention_sinks) json["attention_sinks"] = true;
  if (!model.further.empty()) json["num_nextn_predict_layers"] = model.further.size();
  return json;
}

}  // namespace tidemark::scenarios
