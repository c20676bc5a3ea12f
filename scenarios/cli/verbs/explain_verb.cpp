#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/deadlocks.hpp"
#include "scenarios/cli/detail/job_request.hpp"
#include "scenarios/cli/detail/timeline_options.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/report/explanation.hpp"
#include "scenarios/report/text/fabric_text.hpp"
#include "scenarios/report/text/kernels_text.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "scenarios/report/text/time_text.hpp"
#include "sim/clock/summary.hpp"

namespace tidemark::cli {
namespace {

struct ExplainArguments {
  JobWords words;
  std::string json;
  TimelineOptions picked;
  std::optional<std::string> at;
  std::string show = "memory";
  bool all = false;
  Loudness loudness;
};

RequestedMoment requested_moment(const std::string& at) {
  if (at == "peak") return {RequestedMoment::Kind::DevicePeak};
  if (at == "allocated") return {RequestedMoment::Kind::AllocatedPeak};
  if (at == "host") return {RequestedMoment::Kind::HostPeak};
  if (at == "end") return {RequestedMoment::Kind::End};
  std::size_t op = 0;
  const auto [end, error] = std::from_chars(at.data(), at.data() + at.size(), op);
  if (error != std::errc{} || end != at.data() + at.size())
    refuse("--at", fmt::format("'{}' is not a moment", at),
           "peak, allocated, host, end, or the number of an op as --show program counts them");
  return {RequestedMoment::Kind::OpIndex, op};
}

int show_timeline(const ExplainArguments& requested, const JobRequest& source, const std::vector<Rank>& ranks) {
  const Scenario& scenario = source.scenario;
  TimelineQuery query = requested.picked.query(scenario);
  query.ranks = ranks;
  const Job job(scenario);
  const Trace trace = simulate_time(job, query.links);
  if (deadlocks(job, trace)) return no;
  // Only what goes out: a timeline can be long.
  if (requested.json == "-")
    answer("", "-", [&] { return timeline(job, trace, query, TimelineFormat::JsonLines); });
  else if (!requested.json.empty())
    write_file(requested.json, [&](std::ostream& file) { write_timeline(file, job, trace, query); });
  if (requested.json != "-") answer(source.lead() + timeline(job, trace, query, TimelineFormat::Table), "", {});
  return source.not_judged.empty() ? yes : cannot_say;
}

// Throws InputError where something is given that makes no difference.
void refuse_idle_options(const ExplainArguments& requested) {
  const auto idle = [&](std::string option, std::string hint) {
    refuse(std::move(option), fmt::format("--show {} does not depend on it", requested.show), std::move(hint));
  };
  constexpr std::array<std::string_view, 5> of_all_ranks{"scenario", "model", "schedule", "time", "fabric"};
  if (requested.at && requested.show != "memory") idle("--at", "leave it out, or leave --show out");
  if (requested.all && requested.show != "memory") idle("--all", "leave it out, or leave --show out");
  if (requested.picked.ranks && std::ranges::find(of_all_ranks, requested.show) != of_all_ranks.end())
    idle("--rank", "leave it out: it shows all ranks at once");
}

int run(const ExplainArguments& requested) {
  const RequestedMoment at = requested_moment(requested.at.value_or("peak"));
  refuse_idle_options(requested);
  const LinkModel links = requested_link_model(requested.picked.link_model);
  if (requested.show != "timeline") requested.picked.refuse_filters("--show timeline shows one");
  if (links != LinkModel::MaxMin && requested.show != "timeline")
    refuse("--link-model", fmt::format("--show {} does not depend on it", requested.show),
           "leave it out, or ask for --show timeline");
  const JobRequest source = requested_job(requested.words);
  const Scenario& scenario = source.scenario;
  const std::string lead = source.lead();
  const int code = source.not_judged.empty() ? yes : cannot_say;
  const std::vector<Rank> ranks = requested_ranks(requested.picked.ranks.value_or("0"), scenario);
  check_outputs({{"--json", requested.json}}, source.files);
  if (requested.show == "timeline") return show_timeline(requested, source, ranks);
  if (ranks.size() > 1)
    refuse("--rank", fmt::format("--show {} looks at one rank", requested.show), "--show timeline takes several");
  if (!requested.json.empty() && requested.show != "scenario" && requested.show != "memory")
    refuse("--json", fmt::format("--show {} has no JSON form", requested.show),
           "--show memory, --show scenario and --show timeline have one");
  if (requested.show == "model") {
    answer(lead + model_text(scenario), "", {});
    return code;
  }
  const Job job(scenario);
  // Numbers of ops are those of rank 0's program where no rank is named.
  const bool fullest =
      requested.show == "memory" && !requested.picked.ranks && at.kind != RequestedMoment::Kind::OpIndex;
  const Rank rank = fullest ? fullest_rank(job, at.kind, progress_on_terminal("simulating ranks", requested.loudness))
                            : ranks.front();
  if (requested.show == "memory") {
    answer(lead + live_text(job, rank, at, requested.all ? Detail::Everything : Detail::ByRole), requested.json,
           [&] { return with_not_judged(live_json(job, rank, at), source.not_judged); });
    return code;
  }
  Trace trace;
  if (requested.show == "fabric" || requested.show == "time") trace = simulate_time(job);
  if (deadlocks(job, trace)) return no;
  const auto shown = [&]() -> std::string {
    if (requested.show == "scenario") return scenario_json(job.scenario, 2) + '\n';
    if (requested.show == "schedule") return schedule_text(job);
    if (requested.show == "communicators") return communicators_text(job, rank);
    if (requested.show == "program") return program_text(job, rank);
    if (requested.show == "prices") return costs_text(job, rank);
    if (requested.show == "kernels") return kernels_text(job, rank);
    if (requested.show == "time") return time_text(job, trace);
    return fabric_text(job, last_step(trace));
  };
  answer(requested.show == "scenario" ? shown() : lead + shown(), requested.json,
         [&] { return with_not_judged(scenario_json(job.scenario, 2) + '\n', source.not_judged); });
  return code;
}

}  // namespace

Verb explain_verb(CLI::App& app) {
  const auto requested = std::make_shared<ExplainArguments>();
  CLI::App* verb =
      app.add_subcommand("explain", "list the live tensors at a moment, or print any stage of the simulation as text");
  add_job(*verb, requested->words, JobSource::FileOrOptions);
  add_json(*verb, requested->json);
  add_quiet(*verb, requested->loudness);
  add_timeline_options(*verb, requested->picked,
                       "rank to show (default: the fullest for memory, otherwise 0); a timeline takes several");
  verb->add_option("--at", requested->at,
                   "peak (of device memory), allocated (its peak), host (its peak), end, or the number of an op");
  verb->add_flag("--all", requested->all, "print every tensor on its own line; do not group layers");
  const std::vector<std::string> shown{"memory", "scenario", "model", "schedule", "communicators", "program",
                                       "prices", "kernels",  "time",  "fabric",   "timeline"};
  verb->add_option("--show", requested->show, fmt::format("what to print: {}", fmt::join(shown, ", ")))
      ->check(CLI::IsMember(shown))
      ->option_text("WHAT");
  add_examples(*verb, {{"explain llama-3.1-70b-64xh100", "the live tensors of the fullest GPU at its peak"},
                       {"explain llama-3.1-8b-8xh100 --at end --all", "every live tensor after the last step"},
                       {"explain llama-3.1-70b-64xh100 --show schedule",
                        "the pipeline schedule: which rank runs which micro-batch when"}});
  return {verb, [requested] { return run(*requested); }, &requested->words.file};
}

}  // namespace tidemark::cli
