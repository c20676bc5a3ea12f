#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/interpolation.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

// NeMo AutoModel's recipes/llm/train_ft.py: transformers' models, or its own with the same modules, under fully_shard
// (nemo_automodel/components/distributed). The figures are of transformers' modules, within a bound.

namespace tidemark::scenarios {
namespace {

constexpr auto automodel_aside = std::to_array<std::string_view>({"rng",
                                                                  "seed",
                                                                  "dist_env",
                                                                  "checkpoint",
                                                                  "dataloader",
                                                                  "validation_dataset",
                                                                  "validation_dataloader",
                                                                  "_validation_dataset",
                                                                  "_validation_dataloader",
                                                                  "lr_scheduler",
                                                                  "wandb",
                                                                  "mlflow",
                                                                  "comet",
                                                                  "tokenizer",
                                                                  "ci",
                                                                  "nvtx",
                                                                  "skypilot",
                                                                  "slurm",
                                                                  "tool_call_eval",
                                                                  "logging",
                                                                  "prewarm",
                                                                  "peft.lora_A_init"});

class AutoModel {
 public:
  AutoModel(const TomlTable& whole, const ShippedModels& models, Draft& draft)
      : given_(whole.keys, "", draft), models_(models), draft_(draft) {}

  void read() {
    refuse_other_recipes();
    draft_.starts_all = "automodel";
    read_model();
    read_mesh();
    read_adapter();
    read_quantization();
    read_batch();
    read_optimizer();
    read_loss();
    read_compiler();
    given_.no_matter(automodel_aside, "of data, checkpoints and logs");
    given_.refuse_the_rest("is no key of NeMo AutoModel's that is known here");
    draft_.remark_bounded("NeMo AutoModel",
                          "the figures are of transformers' modules; AutoModel keeps the last layer's parameters "
                          "gathered, may checkpoint halves of layers, and has Liger's kernels where they are installed",
                          "automodel", given_.place("model"));
  }

 private:
  [[noreturn]] void fail(const Given& of, std::string_view key, std::string message) const {
    const Place place = of.place(key);
    throw InputError(Problem{draft_.file, place.line, place.column, std::move(message),
                             "full fine-tuning and LoRA of dense models under fully_shard are modelled",
                             ProblemKind::NotModelled});
  }

  void refuse_other_recipes() {
    const std::string recipe = given_.text("recipe").value_or("");
    if (!recipe.empty() && recipe.find("ForNextTokenPrediction") == std::string::npos)
      fail(given_, "recipe", fmt::format("recipe = {}: is not modelled", in_quotes(recipe)));
    for (const std::string_view key : {"kd", "teacher_model", "speculative", "draft_model", "qat", "diffusion"})
      if (given_.has(key)) fail(given_, key, fmt::format("{}: trains by another task, which is not modelled", key));
  }

  // from_pretrained's torch_dtype is the checkpoint's where nothing is said, from_config's bfloat16.
  void read_model() {
    Given model = given_.table("model");
    const std::string target = model.text("_target_").value_or("");
    if (target.find("CausalLM") == std::string::npos)
      fail(model, "_target_",
           fmt::format("model._target_ = {}: is not modelled: causal language models of "
                       "transformers are",
                       in_quotes(target)));
    std::optional<std::string> checkpoint = model.text("pretrained_model_name_or_path");
    const TomlValue* const config = model.take("config");
    if (const auto* name = config == nullptr ? nullptr : std::get_if<std::string>(&config->value)) checkpoint = *name;
    if (const auto* table = config == nullptr ? nullptr : std::get_if<TomlTable>(&config->value)) {
      Given its(table->keys, "model.config.", draft_);
      if (const auto name = its.text("pretrained_model_name_or_path")) checkpoint = name;
      its.no_matter(std::array<std::string_view, 2>{"_target_", "trust_remote_code"}, "of how a configuration is read");
      its.refuse_the_rest("is no key of a model's configuration that is known here");
    }
    if (checkpoint && draft_.find("model") == nullptr)
      name_checkpoint(models_, *checkpoint, "model.pretrained_model_name_or_path",
                      model.place("pretrained_model_name_or_path"), draft_);
    read_type(model, target.ends_with("from_config"));
    const std::string attention = model.text("attn_implementation").value_or("sdpa");
    if (attention.starts_with("flash_attention"))
      draft_.set("train.attention", std::string("flash"), model.place("attn_implementation"));
    else if (attention == "eager")
      draft_.set("train.attention", std::string("unfused"), model.place("attn_implementation"));
    else if (attention != "sdpa")
      model.tell(RemarkKind::NotJudged, "attn_implementation", "is an attention that is not modelled");
    if (model.has("backend"))
      model.tell(RemarkKind::NotJudged, "backend", "kernels of one's own choosing are not modelled here");
    if (model.has("fp8_config")) model.tell(RemarkKind::NotJudged, "fp8_config", "FP8 is not modelled here");
    model.no_matter(std::array<std::string_view, 6>{"trust_remote_code", "use_liger_kernel", "use_sdpa_patching",
                                                    "force_hf", "output_hidden_states", "sdpa_method"},
                    "is within AutoModel's bound");
    model.refuse_the_rest("is no argument of a model's that is known here");
    draft_.set("runtime.switches.use_cache", false);  // recipes/llm/train_ft.py
  }

  void read_type(Given& model, bool from_config) {
    draft_.type_said = true;
    const bool automatic = !model.has("torch_dtype") || model.left_to_others("torch_dtype");
    std::string type = automatic ? "" : model.text("torch_dtype").value_or("");
    (void)model.take("torch_dtype");
    if (type.starts_with("torch.")) type.erase(0, std::string_view("torch.").size());
    if (automatic && !from_config) {
      draft_.automatic.emplace("torch_dtype");
      return;
    }
    if (automatic || type == "bf16" || type == "bfloat16")
      draft_.set("train.master_dtype", std::string("bf16"), model.place("torch_dtype"));
    else if (type != "float32" && type != "fp32")
      fail(model, "torch_dtype", fmt::format("torch_dtype = {}: is not modelled here", in_quotes(type)));
    wide_ = !automatic && type.ends_with("32");
    draft_.set("train.precision", std::string("bf16"), model.place("torch_dtype"));  // FSDP2Config.mp_policy
  }

  void read_mesh() {
    Given its = given_.table("distributed");
    const std::string target = its.text("_target_").value_or("");
    const std::string strategy = its.text("strategy")
                                     .value_or(target.find("ddp") != std::string::npos             ? "ddp"
                                               : target.find("megatron_fsdp") != std::string::npos ? "megatron_fsdp"
                                                                                                   : "fsdp2");
    const std::int64_t parts = number(its, "cp_size");
    draft_.part_rows(parts, fmt::format("cp_size = {}", parts), its.place("cp_size"));
    for (const std::string_view key : {"tp_size", "pp_size", "ep_size"})
      if (const auto degree = number(its, key); degree > 1)
        fail(its, key, fmt::format("{} = {}: AutoModel's other meshes are not modelled", key, degree));
    if (strategy == "ddp") {
      draft_.set("runtime.name", std::string("pytorch"), its.place("strategy"));
    } else if (strategy == "fsdp2") {
      draft_.set("runtime.name", std::string("fsdp2"), its.place("strategy"));
      draft_.set("layout.sharding", std::string("zero3"), its.place("strategy"));
      draft_.set("runtime.switches.reduce_dtype", std::string("fp32"), its.place("mp_policy"));
      draft_.set("runtime.switches.reshard_after_forward", std::string("default"), its.place("strategy"));
    } else {
      fail(its, "strategy", fmt::format("distributed.strategy = {}: is not modelled", in_quotes(strategy)));
    }
    const auto gpus = draft_.integer("gpus");
    if (const std::int64_t replicas = number(its, "dp_replicate_size"); replicas > 1 && gpus && *gpus % replicas == 0)
      draft_.set("layout.shard_group", *gpus / replicas, its.place("dp_replicate_size"));
    if (const std::string checkpoints =
            its.has("activation_checkpointing") ? text_of(its, "activation_checkpointing") : "";
        checkpoints == "true" || checkpoints == "full") {
      draft_.set("train.recompute", std::string("full"), its.place("activation_checkpointing"));
      draft_.set("runtime.switches.use_reentrant", false);
    } else if (!checkpoints.empty() && checkpoints != "false") {
      its.tell(RemarkKind::NotJudged, "activation_checkpointing", "is not modelled: the figures are without it");
    }
    for (const std::string_view key :
         {"offload_policy", "mp_policy", "autocast_dtype", "enable_compile", "moe", "pipeline"})
      if (its.has(key) && text_of(its, key) != "false" && text_of(its, key) != "null")
        its.tell(RemarkKind::NotJudged, key, "is not modelled here");
    if (its.has("defer_fsdp_grad_sync") && !its.flag("defer_fsdp_grad_sync").value_or(true))
      draft_.set("runtime.switches.sync_each_batch", true, its.place("defer_fsdp_grad_sync"));
    its.no_matter(std::array<std::string_view, 6>{"dp_size", "sequence_parallel", "dp_replicate_size", "world_size",
                                                  "backend", "activation_checkpointing_scope"},
                  "what follows from others");
    its.refuse_the_rest("is no key of a distributed section that is known here");
  }

  // "none" is as good as none.
  static std::int64_t number(Given& its, std::string_view key) {
    const TomlValue* const value = its.take(key);
    const auto* const count = value == nullptr ? nullptr : std::get_if<std::int64_t>(&value->value);
    return count == nullptr ? 1 : *count;
  }
  static std::string text_of(Given& its, std::string_view key) {
    const TomlValue* const value = its.take(key);
    if (value == nullptr) return "null";
    const auto* const text = std::get_if<std::string>(&value->value);
    return text == nullptr ? scenarios::text(*value) : *text;
  }

  // components/_peft/lora.py: adapters are of the type of what they adapt.
  void read_adapter() {
    if (!given_.has("peft")) return;
    Given its = given_.table("peft");
    draft_.set("adapter.method", std::string("lora"), given_.place("peft"));
    draft_.set("adapter.rank", its.integer("dim").value_or(8), its.place("dim"));
    draft_.set("adapter.alpha", its.integer("alpha").value_or(32), its.place("alpha"));
    draft_.set("adapter.dropout", its.number("dropout").value_or(0.0), its.place("dropout"));
    if (!wide_) draft_.set("adapter.dtype", std::string("bf16"));
    const bool all = its.flag("match_all_linear").value_or(false);
    const TomlValue* const targets = its.take("target_modules");
    if (all || targets == nullptr) {
      draft_.set("adapter.target_modules", std::string("all-linear"), its.place("match_all_linear"));
    } else {
      draft_.set("adapter.target_modules", names_of(*targets, its), its.place("target_modules"));
    }
    its.refuse("use_dora", "DoRA is", {"false"});
    if (its.has("exclude_modules"))
      its.tell(RemarkKind::NotJudged, "exclude_modules", "the figures are of adapters on these, too");
    its.no_matter(
        std::array<std::string_view, 8>{"_target_", "use_triton", "lora_A_init", "lora_dtype", "dropout_position",
                                        "use_memory_efficient_lora", "moe_rank_scaling", "peft_fn"},
        "is within AutoModel's bound");
    its.refuse_the_rest("is no key of a PeftConfig that is known here");
  }

  // "*_proj" is every linear of a layer; "*.q_proj" is q_proj.
  Content names_of(const TomlValue& targets, const Given& its) const {
    const auto* const list = std::get_if<std::vector<TomlValue>>(&targets.value);
    std::vector<TomlValue> names;
    for (TomlValue one : list == nullptr ? std::vector<TomlValue>{targets} : *list) {
      auto* const text = std::get_if<std::string>(&one.value);
      if (text == nullptr) continue;
      if (*text == "*_proj" || *text == "*.proj") return std::string("all-linear");
      const std::size_t star = text->rfind("*.");
      if (star != std::string::npos) text->erase(0, star + 2);
      if (text->find('*') != std::string::npos)
        fail(its, "target_modules",
             fmt::format("target_modules = {}: such patterns are not modelled", in_quotes(*text)));
      names.push_back(std::move(one));
    }
    return names;
  }

  void read_quantization() {
    if (!given_.has("quantization")) return;
    Given its = given_.table("quantization");
    if (!its.flag("load_in_4bit").value_or(false))
      return given_.tell(RemarkKind::NotJudged, "quantization", "is not modelled: 4 bits of bitsandbytes' are");
    draft_.set("quantization.format", its.text("bnb_4bit_quant_type").value_or("nf4"), its.place("load_in_4bit"));
    draft_.set("quantization.double_quant", its.flag("bnb_4bit_use_double_quant").value_or(false),
               its.place("bnb_4bit_use_double_quant"));
    draft_.set("quantization.prepare", std::string("none"));
    draft_.set("quantization.storage_dtype", std::string("bf16"), its.place("bnb_4bit_quant_storage"));
  }

  void read_batch() {
    Given steps = given_.table("step_scheduler");
    if (const auto micro = steps.integer("local_batch_size"))
      draft_.set("train.micro_batch", *micro, steps.place("local_batch_size"));
    else
      draft_.set("train.micro_batch", std::int64_t{1});
    if (const auto all = steps.integer("global_batch_size"))
      draft_.set("train.global_batch", *all, steps.place("global_batch_size"));
    steps.no_matter(std::array<std::string_view, 10>{"ckpt_every_steps", "val_every_steps", "num_epochs", "max_steps",
                                                     "save_checkpoint_every_epoch", "gc_every_steps", "grad_acc_steps",
                                                     "epoch_len", "log_remote_every_steps", "start_step"},
                    "how long it trains");
    steps.refuse_the_rest("is no key of a step_scheduler that is known here");
    Given packed = given_.table("packed_sequence");
    const std::int64_t row = packed.integer("packed_sequence_size").value_or(0);
    std::optional<std::int64_t> length;
    if (const TomlValue* data = given_.take("dataset"))
      if (const auto* table = std::get_if<TomlTable>(&data->value)) {
        Given its(table->keys, "dataset.", draft_);
        for (const std::string_view key : {"seq_length", "seq_len", "max_length", "max_seq_length"})
          if (const auto said = its.integer(key); said && *said > 0) length = said;
      }
    if (row > 0) {
      length = row;
      packed.tell_bounded("packed_sequence_size",
                          "the figures are of whole sequences of that length, which packed ones fill", "packed-rows");
    }
    if (length)
      draft_.set("train.sequence_length", *length, given_.place("dataset"));
    else
      draft_.rows_of_data = "dataset.seq_length";
  }

  void read_optimizer() {
    Given its = given_.table("optimizer");
    const std::string target = its.text("_target_").value_or("");
    if (target != "torch.optim.Adam" && target != "torch.optim.AdamW")
      its.tell(RemarkKind::NotJudged, "_target_", "is an optimizer that is not modelled here: the figures are of Adam");
    if (its.flag("fused").value_or(false)) draft_.set("runtime.switches.fused", true, its.place("fused"));
    if (const auto decay = its.number("weight_decay"))
      draft_.set("runtime.switches.weight_decay", *decay, its.place("weight_decay"));
    if (const auto each = its.flag("foreach")) draft_.set("runtime.switches.foreach", *each, its.place("foreach"));
    its.no_matter(std::array<std::string_view, 4>{"lr", "betas", "eps", "min_lr"}, "how far a step goes");
    its.refuse_the_rest("is no argument of an optimizer that is known here");
    Given clips = given_.table("clip_grad_norm");  // recipes/llm/train_ft.py: 1.0 where nothing is said
    draft_.set("runtime.switches.max_grad_norm", clips.number("max_norm").value_or(1.0), clips.place("max_norm"));
  }

  void read_loss() {
    Given loss = given_.table("loss_fn");
    const std::string target = loss.text("_target_").value_or("");
    const bool whole = target.empty() || target.ends_with("MaskedCrossEntropy");
    if (target.ends_with("FusedLinearCrossEntropy") || target.ends_with("ChunkedCrossEntropy"))
      loss.tell_bounded("_target_", "the figures are of whole logits, which it never has", "chunked-loss");
    else if (!whole)
      loss.tell(RemarkKind::NotJudged, "_target_", "is a loss that is not modelled");
    loss.no_matter(std::array<std::string_view, 4>{"fp32_upcast", "ignore_index", "reduction", "chunk_len"},
                   "logits are made fp32, as here");
  }

  void read_compiler() {
    Given its = given_.table("compile");
    if (its.flag("enabled").value_or(false))
      its.tell(RemarkKind::NotJudged, "enabled", "torch.compile of AutoModel's is not modelled");
    for (const std::string_view key :
         {"fp8", "neftune", "longalign", "parallelizer", "distributed_config", "autopipeline", "embedding_row_repair"})
      if (given_.has(key)) given_.tell(RemarkKind::NotJudged, key, "is not modelled here");
  }

  Given given_;
  const ShippedModels& models_;
  Draft& draft_;
  bool wide_ = false;  // weights are fp32
};

}  // namespace

void read_automodel(const TomlTable& document, const ShippedModels& models, Draft& draft) {
  TomlTable whole = document;
  interpolate(whole);
  draft.own_defaults = true;
  AutoModel(whole, models, draft).read();
}

}  // namespace tidemark::scenarios
