#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/detail/launch_options.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/toml_text.hpp"

namespace tidemark::cli {
namespace {

struct AskedToConvert {
  std::vector<std::string> files;
  std::string to = "scenario", launcher = "torchrun", output, json;
  bool all = false;
  LaunchOptions options;
};

struct Answer {
  Dialect from{}, to{};
  std::string text, launch;
  std::vector<Remark> remarks;
  [[nodiscard]] bool whole() const {
    return std::ranges::none_of(
        remarks, [](const Remark& r) { return r.kind == RemarkKind::NotExpressed || r.kind == RemarkKind::NotJudged; });
  }
};

Launcher launcher_asked(const std::string& text) {
  if (text == "torchrun") return Launcher::Torchrun;
  if (text == "sbatch") return Launcher::Sbatch;
  if (text == "mpirun") return Launcher::Mpirun;
  refuse("--launcher", fmt::format("{} starts nothing here", in_quotes(text)), "torchrun, sbatch or mpirun would do");
}

Answer answer_of(const AskedToConvert& asked) {
  const std::optional<Dialect> to = dialect_named(asked.to);
  if (!to) {
    const std::string meant = nearest(asked.to, dialect_names());
    refuse("--to", fmt::format("{} is nothing to convert to", in_quotes(asked.to)),
           meant.empty() ? one_of(dialect_names()) + " would do" : fmt::format("did you mean {}?", meant));
  }
  const Launcher launcher = launcher_asked(asked.launcher);
  Converted converted = convert(asked.options.asked({asked.files.begin(), asked.files.end()}));
  Answer made{converted.from, *to, {}, {}, converted.remarks};
  if (*to == Dialect::Scenario) {
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

std::string told(const Answer& answer, bool all) {
  std::string text = answer.whole() ? "all of it is expressed\n" : "not all of it is expressed\n";
  if (!answer.launch.empty()) text += fmt::format("start it with\n  {}\n", answer.launch);
  text += remarks_text(answer.remarks, all);
  if (answer.whole()) return text;
  return text +
         (answer.to == Dialect::Scenario
              ? "next: the same with -o job.toml, change there what is not expressed, then tidemark predict job.toml\n"
              : "next: see to what is not expressed; tidemark convert reads back what was written\n");
}

const char* list_of(RemarkKind kind) {
  switch (kind) {
    case RemarkKind::NotExpressed:
    case RemarkKind::NotJudged:
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

int run(const AskedToConvert& asked) {
  std::vector<std::filesystem::path> inputs(asked.files.begin(), asked.files.end());
  check_outputs({{"--json", asked.json}, {"--output", asked.output}}, inputs);
  const Answer made = answer_of(asked);
  if (!asked.output.empty()) {
    write_file(asked.output, [&](std::ostream& file) { file << made.text; });
    answer(told(made, asked.all), asked.json, [&] { return as_json(made); });
  } else {
    complain(told(made, asked.all));
    if (asked.json == "-")
      answer("", asked.json, [&] { return as_json(made); });
    else
      answer(made.text, asked.json, [&] { return as_json(made); });
  }
  return made.whole() ? yes : no;
}

}  // namespace

Verb convert_verb(CLI::App& app) {
  const auto asked = std::make_shared<AskedToConvert>();
  CLI::App* verb =
      app.add_subcommand("convert", "launch arguments and configurations of frameworks to a scenario, and back");
  CLI::Option* files = verb->add_option(
      "FILES", asked->files,
      "a shell script or arguments (Megatron-LM, torchtitan, deepspeed, accelerate), torchtitan's TOML, a "
      "ds_config.json, accelerate's or Megatron-Bridge's YAML, TrainingArguments, or a scenario; several say "
      "one training together");
  takes_shipped(*verb, files, examples_shipped)->required();
  verb->add_option("--to", asked->to, "scenario, megatron, torchtitan, deepspeed, accelerate or training-arguments")
      ->type_name("KIND");
  verb->add_option("--launcher", asked->launcher, "what starts it: torchrun, sbatch or mpirun")->type_name("NAME");
  verb->add_option("-o,--output", asked->output, "write it to FILE; what could not be expressed is then told on stdout")
      ->type_name("FILE");
  verb->add_flag("-v,--verbose", asked->all, "say of every argument why it does not matter");
  add_launch_options(*verb, asked->options);
  add_json(*verb, asked->json);
  add_examples(*verb,
               {{"convert llama-3.1-8b-8xh100 --to megatron -o run.sh", "the arguments that start this training"},
                {"convert run.sh --cluster h100-sxm-80g -o again.toml", "and back: a scenario of a launch script"}});
  return {verb, [asked] { return run(*asked); }};
}

}  // namespace tidemark::cli
