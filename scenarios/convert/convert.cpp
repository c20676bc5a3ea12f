#include "scenarios/convert/convert.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/convert/detect.hpp"
#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/gpt_neox/together.hpp"
#include "scenarios/convert/hugging_face/target_patterns.hpp"
#include "scenarios/convert/script/script.hpp"
#include "scenarios/convert/settle.hpp"
#include "scenarios/convert/shell/launch_line.hpp"
#include "scenarios/convert/shell/shell_words.hpp"
#include "scenarios/convert/stated_versions.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/json_table.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/scenario/image_towers.hpp"
#include "scenarios/scenario/model_names.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::array<std::string_view, 6> names{"scenario",  "megatron",   "torchtitan",
                                                "deepspeed", "accelerate", "training-arguments"};

class Conversion {
 public:
  Conversion(const ConvertRequest& requested, std::optional<FileContent> together)
      : requested_(requested), together_(std::move(together)), models_(shipped_models(requested.data_root)) {}

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
    if (from_ == Dialect::Megatron || from_ == Dialect::TorchTitan) take_whole_node();
    take_part_of_nodes();
    say("gpus", requested_.gpus);
    say("train.sequence_length", requested_.sequence_length);
    say("train.micro_batch", requested_.micro_batch);
    say("train.global_batch", requested_.global_batch);
    for (const auto& [file, versions] : stated_) {
      draft_.file = file;
      state_versions(versions, draft_);
    }
    if (from_ != Dialect::Scenario && from_ != Dialect::Megatron && from_ != Dialect::TorchTitan)
      if (const std::optional<Model> model = model_said()) {
        name_targets_of_pattern(*model, draft_.text("model").value_or("").ends_with(of_text), draft_);
        state_release_of_experts(*model, draft_);
      }
    if (from_ != Dialect::Megatron) draft_.kept = {};
    if (from_ != Dialect::Scenario) bound_images();
    cut_rows();
    return {from_,
            requested_.files.front(),
            std::move(draft_.document),
            std::move(draft_.remarks),
            std::move(draft_.kept),
            false,
            std::move(draft_.nodes_from)};
  }

 private:
  // Ranks of a group each work on a part of a row, and parameters are shared out among all ranks: as memory goes, that
  // is data parallelism over shorter rows, of which a step takes as many more.
  void cut_rows() {
    const std::int64_t parts = draft_.row_parts;
    const auto length = draft_.integer("train.sequence_length");
    if (parts == 1) return;
    if (const auto gpus = draft_.integer("gpus"); gpus && *gpus % parts != 0)
      return draft_.remark(RemarkKind::NotExpressed, draft_.parts_rows.what,
                           fmt::format("{} ranks do not share rows {} by {}", *gpus, parts, parts),
                           draft_.parts_rows.place);
    if (!length) return;
    draft_.set("train.sequence_length", (*length + parts - 1) / parts);
    // Micro-batches that are counted are of parts already.
    if (const auto rows = draft_.integer("train.global_batch"); rows && !draft_.accumulation)
      draft_.set("train.global_batch", product({*rows, parts}));
    draft_.file = draft_.parts_rows.file;
    draft_.remark_bounded(
        draft_.parts_rows.what,
        fmt::format(
            "the figures are of parts of {} tokens, one on each rank, of which each sees itself; ranks exchange "
            "the rest in attention",
            (*length + parts - 1) / parts),
        fmt::format("row-parts:{}", parts), draft_.parts_rows.place);
  }

  // Launch files name models with a tower for images, of which a scenario has the text model.
  void bound_images() {
    const std::string name = draft_.text("model").value_or("");
    if (!name.ends_with(of_text)) return;
    const std::optional<ImageModel> its = image_model(name, requested_.data_root);
    if (!its) return;
    if (from_ == Dialect::Megatron || from_ == Dialect::TorchTitan)
      return draft_.remark(RemarkKind::NotExpressed, its->name,
                           not_modelled("a tower for images is not modelled in this framework"));
    const auto tower = std::ranges::find(image_towers, its->tower, &ImageTower::name);
    const bool trained = draft_.trains_tower.value_or(true);
    draft_.remark_bounded(
        its->name,
        fmt::format("the figures are of its text model; a tower of {} layers, {}, makes vectors of images, of which "
                    "rows are full at most",
                    tower->layers, trained ? "which may be trained" : "which is frozen"),
        fmt::format("images:{}", 2 * (tower - image_towers.begin()) + (trained ? 1 : 0)));
  }

  // The cluster that is named, where its file is there.
  [[nodiscard]] std::optional<Cluster> named_cluster() const {
    const std::string name = draft_.text("cluster").value_or("");
    for (const std::filesystem::path& folder : {requested_.files.front().parent_path(), requested_.data_root})
      if (!name.empty() && is_there(folder / name)) return read_cluster(folder / name);
    return std::nullopt;
  }

  // Some tools start a process on each device that they find.
  void take_whole_node() {
    if (draft_.find("gpus") != nullptr) return;
    if (const std::string runtime = draft_.text("runtime.name").value_or("pytorch");
        draft_.starts_all.empty() && draft_.alone && runtime == "pytorch")
      draft_.starts_all = "nothing says on how many devices: accelerate launch";
    if (draft_.starts_all.empty()) return;
    const std::optional<Cluster> cluster = named_cluster();
    if (!cluster) return;
    const std::int64_t devices = cluster->node.devices;
    draft_.set("gpus", product({devices, draft_.starts_nodes}));
    draft_.remark(
        RemarkKind::Assumed, "gpus",
        fmt::format("{} starts a process on each device of a node: {} of this cluster's{}; --gpus says another number",
                    draft_.starts_all, devices,
                    draft_.starts_nodes > 1 ? fmt::format(", on {} nodes", draft_.starts_nodes) : ""));
  }

  // Launchers say how many processes each node has, which need not be one for each of its devices.
  void take_part_of_nodes() {
    if (draft_.each_node < 1 || requested_.gpus) return;
    const std::optional<Cluster> cluster = named_cluster();
    if (!cluster || draft_.each_node == cluster->node.devices) return;
    if (draft_.each_node < cluster->node.devices) return draft_.set("layout.devices_per_node", draft_.each_node);
    draft_.remark(RemarkKind::Assumed, "processes on each node",
                  fmt::format("{}, of which a node of this cluster has room for {}: ranks are placed so many to a node",
                              draft_.each_node, cluster->node.devices));
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
    if (together_ && file == requested_.files.front()) return *together_;
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

  [[nodiscard]] std::optional<Model> model_said() const {
    const std::string name = draft_.text("model").value_or("");
    const auto shipped = std::ranges::find(models_.files, name, &ShippedModel::file);
    if (shipped != models_.files.end()) return shipped->model;
    if (name.empty()) return {};
    if (is_there(name)) return read_model(name);
    const std::optional<NamedConfig> its = named_config(name, requested_.data_root);
    return its ? std::optional(parse_model(its->text, its->path)) : std::nullopt;
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
    for (const TomlKey& key : content.repeated)
      draft_.remark(RemarkKind::Assumed, key.name, "is there twice: the last one counts, as PyYAML has it", key.place);
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
        read_titan(content.document, models_, draft_);
        if (requested_.files.size() == 1) launch_by_run_train(draft_);
        return;
      case FileKind::Bridge: {
        from_ = Dialect::Megatron;
        Given flags(bridge_flags(content.document, draft_), "--", draft_);
        return read_megatron(flags, models_, draft_);
      }
      case FileKind::PythonRecipe: {
        from_ = Dialect::Megatron;
        const auto named = requested_.variables.find("recipe");
        Given flags(
            bridge_flags(
                is_nemo_recipe(content.text)
                    ? nemo_recipe(content.text, requested_.variables, draft_)
                    : bridge_recipe(content.text, named == requested_.variables.end() ? std::string() : named->second,
                                    models_, draft_),
                draft_),
            "--", draft_);
        return read_megatron(flags, models_, draft_);
      }
      case FileKind::Primus: {
        const PrimusTraining its = primus_training(content.document, requested_.variables, models_, draft_);
        from_ = its.of_titan ? Dialect::TorchTitan : Dialect::Megatron;
        if (its.of_titan) return read_titan(its.document, models_, draft_);
        Given flags(megatron_flags_of_forks(bridge_flags(its.document, draft_), draft_), "--", draft_);
        return read_megatron(flags, models_, draft_);
      }
      case FileKind::FlagScale: {
        from_ = Dialect::Megatron;
        Given flags(megatron_flags_of_forks(flagscale_flags(content.document, draft_), draft_), "--", draft_);
        return read_megatron(flags, models_, draft_);
      }
      case FileKind::GptNeox: {
        from_ = Dialect::Megatron;
        Given flags(megatron_flags_of_forks(gpt_neox_flags(content.document, draft_), draft_), "--", draft_);
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
      case FileKind::LlamaFactoryV1: {
        from_ = Dialect::TrainingArguments;
        Given arguments(llama_factory_v1_arguments(content.document.keys, draft_), "", draft_);
        return read_training_arguments(arguments, models_, draft_);
      }
      case FileKind::Torchtune:
        from_ = Dialect::TrainingArguments;
        return read_torchtune(content.document, models_, draft_);
      case FileKind::LlmFoundry:
        from_ = Dialect::TrainingArguments;
        return read_llm_foundry(content.document, models_, draft_);
      case FileKind::Olmo:
        from_ = Dialect::TrainingArguments;
        return read_olmo(content.document, models_, draft_);
      case FileKind::Lingua:
        from_ = Dialect::TrainingArguments;
        return read_lingua(content.document, draft_);
      case FileKind::AutoModel:
        from_ = Dialect::TrainingArguments;
        return read_automodel(content.document, models_, draft_);
      case FileKind::LitGpt:
        from_ = Dialect::TrainingArguments;
        return read_litgpt(content.document, models_, draft_);
      case FileKind::Packages:
        stated_.emplace_back(file.string(), versions_of_packages(content.text));
        return;
      case FileKind::Shell:
        return read_launch(file, content.text);
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
                       its.kind == FileKind::PythonRecipe || its.kind == FileKind::TorchTitan;
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

  // What a script says of the releases of packages counts behind what all files say.
  void read_launch(const std::filesystem::path& file, const std::string& text) {
    from_ = read_script(file, text, requested_, models_, draft_);
    stated_.emplace_back(file.string(), versions_in_script(text));
  }

  [[noreturn]] static void fail(const std::string& file, Place place, std::string message, std::string hint) {
    throw InputError(Problem{file, place.line, place.column, std::move(message), std::move(hint)});
  }

  const ConvertRequest& requested_;
  std::optional<FileContent> together_;  // of several files, in place of the first
  ShippedModels models_;
  std::map<std::string, std::string> whole_files_;  // which file says a key, of those that say a whole training
  std::vector<std::pair<std::string, std::vector<StatedVersion>>> stated_;  // by files, looked at when all are read
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
void add_problems(Converted& converted, const std::vector<std::string>& overrides,
                  const std::filesystem::path& data_root) {
  const auto read =
      scenario_or_problems(converted.document, converted.file, {converted.file.parent_path(), data_root}, {});
  const auto* problems = std::get_if<std::vector<Problem>>(&read);
  if (problems == nullptr) return;
  const bool reported_model = std::ranges::any_of(converted.remarks, [](const Remark& remark) {
    return remark.kind == RemarkKind::NotExpressed && remark.why.ends_with("--model");
  });
  // What is missing may stand in a file that is not there.
  const bool lacks_a_file = std::ranges::any_of(converted.remarks, [](const Remark& remark) {
    return remark.kind == RemarkKind::NotExpressed && remark.why.ends_with("give it as a file, too");
  });
  const InputError placed = placed_at(overrides, InputError(*problems));
  for (const Problem& problem : placed.problems()) {
    if (reported_model && problem.message == "model is missing") continue;
    if (lacks_a_file && problem.message.starts_with("sharding is missing")) continue;
    converted.remarks.push_back({RemarkKind::NotExpressed,
                                 problem.file,
                                 {problem.line, problem.column},
                                 problem.message,
                                 option_saying(problem.message).value_or(problem.hint),
                                 false,
                                 problem.kind});
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

bool is_foreign(const std::filesystem::path& file) try {
  return classified(file).kind != FileKind::Scenario;
} catch (const InputError& error) {
  // A tool's that is not modelled, which convert says.
  if (std::ranges::any_of(error.problems(), [](const Problem& its) { return its.kind != ProblemKind::NotModelled; }))
    throw;
  return true;
}

Converted convert(const ConvertRequest& requested) try {
  ConvertRequest whole = requested;
  std::optional<FileContent> together = gpt_neox_together(whole);
  Converted converted = Conversion(whole, std::move(together)).run();
  converted.strict = requested.strict;
  set_overrides(converted.document, requested.overrides);
  settle_stages(converted, requested.data_root);
  settle_devices(converted, requested, requested.data_root);
  add_problems(converted, requested.overrides, requested.data_root);
  for (const std::string& name : requested.ignored) ignore(converted, name);
  if (requested.strict)
    for (Remark& remark : converted.remarks)
      if (remark.kind == RemarkKind::NotJudged || remark.kind == RemarkKind::Bounded)
        remark.kind = RemarkKind::NotExpressed;
  return converted;
} catch (const InputError& error) {
  const bool foreign = !requested.strict && std::ranges::none_of(requested.files, [](const auto& file) {
    return file.extension() == ".toml";
  });
  std::vector<Problem> problems = error.problems();
  for (Problem& problem : problems) problem.leaves_open = foreign && problem.kind == ProblemKind::NotModelled;
  throw InputError(std::move(problems));
}

Scenario scenario_of(const Converted& converted, const std::filesystem::path& data_root) {
  // Of a job that is not modelled, what else it does not say is not asked for; a name that is nearly a known one is.
  const bool slips = std::ranges::any_of(converted.remarks, &Remark::is_slip);
  const bool open = !converted.strict && !slips && converted.from != Dialect::Scenario &&
                    std::ranges::any_of(converted.remarks, &Remark::is_not_modelled);
  std::vector<Problem> problems;
  for (const Remark& remark : converted.remarks)
    if (remark.kind == RemarkKind::NotExpressed && (!open || remark.is_not_modelled()))
      problems.push_back({remark.file.empty() ? converted.file.string() : remark.file, remark.place.line,
                          remark.place.column, remark.what, remark.why, remark.problem, open});
  if (!problems.empty()) throw InputError(std::move(problems));
  return scenario_of(converted.document, converted.file, {converted.file.parent_path(), data_root});
}

}  // namespace tidemark::scenarios
