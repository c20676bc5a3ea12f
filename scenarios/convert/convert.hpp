#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/convert/draft.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/scenario/scenario.hpp"

// Launch arguments and configurations of training frameworks to scenarios, and back.

namespace tidemark::scenarios {

/// What a training is written down in.
enum class Dialect : std::uint8_t { Scenario, Megatron, TorchTitan, DeepSpeed, Accelerate, TrainingArguments };
/// How they are called: "scenario", "megatron", "torchtitan", "deepspeed", "accelerate", "training-arguments".
[[nodiscard]] std::string_view name(Dialect dialect);
[[nodiscard]] std::optional<Dialect> dialect_named(std::string_view name);
[[nodiscard]] std::vector<std::string> dialect_names();

/// What is to be converted, and what its files do not say.
struct ConvertRequest {
  std::vector<std::filesystem::path> files;            ///< together they say one training
  std::map<std::filesystem::path, std::string> texts;  ///< of files that need not be there
  std::map<std::string, std::string> variables;        ///< of shell scripts, the script's own aside
  std::string model, cluster;                          ///< as a scenario names them; empty: as the files have it
  std::optional<std::int64_t> gpus, sequence_length, micro_batch, global_batch;
  std::filesystem::path data_root;
  std::vector<std::string> overrides = {};  ///< "layout.tensor=4": of the scenario that the files come to
  std::vector<std::string> ignored = {};    ///< names that are not judged, and have no effect
  bool strict = false;                      ///< a name that is not judged is refused
};

struct Converted {
  Dialect from{};
  std::filesystem::path file;  ///< the first of them: gives the scenario its name, and is where its problems are
  TomlTable document;          ///< of a scenario
  std::vector<Remark> remarks;
  KeptArguments kept;   ///< of Megatron's scripts
  bool strict = false;  ///< what is not modelled is refused
  /// A variable that says on how many nodes a script starts, where it stands for one (`${SLURM_NNODES:-1}`).
  std::string nodes_from = {};
  /// Whether something that changes memory or time was left out, or may not have.
  [[nodiscard]] bool lossy() const;
};

/// Sets keys of a document: "layout.tensor=4", "train.precision=fp16". Throws InputError where one is no key and value.
void set_overrides(TomlTable& document, const std::vector<std::string>& overrides);
/// What is wrong with a document in which they are set: each problem of a key that one of them sets is at that one.
[[nodiscard]] InputError placed_at(const std::vector<std::string>& overrides, const InputError& error);
/// Does `read` with a document in which they are set, and places its problems so.
template <class Read>
auto with_overrides(const std::vector<std::string>& overrides, const Read& read) {
  try {
    return read();
  } catch (const InputError& error) {
    throw placed_at(overrides, error);
  }
}
/// Whether a word of a command line is one of those, and no file's name.
[[nodiscard]] bool is_override(const std::string& word);

/// Whether a file is not a scenario itself, by its ending and what it holds.
[[nodiscard]] bool is_foreign(const std::filesystem::path& file);

/// Reads files of any dialect. InputError where one cannot be read at all; what it says and a scenario cannot is among
/// the remarks, and so is why the scenario would not be taken. Names to ignore that are not among them are InputErrors.
[[nodiscard]] Converted convert(const ConvertRequest& requested);

/// The scenario that the files ask for. InputError where what says which job it is was left out, or is not modelled
/// (`leaves_open`). What is not judged is for whoever asks to tell, and its scenario is the job without that.
[[nodiscard]] Scenario scenario_of(const Converted& converted, const std::filesystem::path& data_root);

/// What starts a training.
enum class Launcher : std::uint8_t { Torchrun, Sbatch, Mpirun };

struct Written {
  std::string text;             ///< the file
  std::string launch;           ///< the line that starts it; empty where the file has it
  std::vector<Remark> remarks;  ///< what it cannot say
};
/// A scenario in another dialect. What of it comes back different when it is read again is among the remarks.
/// `kept`: what a script of the same framework said beside it.
[[nodiscard]] Written written(const Scenario& scenario, Dialect dialect, Launcher launcher, const std::string& model,
                              const std::string& cluster, const std::filesystem::path& data_root,
                              const KeptArguments& kept = {});

}  // namespace tidemark::scenarios
