#include "scenarios/convert/other_tools.hpp"

#include <algorithm>
#include <array>

namespace tidemark::scenarios {
namespace {

const TomlValue* value_in(const TomlTable& table, std::string_view name) {
  const auto found = std::ranges::find_if(table.keys, [&](const TomlKey& key) { return key.name == name; });
  return found == table.keys.end() ? nullptr : &found->value;
}
bool has_key(const TomlTable& table, std::string_view name) { return value_in(table, name) != nullptr; }
bool has_some(const TomlTable& table, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return has_key(table, name); });
}
const TomlTable* table_in(const TomlTable& table, std::string_view name) {
  const TomlValue* value = value_in(table, name);
  return value == nullptr ? nullptr : std::get_if<TomlTable>(&value->value);
}

// Whether a table right below has a key whose text begins so.
bool says_below(const TomlTable& table, std::string_view name, std::string_view begins) {
  return std::ranges::any_of(table.keys, [&](const TomlKey& key) {
    const auto* inner = std::get_if<TomlTable>(&key.value.value);
    const TomlValue* value = inner == nullptr ? nullptr : value_in(*inner, name);
    const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(&value->value);
    return text != nullptr && text->starts_with(begins);
  });
}

struct Mention {
  std::string_view text, tool;
};

}  // namespace

std::string tool_of(const TomlTable& its) {
  if (has_key(its, "base_model") && has_some(its, {"sequence_len", "micro_batch_size", "adapter", "datasets",
                                                   "load_in_8bit", "load_in_4bit", "num_epochs"}))
    return "axolotl";
  if (has_some(its, {"dist_config", "kernel_config"}) || (has_key(its, "model_class") && has_key(its, "train_dataset")))
    return "LLaMA-Factory's second version";
  if (has_key(its, "finetuning_type") || (has_key(its, "stage") && has_some(its, {"template", "cutoff_len"})))
    return "LLaMA-Factory";
  if (has_some(its, {"pipe-parallel-size", "pipe_parallel_size"}) ||
      (has_some(its, {"model-parallel-size", "model_parallel_size"}) && has_some(its, {"num-layers", "num_layers"})))
    return "GPT-NeoX";
  const TomlTable* const model = table_in(its, "model");
  if ((table_in(its, "parallelism") != nullptr && table_in(its, "tokens") != nullptr) ||
      (model != nullptr && table_in(*model, "model_config") != nullptr))
    return "nanotron";
  if (model != nullptr && has_key(*model, "d_model") &&
      has_some(its, {"max_duration", "device_train_microbatch_size"}) && !has_key(*model, "name"))
    return "OLMo";
  if (const TomlTable* const ranks = table_in(its, "distributed");
      ranks != nullptr && model != nullptr && has_some(*ranks, {"fsdp_type", "matmul_allow_tf32"}))
    return "Lingua";
  if (has_some(its, {"train_loader", "device_train_microbatch_size", "global_train_batch_size"})) return "llm-foundry";
  if (has_key(its, "initial_checkpoint_dir") ||
      (table_in(its, "train") != nullptr && has_key(its, "out_dir") &&
       has_some(its, {"model_name", "tokenizer_dir"})) ||
      (has_key(its, "checkpoint_dir") && has_some(its, {"train", "data", "out_dir", "precision"})))
    return "LitGPT";
  if (says_below(its, "_component_", "")) return "torchtune";
  if (says_below(its, "_target_", "nemo_automodel")) return "NeMo AutoModel";
  if (has_key(its, "experiment") && has_some(its, {"action", "defaults"})) return "FlagScale";
  if (table_in(its, "system") != nullptr && model != nullptr) return "FlagScale";
  if (has_some(its, {"train_type", "tuner_type", "rlhf_type"})) return "ms-swift";
  if (has_key(its, "actor_rollout_ref")) return "verl";
  if (const TomlTable* modules = table_in(its, "modules");
      modules != nullptr && has_some(*modules, {"pre_trainer", "post_trainer"}))
    return "Primus";
  if (has_key(its, "dataset_mixer_list")) return "open-instruct";
  if (has_key(its, "model_id_or_path") && has_some(its, {"ckpt_freq", "run_dir"})) return "mistral-finetune";
  if (has_key(its, "type") && model != nullptr && has_key(*model, "name_or_path") &&
      has_some(its, {"micro_batch_size", "data"}))
    return "ArcticTraining";
  return {};
}

std::string tool_called(const std::vector<ShellWord>& words) {
  static constexpr auto commands = std::to_array<Mention>({{"swift", "ms-swift"},
                                                           {"megatron", "ms-swift"},
                                                           {"llamafactory-cli", "LLaMA-Factory"},
                                                           {"axolotl", "axolotl"},
                                                           {"tune", "torchtune"},
                                                           {"litgpt", "LitGPT"},
                                                           {"trl", "TRL's own command"},
                                                           {"composer", "Composer"},
                                                           {"automodel", "NeMo AutoModel"},
                                                           {"flagscale", "FlagScale"},
                                                           {"deepy.py", "GPT-NeoX"},
                                                           {"colossalai", "ColossalAI"}});
  for (const ShellWord& word : words) {
    const std::string name = word.text.substr(word.text.rfind('/') + 1);
    const auto* const found = std::ranges::find(commands, name, &Mention::text);
    if (found != commands.end()) return std::string(found->tool);
    if (name != "python" && name != "python3") break;
  }
  return {};
}

std::string tool_of_program(std::string_view path) {
  static constexpr auto mentions = std::to_array<Mention>({{"verl.", "verl"},
                                                           {"openrlhf", "OpenRLHF"},
                                                           {"axolotl", "axolotl"},
                                                           {"llamafactory", "LLaMA-Factory"},
                                                           {"swift/cli", "ms-swift"},
                                                           {"swift.cli", "ms-swift"},
                                                           {"open_instruct", "open-instruct"},
                                                           {"nanotron", "nanotron"},
                                                           {"litgpt", "LitGPT"},
                                                           {"deepy.py", "GPT-NeoX"},
                                                           {"run_recipe.py", "Megatron-Bridge's recipes"},
                                                           {"setup_experiment.py", "Megatron-Bridge's recipes"},
                                                           {"mindspeed_llm", "MindSpeed-LLM"},
                                                           {"olmo_core", "OLMo-core"},
                                                           {"launcher_scripts/main.py", "NeMo's launcher scripts"},
                                                           {"composer", "Composer"},
                                                           {"nemo_automodel", "NeMo AutoModel"}});
  const auto* const found =
      std::ranges::find_if(mentions, [&](const Mention& its) { return path.find(its.text) != std::string_view::npos; });
  return found == mentions.end() ? std::string() : std::string(found->tool);
}

}  // namespace tidemark::scenarios
