#include "scenarios/convert/detect.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "scenarios/convert/other_tools.hpp"
#include "scenarios/convert/stated_versions.hpp"
#include "scenarios/convert/yaml_table.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/json_table.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"

namespace tidemark::scenarios {
namespace {

bool has(const TomlTable& table, std::initializer_list<std::string_view> any) {
  return std::ranges::any_of(
      table.keys, [&](const TomlKey& key) { return std::ranges::find(any, std::string_view(key.name)) != any.end(); });
}

std::size_t keys_in(const TomlTable& table) {
  std::size_t count = table.keys.size();
  for (const TomlKey& key : table.keys)
    if (const auto* inner = std::get_if<TomlTable>(&key.value.value)) count += keys_in(*inner);
  return count;
}

// Whether a table is there, and something in it: FlagScale's robots have an empty one.
bool fills(const TomlTable& its, std::string_view name) {
  return std::ranges::any_of(its.keys, [&](const TomlKey& key) {
    const auto* const table = std::get_if<TomlTable>(&key.value.value);
    return key.name == name && table != nullptr && !table->keys.empty();
  });
}

FileKind kind_of(const TomlTable& its, bool toml) {
  if (const std::string tool = toml ? std::string() : tool_of(its); tool == "nanotron" || tool == "FlagScale") {
    const bool whole = tool == "nanotron" ? has(its, {"parallelism"}) && has(its, {"tokens"})
                                          : fills(its, "system") && has(its, {"model"});
    if (whole) return tool == "nanotron" ? FileKind::Nanotron : FileKind::FlagScale;
  }
  if (!toml && tool_of(its) == "GPT-NeoX" && has(its, {"num-layers", "num_layers"})) return FileKind::GptNeox;
  if (!toml && tool_of(its) == "torchtune") return FileKind::Torchtune;
  if (!toml && tool_of(its) == "llm-foundry" && has(its, {"model"})) return FileKind::LlmFoundry;
  if (!toml && tool_of(its) == "OLMo") return FileKind::Olmo;
  if (!toml && tool_of(its) == "Lingua") return FileKind::Lingua;
  if (!toml && tool_of(its) == "NeMo AutoModel" && has(its, {"model"})) return FileKind::AutoModel;
  if (!toml && tool_of(its) == "Primus") return FileKind::Primus;
  if (!toml && tool_of(its) == "LitGPT") return FileKind::LitGpt;
  if (!toml && tool_of(its) == "LLaMA-Factory's second version") return FileKind::LlamaFactoryV1;
  if (!toml && tool_of(its) == "axolotl") return FileKind::Axolotl;
  if (!toml && tool_of(its) == "LLaMA-Factory") return FileKind::LlamaFactory;
  if (has(its, {"distributed_type", "compute_environment"})) return FileKind::Accelerate;
  if (has(its, {"zero_optimization", "train_micro_batch_size_per_gpu"})) return FileKind::DeepSpeed;
  if (has(its, {"model_type", "n_embd"})) return FileKind::ModelConfig;
  if (has(its, {"parallelism", "activation_checkpoint", "training", "job"})) return FileKind::TorchTitan;
  if (has(its, {"per_device_train_batch_size", "output_dir", "gradient_accumulation_steps", "model_name_or_path"}))
    return FileKind::TrainingArguments;
  if (!toml && has(its, {"cluster"}) && has(its, {"layout"})) return FileKind::Scenario;
  if (!toml && has(its, {"MODEL_ARGS", "trainer", "train", "model", "ddp"})) return FileKind::Bridge;
  return FileKind::Scenario;
}

// "--load <PATH TO CHECKPOINTS> --fp16": a place to fill in, which a shell takes for two redirections that eat the next
// flag. It becomes a word as long as it is.
std::string without_placeholders(std::string text) {
  const auto is_word = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view(" _-./").find(static_cast<char>(c)) != std::string_view::npos;
  };
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    std::size_t end = at + 1;
    while (end < text.size() && is_word(static_cast<unsigned char>(text[end]))) ++end;
    const bool closes =
        end < text.size() && text[end] == '>' && text[end - 1] != ' ' &&
        (end + 1 == text.size() || std::string_view(" \t\n\"'\\").find(text[end + 1]) != std::string_view::npos);
    const bool ends = end + 1 >= text.size() || text[end + 1] == '\n';  // "<env-name>", at which a shell stops
    const bool capital = ends || (at + 1 < text.size() && std::isupper(static_cast<unsigned char>(text[at + 1])) != 0);
    const bool begins = at > 0 && std::string_view(" \t=\"'").find(text[at - 1]) != std::string_view::npos;
    if (!closes || !capital || !begins) continue;
    for (std::size_t i = at; i <= end; ++i)
      if (text[i] == ' ' || text[i] == '<' || text[i] == '>') text[i] = '_';
  }
  return text;
}

}  // namespace

FileContent classified(const std::filesystem::path& file) { return classified(file, read_text(file)); }

FileContent classified(const std::filesystem::path& file, std::string text) {
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  if (text.starts_with(byte_order_mark)) text.erase(0, byte_order_mark.size());
  const std::string ending = file.extension().string();
  if (ending == ".toml") {
    TomlTable document = parse_toml(text, file.string());
    const FileKind kind = kind_of(document, true);
    const bool titan = kind == FileKind::TorchTitan && !has(document, {"gpus", "cluster", "layout", "train"});
    return {titan ? kind : FileKind::Scenario, {}, std::move(document)};
  }
  if (ending == ".json" || ending == ".yaml" || ending == ".yml") {
    std::vector<TomlKey> repeated;
    TomlTable document = ending == ".json" ? parse_json_table(text, file.string(), Automatic::Kept)
                                           : parse_yaml_table(text, file.string(), repeated);
    constexpr std::size_t most_keys = 5'000;
    if (keys_in(document) > most_keys)
      throw InputError(Problem{file.string(), 1, 1, fmt::format("has more than {} keys", most_keys),
                               "the files that belong here have some dozens"});
    const FileKind kind = kind_of(document, false);
    // OmegaConf, with which the others read, refuses a key that is there twice (_utils.py get_yaml_loader).
    constexpr std::array read_by_pyyaml{FileKind::Nanotron, FileKind::GptNeox,    FileKind::Axolotl,
                                        FileKind::Primus,   FileKind::Accelerate, FileKind::TrainingArguments};
    if (!repeated.empty() && std::ranges::find(read_by_pyyaml, kind) == read_by_pyyaml.end())
      throw InputError(Problem{file.string(), repeated.front().place.line, repeated.front().place.column,
                               fmt::format("{}: is there twice", in_quotes(repeated.front().name)),
                               "leave one of them out"});
    constexpr std::array read_by_name{
        FileKind::Nanotron,  FileKind::GptNeox, FileKind::FlagScale,      FileKind::Axolotl,    FileKind::LlamaFactory,
        FileKind::Torchtune, FileKind::LitGpt,  FileKind::LlamaFactoryV1, FileKind::LlmFoundry, FileKind::AutoModel,
        FileKind::Primus,    FileKind::Olmo,    FileKind::Lingua};
    if (std::ranges::find(read_by_name, kind) != read_by_name.end())
      return {kind, {}, std::move(document), std::move(repeated)};
    if (const std::string tool = tool_of(document); !tool.empty())
      throw InputError(Problem{file.string(), 1, 1,
                               fmt::format("is a configuration of {}, which is not modelled", tool),
                               std::string(instead_of_other_tools), ProblemKind::NotModelled});
    if (kind == FileKind::Scenario && has(document, {"cluster"}))
      throw InputError(Problem{.file = file.string(),
                               .line = 1,
                               .column = 1,
                               .message = "is a scenario as explain --show scenario prints it, which no question takes",
                               .hint = "tidemark predict SCENARIO --print-scenario writes one to go on from"});
    if (kind == FileKind::Scenario)
      throw InputError(
          Problem{.file = file.string(),
                  .line = 1,
                  .column = 1,
                  .message = "is of no framework that is known here",
                  .hint = "a ds_config.json, a config.json, TrainingArguments, accelerate's or Megatron-Bridge's "
                          "configuration would do"});
    return {kind, {}, std::move(document), std::move(repeated)};
  }
  if (ending == ".py") return {FileKind::PythonRecipe, std::move(text), {}};
  constexpr std::array<std::string_view, 4> scripts{".sh", ".bash", ".sbatch", ".slurm"};
  const bool bare = ending.empty() || ending == ".txt" || ending == ".args";
  if (bare && !text.starts_with("#!") && lists_packages(text)) return {FileKind::Packages, std::move(text), {}};
  const bool script = std::ranges::find(scripts, ending) != scripts.end() || text.starts_with("#!") ||
                      (bare && (text.starts_with("--") || text.find(" --") != std::string::npos));
  if (!script && text.find("CUDA out of memory.") != std::string::npos)
    throw InputError(Problem{.file = file.string(),
                             .message = "holds PyTorch's out-of-memory message, and says of no training",
                             .hint = "tidemark compare JOB FILE lays it beside the job's prediction"});
  if (!script) return {FileKind::Scenario, {}, parse_toml(text, file.string())};
  return {FileKind::Shell, without_placeholders(std::move(text)), {}};
}

}  // namespace tidemark::scenarios
