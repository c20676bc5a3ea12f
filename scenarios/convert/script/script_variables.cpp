#include "scenarios/convert/script/script_variables.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "scenarios/environment/environment.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/problems.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

/// Variables of the environment that a scenario may say something about.
bool matters(std::string_view variable) {
  for (const std::string_view prefix : {"NCCL_", "NVTE_", "CUBLAS_", "PYTORCH_", "TORCH_"})
    if (variable.starts_with(prefix)) return true;
  return variable == "CUDA_MODULE_LOADING" || variable == "CUDA_LAUNCH_BLOCKING" ||
         variable == "CUDA_DEVICE_MAX_CONNECTIONS" || variable == "CUDA_SCALE_LAUNCH_QUEUES";
}

// Variables that change memory by no more than this says; the step they change may be another.
std::string_view bound_of(std::string_view name) {
  if (name == "CUDA_LAUNCH_BLOCKING")
    return "the host waits for every kernel: no more memory than without it, and a longer step than is told";
  if (name == "TORCH_NCCL_AVOID_RECORD_STREAMS")
    return "of collectives, whose tensors are held until somebody waits for them: no more memory than is told; "
           "messages between stages are marked all the same";
  return {};
}

// What is called nearly as a variable of NCCL's, and is none: NCCL reads what it asks for by name.
std::string_view ignored_by_nccl(std::string_view name) {
  if (name == "NCCL_BUFFERSIZE")
    return "NCCL reads no such variable: NCCL_BUFFSIZE is its own, which is not set by this";
  if (name == "NCCL_AVOID_RECORD_STREAMS")
    return "NCCL reads no such variable: PyTorch reads TORCH_NCCL_AVOID_RECORD_STREAMS, which is not set by this";
  return {};
}

// What a scenario that has it would be told.
std::optional<Problem> problem_of_variable(const std::string& name, const std::string& value) {
  const TomlTable table{{{name, {}, {value, {}}}}};
  Problems problems("");
  (void)read_environment(TomlReader(&table, {}, "[runtime.environment]", problems));
  const std::vector<Problem> found = std::move(problems).sorted();
  return found.empty() ? std::nullopt : std::optional(found.front());
}

}  // namespace

void read_variable(const std::string& name, const ShellWord& value, Draft& draft) {
  if (name.starts_with("SLURM_")) return;  // of #SBATCH lines
  if (const std::string_view why = ignored_by_nccl(name); !why.empty())
    return draft.remark(RemarkKind::Assumed, fmt::format("{} = {}", name, in_quotes(value.text)), std::string(why),
                        value.place);
  if (name == "PYTORCH_NPU_ALLOC_CONF")
    return draft.remark(RemarkKind::NoMatter, name, "is of Ascend's devices: PyTorch reads it on no other");
  // A tuner settles which algorithms connect, and when.
  if (name == "NCCL_TUNER_PLUGIN" && draft.find("runtime.environment.NCCL_RUNTIME_CONNECT") == nullptr) {
    draft.set("runtime.environment.NCCL_RUNTIME_CONNECT", std::string("0"), value.place);
    return draft.remark(RemarkKind::Assumed, name, "it may choose any algorithm: all are taken as connected",
                        value.place);
  }
  constexpr auto of_ranks = std::to_array<std::string_view>({"MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES"});
  if (value.unknown.empty() && is_harmless_variable(name) && std::ranges::find(of_ranks, name) == of_ranks.end())
    draft.kept.environment[name] = value.text;
  const std::string_view bound = value.text == "0" && value.unknown.empty() ? "" : bound_of(name);
  if (!bound.empty())
    draft.remark(RemarkKind::Assumed, fmt::format("{} = {}", name, in_quotes(value.text)), std::string(bound),
                 value.place);
  else if (!matters(name) || !bound_of(name).empty() ||
           (is_harmless_variable(name) && (!value.unknown.empty() || name.starts_with("TORCH_"))))
    draft.remark(RemarkKind::NoMatter, name, "a variable that changes neither memory nor time");
  else if (!value.unknown.empty())
    draft.remark(RemarkKind::NotExpressed, fmt::format("{}: {} is not known without running it", name, value.unknown),
                 hint_of_unknown(value.unknown), value.place);
  else if (const std::optional<Problem> problem = problem_of_variable(name, value.text); !problem)
    draft.set("runtime.environment." + name, value.text, value.place);
  else
    draft.remark_unknown(fmt::format("{} = {}", name, in_quotes(value.text)), name,
                         fmt::format("{}; {}", problem->message, problem->hint), known_variables(), value.place);
}

// Before core 0.11 these variables chose the kernels; since then Megatron-LM sets them, and stops where one says
// otherwise (core/models/common/language_module/language_module.py): a script that runs is an older one's.
void settle_attention(const ShippedModels& models, Draft& draft) {
  const TomlValue* const environment = draft.find("runtime.environment");
  const auto* const table = environment == nullptr ? nullptr : std::get_if<TomlTable>(&environment->value);
  if (table == nullptr || draft.find("train.attention") != nullptr) return;
  std::map<std::string, std::string> given;
  Place place;
  std::string reported;
  for (const TomlKey& key : table->keys)
    if (is_attention_variable(key.name)) {
      given[key.name] = std::get<std::string>(key.value.value);
      place = key.value.place;
      reported += fmt::format("{}{} = {}", reported.empty() ? "" : ", ", key.name, given[key.name]);
    }
  const std::optional<AttentionKernel> kernel = attention_of_variables(given);
  if (given.empty() || !kernel) return;
  for (const auto& [name, value] : given) draft.erase("runtime.environment." + name);
  if (*kernel == AttentionKernel::Auto)
    return draft.remark(RemarkKind::NoMatter, reported, "leaves the choice of kernels as it is", place);
  const std::string word = std::string(scenarios::word(attention_names, *kernel));
  const auto model = std::ranges::find(models.files, draft.text("model").value_or(""), &ShippedModel::file);
  if (*kernel == AttentionKernel::Flash && model != models.files.end() && model->model.latent())
    return draft.remark_bounded(reported,
                                "the figures are of what the device would choose; FlashAttention takes values padded "
                                "to the width of keys",
                                "padded-values", place);
  draft.set("train.attention", word, place);
  draft.remark(RemarkKind::Assumed, reported,
               fmt::format("attention = {}: Megatron-LM before core 0.11 leaves the choice to them, and later ones "
                           "stop at them: --attention-backend {} there",
                           in_quotes(word), word),
               place);
}

}  // namespace tidemark::scenarios
