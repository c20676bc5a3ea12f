#include "scenarios/frameworks/megatron/megatron_switches.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"
#include "scenarios/frameworks/megatron/data_overlap.hpp"
#include "scenarios/frameworks/megatron/deferred_gradients.hpp"
#include "scenarios/frameworks/megatron/megatron_flags.hpp"
#include "scenarios/frameworks/megatron/module_offload.hpp"
#include "scenarios/frameworks/megatron/muon_switches.hpp"
#include "scenarios/frameworks/megatron/optimizer_switches.hpp"
#include "scenarios/frameworks/megatron/result_checks.hpp"
#include "scenarios/frameworks/megatron/tensor_overlap.hpp"
#include "scenarios/frameworks/megatron/unmodelled_switches.hpp"
#include "scenarios/model_config/hybrid_layers.hpp"
#include "scenarios/model_config/moe_reader.hpp"
#include "scenarios/scenario/names.hpp"
#include "scenarios/scenario/schedule_reader.hpp"

// Flags of megatron/training/arguments.py, Megatron-LM core_v0.14.0.

namespace tidemark::scenarios {
namespace {

enum class Source : std::uint8_t { Layout, Train, Model, Moe, Offload };
using Texts = std::vector<std::string>;

/// A flag that says again what a key of the scenario or of the config.json says.
struct Repeat {
  std::string_view flag;
  Source source;
  std::string_view key;
  Texts (*wanted)(const Scenario&);  ///< the values that agree, as TOML writes them
};

Texts number(std::int64_t n) { return {std::to_string(n)}; }
Texts boolean(bool b) { return {b ? "true" : "false"}; }
Texts either() { return {"true", "false"}; }

MultiLatentAttention latent_of(const Scenario& s) {
  return s.model.latent() ? *s.model.latent() : MultiLatentAttention{.normalized = false};
}

// Megatron-LM's own where there is none, which it does not look at.
Mamba2 mamba_of(const Scenario& s) {
  const Mamba2* const its = s.model.mamba();
  return its != nullptr ? *its : Mamba2{.heads = 0, .head_dim = 64, .groups = 8, .state = 128};
}

std::string modules_text(const Recomputation& requested) {
  const std::vector<std::string_view> names = words(recomputed_module_names, requested.modules);
  return names.empty() ? "[]" : fmt::format("[\"{}\"]", fmt::join(names, "\", \""));
}

Experts experts_of(const Scenario& s) { return s.model.experts() ? *s.model.experts() : Experts{}; }
Texts ratio(double value) { return {fmt::format("{}", value)}; }

// Which layers have experts: every nth, or 1 and 0 layer by layer, as a list or as an expression that gives one
// (arguments.py moe_freq_type).
Texts layers_with_experts(const Scenario& s) {
  std::vector<int> layers;
  for (std::int64_t layer = 0; layer < s.model.layers.size(); ++layer)
    layers.push_back(s.model.has_experts(layer) ? 1 : 0);
  std::string runs;
  for (auto run = layers.begin(); run != layers.end();) {
    const auto end = std::find(run, layers.end(), 1 - *run);
    runs += fmt::format("{}[{}]*{}", runs.empty() ? "" : "+", *run, end - run);
    run = end;
  }
  Texts texts{in_quotes(fmt::format("({})", runs)), in_quotes(runs), fmt::format("[{}]", fmt::join(layers, ", ")),
              in_quotes(fmt::format("[{}]", fmt::join(layers, ",")))};
  for (std::size_t n = 1; n <= layers.size(); ++n) {  // GPTModel: layer i has experts where n divides i
    bool every_nth = true;
    for (std::size_t i = 0; i < layers.size(); ++i) every_nth = every_nth && layers[i] == (i % n == 0 ? 1 : 0);
    if (every_nth) texts.insert(texts.begin(), std::to_string(n));
  }
  return texts;
}

// As many keys to the left; whether a token's own counts among them is told either way.
Texts windows(const Scenario& s) {
  if (s.model.window() == 0) return {"\"(-1,-1)\""};
  Texts texts;
  for (const std::int64_t left : {s.model.window(), s.model.window() - 1})
    for (const char* form : {"({},0)", "({}, 0)", "{},0"})
      texts.push_back(in_quotes(fmt::format(fmt::runtime(form), left)));
  for (const std::int64_t left : {s.model.window(), s.model.window() - 1})
    texts.push_back(fmt::format("[{}, 0]", left));  // as YAML has it
  return texts;
}

constexpr std::int64_t default_vocabulary_multiple = 128;  // --make-vocab-size-divisible-by

constexpr std::string_view distribution_switch = "distribute-saved-activations",
                           flush_switch = "overlap-p2p-communication-warmup-flush";

const std::array repeats{
    Repeat{"tensor-model-parallel-size", Source::Layout, "tensor",
           [](const Scenario& s) { return number(s.layout.tensor); }},
    Repeat{"sequence-parallel", Source::Layout, "sequence_parallel",
           [](const Scenario& s) { return boolean(s.layout.sequence_parallel); }},
    Repeat{"pipeline-model-parallel-size", Source::Layout, "pipeline",
           [](const Scenario& s) { return number(s.layout.pipeline); }},
    Repeat{"context-parallel-size", Source::Layout, "context",
           [](const Scenario& s) { return number(s.layout.context); }},
    Repeat{"cp-comm-type", Source::Layout, "context_kind",
           [](const Scenario& s) {
             const std::string kind = in_quotes(word(context_kind_names, s.layout.context_kind));
             return Texts{kind, fmt::format("[{}]", kind)};
           }},
    Repeat{"hierarchical-context-parallel-sizes", Source::Layout, "context_inner",
           [](const Scenario& s) {
             return Texts{fmt::format("[{}, {}]", s.layout.context_inner, s.layout.context / s.layout.context_inner)};
           }},
    Repeat{"use-distributed-optimizer", Source::Layout, "sharding",
           [](const Scenario& s) { return boolean(s.layout.sharding == Sharding::Zero1); }},
    Repeat{"num-distributed-optimizer-instances", Source::Layout, "shard_group",
           [](const Scenario& s) { return number(s.layout.sharding == Sharding::Zero1 ? s.layout.instances() : 1); }},
    Repeat{"account-for-embedding-in-pipeline-split", Source::Layout, "count_embedding",
           [](const Scenario& s) { return boolean(s.layout.count_embedding); }},
    Repeat{"account-for-loss-in-pipeline-split", Source::Layout, "count_loss",
           [](const Scenario& s) { return boolean(s.layout.count_loss); }},
    Repeat{"seq-length", Source::Train, "sequence_length",
           [](const Scenario& s) { return number(s.train.sequence_length); }},
    Repeat{"micro-batch-size", Source::Train, "micro_batch",
           [](const Scenario& s) { return number(s.train.micro_batch); }},
    Repeat{"global-batch-size", Source::Train, "global_batch",
           [](const Scenario& s) { return number(s.train.global_batch); }},
    Repeat{"bf16", Source::Train, "precision",
           [](const Scenario& s) { return boolean(s.train.precision == DType::BF16); }},
    Repeat{"fp16", Source::Train, "precision",
           [](const Scenario& s) { return boolean(s.train.precision == DType::FP16); }},
    Repeat{"accumulate-allreduce-grads-in-fp32", Source::Train, "gradient_dtype",
           [](const Scenario& s) {
             return s.train.precision == DType::FP32 ? either() : boolean(s.train.gradient_dtype == DType::FP32);
           }},
    Repeat{"grad-reduce-in-bf16", Source::Train, "gradient_dtype",
           [](const Scenario& s) { return boolean(s.train.gradient_dtype == DType::BF16); }},
    // OptimizerConfig: of another type than fp32 for precision-aware optimizers only, which read the buffer.
    Repeat{"main-grads-dtype", Source::Train, "gradient_dtype",
           [](const Scenario& s) {
             if (!s.runtime.optimizer.precision_aware) return Texts{"\"fp32\""};
             return Texts{in_quotes(name(s.train.gradient_dtype))};
           }},
    Repeat{"cpu-offloading", Source::Offload, "activations",
           [](const Scenario& s) { return boolean(s.runtime.offloaded_layers > 0); }},
    Repeat{"optimizer-cpu-offload", Source::Offload, "optimizer",
           [](const Scenario& s) { return boolean(s.runtime.optimizer.offloaded.has_value()); }},
    Repeat{"optimizer-offload-fraction", Source::Offload, "optimizer_fraction",
           [](const Scenario& s) {
             return s.runtime.optimizer.offloaded ? ratio(*s.runtime.optimizer.offloaded) : Texts{"0", "1"};
           }},
    Repeat{"optimizer", Source::Train, "optimizer",
           [](const Scenario& s) {
             if (s.train.optimizer == Optimizer::Muon)
               return s.layout.sharding == Sharding::None ? Texts{"\"muon\""} : Texts{"\"muon\"", "\"dist_muon\""};
             return Texts{s.train.optimizer == Optimizer::AdamW ? "\"adam\"" : "\"sgd\""};
           }},
    Repeat{"attention-backend", Source::Train, "attention",
           [](const Scenario& s) { return Texts{in_quotes(word(attention_names, s.train.attention))}; }},
    Repeat{"cross-entropy-loss-fusion", Source::Train, "cross_entropy",
           [](const Scenario& s) { return boolean(s.train.cross_entropy != CrossEntropy::Unfused); }},
    Repeat{"cross-entropy-fusion-impl", Source::Train, "cross_entropy",
           [](const Scenario& s) {
             if (s.train.cross_entropy == CrossEntropy::Unfused) return Texts{"\"native\"", "\"te\""};
             return Texts{s.train.cross_entropy == CrossEntropy::Fused ? "\"native\"" : "\"te\""};
           }},
    Repeat{"num-virtual-stages-per-pipeline-rank", Source::Layout, "chunks",
           [](const Scenario& s) { return number(s.layout.chunks); }},
    Repeat{"num-layers-per-virtual-pipeline-stage", Source::Layout, "chunks",
           [](const Scenario& s) { return number(s.model.layers.size() / s.layout.stages()); }},
    Repeat{"decoder-first-pipeline-num-layers", Source::Layout, "first_stage_layers",
           [](const Scenario& s) { return number(s.layout.first_layers); }},
    Repeat{"decoder-last-pipeline-num-layers", Source::Layout, "last_stage_layers",
           [](const Scenario& s) { return number(s.layout.last_layers); }},
    Repeat{"recompute-granularity", Source::Train, "recompute",
           [](const Scenario& s) { return Texts{in_quotes(word(recompute_names, s.train.recompute.kind))}; }},
    Repeat{"recompute-activations", Source::Train, "recompute",
           [](const Scenario& s) { return boolean(s.train.recompute.kind == Recompute::Selective); }},
    Repeat{"recompute-method", Source::Train, "recompute_method",
           [](const Scenario& s) { return Texts{in_quotes(word(recompute_method_names, s.train.recompute.method))}; }},
    Repeat{"recompute-num-layers", Source::Train, "recompute_layers",
           [](const Scenario& s) {
             return number(s.train.recompute.kind == Recompute::Full ? s.train.recompute.layers : 0);
           }},
    Repeat{"recompute-modules", Source::Train, "recompute_modules",
           [](const Scenario& s) { return Texts{modules_text(s.train.recompute)}; }},
    Repeat{"expert-model-parallel-size", Source::Layout, "expert",
           [](const Scenario& s) { return number(s.layout.expert); }},
    Repeat{"expert-tensor-parallel-size", Source::Layout, "expert_tensor",
           [](const Scenario& s) { return number(s.layout.expert_tensor_parallel()); }},
    Repeat{"num-experts", Source::Model, "number of experts",
           [](const Scenario& s) { return number(s.model.experts() ? s.model.experts()->count : 0); }},
    Repeat{"moe-router-topk", Source::Model, "num_experts_per_tok",
           [](const Scenario& s) { return number(s.model.experts() ? s.model.experts()->chosen : 0); }},
    Repeat{"moe-ffn-hidden-size", Source::Model, "moe_intermediate_size",
           [](const Scenario& s) { return number(s.model.experts() ? s.model.experts()->ffn : 0); }},
    Repeat{"moe-shared-expert-intermediate-size", Source::Model, "width of the shared experts",
           [](const Scenario& s) { return number(s.model.experts() ? s.model.experts()->shared_ffn : 0); }},
    Repeat{"moe-token-dispatcher-type", Source::Moe, "dispatcher",
           [](const Scenario& s) { return Texts{in_quotes(word(dispatcher_names, s.train.routing.dispatcher))}; }},
    Repeat{"moe-enable-deepep", Source::Moe, "dispatcher",
           [](const Scenario& s) { return boolean(s.train.routing.dispatcher == TokenDispatcher::Flex); }},
    Repeat{"moe-expert-capacity-factor", Source::Moe, "capacity_factor",
           [](const Scenario& s) { return Texts{fmt::format("{}", s.train.routing.capacity_factor)}; }},
    Repeat{"moe-pad-expert-input-to-capacity", Source::Moe, "pad_to_capacity",
           [](const Scenario& s) { return boolean(s.train.routing.pads_to_capacity); }},
    Repeat{"moe-shared-expert-gate", Source::Model, "gate of the shared experts",
           [](const Scenario& s) { return boolean(experts_of(s).shared_gate); }},
    // gpt-oss: SwiGLU of values within limits (arguments.py takes its three parts apart).
    Repeat{"quick-geglu", Source::Model, "activation of experts",
           [](const Scenario& s) { return boolean(experts_of(s).clamped_gate); }},
    Repeat{"glu-linear-offset", Source::Model, "activation of experts",
           [](const Scenario& s) { return number(experts_of(s).clamped_gate ? 1 : 0); }},
    Repeat{"activation-func-clamp-value", Source::Model, "activation of experts",
           [](const Scenario& s) { return Texts{experts_of(s).clamped_gate ? "7" : "inf"}; }},
    Repeat{"softmax-type", Source::Model, "attention sinks",
           [](const Scenario& s) { return Texts{s.model.attention_sinks ? "\"learnable\"" : "\"vanilla\""}; }},
    Repeat{"window-size", Source::Model, "sliding_window", windows},
    Repeat{"moe-layer-freq", Source::Model, "layers with experts", layers_with_experts},
    Repeat{"moe-router-score-function", Source::Model, "scoring_func",
           [](const Scenario& s) {
             return Texts{experts_of(s).score == RouterScore::Sigmoid ? "\"sigmoid\"" : "\"softmax\""};
           }},
    Repeat{"moe-router-pre-softmax", Source::Model, "norm_topk_prob",
           [](const Scenario& s) {
             return experts_of(s).score == RouterScore::Sigmoid
                        ? either()
                        : boolean(experts_of(s).score == RouterScore::SoftmaxBefore);
           }},
    Repeat{"moe-router-num-groups", Source::Model, "n_group",
           [](const Scenario& s) { return number(experts_of(s).groups); }},
    Repeat{"moe-router-group-topk", Source::Model, "topk_group",
           [](const Scenario& s) { return number(experts_of(s).topk_group); }},
    Repeat{"moe-router-topk-scaling-factor", Source::Model, "routed_scaling_factor",
           [](const Scenario& s) { return ratio(experts_of(s).scale); }},
    Repeat{"moe-router-enable-expert-bias", Source::Model, "topk_method",
           [](const Scenario& s) { return boolean(experts_of(s).correction_bias); }},
    Repeat{"rope-type", Source::Model, "kind of attention",  // transformer_config.py: whatever rope_scaling says
           [](const Scenario& s) { return Texts{s.model.latent() ? "\"yarn\"" : "\"rope\""}; }},
    Repeat{"qk-layernorm", Source::Model, "norms of queries and keys",
           [](const Scenario& s) { return boolean(s.model.qk_norm != QkNorm::None || latent_of(s).normalized); }},
    Repeat{"multi-latent-attention", Source::Model, "kv_lora_rank",
           [](const Scenario& s) { return boolean(s.model.latent() != nullptr); }},
    Repeat{"q-lora-rank", Source::Model, "q_lora_rank",
           [](const Scenario& s) { return number(latent_of(s).query_rank); }},
    Repeat{"kv-lora-rank", Source::Model, "kv_lora_rank",
           [](const Scenario& s) { return number(latent_of(s).kv_rank); }},
    Repeat{"qk-head-dim", Source::Model, "qk_nope_head_dim",
           [](const Scenario& s) { return number(latent_of(s).qk_nope_head_dim); }},
    Repeat{"qk-pos-emb-head-dim", Source::Model, "qk_rope_head_dim",
           [](const Scenario& s) { return number(latent_of(s).qk_rope_head_dim); }},
    Repeat{"v-head-dim", Source::Model, "v_head_dim",
           [](const Scenario& s) { return number(latent_of(s).value_head); }},
    Repeat{"mtp-num-layers", Source::Model, "num_nextn_predict_layers",
           [](const Scenario& s) { return number(s.model.further.size()); }},
    Repeat{"num-layers", Source::Model, "num_hidden_layers",
           [](const Scenario& s) { return number(s.model.layers.size()); }},
    Repeat{"hidden-size", Source::Model, "hidden_size", [](const Scenario& s) { return number(s.model.hidden); }},
    Repeat{"ffn-hidden-size", Source::Model, "intermediate_size",
           [](const Scenario& s) { return number(s.model.ffn); }},
    Repeat{"num-attention-heads", Source::Model, "num_attention_heads",
           [](const Scenario& s) { return number(s.model.heads); }},
    Repeat{"group-query-attention", Source::Model, "num_key_value_heads",
           [](const Scenario& s) { return s.model.kv_heads == s.model.heads ? either() : boolean(true); }},
    Repeat{"use-tp-pp-dp-mapping", Source::Layout, "order",
           [](const Scenario& s) {
             const auto place = [&](MeshAxis axis) { return std::ranges::find(s.layout.order, axis); };
             return boolean(place(MeshAxis::Tensor) < place(MeshAxis::Pipeline) &&
                            place(MeshAxis::Pipeline) < place(MeshAxis::Data));
           }},
    Repeat{"num-query-groups", Source::Model, "num_key_value_heads",
           [](const Scenario& s) { return number(s.model.kv_heads); }},
    Repeat{"kv-channels", Source::Model, "head_dim", [](const Scenario& s) { return number(s.model.value_dim()); }},
    Repeat{"vocab-size", Source::Model, "vocab_size", [](const Scenario& s) { return number(s.model.vocabulary); }},
    Repeat{"make-vocab-size-divisible-by", Source::Model, "vocabulary_multiple",
           [](const Scenario& s) {
             return number(s.model.vocabulary_multiple == 0 ? default_vocabulary_multiple
                                                            : s.model.vocabulary_multiple);
           }},
    Repeat{"untie-embeddings-and-output-weights", Source::Model, "tie_word_embeddings",
           [](const Scenario& s) { return boolean(!s.model.tied_embeddings); }},
    Repeat{"add-qkv-bias", Source::Model, "bias on Q, K and V",
           [](const Scenario& s) { return s.model.output_bias ? either() : boolean(s.model.qkv_bias); }},
    Repeat{"disable-bias-linear", Source::Model, "bias on the output projection and the MLP",
           [](const Scenario& s) { return boolean(!s.model.output_bias && !s.model.mlp_bias); }},
    Repeat{"swiglu", Source::Model, "activation",
           [](const Scenario& s) { return boolean(s.model.activation == Activation::SwiGlu); }},
    Repeat{"squared-relu", Source::Model, "activation",
           [](const Scenario& s) { return boolean(s.model.activation == Activation::SquaredRelu); }},
    Repeat{"normalization", Source::Model, "normalization",
           [](const Scenario& s) {
             return Texts{s.model.normalization == Normalization::Rms ? "\"RMSNorm\"" : "\"LayerNorm\""};
           }},
    Repeat{"position-embedding-type", Source::Model, "positions",
           [](const Scenario& s) {
             if (s.model.positions == Positions::None) return Texts{"\"none\""};
             return Texts{s.model.positions == Positions::Rotary ? "\"rope\"" : "\"learned_absolute\""};
           }},
    Repeat{"rotary-percent", Source::Model, "rotary_pct",
           [](const Scenario& s) { return Texts{fmt::format("{}", s.model.rotary_fraction)}; }},
    Repeat{"is-hybrid-model", Source::Model, "layers", [](const Scenario& s) { return boolean(s.model.hybrid()); }},
    Repeat{"hybrid-override-pattern", Source::Model, "hybrid_override_pattern",
           [](const Scenario& s) { return Texts{in_quotes(hybrid_pattern(s.model))}; }},
    Repeat{"mamba-num-heads", Source::Model, "mamba_num_heads",
           [](const Scenario& s) { return number(mamba_of(s).heads); }},
    Repeat{"mamba-head-dim", Source::Model, "mamba_head_dim",
           [](const Scenario& s) { return number(mamba_of(s).head_dim); }},
    Repeat{"mamba-num-groups", Source::Model, "n_groups", [](const Scenario& s) { return number(mamba_of(s).groups); }},
    Repeat{"mamba-state-dim", Source::Model, "ssm_state_size",
           [](const Scenario& s) { return number(mamba_of(s).state); }},
    Repeat{"hidden-dropout", Source::Train, "hidden_dropout",
           [](const Scenario& s) { return Texts{fmt::format("{}", s.train.hidden_dropout)}; }},
    Repeat{"attention-dropout", Source::Train, "attention_dropout",
           [](const Scenario& s) { return Texts{fmt::format("{}", s.train.attention_dropout)}; }},
    Repeat{
        "transformer-impl", Source::Train, "attention",
        [](const Scenario&
               s) { return Texts{s.train.attention == AttentionKernel::Local ? "\"local\"" : "\"transformer_engine\""}; }},
};

/// The value as TOML writes it, and a whole float as a whole number: 0.0 and 0 are one flag.
std::string plain(const TomlValue& value) {
  const auto* number = std::get_if<double>(&value.value);
  constexpr double exact = 1e15;
  if (number == nullptr || !(std::fabs(*number) < exact) || std::trunc(*number) != *number) return text(value);
  return std::to_string(static_cast<std::int64_t>(*number));
}

bool sound(const Repeat& repeat, const ScenarioTables& tables) {
  switch (repeat.source) {
    case Source::Layout:
      return tables.layout.sound(repeat.key);
    case Source::Train:
      return tables.train.sound(repeat.key);
    case Source::Model:
      return tables.model_sound;
    case Source::Moe:
      return tables.moe.sound(repeat.key);
    case Source::Offload:
      return true;
  }
  return false;
}

std::string whose(const Repeat& repeat) {
  switch (repeat.source) {
    case Source::Layout:
      return fmt::format("{} in [layout]", repeat.key);
    case Source::Train:
      return fmt::format("{} in [train]", repeat.key);
    case Source::Model:
      return fmt::format("the model's {}", repeat.key);
    case Source::Moe:
      return fmt::format("{} in [moe]", repeat.key);
    case Source::Offload:
      return fmt::format("{} in [offload]", repeat.key);
  }
  return {};
}

void check_repeat(TomlReader& switches, const TomlKey& given, const Repeat& repeat, const Scenario& requested,
                  const ScenarioTables& tables) {
  if (!sound(repeat, tables)) return;
  const Texts wanted = repeat.wanted(requested);
  if (std::find(wanted.begin(), wanted.end(), plain(given.value)) != wanted.end()) return;
  switches.problem(given.name, fmt::format("{} = {} disagrees with {}", given.name, text(given.value), whose(repeat)),
                   fmt::format("leave it out, or set {}", one_of(wanted)));
}

void check_unmodelled(TomlReader& switches, const TomlKey& given, const Unmodelled& flag) {
  const auto is_given = [&](std::string_view neutral) { return neutral == plain(given.value); };
  if (std::any_of(flag.neutral.begin(), flag.neutral.end(), is_given)) return;
  switches.problem(
      given.name, not_modelled(fmt::format("{} = {}: {} not modelled yet", given.name, text(given.value), flag.what)),
      flag.neutral.empty() ? "leave it out" : fmt::format("leave it out, or set {}", flag.neutral.front()));
}

/// NullTokenizer counts an end-of-document token on top of the vocabulary, before padding.
void check_tokenizer(TomlReader& switches, const TomlKey& given, const Scenario& requested) {
  if (text(given.value) != "\"NullTokenizer\"" || requested.model.vocabulary_extra == 1) return;
  switches.problem(given.name,
                   "tokenizer-type = \"NullTokenizer\" adds a token to the vocabulary, and the model has none added",
                   "set vocabulary_extra = 1 in [model_override]");
}

/// arguments.py and transformer_config.py: what recomputed layers begin with, where all tensor-parallel ranks have it.
void check_distribution(TomlReader& switches, const TomlKey& given, const Scenario& requested) {
  if (!requested.runtime.distribute_saved) return;
  const auto wrong = [&](const char* why, const char* hint) {
    switches.problem(given.name, fmt::format("{} = true: {}", given.name, why), hint);
  };
  if (requested.train.recompute.kind != Recompute::Full)
    wrong("it is for recompute = \"full\"", "leave it out, or set recompute = \"full\" in [train]");
  else if (requested.layout.tensor == 1)
    wrong("one tensor-parallel rank has no other rank to share with", "leave it out");
  else if (requested.layout.sequence_parallel)
    wrong("under sequence parallelism each rank has a part already", "leave it out");
}

constexpr std::string_view paired_switch = "no-overlap-p2p-communication";

/// arguments.py and core/model_parallel_config.py: only the interleaved schedule's hand-overs go beside its passes.
void check_flush(TomlReader& switches, const TomlKey& given, const Scenario& requested, const ScenarioTables& tables) {
  if (!requested.runtime.overlaps_flush) return;
  const auto wrong = [&](const char* why, const char* hint) {
    switches.problem(given.name, fmt::format("{} = true: {}", given.name, why), hint);
  };
  if (tables.layout.sound("schedule") && requested.layout.schedule != ScheduleKind::Interleaved)
    wrong("Megatron has nothing to overlap but for the interleaved schedule",
          "leave it out, or set chunks in [layout]");
  else if (switches.boolean(paired_switch).value_or(false))
    wrong("Megatron overlaps warm-up and cool-down with everything between them only",
          "leave no-overlap-p2p-communication out");
}

// Schedules without virtual stages hand over in pairs whatever it says.
void check_paired(TomlReader& switches, const TomlKey& given, const Scenario& requested, const ScenarioTables& tables) {
  if (!switches.boolean(given.name).value_or(false) || !tables.layout.sound("schedule")) return;
  if (requested.layout.schedule == ScheduleKind::Interleaved)
    switches.problem(
        given.name,
        not_modelled(
            fmt::format("{} = true: an interleaved schedule that hands over in pairs is not modelled yet", given.name)),
        "leave it out: Megatron overlaps there by default");
}

constexpr std::string_view centered_switch = "apply-layernorm-1p";

/// core/fusions/fused_layer_norm.py: weight + 1, a tensor that is kept for the backward pass. Transformer Engine's
/// norms add it in their kernels.
void check_centered(TomlReader& switches, const TomlKey& given, const Scenario& requested,
                    const ScenarioTables& tables) {
  if (!switches.boolean(given.name).value_or(false) || !tables.train.sound("attention")) return;
  if (requested.train.attention == AttentionKernel::Local)
    switches.problem(
        given.name,
        not_modelled(fmt::format("{} = true: scales of norms that begin at zero are not modelled yet of local layers",
                                 given.name)),
        "leave it out, or set attention in [train] to another kind than \"local\"");
}

/// Flags that nothing else says, and the value that sets what they stand for.
struct Own {
  std::string_view flag;
  bool RuntimeChoice::*meaning;
  bool set;
};
constexpr std::array own_flags{
    Own{"no-create-attention-mask-in-dataloader", &RuntimeChoice::attention_mask, false},
    Own{"no-gradient-accumulation-fusion", &RuntimeChoice::gradient_accumulation_fusion, false},
    Own{"no-bias-dropout-fusion", &RuntimeChoice::bias_dropout_fusion, false},
    Own{"no-bias-gelu-fusion", &RuntimeChoice::bias_gelu_fusion, false},
    Own{"no-bias-swiglu-fusion", &RuntimeChoice::bias_swiglu_fusion, false},
    Own{"no-rope-fusion", &RuntimeChoice::rope_fusion, false},
    Own{"no-masked-softmax-fusion", &RuntimeChoice::masked_softmax_fusion, false},
    Own{"attention-softmax-in-fp32", &RuntimeChoice::softmax_in_fp32, true},
    Own{"apply-query-key-layer-scaling", &RuntimeChoice::query_key_scaling, true},
    Own{flush_switch, &RuntimeChoice::overlaps_flush, true},
    Own{distribution_switch, &RuntimeChoice::distribute_saved, true},
    Own{"deterministic-mode", &RuntimeChoice::deterministic, true},
};

bool is_own(std::string_view flag) {
  return flag == chunk_group_switch || std::ranges::find(expert_switches, flag) != expert_switches.end() ||
         std::ranges::find(deferral_switches, flag) != deferral_switches.end() ||
         std::ranges::find(overlap_switches, flag) != overlap_switches.end() ||
         std::ranges::find(tensor_overlap_switches, flag) != tensor_overlap_switches.end() ||
         std::ranges::find(optimizer_switches, flag) != optimizer_switches.end() ||
         std::ranges::find(module_offload_switches, flag) != module_offload_switches.end() ||
         std::ranges::find(muon_switches, flag) != muon_switches.end() ||
         std::ranges::find(result_check_switches, flag) != result_check_switches.end() ||
         std::any_of(own_flags.begin(), own_flags.end(), [&](const Own& own) { return own.flag == flag; });
}

std::vector<std::string> all_flags() {
  std::vector<std::string> flags{"tokenizer-type", std::string(chunk_group_switch), std::string(paired_switch)};
  for (const Own& own : own_flags) flags.emplace_back(own.flag);
  for (const std::string_view flag : expert_switches) flags.emplace_back(flag);
  for (const std::string_view flag : deferral_switches) flags.emplace_back(flag);
  for (const std::string_view flag : overlap_switches) flags.emplace_back(flag);
  for (const std::string_view flag : tensor_overlap_switches) flags.emplace_back(flag);
  for (const std::string_view flag : optimizer_switches) flags.emplace_back(flag);
  for (const std::string_view flag : module_offload_switches) flags.emplace_back(flag);
  for (const std::string_view flag : muon_switches) flags.emplace_back(flag);
  for (const std::string_view flag : result_check_switches) flags.emplace_back(flag);
  for (const Repeat& r : repeats) flags.emplace_back(r.flag);
  for (const Unmodelled& u : unmodelled_flags()) flags.emplace_back(u.flag);
  for (const std::string_view flag : harmless_flags()) flags.emplace_back(flag);
  return flags;
}

}  // namespace

void read_own_switches(TomlReader& switches, RuntimeChoice& runtime) {
  for (const Own& own : own_flags)
    runtime.*own.meaning = switches.boolean(own.flag).value_or(false) ? own.set : !own.set;
  runtime.checks = read_result_checks(switches);
  runtime.deferred_head_gradients = read_deferral(switches);
  runtime.overlap = read_overlap(switches);
  runtime.tensor_overlap = read_tensor_overlap(switches);
  runtime.experts = read_expert_behavior(switches);
  runtime.optimizer = read_optimizer_behavior(switches);
  runtime.optimizer.muon = read_muon(switches);
  runtime.offloaded_layers = read_offloaded_layers(switches);
  runtime.module_offload = read_module_offload(switches);
}

void check_megatron_switches(TomlReader switches, const Scenario& requested, const ScenarioTables& tables) {
  for (const TomlKey& given : switches.keys()) {
    const auto named = [&](const auto& row) { return row.flag == given.name; };
    const auto* const repeat = std::find_if(repeats.begin(), repeats.end(), named);
    const auto unmodelled = std::ranges::find_if(unmodelled_flags(), named);
    if (repeat != repeats.end()) {
      check_repeat(switches, given, *repeat, requested, tables);
    } else if (unmodelled != unmodelled_flags().end()) {
      check_unmodelled(switches, given, *unmodelled);
    } else if (given.name == distribution_switch) {
      check_distribution(switches, given, requested);
    } else if (given.name == flush_switch) {
      check_flush(switches, given, requested, tables);
    } else if (given.name == paired_switch) {
      check_paired(switches, given, requested, tables);
    } else if (given.name == centered_switch) {
      check_centered(switches, given, requested, tables);
    } else if (given.name == deferral_switches.front()) {
      check_deferral(switches, requested, tables);
    } else if (given.name == overlap_switches[1]) {
      check_overlap(switches, requested, tables);
    } else if (given.name == tensor_overlap_switches.front()) {
      check_tensor_overlap(switches, requested, tables);
    } else if (is_own(given.name)) {
      continue;  // read on its own: nothing else says it
    } else if (given.name == "tokenizer-type") {
      check_tokenizer(switches, given, requested);
    } else if (std::ranges::find(harmless_flags(), given.name) == harmless_flags().end()) {
      const MegatronArgument* const known = megatron_argument(given.name);
      const std::string meant = known != nullptr ? "" : nearest(given.name, all_flags());
      switches.problem(
          given.name,
          known == nullptr ? fmt::format("{} is not a flag of Megatron's that is known here", in_quotes(given.name))
                           : not_modelled(fmt::format("{} is a flag of {}, and is not modelled", in_quotes(given.name),
                                                      whose(*known))),
          meant.empty() ? "leave it out, if it does not change memory" : fmt::format("did you mean {}?", meant));
    }
  }
}

std::optional<MegatronFlag> megatron_flag(std::string_view flag) {
  using Kind = MegatronFlag::Kind;
  constexpr std::array<std::string_view, 5> tables{"layout", "train", "model", "moe", "offload"};
  for (const Repeat& repeat : repeats)
    if (repeat.flag == flag)
      return MegatronFlag{Kind::Repeats, tables.at(static_cast<std::size_t>(repeat.source)), repeat.key, {}};
  if (is_own(flag) || flag == paired_switch) return MegatronFlag{Kind::Own};
  if (const MegatronArgument* its = megatron_argument(flag);
      its != nullptr && its->kind == MegatronArgument::Kind::Bound)
    return MegatronFlag{Kind::Bound, {}, {}, std::string(its->why)};
  for (const Unmodelled& its : unmodelled_flags())
    if (its.flag == flag) return MegatronFlag{Kind::Unmodelled, {}, {}, fmt::format("{} not modelled yet", its.what)};
  if (const MegatronArgument* its = megatron_argument(flag)) {
    using Table = MegatronArgument::Kind;
    if (its->kind == Table::Modelled) return std::nullopt;  // read by launch files' reader alone
    const std::string why(its->why);
    if (its->kind == Table::Nothing) return MegatronFlag{Kind::NoMatter, {}, {}, why};
    const std::string reason = why.empty() ? "its effect has not been examined" : why;
    return MegatronFlag{Kind::Unmodelled, {}, {}, fmt::format("of {}: {}", whose(*its), reason)};
  }
  if (std::ranges::find(harmless_flags(), flag) != harmless_flags().end()) return MegatronFlag{Kind::NoMatter};
  return std::nullopt;
}

std::vector<std::string> megatron_flags() {
  std::vector<std::string> flags;
  for (const Repeat& repeat : repeats) flags.emplace_back(repeat.flag);
  for (std::string& flag : all_flags())
    if (std::ranges::find(flags, flag) == flags.end()) flags.push_back(std::move(flag));
  return flags;
}

std::vector<std::string> agreeing_values(std::string_view flag, const Scenario& scenario) {
  for (const Repeat& repeat : repeats)
    if (repeat.flag == flag) return repeat.wanted(scenario);
  return {};
}

std::string flag_text(const TomlValue& value) { return plain(value); }

bool asks_for_nothing(std::string_view flag, const TomlValue& value) {
  for (const Unmodelled& its : unmodelled_flags())
    if (its.flag == flag) return std::ranges::find(its.neutral, plain(value)) != its.neutral.end();
  return false;
}

}  // namespace tidemark::scenarios
