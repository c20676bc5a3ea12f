#pragma once

#include <functional>
#include <string>

#include <CLI/CLI.hpp>

#include "scenarios/cli/namespace.hpp"

// One verb for each question, one file for each verb: NAME_verb.cpp declares its options and answers.

namespace tidemark::cli {

struct Verb {
  CLI::App* app = nullptr;                ///< its part of the command line
  std::function<int()> run;               ///< the exit code
  const std::string* scenario = nullptr;  ///< the file that it was asked about; nothing where problems name it
};

[[nodiscard]] Verb predict_verb(CLI::App& app);
[[nodiscard]] Verb explain_verb(CLI::App& app);
[[nodiscard]] Verb compare_verb(CLI::App& app);
/// `command`: the whole line, which its record holds.
[[nodiscard]] Verb validate_verb(CLI::App& app, const std::string& command);
[[nodiscard]] Verb calibrate_verb(CLI::App& app);
[[nodiscard]] Verb replay_verb(CLI::App& app);
[[nodiscard]] Verb plan_verb(CLI::App& app);
[[nodiscard]] Verb advise_verb(CLI::App& app);
[[nodiscard]] Verb capacity_verb(CLI::App& app);
[[nodiscard]] Verb dry_run_verb(CLI::App& app);
[[nodiscard]] Verb estimate_verb(CLI::App& app);
[[nodiscard]] Verb capture_verb(CLI::App& app);
[[nodiscard]] Verb convert_verb(CLI::App& app);
[[nodiscard]] Verb list_verb(CLI::App& app);
[[nodiscard]] Verb serve_verb(CLI::App& app);
[[nodiscard]] Verb completion_verb(CLI::App& app);
/// `command`: the whole line, which the page shows.
[[nodiscard]] Verb report_verb(CLI::App& app, const std::string& command);

}  // namespace tidemark::cli
