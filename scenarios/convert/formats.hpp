#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/draft.hpp"
#include "scenarios/scenario/scenario.hpp"

// One file for each framework: what its arguments come to as keys of a scenario, and back.

namespace tidemark::scenarios {

/// Of adapters on Megatron-LM, which are within a bound.
inline constexpr std::string_view figures_of_all_weights =
    "the figures are of training all weights with this model, layout and batch; adapters train few, and frozen ones "
    "have "
    "no gradients";

/// The models that are shipped, as names that a scenario takes ("models/llama-3.1-8b.json") and what they are.
struct ShippedModel {
  std::string file;
  std::filesystem::path path;
  std::string config;  ///< the text
  Model model;
};
struct ShippedModels {
  std::filesystem::path data_root;
  std::vector<ShippedModel> files;
};
[[nodiscard]] ShippedModels shipped_models(const std::filesystem::path& data_root);
/// The one that a checkpoint of this name is ("meta-llama/Llama-3.1-8B-Instruct"): a file that is shipped, or else the
/// name as the table of names has it.
[[nodiscard]] std::optional<ShippedModel> shipped_model(const ShippedModels& models, const std::string& checkpoint);
/// " (did you mean …?)" of a checkpoint that is none; empty where no name is near.
[[nodiscard]] std::string perhaps_meant(const ShippedModels& models, const std::string& checkpoint);
/// What there is to say of a checkpoint that is none: its family is not modelled, or its config.json is wanted.
[[nodiscard]] ProblemText why_not_shipped(const ShippedModels& models, const std::string& checkpoint);

/// The model of a checkpoint's name in the draft, unless that names one; what nobody gives a shape is told.
std::optional<ShippedModel> name_checkpoint(const ShippedModels& models, const std::string& checkpoint,
                                            const std::string& what, Place place, Draft& draft);

/// Arguments of Megatron-LM's pretrain_gpt.py. What says which model goes to `model` and [model_override] where the
/// draft names none yet, and else has to agree with it.
void read_megatron(Given& flags, const ShippedModels& models, Draft& draft);
/// Flags of Megatron-LM's forks, and other names that it had, as its own.
[[nodiscard]] std::vector<TomlKey> megatron_flags_of_forks(std::vector<TomlKey> flags, Draft& draft);
/// `megatron sft` of ms-swift, FlagScale's `train` and nanotron's configuration as Megatron-LM's flags, with the
/// defaults that each has where Megatron-LM has others.
[[nodiscard]] std::vector<TomlKey> swift_flags(std::vector<TomlKey> flags, const ShippedModels& models, Draft& draft);
[[nodiscard]] std::vector<TomlKey> flagscale_flags(const TomlTable& document, Draft& draft);
[[nodiscard]] std::vector<TomlKey> nanotron_flags(const TomlTable& document, Draft& draft);
/// GPT-NeoX's configuration as Megatron-DeepSpeed's flags.
[[nodiscard]] std::vector<TomlKey> gpt_neox_flags(const TomlTable& document, Draft& draft);

/// The configuration of Megatron-Bridge or NeMo as such flags, and on how many devices, where it says that.
[[nodiscard]] std::vector<TomlKey> bridge_flags(TomlTable document, Draft& draft);
/// A recipe of Megatron-Bridge's in Python as such a configuration; the model that it names goes to the draft. `named`:
/// which of several functions; empty where there is one.
[[nodiscard]] TomlTable bridge_recipe(std::string_view text, const std::string& named, const ShippedModels& models,
                                      Draft& draft);
/// A recipe of NeMo 2's in Python as such a configuration: evaluated, as far as it makes settings.
[[nodiscard]] TomlTable nemo_recipe(std::string_view text, const std::map<std::string, std::string>& variables,
                                    Draft& draft);
[[nodiscard]] bool is_nemo_recipe(std::string_view text);
/// An experiment of Primus', as torchtitan's configuration or as one of Megatron-Bridge's kind.
struct PrimusTraining {
  bool of_titan = false;
  TomlTable document;
};
[[nodiscard]] PrimusTraining primus_training(const TomlTable& document,
                                             const std::map<std::string, std::string>& variables,
                                             const ShippedModels& models, Draft& draft);
/// ALiBi, which the figures have rotary positions in place of.
void take_alibi(std::vector<TomlKey>& flags, Draft& draft);
/// The arguments, one by one: "--tensor-model-parallel-size", "8".
[[nodiscard]] std::vector<std::vector<std::string>> megatron_arguments(const Scenario& scenario);

/// Those that say what a config.json has and memory does not depend on: --rotary-base, --norm-epsilon.
[[nodiscard]] std::vector<std::vector<std::string>> megatron_arguments_of(const std::string& config);

/// torchtitan's configuration: a table of tables.
void read_titan(const TomlTable& document, const ShippedModels& models, Draft& draft);
/// What torchtitan's run_train.sh (run_llama_train.sh before) has set since October 2024, for a configuration without a
/// script: PYTORCH_ALLOC_CONF=expandable_segments:True.
void launch_by_run_train(Draft& draft);
[[nodiscard]] TomlTable titan_config(const Scenario& scenario);

/// transformers' TrainingArguments, and what scripts take beside them.
void read_training_arguments(Given& arguments, const ShippedModels& models, Draft& draft);
/// LLaMA-Factory's, axolotl's and ms-swift's words as those, with the defaults that each has where the Trainer has
/// others.
[[nodiscard]] std::vector<TomlKey> llama_factory_arguments(std::vector<TomlKey> given, Draft& draft);
[[nodiscard]] std::vector<TomlKey> axolotl_arguments(std::vector<TomlKey> given, Draft& draft);
[[nodiscard]] std::vector<TomlKey> swift_tuning_arguments(std::vector<TomlKey> given, bool pre_training, Draft& draft);
/// A configuration of DeepSpeed that a tool ships, by the name of its file: "examples/deepspeed/ds_z3_config.json".
struct DeepspeedPreset {
  std::string tool;
  std::string json;
};
[[nodiscard]] std::optional<DeepspeedPreset> deepspeed_preset(std::string_view path);
/// artidoro/qlora's qlora.py as those.
[[nodiscard]] std::vector<TomlKey> qlora_arguments(std::vector<TomlKey> given, Draft& draft);
/// OpenRLHF's train_sft as those.
[[nodiscard]] std::vector<TomlKey> openrlhf_arguments(std::vector<TomlKey> flags, Draft& draft);
/// Overrides of verl's fsdp_sft_trainer as those.
[[nodiscard]] std::vector<TomlKey> verl_arguments(std::vector<TomlKey> overrides, Draft& draft);
/// LLaMA-Factory's second trainer as those, and DeepSpeed-Chat's first step, whose flags have "_".
[[nodiscard]] std::vector<TomlKey> llama_factory_v1_arguments(std::vector<TomlKey> keys, Draft& draft);
[[nodiscard]] bool is_deepspeed_chat(const std::vector<TomlKey>& flags);
[[nodiscard]] std::vector<TomlKey> deepspeed_chat_arguments(std::vector<TomlKey> flags, Draft& draft);
/// torchtune's recipes and LitGPT's fine-tuning.
void read_torchtune(const TomlTable& document, const ShippedModels& models, Draft& draft);
void read_litgpt(const TomlTable& document, const ShippedModels& models, Draft& draft);
/// OLMo's scripts/train.py and Lingua's apps/main.
void read_olmo(const TomlTable& document, const ShippedModels& models, Draft& draft);
void read_lingua(const TomlTable& document, Draft& draft);
/// llm-foundry's training of transformers' models and of MPT, and NeMo AutoModel's.
void read_llm_foundry(const TomlTable& document, const ShippedModels& models, Draft& draft);
void read_automodel(const TomlTable& document, const ShippedModels& models, Draft& draft);
/// Whether a task of this name ("dpo", "kto", "rm") is one that is bounded; it is the draft's then.
bool learn_from(std::string_view word, std::string what, Place place, Draft& draft);
/// Takes the keys of such a task; and, once all else is settled, has its batch and its bound. `bytes`: of each of the
/// reference's parameters.
void read_preferences(Given& given);
void settle_preferences(Draft& draft, std::int64_t bytes);
/// InputError where such a file asks for a task that is not modelled.
void refuse_other_tasks_of_tools(const TomlTable& document, Draft& draft);
/// awsome-distributed-training's train.py for FSDP2: whether these are its arguments, and what they come to.
[[nodiscard]] bool is_aws_fsdp(const std::vector<TomlKey>& flags);
void read_aws_fsdp(Given& given, Draft& draft);
/// The same of okoge-kaz/llm-recipes, whose flags are Megatron-LM's in part.
[[nodiscard]] bool is_llm_recipes(const std::vector<TomlKey>& flags);
void read_llm_recipes(Given& given, const ShippedModels& models, Draft& draft);
/// accelerate's configuration.
void read_accelerate(Given& config, Draft& draft);
/// A ds_config.json.
void read_deepspeed(Given& config, Draft& draft);
/// A file as another names it: beside that one, or from a folder above it, as tools are started from their own.
[[nodiscard]] std::filesystem::path named_beside(const std::filesystem::path& folder, const std::string& name);
/// What a model's config.json says that arguments leave to it.
struct ModelSays {
  std::int64_t hidden = 0;  ///< width; 0: not known
  std::string dtype;        ///< torch_dtype, as it stands there ("bfloat16"); empty: not known
};
/// What depends on several of them: on how many devices a step is accumulated, and what follows the model.
void settle_hugging_face(Draft& draft, const ModelSays& model);
[[nodiscard]] std::string training_arguments(const Scenario& scenario);
[[nodiscard]] std::string accelerate_config(const Scenario& scenario);
[[nodiscard]] std::string deepspeed_config(const Scenario& scenario);

}  // namespace tidemark::scenarios
