#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/plan/space.hpp"

namespace tidemark::cli {

/// What `plan` was asked.
struct PlanArguments {
  std::string scenario;  ///< file with a base and perhaps a [space]; empty: the next five say it
  std::string model, cluster;
  std::int64_t gpus = 0, sequence = 0, global_batch = 0;
  std::string headroom;
  std::string json, csv;
  std::int64_t top = 10;
  bool show_space = false;
  std::string journal;
  std::string write_scenarios;      ///< folder
  std::vector<std::int64_t> why{};  ///< two candidates
  std::vector<std::string> with{};  ///< axes beyond the space
};

/// What `advise` and `capacity` were asked.
struct AdviseArguments {
  std::string scenario, free, json;
  std::int64_t most_changes = 3;
};
struct CapacityArguments {
  std::string study, json, csv;
};

/// Throws InputError where the space has no candidate at all: nothing was searched.
void refuse_no_candidates(const Space& space, const std::string& file);
/// Models and clusters that its candidates read, whichever axes name them.
[[nodiscard]] std::vector<std::filesystem::path> files_read(const Space& space);

CLI::App* add_plan(CLI::App& app, PlanArguments& arguments);
CLI::App* add_advise(CLI::App& app, AdviseArguments& arguments);
CLI::App* add_capacity(CLI::App& app, CapacityArguments& arguments);
/// The exit code.
int run_plan(const PlanArguments& arguments);
int run_advise(const AdviseArguments& arguments);
int run_capacity(const CapacityArguments& arguments);

}  // namespace tidemark::cli
