#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/job_request.hpp"
#include "scenarios/cli/detail/launch_options.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/figure_files.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/report/measured_comparison.hpp"
#include "scenarios/report/page/report_page.hpp"
#include "scenarios/report/text/prediction_text.hpp"

namespace tidemark::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> files;  ///< and keys that are set in each of them
  LaunchOptions launch;
  std::string measured, page = "report.html", figures, paper, json;
  bool cite = false;
  std::string scenario;  ///< that is read now
  Loudness loudness;
};

// What other verbs wrote: a ds_config.json is a launch file.
bool is_record(const std::string& file) {
  return std::filesystem::path(file).extension() == ".json" &&
         read_text(std::filesystem::path(file)).find("\"tidemark.") != std::string::npos;
}

ReportOrigin origin_of(const std::string& file, const std::string& command) {
  return {TIDEMARK_VERSION, command, file, read_text(std::filesystem::path(file))};
}

std::vector<std::string> overrides_in(const ReportArguments& requested) {
  std::vector<std::string> found;
  std::ranges::copy_if(requested.files, std::back_inserter(found), is_override);
  return found;
}
std::vector<std::string> files_in(const ReportArguments& requested) {
  std::vector<std::string> found;
  std::ranges::copy_if(requested.files, std::back_inserter(found), std::not_fn(is_override));
  return found;
}

JobRequest job_of(const std::string& file, const ReportArguments& requested) {
  return requested_job({file, overrides_in(requested), requested.launch});
}

Report of_prediction(const std::string& file, const std::string& command, ReportDetail detail,
                     const ReportArguments& requested) {
  const JobRequest source = job_of(file, requested);
  const Job job(source.scenario);
  const Trace trace = simulate_time(job);
  Prediction prediction = predict(job, trace, progress_on_terminal("simulating ranks", requested.loudness));
  source.complete(prediction);
  return {source.scenario.name, verdict_text(prediction), prediction.fits,
          with_not_judged(report_json(job, trace, prediction, origin_of(file, command), detail), source.not_judged),
          prediction.open};
}

Report of_measurement(const ReportArguments& requested, const std::string& command) {
  const std::string file = files_in(requested).front();
  const Measurement measurement{requested.measured, {}, {}};
  const JobRequest job = job_of(file, requested);
  const MeasuredComparison comparison =
      compare_with(job.scenario, measurement, progress_on_terminal("simulating ranks", requested.loudness));
  if (comparison.json.empty())
    refuse("--measured", "the job deadlocks: there is nothing to compare", "predict says where");
  Report report = report_of_record(comparison.json, origin_of(file, command));
  report.verdict = job.lead() + report.verdict;
  if (job.not_judged.empty()) return report;
  report.answer = false;
  report.open = true;
  return report;
}

Report report_of(ReportArguments& requested, const std::string& command) {
  const std::vector<std::string> files = files_in(requested);
  const std::string& file = files.front();
  requested.scenario = file;
  if (!requested.measured.empty()) return of_measurement(requested, command);
  if (files.size() == 1 && is_record(file))
    return report_of_record(read_text(file), {TIDEMARK_VERSION, command, file, ""});
  if (files.size() == 1) return of_prediction(file, command, ReportDetail::Whole, requested);
  std::vector<std::string> reports;
  for (const std::string& each : files) {
    requested.scenario = each;
    reports.push_back(of_prediction(each, command, ReportDetail::Fullest, requested).data);
  }
  return report_beside(reports, {TIDEMARK_VERSION, command, fmt::format("{}", fmt::join(files, ", ")), ""});
}

int run(ReportArguments& requested, const std::string& command) {
  if (requested.cite) {
    if (!requested.files.empty())
      refuse("--cite", "prints how to cite Tidemark, and reports nothing", "leave the file out");
    answer(citation(), "", {});
    return yes;
  }
  const std::vector<std::string> files = files_in(requested);
  if (files.empty()) refuse("report", "names no file", "a scenario, a launch file, or a record");
  if (!requested.measured.empty() && (files.size() > 1 || is_record(files.front())))
    refuse("--measured", "is compared with one scenario", "name one scenario's file (TOML)");
  std::vector<std::filesystem::path> inputs;
  for (const std::string& file : files) {
    if (is_record(file)) {
      if (files.size() > 1) refuse(file, "a record has a page of its own", "several scenarios (TOML) go onto one page");
      inputs.emplace_back(file);
    } else {
      const std::vector<std::filesystem::path> behind = files_behind(file);
      inputs.insert(inputs.end(), behind.begin(), behind.end());
    }
  }
  if (!requested.measured.empty()) inputs.emplace_back(requested.measured);
  check_outputs({{"--output", requested.page}, {"--json", requested.json}}, inputs);
  if (!requested.figures.empty()) check_output_folder({"--figures", requested.figures});
  if (!requested.paper.empty()) check_output_folder({"--paper", requested.paper});

  const Report report = report_of(requested, command);
  write_file(requested.page, [&](std::ostream& file) { file << report_page(report.title, report.data); });
  std::string text = report.verdict + fmt::format("report: {}\n", requested.page);
  if (!requested.figures.empty())
    text += write_figures(requested.figures, figure_files(report.data, FiguresFor::Pages));
  if (!requested.paper.empty()) text += write_paper(requested.paper, figure_files(report.data, FiguresFor::Papers));
  answer(text, requested.json, [&] { return report.data + '\n'; });
  return report.answer ? yes : report.open ? cannot_say : no;
}

}  // namespace

Verb report_verb(CLI::App& app, const std::string& command) {
  const auto requested = std::make_shared<ReportArguments>();
  CLI::App* verb = app.add_subcommand("report", "write a self-contained HTML report");
  CLI::Option* files = verb->add_option(
      "FILE", requested->files,
      "a scenario (TOML) or a launch file, several to lay them beside each other, or what plan, capacity, compare or "
      "validate wrote with --json; layout.tensor=4 sets a key in each");
  takes_shipped(*verb, files, examples_shipped);
  add_launch_options(*verb, requested->launch);
  verb->add_option("--measured", requested->measured,
                   "compare the prediction with this memory snapshot or training log")
      ->type_name("FILE");
  verb->add_option("-o,--output", requested->page, "HTML file to write")->capture_default_str()->type_name("FILE");
  verb->add_option("--figures", requested->figures,
                   "put every figure into this folder as SVG, PNG and CSV, tables as CSV and "
                   "Markdown")
      ->type_name("FOLDER");
  verb->add_option(
          "--paper", requested->paper,
          "put every figure into this folder at the widths of a paper's column and page (3.25 and 6.75 inches), "
          "as SVG and PDF, tables for LaTeX, and a BibTeX entry")
      ->type_name("FOLDER");
  verb->add_flag("--cite", requested->cite, "print a BibTeX entry to cite Tidemark, and stop");
  add_json(*verb, requested->json);
  add_quiet(*verb, requested->loudness);
  add_examples(*verb,
               {{"report llama-3.1-8b-8xh100 -o page.html", "open page.html in a browser"},
                {"report llama-3.1-8b-8xh100 llama-3.1-8b-8xh100-zero3 -o both.html --quiet", "compares two jobs"}});
  return {verb, [requested, command] { return run(*requested, command); }, &requested->scenario};
}

}  // namespace tidemark::cli
