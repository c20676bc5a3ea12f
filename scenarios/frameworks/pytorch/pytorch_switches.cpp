#include "scenarios/frameworks/pytorch/pytorch_switches.hpp"

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"
#include "scenarios/frameworks/deepspeed/zero_checks.hpp"
#include "scenarios/frameworks/pytorch/fused_modules.hpp"
#include "scenarios/frameworks/pytorch/small_optimizers.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

constexpr IntegerRange bucket_sizes{1, 1 << 20};  // MiB

// torch/optim/optimizer.py _default_to_fused_or_foreach: tensors of the host are updated one after the other, unless it
// is told otherwise.
OptimizerKernels read_optimizer_kernels(TomlReader& switches, bool on_host) {
  const bool foreach = switches.boolean("foreach").value_or(!on_host);
  const bool fused = switches.boolean("fused").value_or(false);
  if (fused && switches.has("foreach") && foreach)
    switches.problem("fused", "fused = true and foreach = true exclude each other", "leave one of them out");
  if (fused) return OptimizerKernels::Fused;
  return foreach ? OptimizerKernels::Foreach : OptimizerKernels::ForLoop;
}

// Where on the host is what is offloaded.
std::optional<MemorySpace> read_memory_of_host(TomlReader& switches, bool offloaded, bool pins_by_default,
                                               std::string_view key) {
  const std::optional<bool> pins = switches.boolean("pin_memory");
  if (offloaded) return pins.value_or(pins_by_default) ? MemorySpace::Pinned : MemorySpace::Pageable;
  if (pins)
    switches.problem("pin_memory", "pin_memory: nothing is on the host",
                     fmt::format("leave it out, or set [offload] {} = \"cpu\"", key));
  return std::nullopt;
}

FullyShardBehavior read_fully_shard(TomlReader& switches, const OffloadRequest& offloaded) {
  FullyShardBehavior behavior;
  behavior.offload = read_memory_of_host(switches, offloaded.parameters, true, "parameters");
  behavior.reduces_each_backward = switches.boolean("sync_each_batch").value_or(false);
  constexpr IntegerRange layers{0, 1 << 16};
  behavior.forward_prefetch = switches.integer("num_to_forward_prefetch", layers).value_or(0);
  behavior.backward_prefetch = switches.integer("num_to_backward_prefetch", layers).value_or(0);
  behavior.reduce_dtype = read_name(switches, "reduce_dtype", precision_names).value_or(DType::FP32);
  return behavior;
}

// What fully_shard takes: true or false, a number of ranks, or nothing ("default"), which keeps the root's parameters.
std::optional<bool> read_reshard_after_forward(TomlReader& switches, FullyShardBehavior& behavior) {
  constexpr std::string_view key = "reshard_after_forward";
  const TomlValue* given = switches.raw(key);
  if (given == nullptr) return std::nullopt;
  if (std::holds_alternative<std::int64_t>(given->value)) {
    const std::int64_t ranks = switches.integer(key, {1, 1 << 20}).value_or(1);
    if (ranks > 1) behavior.ranks_after_forward = ranks;
    return ranks > 1;
  }
  const auto* text = std::get_if<std::string>(&given->value);
  if (text == nullptr) return switches.boolean(key);
  behavior.keeps_root = *text == "default";
  if (!behavior.keeps_root)
    switches.problem(key, fmt::format("{} = {} is not a value of fully_shard's", key, in_quotes(*text)),
                     "true, false, a number of ranks, or \"default\": all units but the root are resharded");
  return true;
}

// True is TrainingArguments' torch_compile: of the model.
CompiledParts read_compiled_parts(TomlReader& switches) {
  constexpr std::string_view key = "torch_compile";
  const TomlValue* given = switches.raw(key);
  if (given == nullptr) return CompiledParts::None;
  const auto* text = std::get_if<std::string>(&given->value);
  if (text == nullptr) return switches.boolean(key).value_or(false) ? CompiledParts::Model : CompiledParts::None;
  if (*text == "regional") return CompiledParts::Layers;
  switches.problem(key, fmt::format("{} = {} is not a part of a model that is compiled", key, in_quotes(*text)),
                   "true, false, or \"regional\": each layer by itself");
  return CompiledParts::None;
}

void read_flat_parameters(TomlReader& switches, const OffloadRequest& offloaded, EagerSettings& settings) {
  FlatParameterBehavior& behavior = settings.flat;
  behavior.offload = offloaded.parameters;
  behavior.reduces_each_backward = switches.boolean("sync_each_batch").value_or(false);
  behavior.original_parameters = switches.boolean("use_orig_params").value_or(false);
  behavior.backward_prefetch =
      read_name(switches, "backward_prefetch", backward_prefetch_names).value_or(BackwardPrefetch::Pre);
  behavior.forward_prefetch = switches.boolean("forward_prefetch").value_or(false);
  behavior.limits_all_gathers = switches.boolean("limit_all_gathers").value_or(true);
  behavior.sync_module_states = switches.boolean("sync_module_states").value_or(false);
  settings.checkpoints_within = switches.boolean("fsdp_activation_checkpointing").value_or(false);
  behavior.autocast = switches.boolean("autocast").value_or(false);
  behavior.buffer_dtype = read_name(switches, "buffer_dtype", precision_names);
  settings.param_dtype = read_name(switches, "param_dtype", precision_names);
  settings.reduce_dtype = read_name(switches, "reduce_dtype", precision_names);
}

}  // namespace

EagerSettings read_pytorch_switches(TomlReader& switches, const RuntimeKind& runtime, const OffloadRequest& offloaded) {
  constexpr Ratio most{std::int64_t{1'000'000'000'000}};
  EagerSettings settings;
  settings.optimizer = read_optimizer_kernels(switches, offloaded.parameters);
  if (runtime.id != RuntimeId::DeepSpeed) {
    settings.compiled = read_compiled_parts(switches);
    settings.modules = read_name(switches, "modules", module_library_names).value_or(ModuleLibrary::Transformers);
  }
  const bool litgpt = settings.modules == ModuleLibrary::LitGpt;
  if (runtime.id != RuntimeId::DeepSpeed)
    settings.clips_gradients = switches.ratio("max_grad_norm", Ratio{}, most).value_or(Ratio{1}) != Ratio{};
  settings.caches_keys = switches.boolean("use_cache").value_or(settings.modules != ModuleLibrary::LitGpt);
  settings.reentrant_checkpoint = switches.boolean("use_reentrant");
  if (runtime.id == RuntimeId::Fsdp) {
    read_flat_parameters(switches, offloaded, settings);
  } else if (runtime.shards_units()) {
    settings.fully_shard = read_fully_shard(switches, offloaded);
    settings.reshard_after_forward = read_reshard_after_forward(switches, settings.fully_shard);
  } else if (runtime.id != RuntimeId::DeepSpeed) {
    settings.gradients_view_buckets = switches.boolean("gradient_as_bucket_view").value_or(false);
    settings.bucket_mib = switches.integer("bucket_cap_mb", bucket_sizes);
    settings.saved_on_host = read_memory_of_host(switches, offloaded.activations, false, "activations");
    settings.autocast = switches.boolean("autocast");
  }
  settings.input_gradients = switches.boolean("enable_input_require_grads");
  const Ratio weight_decay = switches.ratio("weight_decay", Ratio{}, most).value_or(Ratio{});
  settings.weight_decay = static_cast<double>(weight_decay.count()) / static_cast<double>(one.count());
  settings.decoupled_weight_decay = switches.boolean("decoupled_weight_decay").value_or(true);
  settings.amsgrad = switches.boolean("amsgrad").value_or(false);
  settings.keeps_outputs = switches.boolean("keep_outputs").value_or(litgpt);
  settings.filters_losses = switches.boolean("logging_nan_inf_filter").value_or(false);
  settings.small_optimizer = read_small_optimizer(switches);
  // torch.optim.Adafactor takes no foreach kernels unless it is told to.
  if (settings.small_optimizer.torch_adafactor && !switches.has("foreach") &&
      settings.optimizer == OptimizerKernels::Foreach)
    settings.optimizer = OptimizerKernels::ForLoop;
  if (runtime.id != RuntimeId::DeepSpeed) read_fused_modules(switches, settings);
  settings.fake_tensors = switches.boolean("fake_tensor_mode").value_or(false);
  settings.cudnn_attention = switches.boolean("enable_cudnn_sdp").value_or(true);
  return settings;
}

namespace {

// _fsdp_init.py _get_post_forward_mesh_info: of all ranks it is the same as true.
void settle_smaller_groups(Scenario& requested, ScenarioTables& tables) {
  std::int64_t& few = requested.runtime.eager.fully_shard.ranks_after_forward;
  if (few == 0 || !tables.top.sound("gpus") || !tables.layout.sound("shard_group")) return;
  const std::int64_t all = requested.layout.shard_group > 0 ? requested.layout.shard_group : requested.gpus;
  if (few > all || all % few != 0)
    tables.runtime.problem("switches",
                           fmt::format("switches: reshard_after_forward = {} does not divide {} ranks", few, all),
                           "as many as a node has would do, where these divide them");
  else if (few == all)
    few = 0;
  if (few > 0 && requested.runtime.eager.fully_shard.offload)
    tables.runtime.problem(
        "switches",
        not_modelled("switches: a number for reshard_after_forward with shards on the host is not modelled yet"),
        "true or false would do");
}

// What is gathered goes after each unit's forward pass (stage 3), or stays for its backward pass (stage 2).
void settle_sharding(Scenario& requested, ScenarioTables& tables) {
  Layout& layout = requested.layout;
  EagerSettings& switches = requested.runtime.eager;
  const std::optional<bool> said = switches.reshard_after_forward;
  if (!tables.layout.has("sharding")) layout.sharding = said.value_or(true) ? Sharding::Zero3 : Sharding::Zero2;
  const bool reshards = layout.sharding == Sharding::Zero3;
  if (!reshards && layout.sharding != Sharding::Zero2 && tables.layout.sound("sharding"))
    tables.layout.problem(
        "sharding",
        fmt::format("sharding = \"{}\": fully_shard shards parameters", word(sharding_names, layout.sharding)),
        "\"zero3\" would do, or \"zero2\", which keeps what is gathered until the backward pass");
  else if (said.value_or(reshards) != reshards)
    tables.layout.problem("sharding",
                          fmt::format("sharding = \"{}\" disagrees with reshard_after_forward = {}",
                                      word(sharding_names, layout.sharding), *said),
                          "leave one of them out");
  switches.fully_shard.reshards_after_forward = reshards;
  settle_smaller_groups(requested, tables);
  if (switches.fully_shard.offload && requested.train.precision == DType::FP16 && tables.train.sound("precision"))
    tables.train.problem("precision", "precision = \"fp16\": gradients on the host are not unscaled yet",
                         "\"bf16\" would do");
}

// FULL_SHARD, SHARD_GRAD_OP and NO_SHARD are stages 3, 2 and none; within groups the hybrid ones.
void settle_flat_sharding(Scenario& requested, ScenarioTables& tables) {
  Layout& layout = requested.layout;
  FlatParameterBehavior& behavior = requested.runtime.eager.flat;
  if (!tables.layout.has("sharding")) layout.sharding = Sharding::Zero3;
  if (layout.sharding == Sharding::Zero1 && tables.layout.sound("sharding"))
    tables.layout.problem("sharding", "sharding = \"zero1\": FullyShardedDataParallel shards gradients too",
                          "\"zero3\" (FULL_SHARD), \"zero2\" (SHARD_GRAD_OP) or \"none\" (NO_SHARD) would do");
  if (layout.shard_group > 0 && layout.sharding == Sharding::None && tables.layout.sound("shard_group"))
    tables.layout.problem("shard_group", "shard_group: sharding = \"none\" shards nothing within groups",
                          "leave it out, or set sharding = \"zero3\"");
  if (layout.shard_group == 1 && requested.gpus > 1 && tables.layout.sound("shard_group"))
    tables.layout.problem("shard_group",
                          "shard_group = 1: FullyShardedDataParallel takes groups of one for NO_SHARD, and sums no "
                          "gradients over the others",
                          "leave it out, and set sharding = \"none\"");
  behavior.whole = layout.sharding == Sharding::None || requested.gpus == 1;
  behavior.reshards_after_forward = layout.sharding == Sharding::Zero3;
}

void check_flat_offload(const Scenario& requested, ScenarioTables& tables) {
  const FlatParameterBehavior& behavior = requested.runtime.eager.flat;
  if (!behavior.offload) return;
  if (behavior.whole && tables.layout.sound("sharding") && tables.top.sound("gpus"))
    tables.top.problem("offload", "offload: parameters that are not sharded (NO_SHARD) stay on the device here",
                       requested.gpus == 1 ? "more than one GPU, or leave it out" : "\"zero3\" or \"zero2\" would do");
  // _flat_param.py prepare_gradient_for_backward: what is reduced takes the place of the gradient that is there.
  if (behavior.reduces_each_backward && requested.train.global_batch > requested.train.micro_batch * requested.gpus)
    tables.runtime.problem("switches",
                           "switches: with sync_each_batch, CPUOffload keeps only the last micro-batch's gradients",
                           "leave sync_each_batch out");
}

// MixedPrecision: parameters are gathered, and gradients reduced, in what is computed in, unless autocast converts.
void settle_flat_precision(Scenario& requested, ScenarioTables& tables) {
  EagerSettings& switches = requested.runtime.eager;
  const DType computed = requested.train.precision;
  switches.flat.param_dtype = switches.param_dtype.value_or(computed);
  switches.flat.reduce_dtype = switches.reduce_dtype.value_or(switches.flat.param_dtype);
  switches.flat.mixed = switches.param_dtype || switches.flat.autocast || requested.train.master_dtype != computed;
  if (computed == DType::FP16 && tables.train.sound("precision"))
    tables.train.problem("precision", not_modelled("precision = \"fp16\": its ShardedGradScaler is not modelled yet"),
                         "\"bf16\" would do");
  if (switches.flat.param_dtype != computed && !switches.flat.autocast)
    tables.runtime.problem("switches",
                           fmt::format("switches: param_dtype = \"{}\" is not what is computed in, precision = \"{}\"",
                                       name(switches.flat.param_dtype), name(computed)),
                           "set autocast = true, or leave it out");
}

// Of what is compiled: what its model was not compared with is an error.
void check_compiled(const Scenario& requested, ScenarioTables& tables) {
  const EagerSettings& switches = requested.runtime.eager;
  const Train& train = requested.train;
  if (switches.compiled == CompiledParts::None) return;
  const auto refuse = [&](bool wrong, const ProblemText& what, std::string_view hint) {
    if (wrong)
      tables.runtime.problem("switches", ProblemText(fmt::format("switches: torch_compile {}", what.text), what.kind),
                             std::string(hint));
  };
  const RuntimeId id = runtime_kind(requested.runtime.name).id;
  refuse(
      id == RuntimeId::PyTorch && switches.compiled == CompiledParts::Model && requested.layout.data > 1,
      not_modelled(
          "of a model under DistributedDataParallel is cut at its buckets (DDPOptimizer), which is not modelled yet"),
      "\"regional\" would do");
  refuse(switches.compiled == CompiledParts::Model && switches.modules == ModuleLibrary::Transformers,
         not_modelled("of a model of transformers puts attention masks and the loss into graphs of their own, which is "
                      "not modelled "
                      "yet"),
         "\"regional\" would do");
  refuse(id == RuntimeId::Fsdp && !switches.flat.original_parameters, "of flat parameters needs use_orig_params = true",
         "set it");
  refuse(switches.caches_keys && train.recompute.kind == Recompute::None,
         not_modelled("is not modelled yet with keys and values that a forward pass keeps"), "set use_cache = false");
  refuse(train.attention != AttentionKernel::Auto && train.attention != AttentionKernel::Fused,
         "is modelled with scaled_dot_product_attention only", "set attention = \"fused\"");
  refuse(train.precision == DType::FP16 || (id == RuntimeId::PyTorch && train.master_dtype != train.precision) ||
             (id == RuntimeId::Fsdp && switches.flat.autocast),
         not_modelled("is not modelled yet with autocast and scaled losses"),
         "parameters of one type would do: master_dtype");
  refuse(train.hidden_dropout > 0 || train.attention_dropout > 0, not_modelled("is not modelled yet with dropout"),
         "set hidden_dropout and attention_dropout to 0 in [train]");
  refuse(switches.fake_tensors || switches.saved_on_host || switches.fully_shard.offload || switches.flat.offload,
         not_modelled("is not modelled yet with fake tensors and what is offloaded"), "leave those out");
  if (!tables.model_sound) return;
  const Model& m = requested.model;
  refuse(m.window() > 0 && m.window() <= train.sequence_length,
         not_modelled("is not modelled yet where a sliding window takes a mask"), "a shorter sequence would do");
  refuse(m.norms != NormPlacement::Before || m.attention_softcap > 0 || m.logit_softcap > 0 || m.scaled_embedding ||
             m.positions != Positions::Rotary || m.transformers_alone(),
         not_modelled(fmt::format("is not modelled yet with layers like those of {}", m.architecture)), "leave it out");
}

// litgpt/model.py: what its GPT can be, as far as it is modelled.
void check_litgpt(const Scenario& requested, ScenarioTables& tables) {
  const EagerSettings& switches = requested.runtime.eager;
  if (switches.modules != ModuleLibrary::LitGpt) return;
  const Model& m = requested.model;
  const auto refuse = [&](bool wrong, const ProblemText& what, std::string_view hint) {
    if (wrong)
      tables.runtime.problem("switches",
                             ProblemText(fmt::format("switches: modules = \"litgpt\" {}", what.text), what.kind),
                             std::string(hint));
  };
  refuse(switches.caches_keys, "keeps no keys and values in training", "leave use_cache out");
  refuse(requested.train.attention == AttentionKernel::Unfused || requested.train.attention == AttentionKernel::Flash,
         "takes scaled_dot_product_attention", "set attention = \"fused\"");
  // litgpt/model.py GPT.forward: tables of positions end with the model's.
  if (tables.model_sound && tables.train.sound("sequence_length") && requested.train.sequence_length > m.max_positions)
    tables.train.problem(
        "sequence_length",
        fmt::format("sequence_length = {} is more than the {} positions of the model, at which LitGPT stops",
                    requested.train.sequence_length, m.max_positions),
        "max_position_embeddings in [model_override] says how many there are");
  if (tables.model_sound)
    refuse(m.positions != Positions::Rotary || m.tied_embeddings || m.norms != NormPlacement::Before ||
               m.qk_norm != QkNorm::None || m.zero_centered_norms || m.scaled_embedding || m.logit_softcap > 0 ||
               m.window() > 0 || m.attention_softcap > 0 || m.transformers_alone(),
           not_modelled(fmt::format("is not modelled yet with layers like those of {}", m.architecture)),
           "leave it out");
  refuse(requested.runtime.eager.compiled == CompiledParts::Model &&
             requested.train.recompute.kind != Recompute::None &&
             runtime_kind(requested.runtime.name).id == RuntimeId::PyTorch,
         not_modelled("with torch_compile and checkpointed layers is not modelled yet"),
         "torch_compile = \"regional\" would do");
}

void refuse_plain(TomlReader& table, std::string_view key, bool wrong, std::string_view what) {
  if (wrong && table.sound(key)) table.problem(key, fmt::format("{}: plain PyTorch {}", key, what), "leave it out");
}

void refuse_layout(const Layout& requested, TomlReader& layout) {
  refuse_plain(layout, "tensor", requested.tensor > 1, "cuts no layers");
  refuse_plain(layout, "context", requested.context > 1, "cuts no sequences");
  refuse_plain(layout, "context_kind", layout.has("context_kind"), "cuts no sequences");
  refuse_plain(layout, "pipeline", requested.pipeline > 1, "cuts no models");
  refuse_plain(layout, "count_embedding", requested.count_embedding, "cuts no models");
  refuse_plain(layout, "count_loss", requested.count_loss, "cuts no models");
  refuse_plain(layout, "stage_layers", !requested.stage_layers.empty(), "cuts no models");
  refuse_plain(layout, "schedule", requested.schedule != ScheduleKind::OneFOneB, "has no stages to schedule");
  refuse_plain(layout, "sequence_parallel", requested.sequence_parallel, "cuts no layers");
}

void refuse_train(const Train& requested, TomlReader& train) {
  if (requested.recompute.kind == Recompute::Selective && train.sound("recompute"))
    train.problem("recompute", "recompute: plain PyTorch checkpoints whole layers, or nothing",
                  R"("full", or leave it out for none)");
  refuse_plain(train, "recompute_method", requested.recompute.method == RecomputeMethod::Block,
               "checkpoints every layer");
  refuse_plain(train, "recompute_layers", requested.recompute.layers != 1, "checkpoints layer by layer");
  refuse_plain(train, "cross_entropy", requested.cross_entropy != CrossEntropy::Unfused, "computes its loss unfused");
  refuse_plain(train, "attention", requested.attention == AttentionKernel::Local, "has no attention of that kind");
}

// GPT2Model: what else models of its family have is Megatron's (detail/config_format.hpp).
void check_gpt2(const Scenario& requested, ScenarioTables& tables) {
  if (tables.model_sound && requested.model.architecture == "gpt2" && requested.model.qk_norm != QkNorm::None)
    tables.top.problem("model", "transformers' GPT-2 normalizes no queries and keys",
                       "leave qk_layernorm out of [model_override]");
  if (tables.model_sound && requested.model.architecture == "gpt2" && requested.model.positions == Positions::Rotary)
    tables.top.problem("model", "transformers' GPT-2 has learned positions only",
                       "leave position_embedding_type out of [model_override]");
}

// Of shards, gradients and what is computed.
void settle_precision(Scenario& requested, ScenarioTables& tables) {
  TomlReader& train = tables.train;
  const EagerSettings& switches = requested.runtime.eager;
  const DType master = requested.train.master_dtype;
  if (train.sound("master_dtype") && master != DType::FP32 && master != requested.train.precision)
    train.problem("master_dtype", fmt::format("master_dtype = \"{}\" is neither \"fp32\" nor precision = \"{}\"",
                                              name(master), name(requested.train.precision)));
  if (train.sound("gradient_dtype") && train.has("gradient_dtype") && requested.train.gradient_dtype != master)
    train.problem("gradient_dtype", "plain PyTorch keeps gradients in the precision of the parameters",
                  fmt::format("leave it out, or set \"{}\"", name(master)));
  requested.train.gradient_dtype = master;
  if (switches.autocast == false && master != requested.train.precision)
    tables.runtime.problem("switches",
                           fmt::format("switches: autocast = false: nothing would compute in precision = \"{}\"",
                                       name(requested.train.precision)),
                           "leave it out, or set master_dtype");
}

}  // namespace

void settle_pytorch(Scenario& requested, ScenarioTables& tables) {
  TomlReader &layout = tables.layout, &train = tables.train;
  refuse_layout(requested.layout, layout);
  const RuntimeKind& runtime = runtime_kind(requested.runtime.name);
  if (runtime.id == RuntimeId::DeepSpeed)
    settle_zero(requested, tables);
  else if (runtime.id == RuntimeId::Fsdp)
    settle_flat_sharding(requested, tables), settle_flat_precision(requested, tables),
        check_flat_offload(requested, tables);
  else if (runtime.shards_units())
    settle_sharding(requested, tables);
  else
    refuse_plain(layout, "sharding", requested.layout.sharding != Sharding::None,
                 "shards nothing; every rank holds a replica");
  refuse_train(requested.train, train);
  check_gpt2(requested, tables);
  const EagerSettings& switches = requested.runtime.eager;
  const bool sgd = requested.train.optimizer == Optimizer::Sgd || requested.train.optimizer == Optimizer::SgdMomentum;
  if (sgd && (switches.amsgrad || !switches.decoupled_weight_decay))
    tables.runtime.problem(
        "switches",
        fmt::format("switches: torch.optim.SGD has no {}", switches.amsgrad ? "amsgrad" : "decoupled_weight_decay"),
        "leave it out, or set optimizer = \"adamw\"");

  // transformers refuses to soft-cap the scores of fused attention, and does not choose it for Gemma 2 at all
  // (modeling_gemma2.py: _supports_sdpa in 5.23, _check_and_enable_sdpa in 4.48).
  const bool scores = requested.model.attention_softcap > 0 || requested.model.architecture == "gemma2";
  if (requested.train.attention == AttentionKernel::Auto)
    requested.train.attention = scores ? AttentionKernel::Unfused : AttentionKernel::Fused;

  settle_precision(requested, tables);
  check_litgpt(requested, tables);

  // The dropouts of the models' own configurations (resid_pdrop and attn_pdrop; attention_dropout).
  const bool drops = requested.model.architecture == "gpt2" || requested.model.architecture == "gpt_bigcode";
  constexpr double usual = 0.1;
  if (!train.has("hidden_dropout")) requested.train.hidden_dropout = drops ? usual : requested.model.hidden_dropout;
  if (!train.has("attention_dropout"))
    requested.train.attention_dropout = drops ? usual : requested.model.attention_dropout;
  check_compiled(requested, tables);
  check_fused_modules(requested, tables);
}

}  // namespace tidemark::scenarios
