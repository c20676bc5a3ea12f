#include <algorithm>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/plan/capacity.hpp"
#include "scenarios/plan/space/space_files.hpp"
#include "scenarios/report/text/advice_text.hpp"

namespace tidemark::cli {
namespace {

struct CapacityArguments {
  std::string study, json, csv;
  Loudness loudness;
};

int run(const CapacityArguments& a) {
  const Study study = read_study(a.study, data_root());
  std::vector<std::filesystem::path> inputs = files_read(study.space);
  inputs.emplace_back(a.study);
  check_outputs({{"--json", a.json}, {"--csv", a.csv}}, inputs);
  const std::vector<Limit> found = limits(study, plan_progress_on_terminal(a.loudness));
  const auto says_something = [](const Limit& limit) { return limit.largest || limit.next; };
  if (std::none_of(found.begin(), found.end(), says_something)) refuse_no_candidates(study.space, a.study);
  if (!a.csv.empty()) write_file(a.csv, [&](std::ostream& file) { file << capacity_csv(study, found); });
  answer(capacity_text(study, found), a.json, [&] { return capacity_json(study, found); });
  for (const Limit& limit : found)
    if (limit.largest) return yes;
  return no;
}

}  // namespace

Verb capacity_verb(CLI::App& app) {
  const auto requested = std::make_shared<CapacityArguments>();
  CLI::App* verb = app.add_subcommand("capacity", "how far it goes: the largest value of an axis that fits");
  takes_shipped(
      *verb,
      verb->add_option("STUDY", requested->study,
                       "scenario file (TOML) with tables [space] and [capacity], or the name of one that comes "
                       "along (tidemark list studies)"),
      studies_shipped)
      ->required();
  add_json(*verb, requested->json);
  add_quiet(*verb, requested->loudness);
  verb->add_option("--csv", requested->csv, "write the frontier to FILE")->type_name("FILE");
  add_examples(*verb, {{"capacity longest-sequence-8xh100",
                        "a study that is shipped; copy its file from scenarios/studies and change it"},
                       {"capacity longest-sequence-8xh100 --csv frontier.csv", "the frontier as a table"}});
  return {verb, [requested] { return run(*requested); }, nullptr};
}

}  // namespace tidemark::cli
