#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "scenarios/cli/detail/job_options.hpp"
#include "scenarios/cli/detail/launch_options.hpp"
#include "scenarios/cli/namespace.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace tidemark::cli {

/// What a question is about: a scenario's file, what files of another framework come to, or what options say without
/// any; with keys set beside it.
struct JobWords {
  std::string file;
  std::vector<std::string> beside;  ///< "layout.tensor=4", and further files of the same training
  LaunchOptions launch;
  LayoutOptions layout = {};  ///< of a job without a file
  std::string verb = {};      ///< that is asked

  [[nodiscard]] std::vector<std::string> overrides() const;  ///< of those beside, the keys to set
  /// The same of a job without a file, whose first word is a key already: without `file`, and with that beside.
  [[nodiscard]] JobWords with_first_key() const;
};
void add_job(CLI::App& verb, JobWords& words, JobSource source = JobSource::File);

/// The same but for the file.
void add_beside(CLI::App& verb, JobWords& words, JobSource source = JobSource::File);

struct JobRequest {
  TomlTable document;
  Scenario scenario;
  std::filesystem::path at;  ///< gives the scenario its name, and is where its problems are
  ScenarioFolders folders;
  std::vector<std::filesystem::path> files;  ///< that were read
  std::string file;                          ///< that has the scenario; empty where none has
  std::vector<std::string> assumed = {};     ///< of what another framework's file does not say
  std::vector<NotJudged> not_judged = {};    ///< of what it says
  std::vector<MemoryBound> bounds = {};      ///< of what it says and is not simulated
  Bytes less = {};                           ///< that all of these may take less than what is simulated in their place

  /// Adds to an answer what a launch file left to assume, what is bounded, and what nobody has judged.
  void complete(Prediction& prediction) const;
  /// What stands before an answer that is no prediction: what is not judged, and what is bounded.
  [[nodiscard]] std::string lead() const;
};

/// Has what is bounded stay free on every device, beside the headroom that a document asks for: for questions that try
/// many jobs.
void keep_room(TomlTable& document, const std::vector<MemoryBound>& bounds);
/// InputError where what says which job it is is not shipped, and where options are given to a file that says what
/// they say.
[[nodiscard]] JobRequest requested_job(const JobWords& words);

}  // namespace tidemark::cli
