#include "scenarios/convert/llm_foundry/mpt.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"

// llmfoundry/models/mpt (8c8dd48f): its parameters are GPT-2's, one by one, where positions are learned and linears
// have biases, as its configuration has them where nothing is said (configuration_mpt.py, utils/config_defaults.py).

namespace tidemark::scenarios {
namespace {

void not_expressed(const Given& of, std::string_view key, std::string why) {
  of.draft().remark(RemarkKind::NotExpressed, std::string(key), not_modelled(std::move(why)), of.place(key));
}

void read_attention(Given& its, std::int64_t heads, Draft& draft) {
  const std::string kind = its.text("attn_type").value_or("multihead_attention");
  const std::int64_t groups = its.integer("kv_n_heads").value_or(kind == "multiquery_attention" ? 1 : heads);
  if (groups != heads) not_expressed(its, "attn_type", "heads that share keys and values in MPT are not modelled");
  const std::string kernel = its.text("attn_impl").value_or("flash");
  if (kernel != "flash" && kernel != "torch" && kernel != "triton")
    not_expressed(its, "attn_impl", "an attention that is not modelled");
  draft.set("train.attention", std::string(kernel == "torch" ? "unfused" : "flash"), its.place("attn_impl"));
  if (kernel == "triton") its.tell(RemarkKind::Assumed, "attn_impl", "saves what FlashAttention saves");
  draft.set("model_override.attn_pdrop", its.number("attn_pdrop").value_or(0.0), its.place("attn_pdrop"));
  for (const std::string_view key : {"qk_ln", "qk_gn"})
    if (its.flag(key).value_or(false))
      its.tell(RemarkKind::NotJudged, key, "norms of queries and keys are not modelled in MPT");
  its.no_matter(std::array<std::string_view, 16>{"alibi", "alibi_bias_max", "rope", "nope", "rope_theta", "rope_impl",
                                                 "rope_dail_config", "rope_hf_config", "clip_qkv", "softmax_scale",
                                                 "prefix_lm", "attn_uses_sequence_id", "sliding_window_size",
                                                 "attn_logit_softcapping", "fused_qkv", "qkv_prefetch"},
                "is within what MPT's own bound covers");
  its.refuse_the_rest("is no key of MPT's attn_config that is known here");
}

// layers/ffn.py resolve_ffn_hidden_size.
std::int64_t read_mlp(Given& model, Given& its, std::int64_t hidden) {
  const std::string kind = its.text("ffn_type").value_or("mptmlp");
  if (kind != "mptmlp" && kind != "te_ln_mlp")
    not_expressed(its, "ffn_type", fmt::format("ffn_type = {}: is not modelled: mptmlp is", in_quotes(kind)));
  if (kind == "te_ln_mlp") its.tell(RemarkKind::NotJudged, "ffn_type", "the figures are of mptmlp");
  const double ratio = model.number("expansion_ratio").value_or(4.0);
  constexpr double most = 1e12;
  const double width = std::floor(static_cast<double>(hidden) * ratio);
  const std::int64_t said =
      its.integer("ffn_hidden_size").value_or(width > 0 && width < most ? static_cast<std::int64_t>(width) : 0);
  its.no_matter(std::array<std::string_view, 1>{"ffn_act_fn"}, "an activation saves its input");
  its.refuse_the_rest("is no key of MPT's ffn_config that is known here");
  return said;
}

}  // namespace

void read_mpt(Given& model, Draft& draft) {
  const std::int64_t hidden = model.integer("d_model").value_or(2048);
  const std::int64_t heads = model.integer("n_heads").value_or(16);
  const std::int64_t rows = model.integer("max_seq_len").value_or(2048);
  Given attention = model.table("attn_config"), mlp = model.table("ffn_config");
  read_attention(attention, heads, draft);
  const std::int64_t width = read_mlp(model, mlp, hidden);
  if (draft.find("model") == nullptr) draft.set("model", std::string("models/gpt2.json"), model.place("name"));
  for (const auto& [key, value] : {std::pair<std::string_view, std::int64_t>{"n_embd", hidden},
                                   {"n_head", heads},
                                   {"n_layer", model.integer("n_layers").value_or(24)},
                                   {"n_inner", width},
                                   {"n_positions", rows},
                                   {"vocab_size", model.integer("vocab_size").value_or(50'368)}})
    draft.set(fmt::format("model_override.{}", key), value, model.place("name"));
  for (const char* key : {"resid_pdrop", "emb_pdrop"})
    draft.set(fmt::format("model_override.{}", std::string_view(key) == "emb_pdrop" ? "embd_pdrop" : key),
              model.number(key).value_or(0.0), model.place(key));
  if (!model.flag("tie_word_embeddings").value_or(true))
    draft.set("model_override.tie_word_embeddings", false, model.place("tie_word_embeddings"));
  const std::string norm = model.text("norm_type").value_or("low_precision_layernorm");
  if (norm.find("rmsnorm") != std::string::npos)
    model.tell_bounded("norm_type", "the figures are of layer norms; these keep products in fp32", "mpt-rms");
  model.no_matter(std::array<std::string_view, 21>{"init_device",
                                                   "init_config",
                                                   "no_bias",
                                                   "attention_bias",
                                                   "learned_pos_emb",
                                                   "loss_fn",
                                                   "logit_scale",
                                                   "norm_eps",
                                                   "use_cache",
                                                   "verbose",
                                                   "fc_type",
                                                   "embedding_fraction",
                                                   "tokenizer_name",
                                                   "use_pad_tok_in_ffn",
                                                   "use_train_metrics",
                                                   "additional_train_metrics",
                                                   "additional_eval_metrics",
                                                   "final_logit_softcapping",
                                                   "param_init_fn",
                                                   "emb_init_std",
                                                   "allow_embedding_resizing"},
                  "of how weights begin and of metrics, or within what MPT's own bound covers");
  model.refuse_the_rest("is no key of mpt_causal_lm's that is known here");
  draft.remark_bounded("mpt_causal_lm",
                       "the figures are of transformers' GPT-2 with this model, layout and batch; MPT copies rows "
                       "around attention, and has norms and a loss in half precision",
                       "mpt", model.place("name"));
}

}  // namespace tidemark::scenarios
