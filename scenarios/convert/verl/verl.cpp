#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/formats/suggestion.hpp"

// verl's supervised fine-tuning: verl/trainer/fsdp_sft_trainer.py, with the defaults of verl/trainer/config/
// sft_trainer.yaml. Hydra's overrides stand on its command line ("data.max_length=2048").

namespace tidemark::scenarios {
namespace {

constexpr auto verl_aside = std::to_array<std::string_view>(
    {"data.train_files", "data.val_files", "data.train_max_samples", "data.val_max_samples", "data.prompt_key",
     "data.response_key", "data.prompt_dict_keys", "data.response_dict_keys", "data.truncation", "data.chat_template",
     "data.use_shm", "data.balance_dp_token", "model.use_shm", "model.trust_remote_code", "model.external_lib",
     "optim.lr", "optim.betas", "optim.lr_warmup_steps_ratio", "optim.lr_scheduler"});

class VerlTuning {
 public:
  VerlTuning(std::vector<TomlKey> given, Draft& draft) : given_(std::move(given), "", draft), draft_(draft) {}

  std::vector<TomlKey> arguments() {
    make("model_name_or_path", given_.text("model.partial_pretrain").value_or("google/gemma-1.1-7b-it"),
         "model.partial_pretrain");
    const auto older = given_.integer("data.micro_batch_size");
    make("per_device_train_batch_size", given_.integer("data.micro_batch_size_per_gpu").value_or(older.value_or(4)),
         "data.micro_batch_size_per_gpu");
    draft_.set("train.global_batch", given_.integer("data.train_batch_size").value_or(256),
               given_.place("data.train_batch_size"));
    make("max_length", given_.integer("data.max_length").value_or(1024), "data.max_length");
    make("attn_implementation", std::string("flash_attention_2"), "model.partial_pretrain");
    make("max_grad_norm", given_.number("optim.clip_grad").value_or(1.0), "optim.clip_grad");
    make("weight_decay", given_.number("optim.weight_decay").value_or(0.01), "optim.weight_decay");
    make("optim", std::string("adamw_torch"), "optim.lr");
    if (given_.flag("model.enable_gradient_checkpointing").value_or(true)) {
      make("gradient_checkpointing", true, "model.enable_gradient_checkpointing");
      make("use_reentrant", false, "model.enable_gradient_checkpointing");
    }
    if (given_.flag("model.use_liger").value_or(false)) read_liger();
    read_shards();
    read_adapter();
    const std::int64_t parts = given_.integer("ulysses_sequence_parallel_size").value_or(1);
    draft_.part_rows(parts, fmt::format("ulysses_sequence_parallel_size = {}", parts),
                     given_.place("ulysses_sequence_parallel_size"));
    if (given_.flag("use_remove_padding").value_or(false))
      given_.tell_bounded("use_remove_padding",
                          "the figures are of whole rows, which those without padding fill at most", "packed-rows");
    given_.no_matter(verl_aside, "of data, checkpoints and logs");
    for (const TomlKey& key : given_.keys())
      if (key.name.starts_with("trainer.") || key.name.starts_with("data.multiturn") ||
          key.name.starts_with("data.custom_cls") || key.name.starts_with("data.apply_chat_template_kwargs"))
        given_.no_matter(std::array<std::string_view, 1>{key.name}, "of data, checkpoints and logs");
    given_.refuse_the_rest("is no key of verl's sft_trainer.yaml that is known here");
    draft_.set("runtime.switches.use_cache", false);
    draft_.remark_bounded("loss",
                          "the figures are of transformers' own loss; verl's copies the logits of all tokens but the "
                          "last, and autocast makes them fp32",
                          "copied-logits", given_.place("model.partial_pretrain"));
    return std::move(made_);
  }

 private:
  void make(std::string_view name, Content content, std::string_view of) {
    made_.push_back(given_.made(name, std::move(content), of));
  }

  // The loss is its own, so that Liger's has nothing to do.
  void read_liger() {
    make("use_liger_kernel", true, "model.use_liger");
    TomlTable parts;
    parts.keys.push_back({"fused_linear_cross_entropy", given_.place("model.use_liger"), {false, {}}});
    make("liger_kernel_config", std::move(parts), "model.use_liger");
  }

  void read_shards() {
    const std::string strategy = given_.text("model.strategy").value_or("fsdp2");
    read_held_type();
    make("bf16", true, "model.strategy");
    draft_.set("layout.sharding", std::string("zero3"));
    draft_.set("runtime.switches.reduce_dtype", std::string("fp32"), given_.place("model.strategy"));
    draft_.set("runtime.name", strategy, given_.place("model.strategy"));
    if (strategy == "fsdp") {
      draft_.set("runtime.switches.buffer_dtype", std::string("fp32"));
      draft_.set("runtime.switches.autocast", true);
      draft_.set("runtime.switches.sync_module_states", true);
    } else if (strategy != "fsdp2") {
      given_.tell(RemarkKind::NotExpressed, "model.strategy", not_modelled("is not modelled: fsdp and fsdp2 are"));
    }
    read_offload(strategy);
    given_.refuse("model.fsdp_config.wrap_policy.min_num_params", "units other than layers are", {"0"});
  }

  // fsdp_sft_trainer.py _build_model_optimizer: shards stay in the type that the model is loaded in
  // (utils/torch_dtypes.py), and are gathered in bf16.
  void read_held_type() {
    constexpr std::string_view key = "model.fsdp_config.model_dtype";
    const std::string said = given_.text(key).value_or("fp32");
    const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
      return std::ranges::find(names, std::string_view(said)) != names.end();
    };
    if (is_one_of({"bf16", "bfloat16"}))
      held_ = "bf16";
    else if (is_one_of({"fp16", "float16", "16"}))
      given_.tell(RemarkKind::NotExpressed, key,
                  not_modelled("shards in fp16 that are gathered in bf16 are not modelled"));
    else if (!is_one_of({"fp32", "float32", "32"}))
      given_.tell(RemarkKind::NotExpressed, key, "is no type that verl knows: bf16, fp16 and fp32 are");
    draft_.shards_as_loaded = true;
    make("torch_dtype", held_, key);
  }

  // FSDP's CPUOffload offloads only what offload_params says. fully_shard takes a CPUOffloadPolicy and is given that
  // one, after which the whole model is moved to the host (utils/fsdp_utils.py fsdp2_load_full_state_dict).
  void read_offload(std::string_view strategy) {
    constexpr std::string_view offload = "model.fsdp_config.cpu_offload",
                               parameters = "model.fsdp_config.offload_params";
    const bool wanted = given_.flag(offload).value_or(false), of_parameters = given_.flag(parameters).value_or(false);
    if (!wanted) return given_.tell(RemarkKind::NoMatter, parameters, "cpu_offload asks for nothing");
    if (strategy == "fsdp2")
      given_.tell(RemarkKind::NotExpressed, offload,
                  not_modelled("fully_shard is given FSDP's CPUOffload, which it does not read, and the model is moved "
                               "to the host: what then becomes of a step is not modelled"));
    else if (of_parameters)
      draft_.set("offload.parameters", std::string("cpu"), given_.place(parameters));
    else
      given_.tell(RemarkKind::NoMatter, offload, "offload_params is false, so that nothing is offloaded");
  }

  void read_adapter() {
    const std::int64_t rank = given_.integer("model.lora_rank").value_or(0);
    if (rank > 0) {
      make("use_peft", true, "model.lora_rank");
      make("lora_r", rank, "model.lora_rank");
      make("lora_alpha", given_.integer("model.lora_alpha").value_or(16), "model.lora_alpha");
      make("lora_target_modules", targets(), "model.target_modules");
      draft_.set("adapter.dtype", held_, given_.place("model.lora_rank"));  // self.model.to(torch_dtype)
    }
    given_.no_matter(std::array<std::string_view, 2>{"model.lora_alpha", "model.target_modules"},
                     "there is no adapter");
  }

  // "[q_proj,v_proj]" is a list of Hydra's.
  Content targets() {
    std::string names = given_.text("model.target_modules").value_or("all-linear");
    for (char& c : names)
      if (c == '[' || c == ']' || c == '\'' || c == '"') c = ' ';
    while (!names.empty() && names.front() == ' ') names.erase(0, 1);
    while (!names.empty() && names.back() == ' ') names.pop_back();
    return names;
  }

  Given given_;
  Draft& draft_;
  std::vector<TomlKey> made_;
  std::string held_ = "fp32";  // the type of shards
};

}  // namespace

std::vector<TomlKey> verl_arguments(std::vector<TomlKey> overrides, Draft& draft) {
  draft.own_defaults = true;
  return VerlTuning(std::move(overrides), draft).arguments();
}

}  // namespace tidemark::scenarios
