#include "scenarios/convert/script/script.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/convert/detect.hpp"
#include "scenarios/convert/nemo/bridge_experiment.hpp"
#include "scenarios/convert/other_tools.hpp"
#include "scenarios/convert/script/inner_script.hpp"
#include "scenarios/convert/script/script_variables.hpp"
#include "scenarios/convert/shell/harmless_variables.hpp"
#include "scenarios/convert/shell/launch_line.hpp"
#include "scenarios/convert/shell/shell_syntax.hpp"
#include "scenarios/convert/shell/slurm_variables.hpp"
#include "scenarios/convert/which_training.hpp"
#include "scenarios/convert/yaml_table.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"

namespace tidemark::scenarios {
namespace {

/// "--training.seq_len" to [training] seq_len.
TomlTable nested(const std::vector<TomlKey>& flags, TomlTable document, const std::string& file) {
  Draft draft;
  draft.file = file;
  draft.document = std::move(document);
  for (const TomlKey& flag : flags) {
    std::string path = flag.name;
    std::ranges::replace(path, '-', '_');
    std::size_t no = path.find(".no_");
    Content content = flag.value.value;
    if (no != std::string::npos && content.index() == 0) path.erase(no + 1, 3), content = false;
    draft.set(path, std::move(content), flag.value.place);
  }
  return std::move(draft.document);
}

[[noreturn]] void refuse_line(const std::string& file, Place place, ProblemText message, std::string hint) {
  throw InputError(Problem{file, place.line, place.column, std::move(message.text), std::move(hint), message.kind});
}

// The variable of `NNODES=${SLURM_NNODES:-1}`, and of its like; empty of other lines.
std::string one_node_in_place_of(std::string_view line) {
  std::string bare;
  for (const char c : line)
    if (c != '"' && c != '\'') bare += c;
  std::string_view rest = bare;
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  if (rest.starts_with("export ")) rest.remove_prefix(std::string_view("export ").size());
  const std::size_t sign = rest.find("=${");
  if (sign == std::string_view::npos || !is_name(rest.substr(0, sign))) return {};
  constexpr auto endings = std::to_array<std::string_view>({"NODES", "NODE", "WORLD_SIZE", "MACHINES"});
  const std::string_view assigned = rest.substr(0, sign);
  if (std::ranges::none_of(endings, [&](std::string_view ending) { return assigned.ends_with(ending); })) return {};
  rest.remove_prefix(sign + 3);
  std::size_t end = 0;
  while (end < rest.size() && is_of_name(rest[end])) ++end;
  const std::string_view variable = rest.substr(0, end), behind = rest.substr(end);
  for (const std::string_view one : {":-1}", "-1}", ":=1}", "=1}"})
    if (behind.starts_with(one)) return std::string(variable);
  return {};
}

class ScriptReader {
 public:
  ScriptReader(const ConvertRequest& requested, const ShippedModels& models, Draft& draft)
      : requested_(requested), models_(models), draft_(draft) {}

  void read(const std::filesystem::path& file, const std::string& text) {
    ShellScript script = read_shell(text, file.string(), requested_.variables);
    if (script.stopped.line > 0 && launch_lines(script, file.string()).empty()) {
      const Place stopped = script.stopped;
      script = read_shell(text, file.string(), requested_.variables, FailingExits::PassedOver);
      draft_.remark(RemarkKind::Assumed, "exit",
                    "the script as it stands ends here, before it starts anything: what it "
                    "checks is taken as seen to",
                    stopped);
    }
    for (const ShellSkip& skip : script.skips)
      draft_.remark(RemarkKind::Assumed, skip.what, "is passed over: nothing is run", skip.place);
    for (const ShellSkip& its : script.found)
      draft_.remark(RemarkKind::Assumed, its.what,
                    "is read for a file of that name, which is not where the script says", its.place);
    if (launch_lines(script, file.string()).empty())
      if (const std::optional<InnerScript> inner = inner_script(script, file.string())) {
        if (!inner->gpus) take_allocation(file, text);
        return read_inner(*inner);
      }
    const LaunchLine line = training_of(script, file.string(), draft_);
    if (line.gpus_problem) take_allocation(file, text);
    const bool devices_hidden = line.gpus_problem && !requested_.gpus && draft_.find("gpus") == nullptr;
    if (devices_hidden && !is_hidden(*line.gpus_problem)) throw InputError(*line.gpus_problem);
    draft_.nodes_from = nodes_by_default(text);
    if (line.gpus && !requested_.gpus) draft_.set("gpus", *line.gpus, line.place), draft_.each_node = line.each_node;
    if (!line.gpus && !line.launcher.empty()) take_allocation(file, text);
    if (draft_.find("gpus") == nullptr) draft_.starts_all = line.starts_all, draft_.starts_nodes = line.starts_nodes;
    lone_ = line.launcher.empty() && line.program.ends_with(".py");
    for (const std::string& name : script.taken_for_unset)
      draft_.remark(RemarkKind::Assumed, "$" + name, "is not set: nothing that is run here assigns it");
    for (const ShellWord& word : line.unread)
      if (word.unknown.empty())
        stray(word);
      else if (draft_.find("gpus") != nullptr)
        draft_.remark(RemarkKind::NoMatter, word.unknown, "the launcher's: on how many GPUs is said", word.place);
      else
        not_read(word, "; --gpus says on how many GPUs");
    for (const auto& [name, value] : *line.environment) read_variable(name, value, draft_);
    candidates_ = script.candidates;
    tell_presumed(script, line, text);
    read_arguments(line);
    if (devices_hidden && draft_.find("gpus") == nullptr && !says_least_devices()) throw InputError(*line.gpus_problem);
    if (from_ == Dialect::Megatron) settle_attention(models_, draft_);
  }

  [[nodiscard]] Dialect dialect() const { return from_; }

 private:
  // On how many devices it starts, only running the script would tell.
  static bool is_hidden(const Problem& its) {
    return its.message.find("is not known without running") != its.message.npos;
  }
  // settle_devices takes the least that the layout fills, and says so.
  [[nodiscard]] bool says_least_devices() const {
    const auto many = [&](const char* path) { return draft_.integer(path).value_or(1) > 1; };
    return from_ == Dialect::Megatron && (many("layout.tensor") || many("layout.context") || many("layout.pipeline"));
  }

  // Where only running the script would tell on how many devices it starts: those that its #SBATCH lines ask for.
  void take_allocation(const std::filesystem::path& file, const std::string& text) {
    if (draft_.find("gpus") != nullptr || requested_.gpus) return;
    const std::optional<std::int64_t> devices = devices_of_allocation(text, file.string());
    if (!devices) return;
    draft_.set("gpus", *devices);
    draft_.remark(RemarkKind::Assumed, "gpus",
                  fmt::format("{}, all that the #SBATCH lines ask for: on how many it starts, the launch does not say; "
                              "--gpus says another number",
                              *devices));
  }

  // A file that is sourced and not there may assign again what the script has assigned.
  void tell_presumed(const ShellScript& script, const LaunchLine& line, std::string_view text) {
    const auto source = std::ranges::find_if(script.skips, &ShellSkip::assigns);
    if (line.presumed.empty() || source == script.skips.end()) return;
    constexpr std::size_t most = 4;
    std::vector<std::string> names(line.presumed.begin(), line.presumed.end());
    const auto has_no_effect = [](std::string_view flag) {
      const std::optional<MegatronFlag> known = megatron_flag(flag);
      return known && known->kind == MegatronFlag::Kind::NoMatter;
    };
    if (line.program.starts_with("pretrain_"))
      std::erase_if(names, [&](const std::string& name) { return is_harmless(text, name, has_no_effect); });
    if (names.empty()) return;
    const bool more = names.size() > most;
    if (more) names.resize(most);
    draft_.remark(RemarkKind::NotJudged, source->what.substr(source->what.find_last_of(" /") + 1),
                  fmt::format("is not there, and may assign {}{} again: they stand as the script assigns them; put the "
                              "file beside the script, or say them with --set NAME=VALUE",
                              fmt::join(names, ", "), more ? " and others" : ""),
                  source->place);
  }

  // "NNODES=${SLURM_NNODES:-1}": whoever starts the script says on how many nodes, where nobody here does.
  // "# Change for multinode config" above "NNODES=1" says it, too.
  [[nodiscard]] std::string nodes_by_default(std::string_view text) const {
    constexpr int near = 4;  // MASTER_ADDR, MASTER_PORT and their like stand between
    int lines_behind = near + 1;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = text.substr(at, end - at);
      lines_behind = line == "# Change for multinode config" ? 0 : lines_behind + 1;
      std::string variable = one_node_in_place_of(line);
      for (const std::string_view nodes : {"NNODES=1", "NUM_NODES=1"})
        if (line == nodes && lines_behind <= near) variable = nodes.substr(0, nodes.find('='));
      if (!variable.empty() && !requested_.variables.contains(variable)) return variable;
      at = end + 1;
    }
    return {};
  }

  // The script that this one starts, with what it is given; what whoever asks sets goes before.
  void read_inner(const InnerScript& inner) {
    draft_.remark(RemarkKind::Assumed, inner.file.filename().string(),
                  "is what the script starts: the one of that name beside it is read", inner.place);
    if (inner.gpus && draft_.find("gpus") == nullptr) draft_.set("gpus", *inner.gpus, inner.place);
    ConvertRequest requested = requested_;
    for (const auto& [name, value] : inner.variables) requested.variables.emplace(name, value);
    draft_.file = inner.file.string();
    draft_.folder = inner.file.parent_path();
    constexpr int deepest = 4;
    if (depth_ + 1 > deepest)
      refuse_line(draft_.file, inner.place, "is started by scripts that start each other", "give the last one");
    ScriptReader reader(requested, models_, draft_);
    reader.depth_ = depth_ + 1;
    reader.read(inner.file, read_text(inner.file));
    from_ = reader.from_;
  }

  // slime's arguments (slime/utils/arguments.py), which it takes beside Megatron-LM's.
  static const TomlKey* rollout_in(const std::vector<TomlKey>& flags) {
    constexpr auto names = std::to_array<std::string_view>(
        {"rollout-batch-size", "rollout-num-gpus", "actor-num-gpus-per-node", "advantage-estimator"});
    const auto found = std::ranges::find_if(flags, [&](const TomlKey& flag) {
      return std::ranges::find(names, std::string_view(flag.name)) != names.end();
    });
    return found == flags.end() ? nullptr : &*found;
  }

  // Whether all that the variable may hold are flags that leave memory and time as they are: "--finetune", or nothing.
  bool holds_nothing_that_matters(const std::string& name) const {
    const auto its = candidates_.find(name);
    return its != candidates_.end() && std::ranges::all_of(its->second, [](const std::string& text) {
             std::vector<ShellWord> words, unread;
             for (std::size_t at = text.find_first_not_of(' '); at != std::string::npos;) {
               const std::size_t end = std::min(text.find(' ', at), text.size());
               words.push_back({text.substr(at, end - at), {}});
               at = text.find_first_not_of(' ', end);
             }
             const std::vector<TomlKey> flags = flags_of(words, unread);
             return unread.empty() && std::ranges::all_of(flags, [](const TomlKey& flag) {
                      const std::optional<MegatronFlag> known = megatron_flag(flag.name);
                      return known && known->kind == MegatronFlag::Kind::NoMatter;
                    });
           });
  }

  // What the script gives on and does not say itself.
  void not_read(const ShellWord& word, std::string_view besides = "") {
    const std::string name = variable_of(word.unknown);
    if (!name.empty() && holds_nothing_that_matters(name))
      return draft_.remark(RemarkKind::NoMatter, "$" + name, "whichever it holds, memory and time are the same",
                           word.place);
    const bool assigned = word.unknown.ends_with(')');  // somewhere, and why that is not known
    // What is assigned somewhere may be of the layout; of what is assigned nowhere the script alone knows nothing.
    draft_.remark(
        name.empty() || assigned ? RemarkKind::NotExpressed : RemarkKind::NotJudged, word.unknown,
        name.empty() ? fmt::format("only running it would tell which arguments these are{}", besides)
                     : fmt::format("is {}, so that its arguments are not read: --set {}=\"…\" says them, --set {}= "
                                   "that there are none{}",
                                   assigned ? "not known without running it" : "assigned nowhere", name, name, besides),
        word.place);
  }

  // What stands among flags and is none.
  void stray(const ShellWord& word) {
    draft_.remark(RemarkKind::NotExpressed, word.text,
                  begins_with_other_dash(word.text) ? "begins with another dash than -, as text editors make it of --"
                  : word.text.starts_with('-')      ? "is no flag that is known here: those begin with --"
                                                    : "belongs to no flag, so that what it says is not read",
                  word.place);
  }

  // What stands among flags: overrides of tools that have those, the file that holds arguments, and what is none.
  void take_words(const LaunchLine& line, const std::optional<ShellWord>& configuration,
                  const std::vector<ShellWord>& unread, std::vector<TomlKey>& flags) {
    const bool of_factory = (line.program.ends_with(" train") && !line.program.starts_with("axolotl")) || is_verl(line);
    for (const ShellWord& word : unread)
      if (word.unknown.empty() && configuration && word.text == configuration->text)
        continue;
      else if (word.unknown.empty() && of_factory && word.text.find('=') != std::string::npos)
        flags.push_back({word.text.substr(0, word.text.find('=')),
                         word.place,
                         {typed(word.text.substr(word.text.find('=') + 1)), word.place}});
      else if (word.unknown.empty())
        stray(word);
      else if (is_verl(line) && word.unknown.starts_with("$@"))
        draft_.remark(RemarkKind::Assumed, "$@", "no more of Hydra's overrides stand behind the script's name",
                      word.place);
      else if (const std::string& named = word.text.find('=') == std::string::npos ? word.unknown : word.text;
               is_verl(line) && named.find('=') != std::string::npos)
        flags.push_back(
            {named.substr(0, named.find('=')), word.place, {std::string(unknown_value) + word.unknown, word.place}});
      else
        not_read(word);
  }

  void read_arguments(const LaunchLine& line) {
    if (is_bridge_experiment(line)) {
      from_ = Dialect::Megatron;
      Given given(bridge_flags(bridge_experiment(line, requested_.variables, models_, draft_), draft_), "--", draft_);
      return read_megatron(given, models_, draft_);
    }
    std::vector<ShellWord> unread;
    std::vector<TomlKey> flags = flags_of(line.arguments, unread);
    const std::optional<ShellWord> configuration = configuration_in(line, flags, unread);
    take_words(line, configuration, unread, flags);
    std::erase_if(unread, [](const ShellWord& word) { return word.unknown.empty(); });
    if (const TomlKey* const its = rollout_in(flags); its != nullptr) {
      from_ = Dialect::Megatron;
      return draft_.remark(
          RemarkKind::NotExpressed, fmt::format("--{}", its->name),
          not_modelled("trains on what it generates beside: a task that is not modelled from launch files"),
          its->place);
    }
    if (is_openrlhf(line)) (void)learn_from(line.path.substr(line.path.rfind('_') + 1), line.path, line.place, draft_);
    if (is_openrlhf(line)) return read_tuning(line, openrlhf_arguments(std::move(flags), draft_), "--");
    if (is_verl(line)) {
      for (TomlKey& key : flags)
        if (key.name.starts_with('+')) key.name.erase(0, key.name.find_first_not_of('+'));
      return read_tuning(line, verl_arguments(std::move(flags), draft_), "");
    }
    if (read_nanotron(line)) return;
    if (is_titan(line, flags)) return read_titan_arguments(std::move(flags));
    if (is_llm_recipes(flags)) {
      from_ = Dialect::TrainingArguments;
      draft_.own_defaults = true;
      Given given(std::move(flags), "--", draft_);
      return read_llm_recipes(given, models_, draft_);
    }
    if (is_megatron(line, flags)) {
      from_ = Dialect::Megatron;
      refuse_other_programs(line, draft_);
      flags = is_swift(line) ? swift_flags(std::move(flags), models_, draft_)
                             : megatron_flags_of_forks(std::move(flags), draft_);
      Given given(std::move(flags), "--", draft_);
      return read_megatron(given, models_, draft_);
    }
    flags = underscored(std::move(flags));
    if (is_aws_fsdp(flags)) {
      from_ = Dialect::TrainingArguments;
      Given given(std::move(flags), "--", draft_);
      return read_aws_fsdp(given, draft_);
    }
    if (line.program == "qlora.py") flags = qlora_arguments(std::move(flags), draft_);
    if (is_deepspeed_chat(flags)) flags = deepspeed_chat_arguments(std::move(flags), draft_);
    if (is_command_of_tool(line) || (configuration && !has_training_arguments(flags)))
      return read_command_of_tool(line, configuration, std::move(flags));
    if (configuration) add_configuration(*configuration, flags);
    const bool of_bridge = tool_of_program(line.path).starts_with("Megatron-Bridge");
    if (of_bridge || !has_training_arguments(flags)) refuse_unknown(line, unread);
    from_ = Dialect::TrainingArguments;
    refuse_other_tasks(line, draft_);
    draft_.trl |= line.path.find("trl/") != std::string::npos || line.path.starts_with("trl.") ||
                  line.program == "sft.py" || line.program == "run_sft.py";
    draft_.names_lora = line.path.find("lora") != std::string::npos || line.path.find("peft") != std::string::npos;
    read_launcher(line);
    if (lone_ && draft_.find("gpus") == nullptr) {
      draft_.set("gpus", std::int64_t{1}, line.place);
      draft_.remark(
          RemarkKind::Assumed, "gpus",
          "python starts one process, on one device: with more of them visible the Trainer would wrap the model "
          "in DataParallel, which is not modelled",
          line.place);
    }
    Given given(std::move(flags), "--", draft_);
    drop_unknown(given);
    read_training_arguments(given, models_, draft_);
  }

  // "torchrun run_train.py --config-file job.yaml" (nanotron's run_train.py), with the file there, or beside the
  // script.
  bool read_nanotron(const LaunchLine& line) {
    const auto flag = std::ranges::find_if(line.arguments, [](const ShellWord& word) {
      return word.text == "--config-file" || word.text == "--config_file";
    });
    if (flag == line.arguments.end() || flag + 1 == line.arguments.end()) return false;
    const ShellWord& its = *(flag + 1);
    if (!its.text.ends_with(".yaml") && !its.text.ends_with(".yml")) return false;
    std::filesystem::path path = named_beside(draft_.folder, its.text);
    if (!is_there(path)) path = named_beside(draft_.folder, its.text.substr(its.text.rfind('/') + 1));
    if (!is_there(path)) return false;
    const FileContent content = classified(path);
    if (content.kind != FileKind::Nanotron) return false;
    draft_.remark(RemarkKind::Assumed, path.filename().string(), "is the configuration that the script names",
                  its.place);
    const std::optional<std::int64_t> launched = requested_.gpus ? std::nullopt : draft_.integer("gpus");
    if (launched) draft_.erase("gpus");
    from_ = Dialect::Megatron;
    draft_.file = path.string();
    Given given(nanotron_flags(content.document, draft_), "--", draft_);
    if (const auto filled = draft_.integer("gpus"); launched && filled && *launched != *filled)
      draft_.remark(RemarkKind::NotJudged, fmt::format("gpus = {}", *launched),
                    fmt::format("of the launcher is not dp x tp x pp = {}, at which nanotron stops: the figures are of "
                                "that",
                                *filled),
                    its.place);
    read_megatron(given, models_, draft_);
    return true;
  }

  // Of tools that make TrainingArguments of their own.
  void read_tuning(const LaunchLine& line, std::vector<TomlKey> arguments, const std::string& dashes) {
    from_ = Dialect::TrainingArguments;
    read_launcher(line);
    Given given(std::move(arguments), dashes, draft_);
    drop_unknown(given);
    read_training_arguments(given, models_, draft_);
  }

  // What a file says and the command line does not.
  std::optional<FileContent> add_configuration(const ShellWord& its, std::vector<TomlKey>& flags) {
    std::erase_if(flags, [](const TomlKey& flag) { return flag.name == "config"; });
    const std::filesystem::path path = named_beside(draft_.folder, its.text);
    if (!is_there(path)) {
      draft_.remark(RemarkKind::NotExpressed, its.text, "is not there: give it as a file, too", its.place);
      return std::nullopt;
    }
    FileContent content = classified(path);
    std::vector<TomlKey> keys = content.document.keys;
    std::erase_if(
        keys, [&](const TomlKey& key) { return std::ranges::find(flags, key.name, &TomlKey::name) != flags.end(); });
    keys.insert(keys.end(), flags.begin(), flags.end());
    flags = std::move(keys);
    return content;
  }

  // "llamafactory-cli train job.yaml", "accelerate launch sft.py --config job.yaml", "swift sft …".
  void read_command_of_tool(const LaunchLine& line, const std::optional<ShellWord>& configuration,
                            std::vector<TomlKey> flags) {
    from_ = Dialect::TrainingArguments;
    refuse_other_tasks(line, draft_);
    read_launcher(line);
    FileKind kind = line.program.starts_with("axolotl ") ? FileKind::Axolotl
                    : line.program.ends_with(" train")   ? FileKind::LlamaFactory
                                                         : FileKind::TrainingArguments;
    if (configuration)
      if (const std::optional<FileContent> content = add_configuration(*configuration, flags)) {
        kind = content->kind;
        constexpr std::array read{FileKind::Axolotl, FileKind::LlamaFactory, FileKind::TrainingArguments};
        if (std::ranges::find(read, kind) == read.end())
          refuse_line(draft_.file, configuration->place,
                      fmt::format("{} holds no arguments of a training", in_quotes(configuration->text)),
                      "TrainingArguments, LLaMA-Factory's or axolotl's are read");
      }
    constexpr std::string_view of_trl = "trl ";
    if (line.program.starts_with(of_trl))
      (void)learn_from(line.program.substr(of_trl.size()), line.program, line.place, draft_);
    if (line.program == "swift rlhf" && std::ranges::none_of(flags, [](const TomlKey& key) {
          return key.name == "rlhf_type" || key.name == "rlhf-type";
        }))
      (void)learn_from("dpo", line.program, line.place, draft_);  // swift/arguments/rlhf_args.py
    refuse_other_tasks_of_tools(TomlTable{underscored(flags)}, draft_);
    const std::string starter = draft_.starts_all;
    const bool swift = line.program.starts_with("swift ");
    if (kind == FileKind::Axolotl)
      flags = axolotl_arguments(std::move(flags), draft_);
    else if (kind == FileKind::LlamaFactory)
      flags = llama_factory_arguments(std::move(flags), draft_);
    else if (swift)
      flags = swift_tuning_arguments(std::move(flags), line.program.ends_with(" pt"), draft_);
    else
      draft_.trl |= line.program.starts_with("trl ") || line.program.find("sft") != std::string::npos;
    draft_.starts_all = starter;
    Given given(std::move(flags), swift ? "--" : "", draft_);
    drop_unknown(given);
    read_training_arguments(given, models_, draft_);
  }

  [[noreturn]] void refuse_unknown(const LaunchLine& line, const std::vector<ShellWord>& unread) const {
    if (const std::string tool = tool_of_program(line.path); !tool.empty())
      refuse_line(draft_.file, line.place,
                  not_modelled(fmt::format("{} is of {}, which is not modelled", in_quotes(line.path), tool)),
                  std::string(instead_of_other_tools));
    std::string words;
    for (const ShellWord& word : unread) words += (words.empty() ? "" : ", ") + word.unknown;
    const Place place = unread.empty() ? line.place : unread.front().place;
    throw InputError(Problem{
        .file = draft_.file,
        .line = place.line,
        .column = place.column,
        .message = unread.empty()
                       ? fmt::format("{} has no argument of a framework that is known here", in_quotes(line.program))
                       : fmt::format("{} takes its arguments from {}, which the script does not say",
                                     in_quotes(line.program), words),
        .hint = unread.empty() ? "Megatron-LM's, torchtitan's and TrainingArguments' are: tidemark convert --help"
                               : "say them with --set NAME=\"…\"",
        .kind = unread.empty() && !line.launcher.empty() ? ProblemKind::NotModelled : ProblemKind::Wrong});
  }

  // HfArgumentParser gives what only running the script tells no number: it is told, unless it has no effect.
  void drop_unknown(const Given& given) const {
    for (const TomlKey& key : given.keys())
      if (const auto* text = std::get_if<std::string>(&key.value.value);
          text != nullptr && text->starts_with(unknown_value))
        if (key.name.ends_with("batch_size") || key.name.ends_with("steps") || key.name == "deepspeed" ||
            key.name.ends_with("length"))
          throw InputError(
              Problem{.file = draft_.file,
                      .line = key.place.line,
                      .column = key.place.column,
                      .message = fmt::format("--{}: {} is not known without running it", key.name, text->substr(1)),
                      .hint = hint_of_unknown(text->substr(unknown_value.size()))});
  }

  // accelerate's processes on one machine each take a device: of --gpu_ids, or of those that are visible.
  void check_visible_devices(const LaunchLine& line, const Draft& its) const {
    const std::int64_t processes = its.integer("num_processes").value_or(0);
    const TomlValue* const ids = its.find("gpu_ids");
    const auto* const named = ids == nullptr ? nullptr : std::get_if<std::string>(&ids->value);
    const bool some = ids != nullptr && (named == nullptr || *named != "all");
    const std::int64_t devices = !some ? line.visible : named == nullptr ? 1 : std::ranges::count(*named, ',') + 1;
    if (devices == 0 || processes <= devices || its.integer("num_machines").value_or(1) != 1) return;
    refuse_line(draft_.file, line.place,
                fmt::format("{} leaves {} device{} visible, and accelerate starts {} processes",
                            some ? "gpu_ids" : "CUDA_VISIBLE_DEVICES", devices, devices == 1 ? "" : "s", processes),
                "each process takes a device of its own");
  }

  // accelerate launch --config_file, and what stands beside it.
  void read_launcher(const LaunchLine& line) {
    const std::filesystem::path folder = draft_.folder;
    const std::string file = draft_.file;
    if (line.launcher == "accelerate") {
      std::vector<TomlKey> keys;
      TomlTable config;
      for (const TomlKey& flag : line.launcher_flags) {
        const auto* text = std::get_if<std::string>(&flag.value.value);
        if (flag.name == "config-file" && text != nullptr) {
          const std::filesystem::path path = named_beside(folder, *text);
          if (is_there(path)) {
            config = parse_yaml_table(read_text(path), path.string());
          } else {
            draft_.remark(RemarkKind::NotExpressed, "--config_file " + *text, "is not there: give it as a file, too",
                          flag.place);
          }
        } else {
          keys.push_back(flag);
          std::ranges::replace(keys.back().name, '-', '_');
        }
      }
      Draft together;
      together.file = file;
      together.document = std::move(config);
      constexpr auto by_flag =
          std::to_array<std::pair<std::string_view, const char*>>({{"use_deepspeed", "DEEPSPEED"},
                                                                   {"use_fsdp", "FSDP"},
                                                                   {"use_megatron_lm", "MEGATRON_LM"},
                                                                   {"multi_gpu", "MULTI_GPU"}});
      for (const auto& [flag, kind] : by_flag)
        if (const auto given = std::ranges::find(keys, flag, &TomlKey::name); given != keys.end()) {
          together.set("distributed_type", std::string(kind), given->place);
          break;
        }
      for (const auto& [flag, kind] : by_flag)
        std::erase_if(keys, [&](const TomlKey& key) { return key.name == flag; });
      for (const TomlKey& key : keys) {
        const bool of_fsdp = key.name.starts_with("fsdp_");
        const bool of_zero = key.name == "zero_stage" || key.name.starts_with("offload_") ||
                             key.name.starts_with("deepspeed_") || key.name.starts_with("zero3_") ||
                             key.name == "gradient_clipping";
        const bool of_dynamo = key.name.starts_with("dynamo_");
        if (of_fsdp) together.erase("fsdp_config." + key.name.substr(std::string_view("fsdp_").size()));
        together.set((of_fsdp     ? "fsdp_config."
                      : of_zero   ? "deepspeed_config."
                      : of_dynamo ? "dynamo_config."
                                  : "") +
                         key.name,
                     key.value.value, key.value.place);
      }
      if (!together.document.keys.empty()) {
        check_visible_devices(line, together);
        Given given(together.document.keys, "", draft_);
        read_accelerate(given, draft_);
      }
    }
    draft_.file = file;
  }

  void read_titan_arguments(std::vector<TomlKey> flags) {
    from_ = Dialect::TorchTitan;
    TomlTable document;
    std::erase_if(flags, [&](const TomlKey& flag) {
      if (flag.name != "job.config_file" && flag.name != "job.config-file") return false;
      const auto* name = std::get_if<std::string>(&flag.value.value);
      if (name == nullptr)
        refuse_line(draft_.file, flag.place,
                    fmt::format("--{} takes a file's name, not {}", flag.name, scenarios::text(flag.value)),
                    "the configuration that the training starts from");
      std::filesystem::path path = draft_.folder / *name;
      if (!is_there(path)) path = draft_.folder / std::filesystem::path(*name).filename();
      if (is_there(path)) {
        document = parse_toml(read_text(path), path.string());
      } else {
        draft_.remark(RemarkKind::NotExpressed, "--job.config_file " + *name, "is not there: give it as a file, too",
                      flag.place);
      }
      return true;
    });
    read_titan(nested(flags, std::move(document), draft_.file), models_, draft_);
  }

  const ConvertRequest& requested_;
  const ShippedModels& models_;
  Draft& draft_;
  Dialect from_ = Dialect::Scenario;
  bool lone_ = false;                                           // a script is started by python itself
  std::map<std::string, std::vector<std::string>> candidates_;  // ShellScript
  int depth_ = 0;                                               // of scripts that start each other
};

}  // namespace

Dialect read_script(const std::filesystem::path& file, const std::string& text, const ConvertRequest& requested,
                    const ShippedModels& models, Draft& draft) {
  ScriptReader reader(requested, models, draft);
  reader.read(file, text);
  return reader.dialect();
}

}  // namespace tidemark::scenarios
