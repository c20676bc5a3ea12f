#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/help.hpp"
#include "scenarios/cli/detail/usage.hpp"
#include "scenarios/cli/detail/verbs.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/figure_files.hpp"
#include "scenarios/cli/output.hpp"
#include "scenarios/cli/progress.hpp"
#include "scenarios/io/output_file.hpp"
#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/io/text_file.hpp"
#include "scenarios/prediction.hpp"
#include "scenarios/report/measured_comparison.hpp"
#include "scenarios/report/page/report_page.hpp"
#include "scenarios/report/prediction_text.hpp"

namespace tidemark::cli {
namespace {

struct AskedToReport {
  std::vector<std::string> files;
  std::string measured, page = "report.html", figures, json;
  std::string scenario;  ///< that is read now
  Loudness loudness;
};

bool is_record(const std::string& file) { return std::filesystem::path(file).extension() == ".json"; }

ReportOrigin origin_of(const std::string& file, const std::string& command) {
  return {TIDEMARK_VERSION, command, file, read_text(std::filesystem::path(file))};
}

Report of_prediction(const std::string& file, const std::string& command, ReportDetail detail, Loudness loudness) {
  const Scenario scenario = read_scenario(file, data_root());
  const Job job(scenario);
  const Trace trace = simulate_time(job);
  const Prediction prediction = predict(job, trace, progress_on_terminal("simulating ranks", loudness));
  return {scenario.name, verdict_text(prediction), prediction.fits,
          report_json(job, trace, prediction, origin_of(file, command), detail), prediction.open};
}

Report of_measurement(const AskedToReport& asked, const std::string& command) {
  const std::string& file = asked.files.front();
  const Measurement measurement{asked.measured, {}, {}};
  const MeasuredComparison comparison = compare_with(read_scenario(file, data_root()), measurement,
                                                     progress_on_terminal("simulating ranks", asked.loudness));
  if (comparison.json.empty())
    refuse("--measured", "the job deadlocks: there is nothing to compare", "predict says where");
  return report_of_record(comparison.json, origin_of(file, command));
}

Report report_of(AskedToReport& asked, const std::string& command) {
  const std::string& file = asked.files.front();
  asked.scenario = file;
  if (!asked.measured.empty()) return of_measurement(asked, command);
  if (asked.files.size() == 1 && is_record(file))
    return report_of_record(read_text(file), {TIDEMARK_VERSION, command, file, ""});
  if (asked.files.size() == 1) return of_prediction(file, command, ReportDetail::Whole, asked.loudness);
  std::vector<std::string> reports;
  for (const std::string& each : asked.files) {
    asked.scenario = each;
    reports.push_back(of_prediction(each, command, ReportDetail::Fullest, asked.loudness).data);
  }
  return report_beside(reports, {TIDEMARK_VERSION, command, fmt::format("{}", fmt::join(asked.files, ", ")), ""});
}

int run(AskedToReport& asked, const std::string& command) {
  if (!asked.measured.empty() && (asked.files.size() > 1 || is_record(asked.files.front())))
    refuse("--measured", "is laid beside one scenario", "name one scenario's file (TOML)");
  std::vector<std::filesystem::path> inputs;
  for (const std::string& file : asked.files) {
    if (is_record(file)) {
      if (asked.files.size() > 1)
        refuse(file, "a record has a page of its own", "several scenarios (TOML) go onto one page");
      inputs.emplace_back(file);
    } else {
      const std::vector<std::filesystem::path> behind = files_behind(file);
      inputs.insert(inputs.end(), behind.begin(), behind.end());
    }
  }
  if (!asked.measured.empty()) inputs.emplace_back(asked.measured);
  check_outputs({{"--output", asked.page}, {"--json", asked.json}}, inputs);
  if (!asked.figures.empty()) check_output_folder({"--figures", asked.figures});

  const Report report = report_of(asked, command);
  write_file(asked.page, [&](std::ostream& file) { file << report_page(report.title, report.data); });
  std::string text = report.verdict + fmt::format("report: {}\n", asked.page);
  if (!asked.figures.empty()) text += write_figures(asked.figures, figure_files(report.data));
  answer(text, asked.json, [&] { return report.data + '\n'; });
  return report.answer ? yes : report.open ? cannot_say : no;
}

}  // namespace

Verb report_verb(CLI::App& app, const std::string& command) {
  const auto asked = std::make_shared<AskedToReport>();
  CLI::App* verb = app.add_subcommand("report", "a page to look at and pass on: one HTML file that needs nothing else");
  CLI::Option* files = verb->add_option(
      "FILE", asked->files,
      "a scenario (TOML), several to lay them beside each other, or what plan, capacity, compare or validate "
      "wrote with --json");
  takes_shipped(*verb, files, examples_shipped)->required();
  verb->add_option("--measured", asked->measured,
                   "lay the scenario's prediction beside this memory snapshot or training log, as compare does")
      ->type_name("FILE");
  verb->add_option("-o,--output", asked->page, "the page")->capture_default_str()->type_name("FILE");
  verb->add_option("--figures", asked->figures,
                   "put every figure into this folder as SVG, PNG and CSV, tables as CSV and "
                   "Markdown")
      ->type_name("FOLDER");
  add_json(*verb, asked->json);
  add_quiet(*verb, asked->loudness);
  add_examples(*verb, {{"report llama-3.1-8b-8xh100 -o page.html", "open page.html in any browser"},
                       {"report llama-3.1-8b-8xh100 llama-3.1-8b-8xh100-zero3 -o both.html --quiet",
                        "two jobs beside each other"}});
  return {verb, [asked, command] { return run(*asked, command); }, &asked->scenario};
}

}  // namespace tidemark::cli
