#include <algorithm>
#include <filesystem>
#include <optional>
#include <ostream>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/plan_verbs.hpp"
#include "scenarios/cli/output.hpp"
#include "scenarios/cli/progress.hpp"
#include "scenarios/io/output_file.hpp"
#include "scenarios/io/text_file.hpp"
#include "scenarios/plan/advise.hpp"
#include "scenarios/plan/capacity.hpp"
#include "scenarios/report/advice_text.hpp"

namespace tidemark::cli {
namespace {

constexpr int yes = 0, no = 1;

}  // namespace

CLI::App* add_advise(CLI::App& app, AdviseArguments& a) {
  CLI::App* advise =
      app.add_subcommand("advise", "it does not fit: the smallest changes that make it fit, each simulated");
  advise->add_option("SCENARIO", a.scenario, "scenario file (TOML)")->required();
  advise->add_option("--free", a.free, "not to fit, but to hold so much less than now")->type_name("SIZE");
  advise->add_option("--changes", a.most_changes, "at most so many at once")->check(CLI::Range(1, 6))->type_name("N");
  advise->add_option("--json", a.json, "write the answer as JSON to FILE, or '-': then text goes to stderr")
      ->type_name("FILE");
  return advise;
}

int run_advise(const AdviseArguments& a) {
  const std::filesystem::path path(a.scenario);
  AdviseOptions options{.most_changes = static_cast<std::size_t>(a.most_changes), .free = {}};
  if (!a.free.empty()) options.free = asked_size("--free", a.free);
  check_outputs({{"--json", a.json}}, files_behind(a.scenario));
  const Advice advice = advise(parse_toml(read_text(path), path.string()), path, {path.parent_path(), data_root()},
                               options, plan_progress_on_terminal());
  answer(advice_text(advice), a.json, [&] { return advice_json(advice); });
  return advice.fits || !advice.remedies.empty() ? yes : no;
}

CLI::App* add_capacity(CLI::App& app, CapacityArguments& a) {
  CLI::App* capacity = app.add_subcommand("capacity", "how far it goes: the largest value of an axis that fits");
  capacity->add_option("STUDY", a.study, "scenario file (TOML) with tables [space] and [capacity]")->required();
  capacity->add_option("--json", a.json, "write the answer as JSON to FILE, or '-': then text goes to stderr")
      ->type_name("FILE");
  capacity->add_option("--csv", a.csv, "write the frontier to FILE")->type_name("FILE");
  return capacity;
}

int run_capacity(const CapacityArguments& a) {
  const Study study = read_study(a.study, data_root());
  std::vector<std::filesystem::path> inputs = files_read(study.space);
  inputs.emplace_back(a.study);
  check_outputs({{"--json", a.json}, {"--csv", a.csv}}, inputs);
  const std::vector<Limit> found = limits(study, plan_progress_on_terminal());
  const auto says_something = [](const Limit& limit) { return limit.largest || limit.next; };
  if (std::none_of(found.begin(), found.end(), says_something)) refuse_no_candidates(study.space, a.study);
  if (!a.csv.empty()) write_file(a.csv, [&](std::ostream& file) { file << capacity_csv(study, found); });
  answer(capacity_text(study, found), a.json, [&] { return capacity_json(study, found); });
  for (const Limit& limit : found)
    if (limit.largest) return yes;
  return no;
}

}  // namespace tidemark::cli
