#include "scenarios/frameworks/torchtitan/titan_switches.hpp"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"
#include "scenarios/frameworks/torchtitan/titan_pipeline.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

constexpr IntegerRange layer_frequency{1, 1 << 16};

// "op", or every how many layers.
std::int32_t read_checkpointed_layers(TomlReader& switches) {
  constexpr std::string_view key = "selective_ac_option";
  const TomlValue* given = switches.raw(key);
  if (given == nullptr) return 0;
  if (const auto* text = std::get_if<std::string>(&given->value)) {
    if (*text != "op")
      switches.problem(key, fmt::format("{} = {} is not a way to checkpoint", key, in_quotes(*text)),
                       "\"op\", or every how many layers: 2");
    return 0;
  }
  return static_cast<std::int32_t>(switches.integer(key, layer_frequency).value_or(0));
}

// Everything, or one of the components that are compiled by themselves.
void read_compiled_parts(TomlReader& switches, TitanSettings& titan) {
  constexpr std::string_view key = "compile";
  const TomlValue* given = switches.raw(key);
  if (given == nullptr) return;
  const auto* text = std::get_if<std::string>(&given->value);
  if (text == nullptr) {
    titan.compile_layers = titan.compile_loss = switches.boolean(key).value_or(false);
  } else if (*text == "model" || *text == "loss") {
    titan.compile_layers = *text == "model";
    titan.compile_loss = *text == "loss";
  } else {
    switches.problem(key, fmt::format("{} = {} is not a part of a training that is compiled", key, in_quotes(*text)),
                     "true, false, or one of its components: \"model\", \"loss\"");
  }
}

// context_parallel_load_balancer: of attention without block masks.
bool read_load_balancer(TomlReader& switches) {
  constexpr std::string_view key = "context_parallel_load_balancer";
  const std::string text = switches.string(key).value_or("headtail");
  if (text == "headtail") return true;
  if (text != "None")
    switches.problem(key, fmt::format("{} = {} balances no scaled_dot_product_attention", key, in_quotes(text)),
                     "\"headtail\" or \"None\"");
  return false;
}

// train.py of 0.2.2 reads context_parallel_rotate_method nowhere: keys and values are gathered.
void check_rotation(TomlReader& switches) {
  constexpr std::string_view key = "context_parallel_rotate_method";
  const std::string text = switches.string(key).value_or("allgather");
  if (text != "allgather")
    switches.problem(key, not_modelled(fmt::format("{} = {} is not modelled", key, in_quotes(text))),
                     "\"allgather\": torchtitan 0.2.2 trains with nothing else");
}

bool deepseek(const Model& m) { return m.latent() && m.architecture.starts_with("deepseek"); }

// What DeepSeekV3ModelArgs has no number for.
void check_titan_deepseek(const Scenario& requested, ScenarioTables& tables) {
  const Model& model = requested.model;
  if (!model.further.empty())
    tables.top.problem("model", "torchtitan's DeepSeek-V3 has no modules that predict further tokens",
                       "num_nextn_predict_layers = 0 in [model_override]");
  const auto has_experts = [&](LayerKind kind) {
    return model.layers.kinds()[static_cast<std::size_t>(kind)].experts() != nullptr;
  };
  if (!std::ranges::is_sorted(model.layers.order(), {}, has_experts))
    tables.top.problem("model", "layers without experts come first in torchtitan's DeepSeek-V3 (n_dense_layers)",
                       "moe_layer_freq = 1 in [model_override]");
}

bool is_titans(const Model& m) {
  const bool plain = !m.qkv_bias && !m.output_bias && !m.mlp_bias && m.window() == 0;
  if (m.architecture == "qwen3" || m.architecture == "qwen3_moe") return plain && m.qk_norm == QkNorm::PerHead;
  if (deepseek(m)) return plain && m.latent()->normalized && m.experts() && !m.tied_embeddings;
  return plain && !m.experts() && m.architecture == "llama" && !m.tied_embeddings && m.heads * m.head_dim == m.hidden;
}

// What is gathered goes after each unit's forward pass (stage 3), or stays for its backward pass (stage 2).
void settle_titan_sharding(Scenario& requested, ScenarioTables& tables) {
  Layout& layout = requested.layout;
  ReshardPolicy& policy = requested.runtime.eager.titan.reshard;
  const bool keeps = policy == ReshardPolicy::Never;
  const bool alone = requested.gpus == layout.tensor * layout.pipeline;  // a rank that shards over nobody
  const bool one_axis = layout.tensor * layout.pipeline * layout.context * layout.expert == 1;
  const bool replicated = layout.sharding == Sharding::None && tables.layout.has("sharding");
  if (alone && layout.sharding != Sharding::None && tables.layout.has("sharding")) {
    tables.layout.problem("sharding",
                          fmt::format("sharding = \"{}\": torchtitan shards nothing without data-parallel ranks",
                                      word(sharding_names, layout.sharding)),
                          "\"none\", or more gpus");
  } else if (alone) {
    layout.sharding = Sharding::None;
  } else if (replicated) {  // parallelize.py apply_ddp
    if (!one_axis)
      tables.layout.problem("sharding", "sharding = \"none\": torchtitan supports pure replicas along one axis only",
                            "leave it out, or no other axis than data");
    if (tables.layout.has("shard_group"))
      tables.layout.problem("shard_group", "shard_group: sharding = \"none\" shards nothing within groups",
                            "leave it out, or leave out sharding");
  } else if (!tables.layout.has("sharding")) {
    layout.sharding = keeps ? Sharding::Zero2 : Sharding::Zero3;
  } else if (layout.sharding == Sharding::Zero2 && policy == ReshardPolicy::Default) {
    policy = ReshardPolicy::Never;
  } else if (layout.sharding != (keeps ? Sharding::Zero2 : Sharding::Zero3) && tables.layout.sound("sharding")) {
    tables.layout.problem("sharding",
                          fmt::format("sharding = \"{}\" is not what torchtitan does with "
                                      "fsdp_reshard_after_forward = \"{}\"",
                                      word(sharding_names, layout.sharding), word(reshard_policy_names, policy)),
                          keeps ? "\"zero2\" is" : "\"zero3\" is");
  }
}

// parallel_dims.py: experts that are shared out are whole, unless they are cut as the rest is; others are always.
void settle_parts_of_experts(Layout& layout, TomlReader& table) {
  constexpr std::string_view key = "expert_tensor";
  const bool given = table.has(key), sound = table.sound(key);
  if (given && sound && layout.expert == 1)
    table.problem(key, "expert_tensor: torchtitan reads it where experts are shared out (expert)", "leave it out");
  else if (given && sound && layout.expert_tensor != 1 && layout.expert_tensor != layout.tensor)
    table.problem(key,
                  fmt::format("expert_tensor = {}: torchtitan has experts whole, or in as many parts as the rest",
                              layout.expert_tensor),
                  layout.tensor == 1 ? "1 would do" : fmt::format("1 or {} would do", layout.tensor));
  const bool whole = layout.expert_tensor <= 1;
  layout.expert_tensor = layout.expert > 1 && layout.tensor > 1 && whole ? 1 : 0;
}

// models/moe of 0.2.2, whose experts are products in groups.
void check_titan_experts(const Scenario& requested, ScenarioTables& tables) {
  const Experts& experts = *requested.model.experts();
  const auto refuse = [](TomlReader& table, std::string_view key, bool wrong, const ProblemText& what,
                         std::string_view hint = "leave it out") {
    if (wrong && table.sound(key))
      table.problem(key, ProblemText(fmt::format("{}: {}", key, what.text), what.kind), std::string(hint));
  };
  const ProblemText later = not_modelled("of torchtitan's experts it is not modelled yet");
  refuse(tables.runtime, "versions", requested.runtime.versions.torchtitan < Version{0, 2, 2},
         "experts are modelled as torchtitan 0.2.2 has them", "torchtitan = \"0.2.2\"");
  for (std::int64_t layer = 0; layer < requested.model.layers.size() && !deepseek(requested.model); ++layer)
    if (!requested.model.has_experts(layer)) {
      refuse(tables.top, "model", true, "all layers of torchtitan's Qwen3 have experts",
             "decoder_sparse_step = 1 and mlp_only_layers = [] in [model_override]");
      break;
    }
  refuse(tables.top, "model", experts.shared_ffn > 0 && !deepseek(requested.model),
         "torchtitan's Qwen3 has no shared experts");
  if (deepseek(requested.model)) check_titan_deepseek(requested, tables);
  // GroupedMMUtils, Blas.cpp _grouped_mm_cuda: elsewhere groups are multiplied one after the other.
  if (tables.cluster_sound) {
    const std::int32_t generation = requested.cluster.device.compute_capability / 10;
    refuse(tables.top, "cluster", generation != 9 && generation != 10,
           not_modelled(
               "torch._grouped_mm has kernels for Hopper and for Blackwell of compute capability 10 only; what it does "
               "elsewhere is not modelled"),
           "a cluster of H100, H200 or B200");
  }
  const std::int32_t tensor = requested.layout.tensor, parts = requested.layout.expert_tensor_parallel();
  refuse(tables.layout, tables.layout.has("expert_tensor") ? "expert_tensor" : "tensor", experts.ffn % parts != 0,
         fmt::format("it does not divide experts' width of {}", experts.ffn));
  refuse(tables.layout, "tensor", experts.shared_ffn % tensor != 0,
         fmt::format("it does not divide experts' width of {}", experts.shared_ffn));
  refuse(tables.layout, "context", requested.layout.context > 1, later);
  const TitanSettings& titan = requested.runtime.eager.titan;
  // torch/utils/checkpoint.py since 2.13 numbers all operations: gathering in the second run was not there in the
  // first, where it came ahead.
  refuse(tables.layout, "expert",
         requested.layout.expert > 1 && requested.train.recompute.kind == Recompute::Selective &&
             titan.checkpointed_layers == 0 && requested.runtime.versions.torch >= Version{2, 13},
         "since PyTorch 2.13 checkpointing by operations stops where units of their own lie within what runs again",
         "an earlier PyTorch in [runtime] versions, recompute = \"full\", or selective_ac_option = 2");
  refuse(tables.runtime, "switches", titan.compile_layers, not_modelled("torch.compile of experts is not modelled yet"),
         "without compile");
  refuse(tables.moe, "dispatcher", requested.train.routing.dispatcher != TokenDispatcher::AllToAll, later);
  refuse(tables.moe, "capacity_factor", requested.train.routing.capacity_factor > 0, "torchtitan drops no tokens");
}

void refuse_titan(TomlReader& table, std::string_view key, bool wrong, const ProblemText& what,
                  std::string_view hint = "leave it out") {
  if (wrong && table.sound(key))
    table.problem(key, ProblemText(fmt::format("{}: {}", key, what.text), what.kind), std::string(hint));
}

bool replicates(const Layout& layout) { return layout.sharding == Sharding::None; }
// distributed/utils.py maybe_enable_amp
bool autocasts_titan(const Layout& layout) { return replicates(layout) && layout.tensor * layout.pipeline == 1; }
bool compiles_titan(const Scenario& requested) {
  const TitanSettings& titan = requested.runtime.eager.titan;
  return titan.compile_layers || titan.compile_loss;
}

void settle_titan_layout(Scenario& requested, ScenarioTables& tables) {
  TomlReader& layout = tables.layout;
  refuse_titan(layout, "context",
               requested.layout.context > 1 && requested.runtime.versions.torchtitan < Version{0, 2, 2},
               not_modelled("context parallelism of torchtitan before 0.2.2 is not modelled"),
               "versions = { torchtitan = \"0.2.2\" }");
  for (const std::string_view key : {"context_kind", "context_inner"})
    refuse_titan(layout, key, layout.has(key), "torchtitan gathers keys and values");
  // apply_tp: the sequence is cut between linears, whichever way the loss is computed.
  refuse_titan(layout, "sequence_parallel",
               layout.has("sequence_parallel") && !requested.layout.sequence_parallel && requested.layout.tensor > 1,
               "torchtitan's tensor parallelism always cuts the sequence too");
  requested.layout.sequence_parallel = requested.layout.tensor > 1;
  if (tables.model_sound && layout.sound("tensor") && requested.model.vocabulary % requested.layout.tensor != 0)
    layout.problem("tensor",
                   not_modelled(fmt::format("tensor = {} does not divide the vocabulary of {}", requested.layout.tensor,
                                            requested.model.vocabulary)),
                   "uneven parts are not modelled with torchtitan yet");
  settle_titan_sharding(requested, tables);
  settle_parts_of_experts(requested.layout, layout);
}

void check_titan_compile(const Scenario& requested, ScenarioTables& tables) {
  TomlReader& layout = tables.layout;
  const bool compiles = compiles_titan(requested);
  refuse_titan(layout, "tensor", compiles && requested.layout.tensor > 1,
               not_modelled("torch.compile of a model that is split over ranks is not modelled yet"),
               "1, or without the switch compile");
  refuse_titan(layout, "context", compiles && requested.layout.context > 1,
               not_modelled("torch.compile of a model that is split over ranks is not modelled yet"),
               "1, or without the switch compile");

  refuse_titan(tables.runtime, "switches", compiles && autocasts_titan(requested.layout),
               not_modelled("torch.compile under autocast, which unsharded models use, is not modelled yet"),
               "without the switch compile, or sharded over more gpus");
  refuse_titan(tables.top, "gpus",
               replicates(requested.layout) && requested.runtime.eager.fully_shard.offload.has_value(),
               "CPUOffloadPolicy needs data-parallel ranks that shard", "more gpus, or no [offload]");
  const bool budgeted = requested.runtime.eager.titan.memory_budget < 1;
  refuse_titan(tables.runtime, "switches", budgeted && !compiles, "memory_budget applies to torch.compile only",
               "compile = true");
  refuse_titan(tables.train, "recompute", budgeted && requested.train.recompute.kind != Recompute::None,
               "a memory_budget takes the place of checkpointing");
}

void settle_titan_train(Scenario& requested, ScenarioTables& tables) {
  TomlReader& train = tables.train;
  Train& settings = requested.train;
  settings.recompute.modules = {};
  refuse_titan(train, "recompute_modules", train.has("recompute_modules"),
               "torchtitan's selective checkpointing selects operations, or every n-th layer",
               "selective_ac_option in [runtime.switches]");
  refuse_titan(train, "recompute_method", train.has("recompute_method"), "torchtitan checkpoints every layer");
  refuse_titan(train, "recompute_layers", settings.recompute.layers != 1, "torchtitan checkpoints layer by layer",
               "recompute = \"selective\", and selective_ac_option in [runtime.switches]");
  refuse_titan(train, "cross_entropy", settings.cross_entropy != CrossEntropy::Unfused,
               "torchtitan computes its loss unfused");
  refuse_titan(train, "optimizer", settings.optimizer != Optimizer::AdamW, "torchtitan has Adam and AdamW only");
  const auto drop_nothing = [&](std::string_view key, double& probability) {
    refuse_titan(train, key, train.has(key) && probability > 0, "torchtitan's models have no dropout");
    probability = 0;
  };
  drop_nothing("hidden_dropout", settings.hidden_dropout);
  drop_nothing("attention_dropout", settings.attention_dropout);
  refuse_titan(train, "attention", stores_scores(settings.attention),
               "torchtitan's models take scaled_dot_product_attention, whose kernels are fused",
               "leave it out, or \"fused\" (cuDNN's) or \"flash\"");
  // models/attention.py: since 0.2 cuDNN's comes first of the kernels that are asked for; up to 0.1 on Blackwell only.
  const bool blackwell = requested.cluster.device.compute_capability == 100;
  if (settings.attention == AttentionKernel::Auto)
    settings.attention = requested.runtime.versions.torchtitan >= Version{0, 2} || blackwell ? AttentionKernel::Fused
                                                                                             : AttentionKernel::Flash;
  refuse_titan(train, "precision", settings.precision == DType::FP16,
               "torchtitan has no loss scaling, which fp16 needs", "\"bf16\"");
  refuse_titan(train, "master_dtype",
               settings.master_dtype != DType::FP32 && settings.master_dtype != settings.precision,
               "shards are fp32, or in the training precision");
  refuse_titan(train, "gradient_dtype", train.has("gradient_dtype") && settings.gradient_dtype != settings.master_dtype,
               "gradients of shards are kept in the shards' own precision");
  settings.gradient_dtype = settings.master_dtype;
  // Mixed precision of models in parts comes with fully_shard.
  if (replicates(requested.layout) && !autocasts_titan(requested.layout)) settings.precision = settings.master_dtype;
}

void check_titan_model(const Scenario& requested, ScenarioTables& tables) {
  TomlReader& layout = tables.layout;
  refuse_titan(layout, "tensor",
               requested.layout.tensor > 1 && requested.train.precision == DType::FP32 &&
                   requested.model.architecture.starts_with("qwen3") &&
                   requested.runtime.versions.torchtitan >= Version{0, 2, 2},
               "in fp32 PyTorch's math attention kernel rejects DTensors, which torchtitan's Qwen3 passes to it",
               "1, or bf16 and more gpus than model ranks");
  refuse_titan(
      layout, "tensor", requested.layout.tensor > 1 && replicates(requested.layout) && deepseek(requested.model),
      not_modelled("DeepSeek-V3 without data-parallel ranks is not modelled yet"), "1, or more gpus than model ranks");

  if (tables.model_sound && !is_titans(requested.model))
    tables.runtime.problem("name",
                           fmt::format("name = \"torchtitan\": {} is none of torchtitan's models that are modelled",
                                       requested.model.name.empty() ? "this" : requested.model.name),
                           "Llama 3's (untied, without biases), Qwen3's and DeepSeek-V3's are; \"fsdp2\" runs "
                           "transformers' models");
  else if (tables.model_sound && requested.model.experts())
    check_titan_experts(requested, tables);
  // _fsdp_state.py _validate_no_duplicate_params: torchtitan 0.2 makes the ends of a model units of their own.
  if (requested.model.architecture.starts_with("qwen3") && requested.model.tied_embeddings)
    tables.runtime.problem(
        "name",
        not_modelled("name = \"torchtitan\": its embedding and its head are units of their own, and PyTorch 2.15's "
                     "fully_shard refuses a parameter that two units share"),
        "tie_word_embeddings = false in [model_override]; \"fsdp2\" trains tied embeddings");
  // Among experiments since August 2025, of releases since 0.2.
  if (requested.model.architecture == "qwen3" && requested.runtime.versions.torchtitan < Version{0, 2})
    tables.runtime.problem("versions", "torchtitan has Qwen3's models from 0.2 on", "torchtitan = \"0.2\"");
}

}  // namespace

EagerSettings read_titan_switches(TomlReader& switches, const OffloadRequest& offloaded) {
  constexpr Ratio most{std::int64_t{1'000'000'000'000}};
  EagerSettings settings;
  settings.optimizer = read_name(switches, "implementation", optimizer_kernel_names).value_or(OptimizerKernels::Fused);
  // Gradients are always clipped; to what changes neither memory nor time.
  if (switches.ratio("max_norm", Ratio{}, most).value_or(Ratio{1}) == Ratio{})
    switches.problem("max_norm", "max_norm = 0 leaves nothing of a gradient", "1.0 is torchtitan's default");
  constexpr double usual_decay = 0.1;
  const std::optional<Ratio> decay = switches.ratio("weight_decay", Ratio{}, most);
  settings.weight_decay = decay ? static_cast<double>(decay->count()) / static_cast<double>(one.count()) : usual_decay;
  settings.caches_keys = false;
  settings.reentrant_checkpoint = false;
  settings.fully_shard.reduce_dtype =
      read_name(switches, "mixed_precision_reduce", precision_names).value_or(DType::FP32);
  settings.fully_shard.reduces_each_backward = true;
  if (offloaded.parameters) settings.fully_shard.offload = MemorySpace::Pinned;  // CPUOffloadPolicy()
  settings.titan.reshard =
      read_name(switches, "fsdp_reshard_after_forward", reshard_policy_names).value_or(ReshardPolicy::Default);
  settings.titan.loss_parallel = !switches.boolean("disable_loss_parallel").value_or(false);
  settings.titan.early_stop = switches.boolean("early_stop").value_or(false);
  read_compiled_parts(switches, settings.titan);
  settings.titan.balances_context = read_load_balancer(switches);
  check_rotation(switches);
  settings.titan.checkpointed_layers = read_checkpointed_layers(switches);
  read_titan_pipeline(switches, settings.titan);
  if (const std::optional<Ratio> budget = switches.ratio("memory_budget", Ratio{}, one))
    settings.titan.memory_budget = static_cast<double>(budget->count()) / static_cast<double>(one.count());
  switches.refuse_unknown_keys();
  return settings;
}

void settle_titan(Scenario& requested, ScenarioTables& tables) {
  settle_titan_layout(requested, tables);
  check_titan_compile(requested, tables);
  settle_titan_train(requested, tables);
  check_titan_model(requested, tables);
}

}  // namespace tidemark::scenarios
