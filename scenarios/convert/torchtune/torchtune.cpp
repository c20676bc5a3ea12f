#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/interpolation.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

// torchtune's recipes (bd2a0fc7): full_finetune_distributed.py, full_finetune_single_device.py and their like with
// LoRA. On several devices each layer is a unit of fully_shard, in one type throughout; on one device nothing is
// wrapped. The figures are of transformers' modules, within a bound.

namespace tidemark::scenarios {
namespace {

struct TunedModel {
  std::string_view builder, checkpoint;
};
// torchtune/models/*/_model_builders.py, without what says how it is trained, and on what it was trained before.
constexpr auto tuned_models = std::to_array<TunedModel>({
    {"llama2_7b", "meta-llama/Llama-2-7b-hf"},
    {"llama2_13b", "meta-llama/Llama-2-13b-hf"},
    {"llama2_70b", "meta-llama/Llama-2-70b-hf"},
    {"llama3_8b", "meta-llama/Meta-Llama-3-8B"},
    {"llama3_70b", "meta-llama/Meta-Llama-3-70B"},
    {"llama3_1_8b", "meta-llama/Llama-3.1-8B"},
    {"llama3_1_70b", "meta-llama/Llama-3.1-70B"},
    {"llama3_1_405b", "meta-llama/Llama-3.1-405B"},
    {"llama3_2_1b", "meta-llama/Llama-3.2-1B"},
    {"llama3_2_3b", "meta-llama/Llama-3.2-3B"},
    {"llama3_3_70b", "meta-llama/Llama-3.3-70B-Instruct"},
    {"mistral_7b", "unsloth/Mistral-7B-v0.2"},  // its layers have no window
    {"qwen2_0_5b", "Qwen/Qwen2-0.5B"},
    {"qwen2_1_5b", "Qwen/Qwen2-1.5B"},
    {"qwen2_7b", "Qwen/Qwen2-7B"},
    {"qwen2_5_0_5b", "Qwen/Qwen2.5-0.5B"},
    {"qwen2_5_1_5b", "Qwen/Qwen2.5-1.5B"},
    {"qwen2_5_3b", "Qwen/Qwen2.5-3B"},
    {"qwen2_5_7b", "Qwen/Qwen2.5-7B"},
    {"qwen2_5_14b", "Qwen/Qwen2.5-14B"},
    {"qwen2_5_32b", "Qwen/Qwen2.5-32B"},
    {"qwen2_5_72b", "Qwen/Qwen2.5-72B"},
    {"qwen3_0_6b", "Qwen/Qwen3-0.6B"},
    {"qwen3_1_7b", "Qwen/Qwen3-1.7B"},
    {"qwen3_4b", "Qwen/Qwen3-4B"},
    {"qwen3_8b", "Qwen/Qwen3-8B"},
    {"qwen3_14b", "Qwen/Qwen3-14B"},
    {"qwen3_32b", "Qwen/Qwen3-32B"},
    {"gemma_2b", "google/gemma-2b"},
    {"gemma_7b", "google/gemma-7b"},
    {"phi3_mini", "microsoft/Phi-3-mini-4k-instruct"},
    {"phi4_14b", "microsoft/phi-4"},
});

// What a recipe says of data, checkpoints and logs.
constexpr auto tune_aside = std::to_array<std::string_view>({"output_dir",
                                                             "checkpointer",
                                                             "resume_from_checkpoint",
                                                             "save_adapter_weights_only",
                                                             "save_every_n_steps",
                                                             "save_every_n_epochs",
                                                             "enable_async_checkpointing",
                                                             "epochs",
                                                             "max_steps_per_epoch",
                                                             "seed",
                                                             "shuffle",
                                                             "dataset_val",
                                                             "collate_fn",
                                                             "lr_scheduler",
                                                             "metric_logger",
                                                             "log_every_n_steps",
                                                             "log_peak_memory_stats",
                                                             "log_level",
                                                             "profiler",
                                                             "device",
                                                             "low_cpu_ram",
                                                             "cudnn_deterministic_mode",
                                                             "context_parallel_rotate_method",
                                                             "tensor_parallel_plan",
                                                             "activation_offloading_use_streams",
                                                             "memory_efficient_fsdp_wrap",
                                                             "fp8_recipe_name"});

class TorchtuneReader {
 public:
  TorchtuneReader(const TomlTable& whole, const ShippedModels& models, Draft& draft)
      : given_(whole.keys, "", draft), models_(models), draft_(draft) {}

  void read() {
    refuse_others();
    read_devices();
    read_model();
    read_batch();
    read_precision();
    read_optimizer();
    read_memory();
    read_quantizer();
    read_loss();
    given_.no_matter(tune_aside, "of data, checkpoints and logs");
    given_.refuse_the_rest("is no key of torchtune's that is known here");
    draft_.remark_bounded("torchtune",
                          "the figures are of transformers' modules with this model, layout and batch; torchtune's "
                          "turn positions in fp32, and have keys and values once for each head",
                          "torchtune", given_.place("model"));
  }

 private:
  // Recipes for preferences, distillation and quantization (recipes/*_dpo_*.py, knowledge_distillation_*.py, ppo_*.py,
  // dev/grpo_*.py, qat_*.py) have keys of their own.
  void refuse_others() {
    struct Task {
      std::string_view key, what;
    };
    for (const auto& [key, what] : {Task{"teacher_model", "distillation"}, Task{"kd_loss", "distillation"},
                                    Task{"reward_and_value_model", "rewards (PPO)"},
                                    Task{"grpo_samples", "rewards (GRPO)"}, Task{"orchestration", "rewards (GRPO)"}})
      if (given_.has(key)) fail(key, fmt::format("{}: trains by {}, which is not modelled", key, what));
    // recipes/full_dpo_distributed.py, lora_dpo_*.py.
    if (Given loss = given_.table("loss"); loss.text("_component_").value_or("").find("rlhf") != std::string::npos) {
      if (loss.text("_component_").value_or("").find("PPO") != std::string::npos)
        fail("loss", "loss: trains by rewards, a task that is not modelled");
      (void)learn_from("dpo", "loss", given_.place("loss"), draft_);
      draft_.judges_whole = true;
    }
    given_.no_matter(std::array<std::string_view, 1>{"ref_checkpointer"}, "where the reference's weights are");
    if (!given_.has("optimizer") || !given_.has("model"))
      throw InputError(Problem{draft_.file, 1, 1, "is of torchtune, and trains nothing: it has no model or optimizer",
                               "a recipe's configuration would do, such as recipes/configs/llama3_1/8B_full.yaml"});
  }

  [[noreturn]] void fail(std::string_view key, std::string message) const {
    const Place place = given_.place(key);
    throw InputError(Problem{draft_.file, place.line, place.column, std::move(message),
                             "full fine-tuning and LoRA are modelled", ProblemKind::NotModelled});
  }

  // Which recipe a configuration is of, its name says, and how many processes are started.
  void read_devices() {
    const std::string stem = std::filesystem::path(draft_.file).stem().string();
    const bool named_single = stem.ends_with("single_device") || stem.ends_with("low_memory") || is_of_one_device();
    if (const auto gpus = draft_.integer("gpus"); gpus)
      alone_ = *gpus == 1;
    else if (alone_ = named_single; alone_)
      draft_.set("gpus", std::int64_t{1});
    else
      draft_.starts_all = "nothing says on how many devices: tune run --nproc_per_node";
    draft_.set("runtime.name", std::string(alone_ ? "pytorch" : "fsdp2"));
    if (alone_) return;
    const bool keeps = given_.flag("fsdp_reshard_after_forward").value_or(true);
    draft_.set("layout.sharding", std::string(keeps ? "zero3" : "zero2"));
    for (const std::string_view key : {"tensor_parallel_dim", "context_parallel_dim"})
      if (given_.integer(key).value_or(1) != 1) fail(key, fmt::format("{}: torchtune's meshes are not modelled", key));
    const auto replicas = given_.integer("data_parallel_replicate_dim"),
               shards = given_.integer("data_parallel_shard_dim");
    const auto gpus = draft_.integer("gpus");
    if (shards && *shards > 1)
      draft_.set("layout.shard_group", *shards, given_.place("data_parallel_shard_dim"));
    else if (replicas && *replicas > 1 && gpus && *gpus % *replicas == 0)
      draft_.set("layout.shard_group", *gpus / *replicas, given_.place("data_parallel_replicate_dim"));
    else if (replicas && *replicas > 1)
      given_.tell(RemarkKind::NotExpressed, "data_parallel_replicate_dim",
                  "on how many devices is not said, or they are not so many times as many: --gpus N says it");
    given_.no_matter(std::array<std::string_view, 1>{"custom_sharded_layers"},
                     "units of their own are within torchtune's bound");
  }

  // bitsandbytes' optimizers take no DTensors.
  bool is_of_one_device() {
    Given optimizer = given_.table("optimizer");
    return optimizer.text("_component_").value_or("").starts_with("bitsandbytes.");
  }

  void read_model() {
    Given model = given_.table("model");
    const std::string component = model.text("_component_").value_or("");
    std::string name = component.substr(component.rfind('.') + 1);
    const bool quantized = name.starts_with("qlora_"), adapted = quantized || name.starts_with("lora_");
    if (adapted) name.erase(0, name.find('_') + 1);
    for (const std::string_view end : {"_base", "_instruct"})
      if (name.ends_with(end)) name.resize(name.size() - end.size());
    const auto* const known = std::ranges::find(tuned_models, std::string_view(name), &TunedModel::builder);
    if (known != tuned_models.end())
      name_checkpoint(models_, std::string(known->checkpoint), "model._component_", model.place("_component_"), draft_);
    else if (draft_.find("model") == nullptr)
      draft_.remark(RemarkKind::NotExpressed, fmt::format("model._component_ = {}", in_quotes(component)),
                    not_modelled("this model of torchtune's is not modelled: --model says its config.json"),
                    model.place("_component_"));
    if (adapted) read_adapter(model, quantized, name.starts_with("phi"));
    model.no_matter(std::array<std::string_view, 1>{"max_seq_len"}, "how far tables of positions reach");
    model.refuse_the_rest("is no argument of this model of torchtune's that is known here");
  }

  void read_adapter(Given& model, bool quantized, bool other_names) {
    if (other_names)
      draft_.remark(RemarkKind::NotExpressed, "model._component_",
                    not_modelled("LoRA on parts of what transformers has as one linear is not modelled"),
                    model.place("_component_"));
    draft_.set("adapter.method", std::string("lora"), model.place("_component_"));
    draft_.set("adapter.dtype", type_);
    for (const auto& [name, path] :
         {std::pair{"lora_rank", "adapter.rank"}, {"lora_alpha", "adapter.alpha"}, {"lora_dropout", "adapter.dropout"}})
      if (const TomlValue* value = model.take(name)) draft_.set(path, value->value, value->place);
    std::vector<TomlValue> targets;
    const TomlValue* const its = model.take("lora_attn_modules");
    const auto* const list = its == nullptr ? nullptr : std::get_if<std::vector<TomlValue>>(&its->value);
    for (TomlValue module : list == nullptr ? std::vector<TomlValue>{} : *list) {
      if (auto* const text = std::get_if<std::string>(&module.value); text != nullptr && *text == "output_proj")
        *text = "o_proj";
      targets.push_back(std::move(module));
    }
    if (model.flag("apply_lora_to_mlp").value_or(false))
      for (const char* name : {"gate_proj", "up_proj", "down_proj"})
        targets.push_back({std::string(name), model.place("apply_lora_to_mlp")});
    if (model.flag("apply_lora_to_output").value_or(false))
      targets.push_back({std::string("lm_head"), model.place("apply_lora_to_output")});
    if (!targets.empty()) draft_.set("adapter.target_modules", std::move(targets), model.place("lora_attn_modules"));
    model.refuse("use_dora", "DoRA is", {"false"});
    // modules/low_precision: codes of 64 weights with a scale, scales of 256 with one, as bitsandbytes' double ones.
    if (model.flag("quantize_base").value_or(quantized)) {
      draft_.set("quantization.format", std::string("nf4"), model.place("_component_"));
      draft_.set("quantization.double_quant", true);
      draft_.set("quantization.prepare", std::string("none"));
      if (!alone_) draft_.set("quantization.storage_dtype", type_);
    }
  }

  void read_batch() {
    if (const auto batch = given_.integer("batch_size"))
      draft_.set("train.micro_batch", *batch, given_.place("batch_size"));
    draft_.accumulation = given_.integer("gradient_accumulation_steps").value_or(1);
    Given tokenizer = given_.table("tokenizer");
    if (const auto longest = tokenizer.integer("max_seq_len"))
      draft_.set("train.sequence_length", *longest, tokenizer.place("max_seq_len"));
    else
      draft_.rows_of_data = "tokenizer.max_seq_len";
    if (const TomlValue* data = given_.take("dataset"))
      if (const auto* table = std::get_if<TomlTable>(&data->value)) {
        Given its(table->keys, "dataset.", draft_);
        if (its.flag("packed").value_or(false))
          its.tell_bounded("packed", "the figures are of whole sequences of that length, which packed ones fill",
                           "packed-rows");
      }
    const auto often = given_.integer("run_val_every_n_steps"), validated = given_.integer("batch_size_val");
    const std::int64_t trained = draft_.integer("train.micro_batch").value_or(1);
    if (often && validated.value_or(trained) > trained)
      draft_.remark_bounded(fmt::format("batch_size_val = {}", *validated),
                            "evaluation is not simulated, and has more sequences at once than are trained",
                            fmt::format("evaluation:{}", *validated), given_.place("batch_size_val"));
  }

  void read_precision() {
    const std::string type = given_.text("dtype").value_or("fp32");
    if (type != "bf16" && type != "fp32")
      fail("dtype", fmt::format("dtype = {}: is not modelled here: bf16 and fp32 are", in_quotes(type)));
    draft_.set("train.precision", type, given_.place("dtype"));
    if (type != "fp32") draft_.set("train.master_dtype", type);
    if (!alone_) draft_.set("runtime.switches.reduce_dtype", type);
    draft_.type_said = true;
    if (draft_.find("adapter") != nullptr) draft_.set("adapter.dtype", type);
    if (draft_.find("quantization.storage_dtype") != nullptr) draft_.set("quantization.storage_dtype", type);
    given_.refuse("enable_fp8_training", "FP8 is", {"false"});
  }

  void read_optimizer() {
    struct Named {
      std::string_view theirs, ours;
    };
    constexpr auto names = std::to_array<Named>({{"torch.optim.AdamW", ""},
                                                 {"torch.optim.SGD", "sgd"},
                                                 {"bitsandbytes.optim.AdamW8bit", "adamw_8bit"},
                                                 {"bitsandbytes.optim.PagedAdamW8bit", "paged_adamw_8bit"},
                                                 {"bitsandbytes.optim.PagedAdamW", "paged_adamw_32bit"}});
    Given optimizer = given_.table("optimizer");
    const std::string component = optimizer.text("_component_").value_or("");
    const auto* const its = std::ranges::find(names, std::string_view(component), &Named::theirs);
    if (its == names.end() && component.starts_with("torchao.optim.AdamW8bit") && !alone_) {
      optimizer.tell(
          RemarkKind::NotJudged, "_component_",
          not_modelled("torchao's AdamW in 8 bits is modelled on one device only: the figures are of AdamW"));
    } else if (its == names.end() && component.starts_with("torchao.optim.AdamW8bit")) {
      optimizer.tell_bounded("_component_",
                             "the figures are of bitsandbytes' AdamW in 8 bits, which keeps embeddings' state in 32",
                             "torchao-adam");
      draft_.set("train.optimizer", std::string("adamw_8bit"));
    } else if (its == names.end()) {
      optimizer.tell(RemarkKind::NotJudged, "_component_", "is not modelled: the figures are of AdamW");
    } else if (!its->ours.empty()) {
      draft_.set("train.optimizer", std::string(its->ours), optimizer.place("_component_"));
    }
    const bool plain = its == names.begin();
    for (const char* name : {"fused", "foreach"})
      if (const auto on = optimizer.flag(name); on && plain)
        draft_.set(fmt::format("runtime.switches.{}", name), *on, optimizer.place(name));
    if (const TomlValue* decay = optimizer.take("weight_decay"))
      draft_.set("runtime.switches.weight_decay", decay->value, decay->place);
    optimizer.no_matter(std::array<std::string_view, 4>{"lr", "betas", "eps", "momentum"});
    optimizer.refuse_the_rest("is no argument of this optimizer that is known here");
    draft_.set("runtime.switches.max_grad_norm", given_.number("clip_grad_norm").value_or(0.0),
               given_.place("clip_grad_norm"));
    if (given_.flag("optimizer_in_bwd").value_or(false))
      given_.tell_bounded("optimizer_in_bwd",
                          "the figures are of a step behind the backward pass, which has all gradients at once",
                          "optimizer-in-backward");
  }

  // recipes/qat_distributed.py and qat_lora_finetune_distributed.py, torchtune/training/quantization.py.
  void read_quantizer() {
    if (!given_.has("quantizer")) return;
    given_.tell_bounded("quantizer",
                        "the figures are of linears that round nothing; these keep what inputs and weights are rounded "
                        "to, and a mask of each",
                        "fake-quantized");
    given_.no_matter(std::array<std::string_view, 1>{"fake_quant_after_n_steps"}, "from then on it is bounded");
  }

  void read_memory() {
    draft_.set("runtime.switches.use_cache", false);
    if (given_.flag("enable_activation_checkpointing").value_or(false)) {
      draft_.set("train.recompute", std::string("full"), given_.place("enable_activation_checkpointing"));
      draft_.set("runtime.switches.use_reentrant", false);  // checkpoint_wrapper
    }
    if (given_.flag("enable_activation_offloading").value_or(false))
      given_.tell_bounded("enable_activation_offloading",
                          "what is saved for the backward pass is on the host; the figures are of the device",
                          "saved-on-hosts");
    for (const std::string_view name : {"ac_mode", "ac_option"})
      given_.refuse(name, "recomputation of parts is", {"\"none\""});
    if (given_.flag("fsdp_cpu_offload").value_or(false) && !alone_)
      draft_.set("offload.parameters", std::string("cpu"), given_.place("fsdp_cpu_offload"));
    // No recipe reads this table any more: fsdp_cpu_offload says it.
    if (Given older = given_.table("fsdp"); older.flag("cpu_offload").value_or(false))
      older.tell(RemarkKind::NotJudged, "cpu_offload", "is read by no recipe of torchtune's that is known here");
    // training/_compile.py: each layer by itself, and the loss.
    const TomlValue* const compiled = given_.take("compile");
    const auto* const parts = compiled == nullptr ? nullptr : std::get_if<TomlTable>(&compiled->value);
    const auto* const on = compiled == nullptr ? nullptr : std::get_if<bool>(&compiled->value);
    if (parts != nullptr || (on != nullptr && *on))
      draft_.set("runtime.switches.torch_compile", std::string("regional"), compiled->place);
  }

  // modules/loss: logits of an eighth of the tokens at a time.
  void read_loss() {
    Given loss = given_.table("loss");
    const std::string component = loss.text("_component_").value_or("");
    loss.no_matter(std::array<std::string_view, 3>{"beta", "label_smoothing", "gamma"}, "of how answers are judged");
    if (draft_.learns_from != LearnsFrom::Rows) return;
    if (component.find("Chunked") != std::string::npos || component.find("LinearCrossEntropy") != std::string::npos)
      loss.tell_bounded("_component_", "the figures are of whole logits, which it never has", "chunked-loss");
    else if (component.find("CrossEntropyLoss") == std::string::npos)
      loss.tell(RemarkKind::NotJudged, "_component_", "is a loss that is not modelled");
    loss.no_matter(std::array<std::string_view, 3>{"num_output_chunks", "ignore_index", "mask_ignored_tokens"});
  }

  Given given_;
  const ShippedModels& models_;
  Draft& draft_;
  std::string type_ = "bf16";
  bool alone_ = false;  // one device, and nothing is wrapped
};

}  // namespace

void read_torchtune(const TomlTable& document, const ShippedModels& models, Draft& draft) {
  TomlTable whole = document;
  interpolate(whole);
  draft.own_defaults = true;
  TorchtuneReader(whole, models, draft).read();
}

}  // namespace tidemark::scenarios
