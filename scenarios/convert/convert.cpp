#include "scenarios/convert/convert.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/convert/detect.hpp"
#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/other_tools.hpp"
#include "scenarios/convert/shell/launch_line.hpp"
#include "scenarios/convert/shell/shell_words.hpp"
#include "scenarios/convert/stated_versions.hpp"
#include "scenarios/convert/yaml_table.hpp"
#include "scenarios/environment/environment.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/json_table.hpp"
#include "scenarios/formats/problems.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/scenario/model_names.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::array<std::string_view, 6> names{"scenario",  "megatron",   "torchtitan",
                                                "deepspeed", "accelerate", "training-arguments"};

/// Variables of the environment that a scenario may say something about.
bool matters(std::string_view variable) {
  for (const std::string_view prefix : {"NCCL_", "NVTE_", "CUBLAS_", "PYTORCH_", "TORCH_"})
    if (variable.starts_with(prefix)) return true;
  return variable == "CUDA_MODULE_LOADING" || variable == "CUDA_LAUNCH_BLOCKING" ||
         variable == "CUDA_DEVICE_MAX_CONNECTIONS" || variable == "CUDA_SCALE_LAUNCH_QUEUES";
}

// Keys of one input under the flags of HfArgumentParser.
std::vector<TomlKey> underscored(std::vector<TomlKey> flags) {
  for (TomlKey& key : flags) std::ranges::replace(key.name, '-', '_');
  return flags;
}

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

class Conversion {
 public:
  explicit Conversion(const ConvertRequest& requested)
      : requested_(requested), models_(shipped_models(requested.data_root)) {}

  Converted run() {
    if (std::ranges::all_of(requested_.files,
                            [&](const auto& file) { return content(file).kind == FileKind::ModelConfig; }))
      throw InputError(
          Problem{.file = requested_.files.front().string(),
                  .line = 1,
                  .column = 1,
                  .message = "is a model, which says of no training",
                  .hint = "tidemark predict --model FILE takes it, with --cluster, --gpus and --sequence"});
    draft_.file = requested_.files.front().string();
    if (!requested_.model.empty()) draft_.set("model", requested_.model);
    if (!requested_.cluster.empty()) draft_.set("cluster", requested_.cluster);
    if (requested_.gpus) draft_.set("gpus", *requested_.gpus);
    refuse_second_ones();
    for (const std::filesystem::path& file : in_order()) read_beside_others(file, content(file));
    if (from_ == Dialect::DeepSpeed || from_ == Dialect::Accelerate || from_ == Dialect::TrainingArguments) {
      say("train.sequence_length", requested_.sequence_length);
      say("train.micro_batch", requested_.micro_batch);
      say("train.global_batch", requested_.global_batch);
      take_whole_node();
      settle_hugging_face(draft_, said_by_model());
    }
    say("gpus", requested_.gpus);
    say("train.sequence_length", requested_.sequence_length);
    say("train.micro_batch", requested_.micro_batch);
    say("train.global_batch", requested_.global_batch);
    for (const auto& [file, versions] : stated_) {
      draft_.file = file;
      state_versions(versions, draft_);
    }
    if (from_ != Dialect::Megatron) draft_.kept = {};
    return {from_, requested_.files.front(), std::move(draft_.document), std::move(draft_.remarks),
            std::move(draft_.kept)};
  }

 private:
  // Some tools start a process on each device that they find.
  void take_whole_node() {
    if (draft_.find("gpus") != nullptr) return;
    if (const std::string runtime = draft_.text("runtime.name").value_or("pytorch");
        draft_.starts_all.empty() && draft_.alone && runtime == "pytorch")
      draft_.starts_all = "nothing says on how many devices: accelerate launch";
    if (draft_.starts_all.empty()) return;
    const std::string name = draft_.text("cluster").value_or("");
    for (const std::filesystem::path& folder : {requested_.files.front().parent_path(), requested_.data_root})
      if (!name.empty() && is_there(folder / name)) {
        const std::int64_t devices = read_cluster(folder / name).node.devices;
        draft_.set("gpus", devices);
        return draft_.remark(
            RemarkKind::Assumed, "gpus",
            fmt::format(
                "{} starts a process on each device of a node: {} of this cluster's; --gpus says another number",
                draft_.starts_all, devices));
      }
  }

  // What says on how many devices comes first; arguments of a training after what launches it.
  [[nodiscard]] std::vector<std::filesystem::path> in_order() const {
    std::vector<std::filesystem::path> files = requested_.files;
    const auto rank = [&](const std::filesystem::path& file) {
      switch (content(file).kind) {
        case FileKind::ModelConfig:
          return 0;
        case FileKind::Accelerate:
          return 1;
        case FileKind::DeepSpeed:
          return 3;
        case FileKind::Packages:  // which of them matter depends on the runtime
          return 4;
        default:
          return 2;
      }
    };
    std::ranges::stable_sort(files, {}, rank);
    return files;
  }

  [[nodiscard]] FileContent content(const std::filesystem::path& file) const {
    const auto text = requested_.texts.find(file);
    return text == requested_.texts.end() ? classified(file) : classified(file, text->second);
  }

  // Of the model that is named, where it can be read.
  [[nodiscard]] ModelSays said_by_model() const {
    const std::string name = draft_.text("model").value_or("");
    const auto shipped = std::ranges::find(models_.files, name, &ShippedModel::file);
    if (shipped != models_.files.end()) return {shipped->model.hidden, type_in(shipped->config, name)};
    if (name.empty()) return {};
    if (!is_there(name)) {
      const std::optional<NamedConfig> its = named_config(name, requested_.data_root);
      return its ? ModelSays{parse_model(its->text, its->path).hidden, type_in(its->text, name)} : ModelSays{};
    }
    return {read_model(name).hidden, type_in(read_text(name), name)};
  }

  [[nodiscard]] static std::string type_in(const std::string& config, const std::string& name) {
    for (const TomlKey& key : parse_json_table(config, name, Automatic::Kept).keys)
      if (key.name == "torch_dtype" || key.name == "dtype")
        if (const auto* type = std::get_if<std::string>(&key.value.value)) return *type;
    return {};
  }

  void say(std::string_view path, std::optional<std::int64_t> value) {
    if (value) draft_.set(path, *value);
  }

  void read(const std::filesystem::path& file, FileContent content) {
    draft_.file = file.string();
    draft_.folder = file.parent_path();
    switch (content.kind) {
      case FileKind::Scenario:
        from_ = Dialect::Scenario;
        merge(content.document);
        return;
      case FileKind::ModelConfig:
        if (draft_.find("model") == nullptr) draft_.set("model", std::filesystem::absolute(file).string());
        return;
      case FileKind::TorchTitan:
        from_ = Dialect::TorchTitan;
        return read_titan(content.document, models_, draft_);
      case FileKind::Bridge: {
        from_ = Dialect::Megatron;
        Given flags(bridge_flags(content.document, draft_), "--", draft_);
        return read_megatron(flags, models_, draft_);
      }
      case FileKind::FlagScale: {
        from_ = Dialect::Megatron;
        Given flags(megatron_flags_of_forks(flagscale_flags(content.document, draft_), draft_), "--", draft_);
        return read_megatron(flags, models_, draft_);
      }
      case FileKind::Nanotron: {
        from_ = Dialect::Megatron;
        Given flags(nanotron_flags(content.document, draft_), "--", draft_);
        return read_megatron(flags, models_, draft_);
      }
      case FileKind::Accelerate: {
        from_ = Dialect::Accelerate;
        Given config(content.document.keys, "", draft_);
        return read_accelerate(config, draft_);
      }
      case FileKind::DeepSpeed: {
        if (from_ != Dialect::TrainingArguments) from_ = Dialect::DeepSpeed;
        Given config(content.document.keys, "", draft_);
        return read_deepspeed(config, draft_);
      }
      case FileKind::TrainingArguments: {
        from_ = Dialect::TrainingArguments;
        refuse_other_tasks_of_tools(content.document, draft_);
        draft_.alone = requested_.files.size() == 1;
        Given arguments(content.document.keys, "", draft_);
        return read_training_arguments(arguments, models_, draft_);
      }
      case FileKind::LlamaFactory:
      case FileKind::Axolotl: {
        from_ = Dialect::TrainingArguments;
        refuse_other_tasks_of_tools(content.document, draft_);
        Given arguments(content.kind == FileKind::Axolotl ? axolotl_arguments(content.document.keys, draft_)
                                                          : llama_factory_arguments(content.document.keys, draft_),
                        "", draft_);
        return read_training_arguments(arguments, models_, draft_);
      }
      case FileKind::Packages:
        stated_.emplace_back(file.string(), versions_of_packages(content.text));
        return;
      case FileKind::Shell:
        return read_script(file, content.text);
    }
  }

  void merge(const TomlTable& document) {
    for (const auto& [path, value] : leaves(document))
      if (draft_.find(path) == nullptr) draft_.set(path, value.value, value.place);
  }

  static void add_leaves(const TomlTable& table, const std::string& prefix, std::map<std::string, TomlValue>& all) {
    for (const TomlKey& key : table.keys)
      if (const auto* inner = std::get_if<TomlTable>(&key.value.value); inner != nullptr && !inner->keys.empty())
        add_leaves(*inner, prefix + key.name + '.', all);
      else
        all.emplace(prefix + key.name, key.value);
  }
  static std::map<std::string, TomlValue> leaves(const TomlTable& table) {
    std::map<std::string, TomlValue> all;
    add_leaves(table, "", all);
    return all;
  }

  // Two configurations of one kind are of two trainings. A scenario completes another, and arguments alone a script.
  void refuse_second_ones() const {
    std::map<FileKind, std::string> seen;
    for (const std::filesystem::path& file : requested_.files) {
      const FileContent its = content(file);
      if (its.kind == FileKind::Scenario) continue;
      if (its.kind == FileKind::Shell &&
          std::ranges::all_of(launch_lines(read_shell(its.text, file.string(), requested_.variables), file.string()),
                              [](const LaunchLine& line) { return line.program.empty(); }))
        continue;
      const auto [first, is_new] = seen.emplace(its.kind, file.string());
      if (!is_new)
        fail(file.string(), {1, 1},
             fmt::format("says what {} says of another training, and a scenario is of one", first->second),
             "give one of them");
    }
  }

  // What one file says and another says otherwise.
  void read_beside_others(const std::filesystem::path& file, FileContent its) {
    const std::map<std::string, TomlValue> before = leaves(draft_.document);
    const bool whole = its.kind == FileKind::Scenario || its.kind == FileKind::Shell || its.kind == FileKind::Bridge ||
                       its.kind == FileKind::TorchTitan;
    const std::map<std::string, TomlValue> said =
        its.kind == FileKind::Scenario ? leaves(its.document) : std::map<std::string, TomlValue>{};
    read(file, std::move(its));
    if (!whole) return;
    const std::map<std::string, TomlValue> after = said.empty() ? leaves(draft_.document) : said;
    const std::map<std::string, bool> by_option{{"model", !requested_.model.empty()},
                                                {"cluster", !requested_.cluster.empty()},
                                                {"gpus", requested_.gpus.has_value()},
                                                {"train.sequence_length", requested_.sequence_length.has_value()},
                                                {"train.micro_batch", requested_.micro_batch.has_value()},
                                                {"train.global_batch", requested_.global_batch.has_value()}};
    for (const auto& [path, value] : after) {
      const auto old = before.find(path);
      const bool overridden = by_option.contains(path) && by_option.at(path);
      if (old == before.end() || overridden || !whole_files_.contains(path)) continue;
      if (scenarios::text(old->second) != scenarios::text(value))
        fail(file.string(), value.place,
             fmt::format("{} = {}, and {} says {}", path, scenarios::text(value), whole_files_.at(path),
                         scenarios::text(old->second)),
             "leave it out of one of them");
    }
    for (const auto& [path, value] : leaves(draft_.document))
      if (!before.contains(path)) whole_files_.emplace(path, file.string());
  }

  void read_script(const std::filesystem::path& file, const std::string& text) {
    const ShellScript script = read_shell(text, file.string(), requested_.variables);
    for (const ShellSkip& skip : script.skips)
      draft_.remark(RemarkKind::Assumed, skip.what, "is passed over: nothing is run", skip.place);
    const LaunchLine line = training_of(script, file.string());
    if (line.gpus_problem && !requested_.gpus && draft_.find("gpus") == nullptr) throw InputError(*line.gpus_problem);
    if (line.gpus && !requested_.gpus) draft_.set("gpus", *line.gpus, line.place);
    if (draft_.find("gpus") == nullptr) draft_.starts_all = line.starts_all;
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
    for (const auto& [name, value] : *line.environment) read_variable(name, value);
    read_arguments(line);
    if (from_ == Dialect::Megatron) settle_attention();
    stated_.emplace_back(file.string(), versions_in_script(text));
  }

  // Variables that change memory by no more than this says; the step they change may be another.
  static std::string_view bound_of(std::string_view name) {
    if (name == "CUDA_LAUNCH_BLOCKING")
      return "the host waits for every kernel: no more memory than without it, and a longer step than is told";
    if (name == "TORCH_NCCL_AVOID_RECORD_STREAMS")
      return "of collectives, whose tensors are held until somebody waits for them: no more memory than is told; "
             "messages between stages are marked all the same";
    return {};
  }

  // What is called nearly as a variable of NCCL's, and is none: NCCL reads what it asks for by name.
  static std::string_view ignored_by_nccl(std::string_view name) {
    if (name == "NCCL_BUFFERSIZE")
      return "NCCL reads no such variable: NCCL_BUFFSIZE is its own, which is not set by this";
    return {};
  }

  void read_variable(const std::string& name, const ShellWord& value) {
    if (name.starts_with("SLURM_")) return;  // of #SBATCH lines
    if (const std::string_view why = ignored_by_nccl(name); !why.empty())
      return draft_.remark(RemarkKind::Assumed, fmt::format("{} = {}", name, in_quotes(value.text)), std::string(why),
                           value.place);
    // A tuner settles which algorithms connect, and when.
    if (name == "NCCL_TUNER_PLUGIN" && draft_.find("runtime.environment.NCCL_RUNTIME_CONNECT") == nullptr) {
      draft_.set("runtime.environment.NCCL_RUNTIME_CONNECT", std::string("0"), value.place);
      return draft_.remark(RemarkKind::Assumed, name, "it may choose any algorithm: all are taken as connected",
                           value.place);
    }
    constexpr auto of_ranks = std::to_array<std::string_view>({"MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES"});
    if (value.unknown.empty() && is_harmless_variable(name) && std::ranges::find(of_ranks, name) == of_ranks.end())
      draft_.kept.environment[name] = value.text;
    const std::string_view bound = value.text == "0" && value.unknown.empty() ? "" : bound_of(name);
    if (!bound.empty())
      draft_.remark(RemarkKind::Assumed, fmt::format("{} = {}", name, in_quotes(value.text)), std::string(bound),
                    value.place);
    else if (!matters(name) || !bound_of(name).empty() ||
             (is_harmless_variable(name) && (!value.unknown.empty() || name.starts_with("TORCH_"))))
      draft_.remark(RemarkKind::NoMatter, name, "a variable that changes neither memory nor time");
    else if (!value.unknown.empty())
      draft_.remark(RemarkKind::NotExpressed,
                    fmt::format("{}: {} is not known without running it", name, value.unknown),
                    hint_of_unknown(value.unknown), value.place);
    else if (const std::optional<Problem> problem = problem_of_variable(name, value.text); !problem)
      draft_.set("runtime.environment." + name, value.text, value.place);
    else
      draft_.remark_unknown(fmt::format("{} = {}", name, in_quotes(value.text)), name,
                            fmt::format("{}; {}", problem->message, problem->hint), known_variables(), value.place);
  }

  // What a scenario that has it would be told.
  static std::optional<Problem> problem_of_variable(const std::string& name, const std::string& value) {
    const TomlTable table{{{name, {}, {value, {}}}}};
    Problems problems("");
    (void)read_environment(TomlReader(&table, {}, "[runtime.environment]", problems));
    const std::vector<Problem> found = std::move(problems).sorted();
    return found.empty() ? std::nullopt : std::optional(found.front());
  }

  // Before core 0.11 these variables chose the kernels; since then Megatron-LM sets them, and stops where one says
  // otherwise (core/models/common/language_module/language_module.py): a script that runs is an older one's.
  void settle_attention() {
    const TomlValue* const environment = draft_.find("runtime.environment");
    const auto* const table = environment == nullptr ? nullptr : std::get_if<TomlTable>(&environment->value);
    if (table == nullptr || draft_.find("train.attention") != nullptr) return;
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
    for (const auto& [name, value] : given) draft_.erase("runtime.environment." + name);
    if (*kernel == AttentionKernel::Auto)
      return draft_.remark(RemarkKind::NoMatter, reported, "leaves the choice of kernels as it is", place);
    const std::string word = std::string(scenarios::word(attention_names, *kernel));
    const auto model = std::ranges::find(models_.files, draft_.text("model").value_or(""), &ShippedModel::file);
    if (*kernel == AttentionKernel::Flash && model != models_.files.end() && model->model.latent())
      return draft_.remark_bounded(
          reported,
          "the figures are of what the device would choose; FlashAttention takes values padded "
          "to the width of keys",
          "padded-values", place);
    draft_.set("train.attention", word, place);
    draft_.remark(RemarkKind::Assumed, reported,
                  fmt::format("attention = {}: Megatron-LM before core 0.11 leaves the choice to them, and later ones "
                              "stop at them: --attention-backend {} there",
                              in_quotes(word), word),
                  place);
  }

  [[noreturn]] static void fail(const std::string& file, Place place, std::string message, std::string hint) {
    throw InputError(Problem{file, place.line, place.column, std::move(message), std::move(hint)});
  }

  // The one training that the script starts.
  LaunchLine training_of(const ShellScript& script, const std::string& file) {
    const std::vector<LaunchLine> lines = launch_lines(script, file);
    const auto hidden = std::ranges::find_if(script.skips, &ShellSkip::trains);
    if (lines.empty())
      for (const ShellCommand& command : script.commands)
        if (const std::string tool = tool_called(command.words); !tool.empty())
          fail(file, command.words.front().place, fmt::format("calls {}, which is not read", tool),
               std::string(instead_of_other_tools));
    if (lines.empty() && hidden == script.skips.end())
      fail(file, {1, 1}, "starts no training that is known here",
           "torchrun … pretrain_gpt.py, deepspeed …, accelerate launch …, or its arguments alone");
    constexpr const char* alone = "give the command alone, as it would be typed";
    if (lines.empty())
      fail(file, hidden->place, fmt::format("{} is not followed, and may start a training", hidden->what), alone);
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
        draft_.remark(RemarkKind::Assumed, line.program, "is passed over: it is taken for no training", line.place);
    for (const LaunchLine& line : trainings) {
      if (&line == &first) continue;
      if (!says_the_same(line, first))
        fail(file, line.place,
             fmt::format("starts another training than line {} does, and a scenario is of one", first.place.line),
             alone);
      draft_.remark(RemarkKind::Assumed, line.program,
                    fmt::format("is the training of line {} again: it is looked at once", first.place.line),
                    line.place);
    }
    if (hidden != script.skips.end())
      fail(file, hidden->place,
           fmt::format("{} is not followed, and may start another training than line {} does", hidden->what,
                       first.place.line),
           alone);
    return first;
  }

  static bool says_the_same(const LaunchLine& a, const LaunchLine& b) {
    const auto same = [](const ShellWord& x, const ShellWord& y) { return x.text == y.text && x.unknown == y.unknown; };
    return a.program == b.program && a.gpus == b.gpus && std::ranges::equal(a.arguments, b.arguments, same) &&
           std::ranges::equal(*a.environment, *b.environment, [&](const auto& x, const auto& y) {
             return x.first == y.first && same(x.second, y.second);
           });
  }

  // Programs that take a training's flags, and come before or behind it.
  static bool prepares(const LaunchLine& line) {
    constexpr auto words =
        std::to_array<std::string_view>({"convert", "preprocess", "tokeniz", "eval", "generat", "inference", "prepare",
                                         "merge", "export", "checkpoint", "download"});
    return std::ranges::any_of(words,
                               [&](std::string_view word) { return line.program.find(word) != std::string::npos; });
  }

  static bool trains(const LaunchLine& line) {
    std::vector<ShellWord> unread;
    const std::vector<TomlKey> flags = flags_of(line.arguments, unread);
    return is_titan(line, flags) || is_megatron(line, flags) || has_training_arguments(underscored(flags)) ||
           is_command_of_tool(line) || (!line.launcher.empty() && configuration_in(line, flags, unread));
  }

  // What the script gives on and does not say itself.
  void not_read(const ShellWord& word, std::string_view besides = "") {
    const std::string name = variable_of(word.unknown);
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

  void read_arguments(const LaunchLine& line) {
    std::vector<ShellWord> unread;
    std::vector<TomlKey> flags = flags_of(line.arguments, unread);
    const std::optional<ShellWord> configuration = configuration_in(line, flags, unread);
    const bool of_factory = line.program.ends_with(" train") && !line.program.starts_with("axolotl");
    for (const ShellWord& word : unread)
      if (word.unknown.empty() && configuration && word.text == configuration->text)
        continue;
      else if (word.unknown.empty() && of_factory && word.text.find('=') != std::string::npos)
        flags.push_back({word.text.substr(0, word.text.find('=')),
                         word.place,
                         {typed(word.text.substr(word.text.find('=') + 1)), word.place}});
      else if (word.unknown.empty())
        stray(word);
      else
        not_read(word);
    std::erase_if(unread, [](const ShellWord& word) { return word.unknown.empty(); });
    if (is_titan(line, flags)) return read_titan_arguments(std::move(flags));
    if (is_megatron(line, flags)) {
      from_ = Dialect::Megatron;
      refuse_other_programs(line);
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
    if (is_command_of_tool(line) || (configuration && !has_training_arguments(flags)))
      return read_command_of_tool(line, configuration, std::move(flags));
    if (configuration) add_configuration(*configuration, flags);
    const bool of_bridge = tool_of_program(line.path).starts_with("Megatron-Bridge");
    if (of_bridge || !has_training_arguments(flags)) refuse_unknown(line, unread);
    from_ = Dialect::TrainingArguments;
    refuse_other_tasks(line);
    draft_.trl |= line.path.find("trl/") != std::string::npos || line.path.starts_with("trl.") ||
                  line.program == "sft.py" || line.program == "run_sft.py";
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

  // A file that the program takes its arguments from: alone, as HfArgumentParser has it, or as TRL's parser does;
  // beside flags only by a tool's own command.
  static std::optional<ShellWord> configuration_in(const LaunchLine& line, const std::vector<TomlKey>& flags,
                                                   const std::vector<ShellWord>& unread) {
    const auto is_one = [](const std::string& name) {
      return name.ends_with(".yaml") || name.ends_with(".yml") || name.ends_with(".json");
    };
    for (const TomlKey& flag : flags)
      if (const auto* name = std::get_if<std::string>(&flag.value.value);
          name != nullptr && flag.name == "config" && is_one(*name))
        return ShellWord{*name, flag.place, {}};
    const bool alone = (flags.empty() || is_command_of_tool(line)) && !unread.empty() &&
                       unread.front().unknown.empty() && is_one(unread.front().text);
    return alone ? std::optional(unread.front()) : std::nullopt;
  }
  static bool is_command_of_tool(const LaunchLine& line) {
    return line.path == line.program &&
           (line.program.starts_with("swift ") || line.program.starts_with("trl ") || line.program.ends_with(" train"));
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
    refuse_other_tasks(line);
    read_launcher(line);
    FileKind kind = line.program.starts_with("axolotl ") ? FileKind::Axolotl
                    : line.program.ends_with(" train")   ? FileKind::LlamaFactory
                                                         : FileKind::TrainingArguments;
    if (configuration)
      if (const std::optional<FileContent> content = add_configuration(*configuration, flags)) {
        kind = content->kind;
        constexpr std::array read{FileKind::Axolotl, FileKind::LlamaFactory, FileKind::TrainingArguments};
        if (std::ranges::find(read, kind) == read.end())
          fail(draft_.file, configuration->place,
               fmt::format("{} holds no arguments of a training", in_quotes(configuration->text)),
               "TrainingArguments, LLaMA-Factory's or axolotl's are read");
      }
    refuse_other_tasks_of_tools(TomlTable{flags}, draft_);
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

  static bool has_any(const std::vector<TomlKey>& flags, std::initializer_list<std::string_view> any) {
    return std::ranges::any_of(
        flags, [&](const TomlKey& flag) { return std::ranges::find(any, std::string_view(flag.name)) != any.end(); });
  }
  static bool is_titan(const LaunchLine& line, const std::vector<TomlKey>& flags) {
    return line.program.find("torchtitan") != std::string::npos ||
           has_any(flags, {"job.config_file", "job.config-file", "model.flavor"}) ||
           std::ranges::any_of(flags, [](const TomlKey& f) { return f.name.starts_with("training."); });
  }
  static bool is_swift(const LaunchLine& line) { return line.program.starts_with("megatron "); }
  static bool is_megatron(const LaunchLine& line, const std::vector<TomlKey>& flags) {
    return (line.program.starts_with("pretrain_") && !flags.empty()) || is_swift(line) ||
           has_any(flags, {"tensor-model-parallel-size", "num-layers", "hidden-size", "micro-batch-size"});
  }

  // examples/llama3_1/pretrain_llama.py and megatron_patch/model/llama3_1 of Pai-Megatron-Patch: core's embedding,
  // layers of Transformer Engine, head and loss.
  [[nodiscard]] bool is_pai_llama(const LaunchLine& line) const {
    return line.program == "pretrain_llama.py" &&
           (line.path.find("llama3_1/") != std::string::npos || draft_.folder.filename() == "llama3_1");
  }

  // Megatron's flags are those of its other programs, too.
  void refuse_other_programs(const LaunchLine& line) {
    const std::string& its = line.program;
    const auto named = [&](std::string_view part) { return its.find(part) != std::string::npos; };
    constexpr auto others = std::to_array<std::string_view>({"bert", "t5", "ict", "vision", "vlm", "vit", "dino",
                                                             "retro", "mamba", "hybrid", "mimo", "multimodal", "vl_",
                                                             "_vl", "audio", "biencoder", "distill", "dpo", "grpo"});
    if (its.starts_with("pretrain_") && std::ranges::any_of(others, named))
      draft_.remark(RemarkKind::NotExpressed, its,
                    "trains another kind of model than pretrain_gpt.py, which is not modelled", line.place);
    else if (is_pai_llama(line))
      draft_.remark_bounded(
          its,
          "of Pai-Megatron-Patch: Megatron core's GPT, but for the norm before the head, which is made "
          "of PyTorch's operations",
          "last-norm-by-operations", line.place);
    else if (its.starts_with("pretrain_") && its != "pretrain_gpt.py")
      draft_.remark(RemarkKind::NotJudged, its, "is a program of its own, and is taken for pretrain_gpt.py",
                    line.place);
    else if (named("inference") || named("text_generation") || named("generate"))
      draft_.remark(RemarkKind::NotExpressed, its, "generates text, and trains nothing", line.place);
  }

  // TRL's scripts for tasks other than supervised fine-tuning, and those of others that are called alike.
  void refuse_other_tasks(const LaunchLine& line) {
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
      if (task != tasks.end())
        return draft_.remark(
            RemarkKind::NotExpressed, line.program,
            fmt::format("trains by {}, a task that is not modelled: supervised fine-tuning is", task->what),
            line.place);
      at = end + 1;
    }
  }

  // Flags that scripts around transformers' Trainer have, one of them at least.
  static bool has_training_arguments(const std::vector<TomlKey>& flags) {
    return std::ranges::any_of(flags, [](const TomlKey& flag) {
      constexpr auto telling =
          std::to_array<std::string_view>({"model_name_or_path", "output_dir", "per_device_train_batch_size",
                                           "gradient_accumulation_steps", "deepspeed", "fsdp", "num_train_epochs",
                                           "max_steps", "gradient_checkpointing", "learning_rate", "dataset_name"});
      return std::ranges::find(telling, flag.name) != telling.end();
    });
  }

  [[noreturn]] void refuse_unknown(const LaunchLine& line, const std::vector<ShellWord>& unread) const {
    if (const std::string tool = tool_of_program(line.path); !tool.empty())
      fail(draft_.file, line.place, fmt::format("{} is of {}, which is not read", in_quotes(line.path), tool),
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
                               : "say them with --set NAME=\"…\""});
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
      const bool deepspeed = std::ranges::any_of(
          keys, [](const TomlKey& k) { return k.name == "use_deepspeed" || k.name == "zero_stage"; });
      const bool fsdp = std::ranges::any_of(keys, [](const TomlKey& k) { return k.name == "use_fsdp"; });
      Draft together;
      together.file = file;
      together.document = std::move(config);
      if (deepspeed) together.set("distributed_type", std::string("DEEPSPEED"));
      if (fsdp) together.set("distributed_type", std::string("FSDP"));
      for (const TomlKey& key : keys) {
        if (key.name == "use_deepspeed" || key.name == "use_fsdp" || key.name == "multi_gpu") continue;
        const bool of_fsdp = key.name.starts_with("fsdp_");
        const bool of_zero = key.name == "zero_stage" || key.name.starts_with("offload_") ||
                             key.name.starts_with("deepspeed_") || key.name.starts_with("zero3_") ||
                             key.name == "gradient_clipping";
        together.set((of_fsdp   ? "fsdp_config."
                      : of_zero ? "deepspeed_config."
                                : "") +
                         key.name,
                     key.value.value, key.value.place);
      }
      if (!together.document.keys.empty()) {
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
        fail(draft_.file, flag.place,
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
  ShippedModels models_;
  std::map<std::string, std::string> whole_files_;  // which file says a key, of those that say a whole training
  std::vector<std::pair<std::string, std::vector<StatedVersion>>> stated_;  // by files, looked at when all are read
  bool lone_ = false;                                                       // a script is started by python itself
  Draft draft_;
  Dialect from_ = Dialect::Scenario;
};

// What is missing may be said beside the files.
std::optional<std::string> option_saying(const std::string& problem) {
  static const std::map<std::string, std::string, std::less<>> options{
      {"cluster is missing", "--cluster NAME says it: tidemark list clusters"},
      {"model is missing", "--model NAME says it: tidemark list models"},
      {"gpus is missing", "--gpus N says it"},
      {"sequence_length is missing in [train]", "--sequence N says it"},
      {"micro_batch is missing in [train]", "--micro-batch N says it"}};
  const auto found = options.find(problem);
  return found == options.end() ? std::nullopt : std::optional(found->second);
}

// Why the scenario would not be taken: of what comes from a framework, that it is not modelled.
void add_problems(Converted& converted, const std::filesystem::path& data_root) {
  const auto read =
      scenario_or_problems(converted.document, converted.file, {converted.file.parent_path(), data_root}, {});
  const auto* problems = std::get_if<std::vector<Problem>>(&read);
  if (problems == nullptr) return;
  const bool reported_model = std::ranges::any_of(converted.remarks, [](const Remark& remark) {
    return remark.kind == RemarkKind::NotExpressed && remark.why.ends_with("--model");
  });
  for (const Problem& problem : *problems) {
    if (reported_model && problem.message == "model is missing") continue;
    converted.remarks.push_back({RemarkKind::NotExpressed,
                                 problem.file,
                                 {problem.line, problem.column},
                                 problem.message,
                                 option_saying(problem.message).value_or(problem.hint)});
  }
}

// Of a number that is no multiple of `unit`, the next one, in place of `path`; not judged.
void round_up(Draft& draft, const std::string& path, const std::string& what, std::int64_t unit, std::int64_t times,
              const std::string& of) {
  const TomlValue* const found = draft.find(path);
  const std::optional<std::int64_t> asks = draft.integer(path);
  constexpr std::int64_t most = std::int64_t{1} << 32;
  if (!asks || unit < 1 || *asks < 1 || *asks > most || unit > most || *asks % unit == 0) return;
  const std::int64_t next = product({*asks / unit + 1, unit, times});
  const Place place = found->place;
  draft.set(path, next, place);
  draft.remark(RemarkKind::NotJudged, fmt::format("{} = {}", what, *asks),
               fmt::format("is not a multiple of {} = {}: the figures are of {}", of, unit, next), place);
}

// Where a launch file contradicts itself, the answer is of the least that holds, without yes or no: devices that its
// layout fills, and sequences for all of them. Where nothing of that holds, it is refused as it is.
void settle_devices(Converted& converted, const ConvertRequest& requested, const std::filesystem::path& data_root) {
  if (converted.from != Dialect::Megatron) return;
  constexpr std::int64_t most_times = 1024;  // experts may take more than the least
  for (std::int64_t times = 1; times <= most_times; times *= 2) {
    Draft draft;
    draft.file = converted.file.string();
    draft.document = converted.document;
    const auto number = [&](std::string_view path) { return draft.integer(path).value_or(1); };
    const std::int64_t each = product({number("layout.tensor"), number("layout.context"), number("layout.pipeline")});
    if (!requested.gpus) round_up(draft, "gpus", "gpus", each, times, "tensor x context x pipeline");
    const bool of_devices = !draft.remarks.empty();
    if (const std::optional<std::int64_t> gpus = draft.integer("gpus");
        gpus && !requested.global_batch && each > 0 && *gpus % each == 0)
      round_up(draft, "train.global_batch", "global-batch-size", product({number("train.micro_batch"), *gpus / each}),
               1, "the micro-batches of all data-parallel ranks");
    if (draft.remarks.empty()) return;
    const auto read =
        scenario_or_problems(draft.document, converted.file, {converted.file.parent_path(), data_root}, {});
    if (std::holds_alternative<Scenario>(read)) {
      converted.document = std::move(draft.document);
      converted.remarks.insert(converted.remarks.end(), draft.remarks.begin(), draft.remarks.end());
      return;
    }
    if (!of_devices) return;
  }
}

// "use-mpi" is "--use_mpi = true", and the last part of "model.use_mpi = true".
void ignore(Converted& converted, const std::string& name) {
  const std::string wanted = bare_name(name);
  bool found = false;
  std::vector<std::string> others;
  for (Remark& remark : converted.remarks) {
    if (!remark.may_be_ignored()) continue;
    const std::string its = bare_name(remark.what);
    if (its == wanted || (its.ends_with(wanted) && its[its.size() - wanted.size() - 1] == '.')) {
      remark.kind = RemarkKind::NoMatter;
      remark.why = "said to have no effect: --ignore";
      remark.is_slip = false;
      found = true;
    } else {
      others.push_back(its);
    }
  }
  if (found) return;
  const std::string meant = nearest(wanted, others);
  throw InputError(Problem{
      .file = "--ignore",
      .message = fmt::format("{} is none of the names that are not judged", in_quotes(name)),
      .hint = !meant.empty()   ? fmt::format("did you mean {}?", meant)
              : others.empty() ? "all that the file says is judged: leave it out"
                               : fmt::format("{} {}", fmt::join(others, ", "), others.size() == 1 ? "is" : "are")});
}

}  // namespace

std::string_view name(Dialect dialect) { return names.at(static_cast<std::size_t>(dialect)); }

std::optional<Dialect> dialect_named(std::string_view name) {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? std::nullopt : std::optional(static_cast<Dialect>(found - names.begin()));
}

std::vector<std::string> dialect_names() { return {names.begin(), names.end()}; }

bool Converted::lossy() const {
  return std::ranges::any_of(remarks, [](const Remark& remark) {
    return remark.kind == RemarkKind::NotExpressed || remark.kind == RemarkKind::NotJudged ||
           remark.kind == RemarkKind::Bounded;
  });
}

bool is_override(const std::string& word) {
  const std::size_t sign = word.find('=');
  if (sign == std::string::npos || sign == 0) return false;
  const std::string key = word.substr(0, sign);
  const bool is_path = std::ranges::all_of(
      key, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-'; });
  return is_path && !key.starts_with('-') && !key.starts_with('.') && !key.ends_with('.');
}

void set_overrides(TomlTable& document, const std::vector<std::string>& overrides) {
  Draft draft;
  draft.document = std::move(document);
  for (const std::string& text : overrides) {
    const std::size_t sign = text.find('=');
    if (!is_override(text))
      throw InputError(Problem{
          .file = text, .message = "is no key with a value", .hint = "such as layout.tensor=4 or train.micro_batch=2"});
    draft.file = text;
    const std::string value = text.substr(sign + 1);
    Content content = value;
    try {  // a word that is no value of TOML's is a text: train.precision=fp16
      content = parse_toml("x = " + value, text).keys.front().value.value;
    } catch (const InputError&) {
    }
    draft.set(text.substr(0, sign), std::move(content));
  }
  document = std::move(draft.document);
}

bool is_foreign(const std::filesystem::path& file) { return classified(file).kind != FileKind::Scenario; }

Converted convert(const ConvertRequest& requested) {
  Converted converted = Conversion(requested).run();
  set_overrides(converted.document, requested.overrides);
  settle_devices(converted, requested, requested.data_root);
  add_problems(converted, requested.data_root);
  for (const std::string& name : requested.ignored) ignore(converted, name);
  if (requested.strict)
    for (Remark& remark : converted.remarks)
      if (remark.kind == RemarkKind::NotJudged || remark.kind == RemarkKind::Bounded)
        remark.kind = RemarkKind::NotExpressed;
  return converted;
}

Scenario scenario_of(const Converted& converted, const std::filesystem::path& data_root) {
  std::vector<Problem> problems;
  for (const Remark& remark : converted.remarks)
    if (remark.kind == RemarkKind::NotExpressed)
      problems.push_back({remark.file.empty() ? converted.file.string() : remark.file, remark.place.line,
                          remark.place.column, remark.what, remark.why});
  if (!problems.empty()) throw InputError(std::move(problems));
  return scenario_of(converted.document, converted.file, {converted.file.parent_path(), data_root});
}

}  // namespace tidemark::scenarios
