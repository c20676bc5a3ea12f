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
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/detail/timeline_options.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/progress.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/report/explanation.hpp"
#include "scenarios/report/text/fabric_text.hpp"
#include "scenarios/report/text/kernels_text.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "scenarios/report/text/time_text.hpp"
#include "sim/clock/summary.hpp"

namespace tidemark::cli {
namespace {

struct AskedToExplain {
  JobWords words;
  std::string json;
  TimelineOptions picked;
  std::optional<std::string> at;
  std::string show = "memory";
  bool all = false;
  Loudness loudness;
};

AskedMoment asked_moment(const std::string& at) {
  if (at == "peak") return {AskedMoment::Kind::DevicePeak};
  if (at == "allocated") return {AskedMoment::Kind::AllocatedPeak};
  if (at == "host") return {AskedMoment::Kind::HostPeak};
  if (at == "end") return {AskedMoment::Kind::End};
  std::size_t op = 0;
  const auto [end, error] = std::from_chars(at.data(), at.data() + at.size(), op);
  if (error != std::errc{} || end != at.data() + at.size())
    refuse("--at", fmt::format("'{}' is no moment", at),
           "peak, allocated, host, end, or the number of an op as --show program counts them");
  return {AskedMoment::Kind::OpIndex, op};
}

int show_timeline(const AskedToExplain& asked, const AskedJob& source, const std::vector<Rank>& ranks) {
  const Scenario& scenario = source.scenario;
  TimelineQuery query = asked.picked.query(scenario);
  query.ranks = ranks;
  const Job job(scenario);
  const Trace trace = simulate_time(job, query.links);
  if (deadlocks(job, trace)) return no;
  // Only what goes out: a timeline can be long.
  if (asked.json == "-")
    answer("", "-", [&] { return timeline(job, trace, query, TimelineFormat::JsonLines); });
  else if (!asked.json.empty())
    write_file(asked.json, [&](std::ostream& file) { write_timeline(file, job, trace, query); });
  if (asked.json != "-")
    answer(not_judged_text(source.not_judged) + timeline(job, trace, query, TimelineFormat::Table), "", {});
  return source.not_judged.empty() ? yes : cannot_say;
}

// Throws InputError where something is given that makes no difference.
void refuse_idle_options(const AskedToExplain& asked) {
  const auto idle = [&](std::string option, std::string hint) {
    refuse(std::move(option), fmt::format("--show {} does not depend on it", asked.show), std::move(hint));
  };
  constexpr std::array<std::string_view, 5> of_all_ranks{"scenario", "model", "schedule", "time", "fabric"};
  if (asked.at && asked.show != "memory") idle("--at", "leave it out, or leave --show out");
  if (asked.all && asked.show != "memory") idle("--all", "leave it out, or leave --show out");
  if (asked.picked.ranks && std::ranges::find(of_all_ranks, asked.show) != of_all_ranks.end())
    idle("--rank", "leave it out: it shows all ranks at once");
}

int run(const AskedToExplain& asked) {
  const AskedMoment at = asked_moment(asked.at.value_or("peak"));
  refuse_idle_options(asked);
  const LinkModel links = asked_link_model(asked.picked.link_model);
  if (asked.show != "timeline") asked.picked.refuse_filters("--show timeline shows one");
  if (links != LinkModel::MaxMin && asked.show != "timeline")
    refuse("--link-model", fmt::format("--show {} does not depend on it", asked.show),
           "leave it out, or ask for --show timeline");
  const AskedJob source = asked_job(asked.words);
  const Scenario& scenario = source.scenario;
  const std::string lead = not_judged_text(source.not_judged);
  const int code = source.not_judged.empty() ? yes : cannot_say;
  const std::vector<Rank> ranks = asked_ranks(asked.picked.ranks.value_or("0"), scenario);
  check_outputs({{"--json", asked.json}}, source.files);
  if (asked.show == "timeline") return show_timeline(asked, source, ranks);
  if (ranks.size() > 1)
    refuse("--rank", fmt::format("--show {} looks at one rank", asked.show), "--show timeline takes several");
  if (!asked.json.empty() && asked.show != "scenario" && asked.show != "memory")
    refuse("--json", fmt::format("--show {} has no JSON form", asked.show),
           "--show memory, --show scenario and --show timeline have one");
  if (asked.show == "model") {
    answer(lead + model_text(scenario), "", {});
    return code;
  }
  const Job job(scenario);
  // Numbers of ops are those of rank 0's program where no rank is named.
  const bool fullest = asked.show == "memory" && !asked.picked.ranks && at.kind != AskedMoment::Kind::OpIndex;
  const Rank rank =
      fullest ? fullest_rank(job, at.kind, progress_on_terminal("simulating ranks", asked.loudness)) : ranks.front();
  if (asked.show == "memory") {
    answer(lead + live_text(job, rank, at, asked.all ? Detail::Everything : Detail::ByRole), asked.json,
           [&] { return with_not_judged(live_json(job, rank, at), source.not_judged); });
    return code;
  }
  Trace trace;
  if (asked.show == "fabric" || asked.show == "time") trace = simulate_time(job);
  if (deadlocks(job, trace)) return no;
  const auto shown = [&]() -> std::string {
    if (asked.show == "scenario") return scenario_json(job.scenario, 2) + '\n';
    if (asked.show == "schedule") return schedule_text(job);
    if (asked.show == "communicators") return communicators_text(job, rank);
    if (asked.show == "program") return program_text(job, rank);
    if (asked.show == "prices") return prices_text(job, rank);
    if (asked.show == "kernels") return kernels_text(job, rank);
    if (asked.show == "time") return time_text(job, trace);
    return fabric_text(job, last_step(trace));
  };
  answer(asked.show == "scenario" ? shown() : lead + shown(), asked.json,
         [&] { return with_not_judged(scenario_json(job.scenario, 2) + '\n', source.not_judged); });
  return code;
}

}  // namespace

Verb explain_verb(CLI::App& app) {
  const auto asked = std::make_shared<AskedToExplain>();
  CLI::App* verb = app.add_subcommand("explain", "why: live tensors at a moment, or any stage of the flow as text");
  add_job(*verb, asked->words);
  add_json(*verb, asked->json);
  add_quiet(*verb, asked->loudness);
  add_timeline_options(*verb, asked->picked,
                       "rank to look at (default: of memory, the fullest; of all else 0); a timeline takes several");
  verb->add_option(
      "--at", asked->at,
      "peak (of device memory), allocated (its peak), host (the peak of its memory), end, or an op's number");
  verb->add_flag("--all", asked->all, "every tensor on its own line, not layers taken together");
  const std::vector<std::string> shown{"memory", "scenario", "model", "schedule", "communicators", "program",
                                       "prices", "kernels",  "time",  "fabric",   "timeline"};
  verb->add_option("--show", asked->show, fmt::format("what to print: {}", fmt::join(shown, ", ")))
      ->check(CLI::IsMember(shown))
      ->option_text("WHAT");
  add_examples(*verb,
               {{"explain llama-3.1-70b-64xh100", "what lives on the fullest device when it is fullest, and why"},
                {"explain llama-3.1-8b-8xh100 --at end --all", "every tensor after the last step"},
                {"explain llama-3.1-70b-64xh100 --show schedule", "who computes which micro-batch when"}});
  return {verb, [asked] { return run(*asked); }, &asked->words.file};
}

}  // namespace tidemark::cli
