#include "scenarios/convert/which_training.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/other_tools.hpp"
#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {
namespace {

[[noreturn]] void stop(const std::string& file, Place place, ProblemText message, std::string hint) {
  throw InputError(Problem{file, place.line, place.column, std::move(message.text), std::move(hint), message.kind});
}

bool says_the_same(const LaunchLine& a, const LaunchLine& b) {
  const auto same = [](const ShellWord& x, const ShellWord& y) { return x.text == y.text && x.unknown == y.unknown; };
  return a.program == b.program && a.gpus == b.gpus && std::ranges::equal(a.arguments, b.arguments, same) &&
         std::ranges::equal(*a.environment, *b.environment, [&](const auto& x, const auto& y) {
           return x.first == y.first && same(x.second, y.second);
         });
}

// Programs that take a training's flags, and come before or behind it.
bool prepares(const LaunchLine& line) {
  constexpr auto words =
      std::to_array<std::string_view>({"convert", "preprocess", "tokeniz", "eval", "generat", "inference", "prepare",
                                       "merge", "export", "checkpoint", "download"});
  return std::ranges::any_of(words,
                             [&](std::string_view word) { return line.program.find(word) != std::string::npos; });
}

bool has_any(const std::vector<TomlKey>& flags, std::initializer_list<std::string_view> any) {
  return std::ranges::any_of(
      flags, [&](const TomlKey& flag) { return std::ranges::find(any, std::string_view(flag.name)) != any.end(); });
}

// Programs of Pai-Megatron-Patch (a098ca5a, examples/ and megatron_patch/model/) that build Megatron core's GPT, and
// what of it they have of their own; an empty bound: attention and MLP are core's, copied.
struct PaiProgram {
  std::string_view folder, program, bound, why;
  bool dense = false;  ///< its experts are of its own
};
constexpr std::string_view pai_legacy = "a copy of Megatron-LM's legacy model, and the figures are of Megatron core's";
constexpr auto pai_programs = std::to_array<PaiProgram>(
    {{"llama3_1", "pretrain_llama.py", "last-norm-by-operations",
      "Megatron core's GPT, but for the norm before the head, which is made of PyTorch's operations"},
     {"llama3", "pretrain_llama_mcore070.py", "", "Megatron core's GPT, whose attention and MLP it copies"},
     {"qwen2", "pretrain_qwen.py", "", "Megatron core's GPT, whose attention and MLP it copies", true},
     {"qwen2", "pretrain_qwen2_moe.py", "", "Megatron core's GPT", true},
     {"qwen3", "pretrain_qwen.py", "", "Megatron core's GPT"},
     {"llama", "pretrain_megatron_llama.py", "pai-legacy-model", pai_legacy},
     {"llama2", "pretrain_megatron_llama.py", "pai-legacy-model", pai_legacy},
     {"codellama", "pretrain_megatron_llama.py", "pai-legacy-model", pai_legacy},
     {"baichuan2", "pretrain_megatron_baichuan.py", "pai-legacy-model", pai_legacy},
     {"deepseek_v2", "pretrain_deepseek.py", "copied-latent-attention",
      "latent attention and experts of Megatron core 0.10, with norms of their own before all linears"}});

const PaiProgram* pai_program(const LaunchLine& line, const Draft& draft) {
  const auto has = [&](std::string_view flag) {
    return std::ranges::find(line.arguments, flag, &ShellWord::text) != line.arguments.end();
  };
  const auto* const its = std::ranges::find_if(pai_programs, [&](const PaiProgram& known) {
    // Layers that are not of Transformer Engine have a norm of their own.
    if (known.dense && (has("--num-experts") || has("local"))) return false;
    return line.program == known.program && (line.path.find(std::string(known.folder) + "/") != std::string::npos ||
                                             draft.folder.filename() == known.folder);
  });
  return its == pai_programs.end() ? nullptr : its;
}

}  // namespace

// Keys of one input under the flags of HfArgumentParser.
std::vector<TomlKey> underscored(std::vector<TomlKey> flags) {
  for (TomlKey& key : flags) std::ranges::replace(key.name, '-', '_');
  return flags;
}

bool is_titan(const LaunchLine& line, const std::vector<TomlKey>& flags) {
  return line.program.find("torchtitan") != std::string::npos ||
         has_any(flags, {"job.config_file", "job.config-file", "model.flavor"}) ||
         std::ranges::any_of(flags, [](const TomlKey& f) { return f.name.starts_with("training."); });
}
bool is_swift(const LaunchLine& line) { return line.program.starts_with("megatron "); }
bool is_megatron(const LaunchLine& line, const std::vector<TomlKey>& flags) {
  return (line.program.starts_with("pretrain_") && !flags.empty()) || is_swift(line) ||
         has_any(flags, {"tensor-model-parallel-size", "num-layers", "hidden-size", "micro-batch-size"});
}

bool is_verl(const LaunchLine& line) { return line.path.find("verl.trainer.fsdp_sft_trainer") != std::string::npos; }
bool is_openrlhf(const LaunchLine& line) {
  constexpr auto programs =
      std::to_array<std::string_view>({"openrlhf.cli.train_sft", "openrlhf.cli.train_dpo", "openrlhf.cli.train_rm"});
  return std::ranges::any_of(programs, [&](std::string_view its) { return line.path.find(its) != std::string::npos; });
}

// Flags that scripts around transformers' Trainer have, one of them at least.
bool has_training_arguments(const std::vector<TomlKey>& flags) {
  return std::ranges::any_of(flags, [](const TomlKey& flag) {
    constexpr auto telling = std::to_array<std::string_view>(
        {"model_name_or_path", "output_dir", "per_device_train_batch_size", "gradient_accumulation_steps", "deepspeed",
         "fsdp", "num_train_epochs", "max_steps", "gradient_checkpointing", "learning_rate", "dataset_name"});
    return std::ranges::find(telling, flag.name) != telling.end();
  });
}

// A file that the program takes its arguments from: alone, as HfArgumentParser has it, or as TRL's parser does;
// beside flags only by a tool's own command.
std::optional<ShellWord> configuration_in(const LaunchLine& line, const std::vector<TomlKey>& flags,
                                          const std::vector<ShellWord>& unread) {
  const auto is_one = [](const std::string& name) {
    return name.ends_with(".yaml") || name.ends_with(".yml") || name.ends_with(".json");
  };
  for (const TomlKey& flag : flags)
    if (const auto* name = std::get_if<std::string>(&flag.value.value);
        name != nullptr && flag.name == "config" && is_one(*name))
      return ShellWord{*name, flag.place, {}};
  const bool alone = (flags.empty() || is_command_of_tool(line)) && !unread.empty() && unread.front().unknown.empty() &&
                     is_one(unread.front().text);
  return alone ? std::optional(unread.front()) : std::nullopt;
}

bool is_command_of_tool(const LaunchLine& line) {
  return line.path == line.program &&
         (line.program.starts_with("swift ") || line.program.starts_with("trl ") || line.program.ends_with(" train"));
}

bool trains(const LaunchLine& line) {
  std::vector<ShellWord> unread;
  const std::vector<TomlKey> flags = flags_of(line.arguments, unread);
  return is_openrlhf(line) || is_verl(line) || is_titan(line, flags) || is_megatron(line, flags) ||
         has_training_arguments(underscored(flags)) || is_command_of_tool(line) ||
         (!line.launcher.empty() && configuration_in(line, flags, unread));
}

// The one training that the script starts.
LaunchLine training_of(const ShellScript& script, const std::string& file, Draft& draft) {
  const std::vector<LaunchLine> lines = launch_lines(script, file);
  const auto hidden = std::ranges::find_if(script.skips, &ShellSkip::trains);
  if (lines.empty())
    for (const ShellCommand& command : script.commands)
      if (const std::string tool = tool_called(command.words); !tool.empty())
        stop(file, command.words.front().place, not_modelled(fmt::format("calls {}, which is not modelled", tool)),
             std::string(instead_of_other_tools));
  if (lines.empty() && hidden == script.skips.end())
    stop(file, {1, 1}, "starts no training that is known here",
         "torchrun … pretrain_gpt.py, deepspeed …, accelerate launch …, or its arguments alone");
  constexpr const char* alone = "give the command alone, as it would be typed";
  if (lines.empty())
    stop(file, hidden->place, fmt::format("{} is not followed, and may start a training", hidden->what), alone);
  std::vector<LaunchLine> trainings;
  for (const LaunchLine& line : lines)
    if (trains(line)) trainings.push_back(line);
  if (std::ranges::any_of(trainings, [](const LaunchLine& line) { return !prepares(line); }))
    std::erase_if(trainings, prepares);
  if (trainings.empty()) {
    const auto launched = std::ranges::find_if(lines, [](const LaunchLine& line) { return !line.launcher.empty(); });
    return launched == lines.end() ? lines.front() : *launched;
  }
  const LaunchLine& first = trainings.front();
  for (const LaunchLine& line : lines)
    if (std::ranges::find(trainings, line.place.line, [](const LaunchLine& t) { return t.place.line; }) ==
        trainings.end())
      draft.remark(RemarkKind::Assumed, line.program, "is passed over: it is taken for no training", line.place);
  for (const LaunchLine& line : trainings) {
    if (&line == &first) continue;
    if (!says_the_same(line, first))
      stop(file, line.place,
           fmt::format("starts another training than line {} does, and a scenario is of one", first.place.line), alone);
    draft.remark(RemarkKind::Assumed, line.program,
                 fmt::format("is the training of line {} again: it is looked at once", first.place.line), line.place);
  }
  if (hidden != script.skips.end())
    stop(file, hidden->place,
         fmt::format("{} is not followed, and may start another training than line {} does", hidden->what,
                     first.place.line),
         alone);
  return first;
}

// Megatron's flags are those of its other programs, too.
void refuse_other_programs(const LaunchLine& line, Draft& draft) {
  const std::string& its = line.program;
  const auto named = [&](std::string_view part) { return its.find(part) != std::string::npos; };
  constexpr auto others =
      std::to_array<std::string_view>({"bert", "t5", "ict", "vision", "vlm", "vit", "dino", "retro", "hybrid", "mimo",
                                       "multimodal", "vl_", "_vl", "audio", "biencoder", "distill", "dpo", "grpo"});
  draft.hybrid = its == "pretrain_mamba.py";
  if (its.starts_with("pretrain_") && std::ranges::any_of(others, named))
    draft.remark(RemarkKind::NotExpressed, its,
                 not_modelled("trains another kind of model than pretrain_gpt.py, which is not modelled"), line.place);
  else if (const PaiProgram* const pai = pai_program(line, draft); pai != nullptr && pai->bound.empty())
    draft.remark(RemarkKind::Assumed, its, fmt::format("of Pai-Megatron-Patch: {}", pai->why), line.place);
  else if (pai != nullptr)
    draft.remark_bounded(its, fmt::format("of Pai-Megatron-Patch: {}", pai->why), std::string(pai->bound), line.place);
  else if (its.starts_with("pretrain_") && its != "pretrain_gpt.py" && !draft.hybrid)
    draft.remark(RemarkKind::NotJudged, its, "is a program of its own, and is taken for pretrain_gpt.py", line.place);
  else if (named("inference") || named("text_generation") || named("generate"))
    draft.remark(RemarkKind::NotExpressed, its, "generates text, and trains nothing", line.place);
}

// TRL's scripts for tasks other than supervised fine-tuning, and those of others that are called alike.
void refuse_other_tasks(const LaunchLine& line, Draft& draft) {
  struct Task {
    std::string_view word, what;
  };
  constexpr auto tasks = std::to_array<Task>({{"dpo", "DPO"},
                                              {"grpo", "GRPO"},
                                              {"kto", "KTO"},
                                              {"orpo", "ORPO"},
                                              {"cpo", "CPO"},
                                              {"simpo", "SimPO"},
                                              {"ppo", "PPO"},
                                              {"rloo", "RLOO"},
                                              {"gkd", "GKD"},
                                              {"xpo", "XPO"},
                                              {"bco", "BCO"},
                                              {"nash", "Nash-MD"},
                                              {"prm", "a process reward model"},
                                              {"reward", "a reward model"},
                                              {"rm", "a reward model"}});
  std::string name = line.program.ends_with(".py") ? line.program.substr(0, line.program.size() - 3)
                                                   : line.program.substr(line.program.rfind('.') + 1);
  std::ranges::replace(name, '-', '_');
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('_', at), name.size());
    const auto* const task = std::ranges::find(tasks, std::string_view(name).substr(at, end - at), &Task::word);
    if (task != tasks.end() && learn_from(task->word, line.program, line.place, draft)) {
      draft.trl = true;
      return;
    }
    if (task != tasks.end())
      return draft.remark(
          RemarkKind::NotExpressed, line.program,
          not_modelled(fmt::format("trains by {}, a task that is not modelled: supervised fine-tuning is", task->what)),
          line.place);
    at = end + 1;
  }
}

}  // namespace tidemark::scenarios
