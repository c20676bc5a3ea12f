#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/job_request.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/plan/changes/advise.hpp"
#include "scenarios/report/text/advice_text.hpp"
#include "scenarios/report/text/prediction_text.hpp"

namespace tidemark::cli {
namespace {

struct AdviseArguments {
  JobWords words;
  std::string free, json;
  std::optional<std::int64_t> most_changes;
  Loudness loudness;
};

int run(const AdviseArguments& a) {
  AdviseOptions options;
  if (a.most_changes) options.most_changes = static_cast<std::size_t>(*a.most_changes);
  if (!a.free.empty()) options.free = requested_size("--free", a.free);
  JobRequest job = requested_job(a.words);
  keep_room(job.document, job.bounds);
  check_outputs({{"--json", a.json}}, job.files);
  Advice advice = advise(job.document, job.at, job.folders, options, plan_progress_on_terminal(a.loudness));
  advice.space.name = job.scenario.name;
  answer(job.lead() + advice_text(advice), a.json,
         [&] { return with_not_judged(advice_json(advice), job.not_judged); });
  if (!job.not_judged.empty()) return cannot_say;
  return advice.fits || !advice.remedies.empty() ? yes : no;
}

}  // namespace

Verb advise_verb(CLI::App& app) {
  const auto requested = std::make_shared<AdviseArguments>();
  CLI::App* verb = app.add_subcommand("advise", "find the smallest changes that make a job fit, each one simulated");
  add_job(*verb, requested->words, JobSource::FileOrOptions);
  verb->add_option("--free", requested->free, "find changes that free this much, whether or not the job fits")
      ->type_name("SIZE");
  verb->add_option("--changes", requested->most_changes,
                   "largest number of combined changes (default: as few as are enough, up to 3)")
      ->check(CLI::Range(1, 6))
      ->type_name("N");
  add_json(*verb, requested->json);
  add_quiet(*verb, requested->loudness);
  add_examples(*verb, {{"advise llama-3.1-8b-8xh100 --free '20 GiB' --changes 1", "single changes that free 20 GiB"},
                       {"advise seeds/llama-2-7b-bf16 --changes 1", "single changes that make a job fit"}});
  return {verb, [requested] { return run(*requested); }, &requested->words.file};
}

}  // namespace tidemark::cli
