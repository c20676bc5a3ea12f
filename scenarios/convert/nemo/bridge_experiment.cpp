#include "scenarios/convert/nemo/bridge_experiment.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/convert/nemo/experiment_options.hpp"
#include "scenarios/convert/nemo/published_recipes.hpp"
#include "scenarios/convert/python_recipes/python_statements.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

// "python scripts/performance/setup_experiment.py -m llama -mr llama3_70b -g gb200 -c fp8_mx -ng 64": which recipe, and
// what differs from it (argument_parser.py, utils/overrides.py set_user_overrides and set_post_overrides).

namespace tidemark::scenarios {
namespace {

/// Of a release: its container (docs/releases/software-versions), Megatron core (3rdparty/Megatron-LM) and the
/// container's Transformer Engine.
struct Release {
  std::string_view name, container, megatron, transformer_engine;
};
constexpr auto releases = std::to_array<Release>({{"0.3", "26.02", "0.16", "2.12"},
                                                  {"0.4", "26.04", "0.17", "2.14"},
                                                  {"0.5", "", "0.18", ""},
                                                  {"0.6", "", "0.19", ""}});

constexpr auto clusters = std::to_array<std::pair<std::string_view, std::string_view>>({{"h100", "h100-sxm-80g"},
                                                                                        {"b200", "b200-sxm-180g"},
                                                                                        {"gb200", "gb200-nvl72"},
                                                                                        {"b300", "b300-sxm-288g"},
                                                                                        {"gb300", "gb300-nvl72"}});

class Experiment {
 public:
  Experiment(const LaunchLine& line, const std::map<std::string, std::string>& variables, const ShippedModels& models,
             Draft& draft)
      : line_(line), variables_(variables), models_(models), draft_(draft) {}

  TomlTable table() {
    read_words();
    const PublishedRecipe& recipe = chosen();
    const std::string release(released_ ? *released_ : recipe.releases.back());
    draft_.remark(
        RemarkKind::Assumed, fmt::format("{} {} {} {}", recipe.model, recipe.task, recipe.device, recipe.precision),
        fmt::format("is Megatron-Bridge {}'s recipe{} for {} devices{}", release,
                    recipe.variant.empty() ? "" : fmt::format(", variant {},", recipe.variant), recipe.devices,
                    released_ ? "" : "; --set bridge=0.3 takes another release's, 0.3 to 0.6"),
        line_.place);
    for (const auto& [path, value] : recipe.settings) set(std::string(path), std::string(value), line_.place);
    take_surroundings(recipe, release);
    const std::string adapters = taken("peft"), rank = taken("peft.dim");
    std::erase_if(values_, [](const auto& its) { return its.first.starts_with("peft."); });
    if (!adapters.empty())
      draft_.remark_bounded("peft", std::string(figures_of_all_weights),
                            fmt::format("lora-on-megatron:{}", rank.empty() ? "32" : rank), line_.place);
    if (const std::string checkpoint = unquoted(taken("model.hf")); !checkpoint.empty())
      name_checkpoint(models_, checkpoint, "the recipe's model", line_.place, draft_);
    take_overrides();
    settle_after(recipe, release);
    return written();
  }

 private:
  struct Value {
    std::string text;  ///< as Python writes it
    Place place;
  };

  [[noreturn]] void fail(Place place, ProblemText message, std::string hint) const {
    throw InputError(
        Problem{draft_.file, place.line, place.column, std::move(message.text), std::move(hint), message.kind});
  }
  static std::string unquoted(std::string text) {
    if (text.size() > 1 && (text.front() == '\'' || text.front() == '"')) return text.substr(1, text.size() - 2);
    return text;
  }
  void set(std::string path, std::string value, Place place) { values_[std::move(path)] = {std::move(value), place}; }
  std::string value(const std::string& path) const {
    const auto its = values_.find(path);
    return its == values_.end() ? std::string() : its->second.text;
  }
  std::string taken(const std::string& path) {
    std::string its = value(path);
    values_.erase(path);
    return its;
  }
  std::int64_t number(const std::string& path, std::int64_t usual) const {
    const std::string its = value(path);
    std::int64_t made = 0;
    const auto [end, error] = std::from_chars(its.data(), its.data() + its.size(), made);
    return error == std::errc() && end == its.data() + its.size() ? made : usual;
  }

  // argparse: "-ng 64", "--num_gpus 64", "--num_gpus=64"; other words are Hydra's, "model.seq_length=4096".
  void read_words() {
    for (std::size_t i = 0; i < line_.arguments.size(); ++i) {
      const ShellWord& word = line_.arguments[i];
      if (!word.unknown.empty() && word.is_any_words()) {
        draft_.remark(RemarkKind::NotJudged, word.unknown, "only running it would tell which arguments these are",
                      word.place);
        continue;
      }
      const bool dashed = word.text.starts_with('-');
      const std::size_t sign = dashed ? word.text.find('=') : std::string::npos;
      const std::string name = word.text.substr(0, sign);
      const auto* const option = std::ranges::find_if(experiment_options, [&](const ExperimentOption& its) {
        return name == its.name || (!its.brief.empty() && name == its.brief);
      });
      if (option == experiment_options.end()) {
        if (!dashed && word.text.find('=') != std::string::npos)
          hydra_.push_back(word);
        else
          unknown_word(word, name);
        continue;
      }
      ShellWord its{"", word.place, word.unknown};
      const bool alone = option->says == Says::NothingAlone;
      if (sign != std::string::npos) {
        its.text = word.text.substr(sign + 1);
      } else if (!alone && i + 1 < line_.arguments.size() && (!is_option(line_.arguments[i + 1].text))) {
        its = line_.arguments[++i];
        while (takes_several(option->name) && i + 1 < line_.arguments.size() && !is_option(line_.arguments[i + 1].text))
          ++i;
      }
      const bool valued = !its.text.empty() || !its.unknown.empty() || option->name == "--expert_tensor_parallel_size";
      if (!alone && !valued) fail(word.place, fmt::format("{} takes a value", name), "argparse stops without one");
      given_[option->name] = its;
    }
  }
  static bool is_option(std::string_view text) {
    return text.size() > 1 && text[0] == '-' && (text[1] < '0' || text[1] > '9');
  }
  static bool takes_several(std::string_view name) {
    return name == "--dataset_paths" || name == "--c4_train_shards" || name == "--custom_bash_cmds";
  }
  void unknown_word(const ShellWord& word, const std::string& name) {
    static const std::vector<std::string> known = [] {
      std::vector<std::string> made;
      for (const ExperimentOption& its : experiment_options) made.emplace_back(its.name);
      return made;
    }();
    draft_.remark_unknown(name, name, "is no argument of scripts/performance that is known here", known, word.place);
  }

  std::string said(std::string_view option, std::string usual = {}) const {
    const auto its = given_.find(option);
    if (its == given_.end()) return usual;
    if (!its->second.unknown.empty())
      fail(its->second.place, fmt::format("{}: {} is not known without running it", option, its->second.unknown),
           hint_of_unknown(its->second.unknown));
    return its->second.text;
  }
  Place place_of(std::string_view option) const {
    const auto its = given_.find(option);
    return its == given_.end() ? line_.place : its->second.place;
  }
  std::int64_t count(std::string_view option) const {
    const std::string its = said(option);
    std::int64_t made = 0;
    const auto [end, error] = std::from_chars(its.data(), its.data() + its.size(), made);
    constexpr std::int64_t most = std::int64_t{1} << 20;
    if (error != std::errc() || end != its.data() + its.size() || made < 1 || made > most)
      fail(place_of(option), fmt::format("{} = {} is no whole number from 1 to {}", option, in_quotes(its), most),
           "say how many");
    return made;
  }

  /// The release that a container or --set bridge names.
  void take_release() {
    if (const auto named = variables_.find("bridge"); named != variables_.end()) {
      const auto* const its = std::ranges::find(releases, named->second, &Release::name);
      if (its == releases.end())
        fail(line_.place,
             fmt::format("bridge = {} is no release whose recipes are known here", in_quotes(named->second)),
             "0.3, 0.4, 0.5 and 0.6 are");
      released_ = its->name;
      return;
    }
    const std::string image = said("--container_image");
    for (const Release& its : releases)
      if (!its.container.empty() && image.find(fmt::format("nemo:{}", its.container)) != std::string::npos)
        released_ = its.name;
  }

  // utils/utils.py get_workload_base_config (until 0.5) and get_perf_recipe_by_name (0.6).
  const PublishedRecipe& chosen() {
    take_release();
    if (given_.contains("--use_recipes"))
      fail(place_of("--use_recipes"),
           not_modelled("--use_recipes takes a recipe of the library, which is not looked up"),
           "a recipe's own file would do: src/megatron/bridge/recipes");
    const std::string model = said("--model_recipe_name"), device = said("--gpu");
    std::string task = said("--task", "pretrain");
    if (task == "lora") task = "peft";
    const std::string precision = said("--compute_dtype", "bf16");
    if (model.empty() || device.empty())
      fail(line_.place, "names no recipe", "--model_recipe_name and --gpu say which: -mr llama3_70b -g gb200");
    std::vector<const PublishedRecipe*> found;
    std::set<std::string> models, others;
    for (const PublishedRecipe& its : published_recipes()) {
      if (released_ && std::ranges::find(its.releases, *released_) == its.releases.end()) continue;
      models.emplace(its.model);
      if (its.model != model) continue;
      others.insert(fmt::format("{} {} {}", its.task, its.device, its.precision));
      if (its.task == task && its.device == device && its.precision == precision) found.push_back(&its);
    }
    if (others.empty())
      fail(place_of("--model_recipe_name"),
           not_modelled(fmt::format("{} is no recipe of Megatron-Bridge {}'s that is known here", in_quotes(model),
                                    released_ ? std::string(*released_) : "0.3 to 0.6")),
           fmt::format("{} are", fmt::join(models, ", ")));
    if (found.empty())
      fail(line_.place, fmt::format("{} has no recipe to {} in {} on {}", model, task, precision, in_quotes(device)),
           fmt::format("it has {}", fmt::join(others, ", ")));
    if (!released_) {  // the newest that has it
      const std::string_view newest = (*std::ranges::max_element(found, {}, newest_of))->releases.back();
      std::erase_if(found, [&](const PublishedRecipe* its) { return its->releases.back() != newest; });
    }
    return *of_variant(std::move(found));
  }
  static std::string_view newest_of(const PublishedRecipe* its) { return its->releases.back(); }

  const PublishedRecipe* of_variant(std::vector<const PublishedRecipe*> found) const {
    const std::string_view release = released_ ? *released_ : found.front()->releases.back();
    const bool by_functions = release >= "0.6";
    std::string variant = said("--config_variant", by_functions ? "" : "v2");
    const auto of = [&](std::string_view wanted) {
      std::vector<const PublishedRecipe*> its;
      std::ranges::copy_if(found, std::back_inserter(its), [&](const auto* r) { return r->variant == wanted; });
      return its;
    };
    std::vector<const PublishedRecipe*> its = of(variant);
    if (its.empty() && !by_functions && variant == "v2") its = of("v1");
    if (its.empty() && !by_functions) its = of("");
    if (its.empty()) {
      std::set<std::string> names;
      for (const auto* r : found) names.emplace(r->variant.empty() ? "(none)" : r->variant);
      fail(place_of("--config_variant"), fmt::format("there is no variant {} of the recipe", in_quotes(variant)),
           fmt::format("it has {}", fmt::join(names, ", ")));
    }
    std::ranges::sort(its, {}, [](const auto* r) { return r->devices; });
    if (given_.contains("--num_gpus")) {
      const std::int64_t wanted = count("--num_gpus");
      for (const auto* r : its)
        if (r->devices == wanted) return r;
    }
    // _DEFAULT_GPU_COUNT_OVERRIDES: of these models the smallest is the usual one; of others the largest.
    constexpr auto smallest = std::to_array<std::string_view>({"llama3_8b", "nemotronh_56b", "qwen3_30b_a3b"});
    return std::ranges::find(smallest, its.front()->model) != smallest.end() ? its.front() : its.back();
  }

  void take_surroundings(const PublishedRecipe& recipe, std::string_view release) {
    if (draft_.find("gpus") == nullptr)
      draft_.set("gpus", given_.contains("--num_gpus") ? count("--num_gpus") : recipe.devices, place_of("--num_gpus"));
    const auto* const cluster =
        std::ranges::find(clusters, recipe.device, &std::pair<std::string_view, std::string_view>::first);
    if (draft_.find("cluster") == nullptr && cluster != clusters.end()) {
      draft_.set("cluster", fmt::format("clusters/{}.toml", cluster->second), place_of("--gpu"));
      draft_.remark(RemarkKind::Assumed, fmt::format("--gpu {}", recipe.device),
                    fmt::format("is {}; --cluster says another", cluster->second), place_of("--gpu"));
    }
    const auto* const its = std::ranges::find(releases, release, &Release::name);
    for (const auto& [path, version] : {std::pair("runtime.versions.megatron", its->megatron),
                                        std::pair("runtime.versions.transformer_engine", its->transformer_engine)})
      if (!version.empty() && draft_.find(path) == nullptr) draft_.set(path, std::string(version), line_.place);
    constexpr std::string_view variable = "environment.";
    for (const auto& [path, text] : recipe.settings)
      if (path.starts_with(variable)) {
        values_.erase(std::string(path));
        draft_.set(fmt::format("runtime.{}", path), unquoted(std::string(text)), line_.place);
      }
    if (release < "0.6")
      draft_.remark(RemarkKind::Assumed, "perf_plugins.py",
                    "sets variables of the environment by model and device, which are taken as usual", line_.place);
  }

  // set_user_overrides, behind Hydra's.
  void take_overrides() {
    for (const ShellWord& word : hydra_) {
      const std::size_t sign = word.text.find('=');
      std::string path = word.text.substr(0, sign);
      path.erase(0, path.find_first_not_of('+'));
      if (!word.unknown.empty())
        fail(word.place, fmt::format("{}: {} is not known without running it", path, word.unknown),
             hint_of_unknown(word.unknown));
      set(path, as_python(word.text.substr(sign + 1)), word.place);
    }
    for (const ExperimentOption& its : experiment_options) {
      if (!given_.contains(its.name) || its.says == Says::Which) continue;
      const Place place = place_of(its.name);
      if (its.says == Says::Shape)
        draft_.remark(RemarkKind::NotExpressed, std::string(its.name),
                      not_modelled("makes another model of the recipe's, which is not modelled"), place);
      else if (its.says == Says::Job)
        draft_.remark(RemarkKind::NotJudged, std::string(its.name), "changes the recipe, and is not read", place);
      else if (its.says == Says::Switch)
        set(std::string(its.path), is_true(said(its.name)) ? "True" : "False", place);
      else if (its.says == Says::Setting)
        take_setting(its, place);
      else
        draft_.remark(RemarkKind::NoMatter, std::string(its.name), "where and how it runs, and what is logged", place);
    }
  }
  static bool is_true(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text == "true" || text == "1" || text == "yes" || text == "y" || text == "t";
  }
  static std::string as_python(const std::string& text) {
    if (text == "true" || text == "True") return "True";
    if (text == "false" || text == "False") return "False";
    if (text == "null" || text == "None") return "None";
    const bool plain = !text.empty() && text.find_first_not_of("0123456789.-+e") == std::string::npos;
    return plain || text.starts_with('[') || text.starts_with('\'') || text.starts_with('"') ? text : in_quotes(text);
  }
  void take_setting(const ExperimentOption& its, Place place) {
    const std::string path(its.path), text = said(its.name);
    if (its.name == "--recompute_modules" || its.name == "--cuda_graph_scope") {
      std::vector<std::string> quoted;
      for (const std::string& each : between_commas_of(text)) quoted.push_back(in_quotes(each));
      set(path, fmt::format("[{}]", fmt::join(quoted, ", ")), place);
      if (its.name == "--recompute_modules") set("model.recompute_granularity", "'selective'", place);
      return;
    }
    if (its.name == "--cuda_graph_impl" || its.name == "--pipeline_model_parallel_layout")
      return set(path, in_quotes(text), place);
    if (text.empty() || text == "None") return set(path, "None", place);
    set(path, std::to_string(count(its.name)), place);
    if (its.name == "--tensor_model_parallel_size")
      set("model.sequence_parallel", count(its.name) > 1 ? "True" : "False", place);
    if (its.name == "--recompute_num_layers")
      set("model.recompute_granularity", "'full'", place), set("model.recompute_method", "'block'", place);
    if (its.name == "--activation_offload_layers")
      set("model.cpu_offloading", "True", place), set("model.cpu_offloading_weights", "False", place);
  }

  // set_post_overrides, and run_script.py: what follows from how many devices there are.
  void settle_after(const PublishedRecipe& recipe, std::string_view release) {
    const std::int64_t devices = draft_.integer("gpus").value_or(recipe.devices);
    if (devices != recipe.devices && !given_.contains("--global_batch_size")) {
      const std::int64_t batch = number("train.global_batch_size", 1) * devices / recipe.devices;
      set("train.global_batch_size", std::to_string(batch), place_of("--num_gpus"));
      draft_.remark(RemarkKind::Assumed, fmt::format("global_batch_size = {}", batch),
                    fmt::format("the recipe's, for {} devices in place of {}", devices, recipe.devices),
                    place_of("--num_gpus"));
    }
    take_dispatcher(release);
    const bool adam = unquoted(value("optimizer.optimizer")) == "adam";
    if (recipe.precision == "bf16" && adam) set("optimizer.use_precision_aware_optimizer", "True", line_.place);
    if (release >= "0.6") return;
    const std::int64_t pipeline = number("model.pipeline_model_parallel_size", 1);
    const std::int64_t ranks =
        pipeline * number("model.tensor_model_parallel_size", 1) * number("model.context_parallel_size", 1);
    const bool chunks = number("model.virtual_pipeline_model_parallel_size", 1) > 1;
    const bool overlaps = ranks > 0 && devices / ranks > 1 && pipeline > 1 && chunks && adam &&
                          recipe.precision != "fp8_mx" && recipe.precision != "nvfp4";
    for (const char* path : {"optimizer.overlap_param_gather_with_optimizer_step",
                             "comm_overlap.overlap_param_gather_with_optimizer_step"})
      if (overlaps)
        set(path, "True", line_.place);
      else
        values_.erase(path);
  }

  // What is modelled of the flex dispatcher is DeepEP up to core 0.17: in place of any other, figures are told of
  // all-to-all, without a verdict.
  void take_dispatcher(std::string_view release) {
    if (unquoted(value("model.moe_token_dispatcher_type")) != "flex") return;
    const std::string backend = unquoted(value("model.moe_flex_dispatcher_backend"));
    if (backend == "deepep" && release < "0.5") return;
    const Place place = values_.at("model.moe_token_dispatcher_type").place;
    set("model.moe_token_dispatcher_type", "'alltoall'", place);
    draft_.remark(RemarkKind::NotJudged, "model.moe_token_dispatcher_type = flex",
                  fmt::format("{} is not modelled with these releases: the figures are of tokens that go by all-to-all",
                              backend == "hybridep" ? "HybridEP" : "DeepEP"),
                  place);
    std::erase_if(values_, [](const auto& its) {
      return its.first.starts_with("model.moe_flex_") || its.first.starts_with("model.moe_hybridep_") ||
             its.first.starts_with("model.moe_deepep_");
    });
  }

  static void put(TomlTable& table, std::string_view path, TomlValue value) {
    const std::size_t dot = path.find('.');
    if (dot == std::string_view::npos) {
      const Place place = value.place;
      table.keys.push_back({std::string(path), place, std::move(value)});
      return;
    }
    const std::string name(path.substr(0, dot));
    auto its = std::ranges::find(table.keys, name, &TomlKey::name);
    if (its == table.keys.end()) its = table.keys.insert(its, {name, value.place, {TomlTable{}, value.place}});
    if (auto* inner = std::get_if<TomlTable>(&its->value.value)) put(*inner, path.substr(dot + 1), std::move(value));
  }
  TomlTable written() const {
    TomlTable all;
    for (const auto& [path, its] : values_) {
      if (its.text == "None") continue;
      if (auto literal = literal_in(its.text, its.place))
        put(all, path, {std::move(*literal), its.place});
      else
        draft_.remark(RemarkKind::NotJudged, fmt::format("{} = {}", path, its.text), "is not read", its.place);
    }
    return all;
  }

  const LaunchLine& line_;
  const std::map<std::string, std::string>& variables_;
  const ShippedModels& models_;
  Draft& draft_;
  std::map<std::string_view, ShellWord> given_;  // by an option's long name, the last one
  std::vector<ShellWord> hydra_;
  std::optional<std::string_view> released_;
  std::map<std::string, Value> values_;
};

}  // namespace

bool is_bridge_experiment(const LaunchLine& line) {
  constexpr auto programs = std::to_array<std::string_view>({"setup_experiment.py", "performance/run_script.py"});
  return std::ranges::any_of(programs, [&](std::string_view its) { return line.path.ends_with(its); });
}

TomlTable bridge_experiment(const LaunchLine& line, const std::map<std::string, std::string>& variables,
                            const ShippedModels& models, Draft& draft) {
  return Experiment(line, variables, models, draft).table();
}

}  // namespace tidemark::scenarios
