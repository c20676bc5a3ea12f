#include <memory>
#include <string>

#include "scenarios/cli/detail/job_request.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/estimate/envelope.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/report/text/prediction_text.hpp"

namespace tidemark::cli {
namespace {

struct EstimateArguments {
  JobWords words;
  std::string json;
  Loudness loudness;
};

int run(const EstimateArguments& requested) {
  const JobRequest job = requested_job(requested.words);
  check_outputs({{"--json", requested.json}}, job.files);
  Envelope found = envelope(job.scenario, progress_on_terminal("simulating ranks", requested.loudness));
  job.complete(found.prediction);
  answer(envelope_text(found), requested.json, [&] { return with_not_judged(envelope_json(found), job.not_judged); });
  return found.prediction.fits ? yes : found.prediction.open ? cannot_say : no;
}

}  // namespace

Verb estimate_verb(CLI::App& app) {
  const auto requested = std::make_shared<EstimateArguments>();
  CLI::App* verb =
      app.add_subcommand("estimate", "compare common rules of thumb with the simulation, and explain the differences");
  add_job(*verb, requested->words, JobSource::FileOrOptions);
  add_json(*verb, requested->json);
  add_quiet(*verb, requested->loudness);
  add_examples(*verb, {{"estimate llama-3.1-70b-64xh100", "compares rules of thumb with the simulation"},
                       {"estimate seeds/llama-2-7b-bf16 --json estimate.json", "the same as JSON for scripts"}});
  return {verb, [requested] { return run(*requested); }, &requested->words.file};
}

}  // namespace tidemark::cli
