#include "scenarios/cli/detail/launch_options.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/shipped_names.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::cli {

bool LaunchOptions::any() const {
  return !model.empty() || !cluster.empty() || gpus || sequence || micro_batch || global_batch || !variables.empty() ||
         !ignored.empty() || strict;
}

ConvertRequest LaunchOptions::requested(std::vector<std::filesystem::path> files) const {
  ConvertRequest made{.files = std::move(files),
                      .texts = {},
                      .variables = {},
                      .model = {},
                      .cluster = {},
                      .gpus = gpus,
                      .sequence_length = sequence,
                      .micro_batch = micro_batch,
                      .global_batch = global_batch,
                      .data_root = data_root(),
                      .ignored = ignored,
                      .strict = strict};
  std::vector<Problem> problems;
  if (!model.empty()) made.model = named_in_scenario("--model", model, models_shipped, problems);
  if (!cluster.empty()) made.cluster = named_in_scenario("--cluster", cluster, clusters_shipped, problems);
  if (!problems.empty()) throw InputError(std::move(problems));
  for (const std::string& text : variables) {
    const std::size_t sign = text.find('=');
    if (sign == std::string::npos || sign == 0)
      refuse("--set", fmt::format("{} is not a variable with a value", in_quotes(text)), "such as --set NNODES=8");
    made.variables[text.substr(0, sign)] = text.substr(sign + 1);
  }
  return made;
}

void add_launch_options(CLI::App& verb, LaunchOptions& options, JobSource source) {
  const std::string group =
      source == JobSource::File ? "With a launch file" : "With a launch file, or without any file";
  verb.add_option("--model", options.model, "name of a model (tidemark list models), or a config.json")
      ->type_name("NAME")
      ->group(group);
  verb.add_option("--cluster", options.cluster, "name of a cluster (tidemark list clusters), or a cluster file")
      ->type_name("NAME")
      ->group(group);
  verb.add_option("--gpus", options.gpus, "number of GPUs of the job")->type_name("N")->group(group);
  verb.add_option("--sequence", options.sequence, "sequence length in tokens")->type_name("N")->group(group);
  verb.add_option("--micro-batch", options.micro_batch, "micro-batch size in sequences")->type_name("N")->group(group);
  verb.add_option("--global-batch", options.global_batch, "global batch size in sequences")
      ->type_name("N")
      ->group(group);
  verb.add_option("--set", options.variables, "value of a shell variable that the script does not set")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false)
      ->group(group);
  verb.add_option("--ignore", options.ignored,
                  "a flag, variable or key that Tidemark does not know and that you say has no effect")
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->group(group);
  verb.add_flag("--strict", options.strict, "refuse a launch file with a name that Tidemark does not know")
      ->group(group);
}

std::string launch_remarks_text(const std::vector<Remark>& remarks, bool all) {
  std::string text;
  const auto section = [&](RemarkKind kind, const char* title) {
    bool first = true;
    for (const Remark& remark : remarks) {
      if (remark.kind != kind) continue;
      if (first) text += fmt::format("{}\n", title);
      first = false;
      const std::string place =
          remark.place.line > 0 ? fmt::format("{}:{}: ", printable(remark.file), remark.place.line) : "";
      text += fmt::format("  {}{}: {}\n", place, printable(remark.what), printable(remark.why));
    }
  };
  section(RemarkKind::NotExpressed, "not expressed");
  section(RemarkKind::NotJudged, "not judged: use --ignore NAME for a name that has no effect");
  section(RemarkKind::Bounded, "not simulated, but bounded: predict takes the launch file itself and adds the bound");
  section(RemarkKind::Beside, "to be given with it");
  section(RemarkKind::Assumed, "assumed");
  if (all) {
    section(RemarkKind::NoMatter, "no effect on memory or time");
    return text;
  }
  std::string names;
  for (const Remark& remark : remarks)
    if (remark.kind == RemarkKind::NoMatter)
      names +=
          fmt::format("{}{}", names.empty() ? "" : ", ", printable(remark.what.substr(0, remark.what.find(" = "))));
  if (!names.empty()) text += fmt::format("no effect on memory or time\n  {}\n", names);
  return text;
}

}  // namespace tidemark::cli
