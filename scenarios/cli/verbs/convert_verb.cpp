#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/launch_options.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/scenario/named_files.hpp"

namespace tidemark::cli {
namespace {

struct ConvertArguments {
  std::vector<std::string> words;  ///< files, and keys to set
  std::string to = "scenario", launcher = "torchrun", output, json;
  bool all = false;
  LaunchOptions options;

  // A file may have a name like "a=b".
  [[nodiscard]] static bool is_key(const std::string& word) {
    return is_override(word) && !std::filesystem::exists(word);
  }
  [[nodiscard]] std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    for (const std::string& word : words)
      if (!is_key(word)) found.emplace_back(word);
    return found;
  }
  [[nodiscard]] ConvertRequest converted() const {
    ConvertRequest made = options.requested(files());
    std::ranges::copy_if(words, std::back_inserter(made.overrides), is_key);
    return made;
  }
};

struct Answer {
  Dialect from{}, to{};
  std::string text, launch;
  std::vector<Remark> remarks;
  [[nodiscard]] bool whole() const {
    return std::ranges::none_of(remarks, [](const Remark& r) {
      return r.kind == RemarkKind::NotExpressed || r.kind == RemarkKind::NotJudged || r.kind == RemarkKind::Bounded;
    });
  }
};

Launcher launcher_requested(const std::string& text) {
  if (text == "torchrun") return Launcher::Torchrun;
  if (text == "sbatch") return Launcher::Sbatch;
  if (text == "mpirun") return Launcher::Mpirun;
  refuse("--launcher", fmt::format("{} starts nothing here", in_quotes(text)), "torchrun, sbatch or mpirun would do");
}

// What is wrong with a file is told; what is wrong with keys that are set is whoever sets them to mend.
void refuse_keys(const Converted& converted, const std::vector<std::string>& keys) {
  std::vector<Problem> problems;
  for (const Remark& its : converted.remarks)
    if (its.kind == RemarkKind::NotExpressed && std::ranges::find(keys, its.file) != keys.end())
      problems.push_back({its.file, its.place.line, its.place.column, its.what, its.why, its.problem});
  if (!problems.empty()) throw InputError(std::move(problems));
}

Answer answer_of(const ConvertArguments& requested) {
  const std::optional<Dialect> to = dialect_named(requested.to);
  if (!to) {
    const std::string meant = nearest(requested.to, dialect_names());
    refuse("--to", fmt::format("{} is not a format to convert to", in_quotes(requested.to)),
           meant.empty() ? one_of(dialect_names()) + " would do" : fmt::format("did you mean {}?", meant));
  }
  const Launcher launcher = launcher_requested(requested.launcher);
  const ConvertRequest wanted = requested.converted();
  Converted converted = convert(wanted);
  refuse_keys(converted, wanted.overrides);
  Answer made{converted.from, *to, {}, {}, converted.remarks};
  if (*to == Dialect::Scenario) {
    name_files_from(converted.document, {converted.file.parent_path(), data_root()},
                    std::filesystem::path(requested.output).parent_path());
    made.text = toml_text(converted.document);
    return made;
  }
  const Scenario scenario = scenario_of(converted, data_root());
  const auto text_of = [&](const char* key) {
    for (const TomlKey& its : converted.document.keys)
      if (const auto* text = std::get_if<std::string>(&its.value.value); its.name == key && text != nullptr)
        return *text;
    return std::string();
  };
  Written found = written(scenario, *to, launcher, text_of("model"), text_of("cluster"), data_root(), converted.kept);
  made.text = std::move(found.text);
  made.launch = std::move(found.launch);
  made.remarks.insert(made.remarks.end(), found.remarks.begin(), found.remarks.end());
  return made;
}

std::string reported(const Answer& answer, bool all) {
  std::string text = answer.whole() ? "all of it is expressed\n" : "not all of it is expressed\n";
  if (!answer.launch.empty()) text += fmt::format("start it with\n  {}\n", answer.launch);
  text += launch_remarks_text(answer.remarks, all);
  if (answer.whole()) return text;
  return text +
         (answer.to == Dialect::Scenario
              ? "next: the same with -o job.toml, change there what is not expressed, then tidemark predict job.toml\n"
              : "next: handle what is not expressed; tidemark convert reads the result back\n");
}

const char* list_of(RemarkKind kind) {
  switch (kind) {
    case RemarkKind::NotExpressed:
    case RemarkKind::NotJudged:
    case RemarkKind::Bounded:
      return "not_expressed";
    case RemarkKind::Beside:
      return "beside";
    case RemarkKind::Assumed:
      return "assumed";
    case RemarkKind::NoMatter:
      break;
  }
  return "no_matter";
}

std::string as_json(const Answer& answer) {
  using Json = nlohmann::ordered_json;
  Json json = {{"schema", "tidemark.conversion/1"},
               {"from", name(answer.from)},
               {"to", name(answer.to)},
               {"expressed", answer.whole()},
               {"text", answer.text},
               {"launch", answer.launch.empty() ? Json(nullptr) : Json(answer.launch)},
               {"not_expressed", Json::array()},
               {"beside", Json::array()},
               {"assumed", Json::array()},
               {"no_matter", Json::array()}};
  for (const Remark& remark : answer.remarks) {
    const char* list = list_of(remark.kind);
    json[list].push_back({{"what", remark.what},
                          {"why", remark.why},
                          {"file", remark.file},
                          {"line", remark.place.line},
                          {"judged", remark.kind != RemarkKind::NotJudged}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

int run(const ConvertArguments& requested) {
  const std::vector<std::filesystem::path> inputs = requested.files();
  if (inputs.empty())
    refuse("convert", "only keys to set were given, and no file", "name the launch file or the scenario before them");
  check_outputs({{"--json", requested.json}, {"--output", requested.output}}, inputs);
  const Answer made = answer_of(requested);
  if (!requested.output.empty()) {
    write_file(requested.output, [&](std::ostream& file) { file << made.text; });
    answer(reported(made, requested.all), requested.json, [&] { return as_json(made); });
  } else {
    complain(reported(made, requested.all));
    if (requested.json == "-")
      answer("", requested.json, [&] { return as_json(made); });
    else
      answer(made.text, requested.json, [&] { return as_json(made); });
  }
  return made.whole() ? yes : no;
}

}  // namespace

Verb convert_verb(CLI::App& app) {
  const auto requested = std::make_shared<ConvertArguments>();
  CLI::App* verb =
      app.add_subcommand("convert", "convert frameworks' launch scripts and configurations to scenarios, and back");
  CLI::Option* files =
      verb->add_option("FILES", requested->words,
                       "a shell script or arguments (Megatron-LM, torchtitan, deepspeed, accelerate), torchtitan's "
                       "TOML, a ds_config.json, accelerate's or Megatron-Bridge's YAML, TrainingArguments, or a "
                       "scenario; several files can describe one job together, and keys to set, such as "
                       "train.micro_batch=2, go behind them");
  takes_shipped(*verb, files, examples_shipped)->required();
  verb->add_option("--to", requested->to, "scenario, megatron, torchtitan, deepspeed, accelerate or training-arguments")
      ->type_name("KIND");
  verb->add_option("--launcher", requested->launcher, "launcher to write: torchrun, sbatch or mpirun")
      ->type_name("NAME");
  verb->add_option("-o,--output", requested->output,
                   "write the result to FILE; stdout then lists what could not be expressed")
      ->type_name("FILE");
  verb->add_flag("-v,--verbose", requested->all, "explain for each ignored argument why it has no effect");
  add_launch_options(*verb, requested->options);
  add_json(*verb, requested->json);
  add_examples(*verb,
               {{"convert llama-3.1-8b-8xh100 --to megatron -o run.sh", "writes a launch script for Megatron-LM"},
                {"convert run.sh --cluster h100-sxm-80g -o again.toml", "reads it back as a scenario"}});
  return {verb, [requested] { return run(*requested); }};
}

}  // namespace tidemark::cli
