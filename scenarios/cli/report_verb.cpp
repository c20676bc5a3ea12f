#include <memory>
#include <ostream>
#include <string>

#include <fmt/format.h>

#include "scenarios/cli/detail/usage.hpp"
#include "scenarios/cli/detail/verbs.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/output.hpp"
#include "scenarios/cli/progress.hpp"
#include "scenarios/io/output_file.hpp"
#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/io/text_file.hpp"
#include "scenarios/prediction.hpp"
#include "scenarios/report/page/report_page.hpp"
#include "scenarios/report/prediction_text.hpp"

namespace tidemark::cli {
namespace {

struct Asked {
  std::string scenario, page = "report.html", json;
};

int run(const Asked& asked, const std::string& command) {
  const Scenario scenario = read_scenario(asked.scenario, data_root());
  check_outputs({{"--output", asked.page}, {"--json", asked.json}}, files_behind(asked.scenario));
  const Job job(scenario);
  const Trace trace = simulate_time(job);
  const Prediction prediction = predict(job, trace, progress_on_terminal("simulating ranks"));
  const std::string data =
      report_json(job, trace, prediction,
                  {TIDEMARK_VERSION, command, asked.scenario, read_text(std::filesystem::path(asked.scenario))});
  write_file(asked.page, [&](std::ostream& file) { file << report_page(scenario.name, data); });
  answer(verdict_text(prediction) + fmt::format("report: {}\n", asked.page), asked.json, [&] { return data + '\n'; });
  return prediction.fits ? yes : no;
}

}  // namespace

Verb report_verb(CLI::App& app, const std::string& command) {
  const auto asked = std::make_shared<Asked>();
  CLI::App* verb = app.add_subcommand("report", "a page to look at and pass on: one HTML file that needs nothing else");
  verb->add_option("SCENARIO", asked->scenario, "scenario file (TOML)")->required();
  verb->add_option("-o,--output", asked->page, "the page")->capture_default_str()->type_name("FILE");
  add_json(*verb, asked->json);
  return {verb, [asked, command] { return run(*asked, command); }, &asked->scenario};
}

}  // namespace tidemark::cli
