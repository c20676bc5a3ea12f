#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/execute/gpu/device_place.hpp"
#include "kernels/execute/gpu/device_ranks.hpp"
#include "kernels/execute/gpu/nccl_world.hpp"
#include "kernels/execute/process_memory.hpp"
#include "kernels/execute/world/mpi_world.hpp"
#include "kernels/math/engine/device_calculator.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/report/math_report.hpp"
#include "scenarios/validate/arithmetic/check_math.hpp"

// tidemark_gpu_math SCENARIO --data FOLDER [--results FILE] [--time-limit SECONDS]: trains the scenario's model on the
// GPUs of this machine, and on one rank of the host. Under mpirun its ranks are mpirun's; otherwise it forks them. Exit
// codes are tidemark's.

namespace tidemark::scenarios {
namespace {

constexpr int yes = 0, no = 1, bad_input = 2, machine_failed = 3;

struct Arguments {
  std::string scenario, data, results;
  std::int64_t time_limit = 120;
};

void report(const std::vector<MathCheck>& checks, std::int32_t devices, const Arguments& arguments) {
  const bool agree = std::ranges::all_of(checks, &MathCheck::agrees);
  fmt::print("{}: on {} GPU{}, losses and gradients are {}those of one rank on the host\n", agree ? "yes" : "NO",
             devices, devices == 1 ? "" : "s", agree ? "" : "not ");
  nlohmann::ordered_json math = nlohmann::ordered_json::array();
  for (const MathCheck& check : checks) {
    fmt::print("{}", math_text(check));
    math.push_back(nlohmann::ordered_json::parse(math_json(check)));
  }
  if (arguments.results.empty()) return;
  const nlohmann::ordered_json record{{"schema", "tidemark.math/1"},
                                      {"job", std::filesystem::path(arguments.scenario).stem().string()},
                                      {"agrees", agree},
                                      {"back_end", "cuda"},
                                      {"devices", devices},
                                      {"machine", execute::machine_description()},
                                      {"math", std::move(math)}};
  write_file(arguments.results, [&](std::ostream& out) { out << record.dump(2) << '\n'; });
}

int run_rank(World& world, const Scenario& scenario, const Arguments& arguments) {
  const execute::Place place = execute::take_place(world);
  const std::unique_ptr<math::Calculator> calculator = math::device_calculator(place.device);
  std::unique_ptr<World> messages;
  if (world.size() > 1) messages = execute::nccl_world(world, std::chrono::seconds(arguments.time_limit));
  std::vector<MathCheck> checks;
  for (const math::Storage storage : {math::Storage::Wide, math::Storage::Native})
    checks.push_back(check_math(scenario, world, storage, {*calculator, messages ? *messages : world}));
  std::string verdict;
  if (world.rank().value == 0) {
    verdict = std::ranges::all_of(checks, &MathCheck::agrees) ? "yes" : "no";
    report(checks, std::min(place.devices, world.size()), arguments);
  }
  return world.broadcast(verdict) == "yes" ? yes : no;
}

std::optional<Arguments> arguments_of(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--results" && i + 1 < argc) {
      arguments.results = argv[++i];
    } else if (word == "--data" && i + 1 < argc) {
      arguments.data = argv[++i];
    } else if (word == "--time-limit" && i + 1 < argc) {
      const std::string_view number = argv[++i];
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), arguments.time_limit);
      if (error != std::errc{} || arguments.time_limit < 1) return std::nullopt;
    } else if (arguments.scenario.empty() && !word.starts_with('-')) {
      arguments.scenario = word;
    } else {
      return std::nullopt;
    }
  }
  if (arguments.scenario.empty() || arguments.data.empty()) return std::nullopt;
  return arguments;
}

int run(int argc, char** argv) {
  const std::optional<Arguments> arguments = arguments_of(argc, argv);
  if (!arguments) {
    fmt::print(stderr, "usage: tidemark_gpu_math SCENARIO --data FOLDER [--results FILE] [--time-limit SECONDS]\n");
    return bad_input;
  }
  const Scenario scenario = read_scenario(arguments->scenario, arguments->data);
  if (const std::string beyond = beyond_arithmetic(resolved_scenario(scenario)); !beyond.empty()) {
    fmt::print(stderr, "{}: error: --math does not follow {}\n", arguments->scenario,
               beyond.substr(0, beyond.find('\n')));
    return bad_input;
  }
  return execute::run_device_ranks("tidemark_gpu_math", scenario.gpus, std::chrono::seconds(arguments->time_limit),
                                   [&](World& world) { return run_rank(world, scenario, *arguments); });
}

}  // namespace
}  // namespace tidemark::scenarios

int main(int argc, char** argv) {
  try {
    return tidemark::scenarios::run(argc, argv);
  } catch (const tidemark::scenarios::InputError& error) {
    fmt::print(stderr, "{}\n", error.what());
    return tidemark::scenarios::bad_input;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tidemark_gpu_math: {}\n", error.what());
    return tidemark::scenarios::machine_failed;
  }
}
