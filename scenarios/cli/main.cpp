#include <charconv>
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "scenarios/cli/output.hpp"
#include "scenarios/cli/progress.hpp"
#include "scenarios/io/input_error.hpp"
#include "scenarios/io/scenario_json.hpp"
#include "scenarios/io/scenario_reader.hpp"
#include "scenarios/prediction.hpp"
#include "scenarios/report/explanation.hpp"
#include "scenarios/report/prediction_text.hpp"

// One verb per question. Exit codes: 0 yes, 1 the answer is no, 2 bad input or usage, 3 the machine failed.

namespace tidemark {
namespace {

constexpr int yes = 0, no = 1, bad_input = 2, machine_failed = 3;

struct Arguments {
  std::string scenario;
  std::string json;
  std::int32_t rank = 0;
  std::string at = "peak";
  std::string show = "memory";
  bool all = false;
};

int run_predict(const Arguments& arguments) {
  const Scenario scenario = read_scenario(arguments.scenario, data_root());
  const Prediction prediction = predict(scenario, progress_on_terminal("simulating ranks"));
  answer(prediction_text(prediction), arguments.json, [&] { return prediction_json(prediction); });
  return prediction.fits ? yes : no;
}

AskedMoment asked_moment(const std::string& at) {
  if (at == "peak") return {AskedMoment::Kind::DevicePeak};
  if (at == "allocated") return {AskedMoment::Kind::AllocatedPeak};
  if (at == "end") return {AskedMoment::Kind::End};
  std::size_t op = 0;
  const auto [end, error] = std::from_chars(at.data(), at.data() + at.size(), op);
  if (error != std::errc{} || end != at.data() + at.size())
    throw InputError(Problem{.file = "--at",
                             .message = fmt::format("'{}' is no moment", at),
                             .hint = "peak, allocated, end, or the number of an op as --show program counts them"});
  return {AskedMoment::Kind::OpIndex, op};
}

int run_explain(const Arguments& arguments) {
  const AskedMoment at = asked_moment(arguments.at);
  const Scenario scenario = read_scenario(arguments.scenario, data_root());
  const Rank rank{arguments.rank};
  if (rank.value < 0 || rank.value >= scenario.layout.world_size())
    throw InputError(Problem{.file = "--rank",
                             .message = fmt::format("there is no rank {}", rank.value),
                             .hint = fmt::format("the job has ranks 0 to {}", scenario.layout.world_size() - 1)});
  const Job job(scenario);
  if (arguments.show == "memory") {
    answer(live_text(job, rank, at, arguments.all ? Detail::Everything : Detail::ByRole), arguments.json,
           [&] { return live_json(job, rank, at); });
    return yes;
  }
  if (!arguments.json.empty() && arguments.show != "scenario")
    throw InputError(Problem{.file = "--json",
                             .message = fmt::format("--show {} has no JSON form", arguments.show),
                             .hint = "--show memory and --show scenario have one"});
  const auto shown = [&]() -> std::string {
    if (arguments.show == "scenario") return scenario_json(job.scenario, 2) + '\n';
    if (arguments.show == "model") return model_text(job);
    if (arguments.show == "schedule") return schedule_text(job);
    if (arguments.show == "communicators") return communicators_text(job, rank);
    if (arguments.show == "program") return program_text(job, rank);
    if (arguments.show == "prices") return prices_text(job, rank);
    return timeline_text(job, rank);
  };
  answer(shown(), arguments.json, [&] { return scenario_json(job.scenario, 2) + '\n'; });
  return yes;
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("tidemark: will this training job fit, on every rank, at every moment of the step?", "tidemark");
  app.set_version_flag("--version", TIDEMARK_VERSION);
  app.require_subcommand(1);

  CLI::App* predict = app.add_subcommand("predict", "does it fit, where is the peak on each rank, what is it made of");
  CLI::App* explain = app.add_subcommand("explain", "why: live tensors at a moment, or any stage of the flow as text");
  for (CLI::App* verb : {predict, explain}) {
    verb->add_option("SCENARIO", arguments.scenario, "scenario file (TOML)")->required();
    verb->add_option("--json", arguments.json, "write the answer as JSON to FILE, or '-': then text goes to stderr")
        ->type_name("FILE");
  }
  explain->add_option("--rank", arguments.rank, "rank to look at")->type_name("R");
  explain->add_option("--at", arguments.at, "peak (of device memory), allocated (its peak), end, or an op's number");
  explain->add_flag("--all", arguments.all, "every tensor on its own line, not layers taken together");
  explain->add_option("--show", arguments.show, "what to print")
      ->check(
          CLI::IsMember({"memory", "scenario", "model", "schedule", "communicators", "program", "prices", "timeline"}));

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? yes : bad_input;
  }
  return predict->parsed() ? run_predict(arguments) : run_explain(arguments);
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  try {
    return tidemark::run(argc, argv);
  } catch (const tidemark::InputError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return tidemark::bad_input;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tidemark: {}\n", error.what());
    return tidemark::machine_failed;
  }
}
