#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

// LLaMA-Factory's second trainer (src/llamafactory/v1): core/base_trainer.py, core/model_engine.py,
// plugins/trainer_plugins/distributed/fsdp2.py and deepspeed.py. What is trained is fp32, and layers are checkpointed.

namespace tidemark::scenarios {
namespace {

constexpr auto factory_aside = std::to_array<std::string_view>({"model_class",
                                                                "train_dataset",
                                                                "output_dir",
                                                                "learning_rate",
                                                                "num_train_epochs",
                                                                "max_steps",
                                                                "batching_workers",
                                                                "dist_timeout",
                                                                "lr_scheduler_config",
                                                                "seed",
                                                                "resume_from_checkpoint",
                                                                "save_steps",
                                                                "save_epochs",
                                                                "save_ckpt_as_hf",
                                                                "save_total_limit",
                                                                "sample_backend",
                                                                "max_new_tokens",
                                                                "custom_chat_template",
                                                                "trust_remote_code",
                                                                "init_config",
                                                                "logging_steps",
                                                                "report_to",
                                                                "run_name"});

class FactoryV1 {
 public:
  FactoryV1(std::vector<TomlKey> keys, Draft& draft) : given_(std::move(keys), "", draft), draft_(draft) {}

  std::vector<TomlKey> arguments() {
    make("model_name_or_path", given_.text("model").value_or("Qwen/Qwen3-4B-Instruct-2507"), "model");
    make("per_device_train_batch_size", given_.integer("micro_batch_size").value_or(1), "micro_batch_size");
    if (const auto all = given_.integer("global_batch_size"))
      draft_.set("train.global_batch", *all, given_.place("global_batch_size"));
    make("max_length", given_.integer("cutoff_len").value_or(2048), "cutoff_len");
    make("max_grad_norm", given_.number("max_grad_norm").value_or(1.0), "max_grad_norm");
    make("attn_implementation", given_.text("flash_attn").value_or("sdpa"), "flash_attn");
    if (given_.flag("enable_activation_checkpointing").value_or(true)) {
      make("gradient_checkpointing", true, "enable_activation_checkpointing");
      make("use_reentrant", false, "enable_activation_checkpointing");
    }
    make("optim", std::string("adamw_torch"), "optim_config");
    make("logging_nan_inf_filter", true, "model");  // a loss is looked at after each micro-batch
    if (given_.integer("mp_replicate_size").value_or(1) != 1) fail("mp_replicate_size", "meshes of this trainer are");
    const std::int64_t parts = given_.integer("cp_size").value_or(1);
    draft_.part_rows(parts, fmt::format("cp_size = {}", parts), given_.place("cp_size"));
    for (const std::string_view key : {"optim_config", "quant_config"})
      if (given_.has(key)) fail(key, "it is");
    if (given_.text("batching_strategy").value_or("normal") != "normal")
      given_.tell_bounded("batching_strategy", "the figures are of whole sequences of that length, which others fill",
                          "packed-rows");
    read_distribution();
    read_adapter();
    read_kernels();
    given_.no_matter(std::array<std::string_view, 3>{"cp_mode", "dp_size", "mp_shard_size"},
                     "what follows from others");
    given_.refuse("full_determinism", "deterministic kernels are", {"false"});
    given_.no_matter(factory_aside, "of data, checkpoints and logs");
    given_.refuse_the_rest("is no argument of LLaMA-Factory's second trainer that is known here");
    draft_.remark_bounded("loss",
                          "the figures are of transformers' own loss; this trainer's copies the logits of all tokens "
                          "but the last in fp32",
                          "copied-logits", given_.place("model"));
    return std::move(made_);
  }

 private:
  void make(std::string_view name, Content content, std::string_view of) {
    made_.push_back(given_.made(name, std::move(content), of));
  }

  [[noreturn]] void fail(std::string_view key, std::string_view what) const {
    const Place place = given_.place(key);
    throw InputError(Problem{draft_.file, place.line, place.column, fmt::format("{}: {} not modelled", key, what),
                             "FSDP2, DeepSpeed and plain data parallelism with AdamW are", ProblemKind::NotModelled});
  }

  void read_distribution() {
    const bool bf16 = given_.flag("bf16").value_or(true);
    Given its = given_.table("dist_config");
    const std::string name = its.text("name").value_or("");
    if (name == "deepspeed") {
      if (const auto file = its.text("config_file")) make("deepspeed", *file, "dist_config");
      make("bf16", bf16, "bf16");
    } else if (name == "fsdp2") {
      const bool reshards = its.flag("reshard_after_forward").value_or(true);
      draft_.set("runtime.name", std::string("fsdp2"), its.place("name"));
      draft_.set("layout.sharding", std::string(reshards ? "zero3" : "zero2"), its.place("reshard_after_forward"));
      draft_.set("runtime.switches.reduce_dtype", std::string("fp32"), its.place("name"));
      if (its.flag("offload_params").value_or(false))
        draft_.set("offload.parameters", std::string("cpu"), its.place("offload_params"));
      its.no_matter(std::array<std::string_view, 2>{"dcp_path", "pin_memory"}, "of checkpoints and the host");
      make("bf16", bf16, "bf16");
    } else if (name.empty()) {
      make("bf16", false, "bf16");  // only FSDP and DeepSpeed compute in it
    } else {
      fail("dist_config", fmt::format("dist_config.name = {} is", in_quotes(name)));
    }
    its.refuse_the_rest("is no key of this dist_config that is known here");
  }

  void read_adapter() {
    if (!given_.has("peft_config")) {
      make("torch_dtype", std::string("float32"), "model");
      return;
    }
    Given its = given_.table("peft_config");
    const std::string name = its.text("name").value_or("");
    if (name != "lora") fail("peft_config", fmt::format("peft_config.name = {} is", in_quotes(name)));
    make("torch_dtype", std::string("auto"), "model");
    make("use_peft", true, "peft_config");
    make("lora_r", its.integer("r").value_or(8), "peft_config");
    make("lora_alpha", its.number("lora_alpha").value_or(16), "peft_config");
    make("lora_dropout", its.number("lora_dropout").value_or(0.05), "peft_config");
    const TomlValue* const targets = its.take("target_modules");
    const auto* const word = targets == nullptr ? nullptr : std::get_if<std::string>(&targets->value);
    make(
        "lora_target_modules",
        targets == nullptr || (word != nullptr && *word == "all") ? Content(std::string("all-linear")) : targets->value,
        "peft_config");
    its.no_matter(std::array<std::string_view, 3>{"export_dir", "adapter_name_or_path", "bias"},
                  "of how weights begin");
    its.refuse_the_rest("is no key of this peft_config that is known here");
  }

  void read_kernels() {
    Given its = given_.table("kernel_config");
    const std::string names = its.text("name").value_or("");
    if (names.find("liger") != std::string::npos) {  // its losses need the model's own, which is not asked for
      make("use_liger_kernel", true, "kernel_config");
      TomlTable parts;
      parts.keys.push_back({"fused_linear_cross_entropy", given_.place("kernel_config"), {false, {}}});
      make("liger_kernel_config", std::move(parts), "kernel_config");
    } else if (!names.empty() && names != "auto")
      its.tell(RemarkKind::NotJudged, "name", "are kernels that are not modelled");
    its.refuse_the_rest("is no key of this kernel_config that is known here");
  }

  Given given_;
  Draft& draft_;
  std::vector<TomlKey> made_;
};

}  // namespace

std::vector<TomlKey> llama_factory_v1_arguments(std::vector<TomlKey> keys, Draft& draft) {
  draft.own_defaults = true;
  draft.starts_all = "llamafactory-cli";
  return FactoryV1(std::move(keys), draft).arguments();
}

}  // namespace tidemark::scenarios
