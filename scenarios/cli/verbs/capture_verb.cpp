#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/dry_run/child_process.hpp"
#include "scenarios/cli/dry_run/dry_runs.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/formats/shell_quoted.hpp"

// Runs a launch script with stand-ins for what starts trainings, which start nothing and write down what they were
// given: for scripts that only running them can read.

namespace tidemark::cli {
namespace {

struct CaptureArguments {
  std::vector<std::string> command;
  std::string output;
  std::int64_t time_limit = 60;
};

constexpr auto stood_in = std::to_array<std::string_view>(
    {"torchrun", "deepspeed", "accelerate", "srun", "mpirun", "mpiexec", "sbatch", "python", "python3"});

// What a stand-in does: a folder of its own for each call, in their order, with words, folder and variables.
constexpr const char* stand_in =
    "#!/bin/sh\n"
    "n=1\n"
    "while ! mkdir \"$TIDEMARK_CAPTURE/$n\" 2>/dev/null; do\n"
    "  n=$((n + 1))\n"
    "  [ $n -gt 9999 ] && exit 1\n"
    "done\n"
    "printf '%s\\0' \"${0##*/}\" \"$@\" > \"$TIDEMARK_CAPTURE/$n/words\"\n"
    "pwd > \"$TIDEMARK_CAPTURE/$n/folder\"\n"
    "env -0 > \"$TIDEMARK_CAPTURE/$n/variables\"\n";

struct Call {
  std::vector<std::string> words;
  std::string folder;
  std::map<std::string, std::string> variables;
};

std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::string> between_nulls(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\0', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::vector<Call> calls_in(const std::filesystem::path& folder) {
  std::vector<Call> calls;
  for (int n = 1; std::filesystem::is_directory(folder / std::to_string(n)); ++n) {
    const std::filesystem::path its = folder / std::to_string(n);
    Call call{between_nulls(content(its / "words")), content(its / "folder"), {}};
    if (call.folder.ends_with('\n')) call.folder.pop_back();
    for (const std::string& variable : between_nulls(content(its / "variables")))
      if (const std::size_t sign = variable.find('='); sign != std::string::npos)
        call.variables[variable.substr(0, sign)] = variable.substr(sign + 1);
    if (!call.words.empty()) calls.push_back(std::move(call));
  }
  return calls;
}

// Variables that the script set, and those of the caller's own that frameworks look at.
bool was_said(const std::string& name, const std::string& value, const std::map<std::string, std::string>& own) {
  constexpr auto of_shells = std::to_array<std::string_view>(
      {"PATH", "PWD", "OLDPWD", "SHLVL", "_", "TIDEMARK_CAPTURE", "LS_COLORS", "BASH_ENV", "ENV"});
  if (std::ranges::find(of_shells, name) != of_shells.end() || name.starts_with("BASH_FUNC_")) return false;
  for (const std::string_view prefix : {"NCCL_", "NVTE_", "CUBLAS_", "CUDA_", "PYTORCH_", "TORCH_"})
    if (name.starts_with(prefix)) return true;
  const auto found = own.find(name);
  return found == own.end() || found->second != value;
}

// python -c '…' and python -m pip ask and install: what they would have printed is what the script goes on without.
bool may_launch(const Call& call) {
  if (call.words.size() < 2) return false;
  if (!call.words.front().starts_with("python")) return true;
  const std::string& first = call.words[1];
  return first != "-c" && first != "-" && first != "--version" && first != "-V" &&
         !(first == "-m" && call.words.size() > 2 && (call.words[2] == "pip" || call.words[2] == "venv"));
}

std::string script_of(const std::vector<Call>& calls, const std::string& command,
                      const std::map<std::string, std::string>& own) {
  std::string text = fmt::format("#!/bin/bash\n# What this started, by tidemark capture: {}\n", command);
  for (const Call& call : calls) {
    text += '\n';
    if (!call.folder.empty()) text += fmt::format("# in {}\n", call.folder);
    for (const auto& [name, value] : call.variables)
      if (was_said(name, value, own)) text += fmt::format("export {}={}\n", name, scenarios::shell_quoted(value));
    for (std::size_t i = 0; i < call.words.size(); ++i)
      text += (i == 0 ? "" : " ") + scenarios::shell_quoted(call.words[i]);
    text += '\n';
  }
  return text;
}

void make_stand_ins(const std::filesystem::path& folder) {
  std::filesystem::create_directory(folder);
  for (const std::string_view name : stood_in) {
    const std::filesystem::path file = folder / name;
    std::ofstream(file) << stand_in;
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
}

int run(const CaptureArguments& requested) {
  if (requested.time_limit < 1) refuse("--timeout", "is not a valid time limit", "seconds, from 1 on");
  check_outputs({{"--output", requested.output}}, {});
  const std::string command = fmt::format("{}", fmt::join(requested.command, " "));
  complain(
      fmt::format("runs {}: stand-ins replace {} and start nothing.\nThe script does everything else for real: "
                  "programs that it calls by an absolute path or with a PATH of its own are not replaced, and what it "
                  "installs, writes or deletes stays.",
                  command, fmt::join(stood_in, ", ")));
  const TemporaryFolder folder;
  make_stand_ins(folder.path() / "bin");
  const std::filesystem::path calls_folder = folder.path() / "calls";
  std::filesystem::create_directory(calls_folder);
  const std::map<std::string, std::string> own = own_environment();
  Child child{requested.command, own, {}, std::chrono::seconds(requested.time_limit)};
  const auto path = own.find("PATH");
  child.environment["PATH"] =
      (folder.path() / "bin").string() + (path == own.end() ? std::string() : ":" + path->second);
  child.environment["TIDEMARK_CAPTURE"] = calls_folder.string();
  const ChildEnd end = run_child(child, [&] { folder.remove(); });
  std::vector<Call> calls = calls_in(calls_folder);
  const std::size_t all = calls.size();
  std::erase_if(calls, [](const Call& call) { return !may_launch(call); });
  if (end.took_too_long)
    complain(fmt::format("it was stopped after {} s; raise the limit with --timeout", requested.time_limit));
  else if (end.status != 0)
    complain(fmt::format("it ended with {}", end.status));
  if (all > calls.size())
    complain(fmt::format("{} of python's printed nothing, where their output was expected", all - calls.size()));
  if (calls.empty()) {
    complain("it started no program that a stand-in replaces: programs called by an absolute path are not replaced");
    return no;
  }
  const std::string script = script_of(calls, command, own);
  if (requested.output.empty()) {
    answer(script, "", {});
    return yes;
  }
  write_file(requested.output, [&](std::ostream& file) { file << script; });
  answer(fmt::format("{} written down in {}\nnext: tidemark predict {} --cluster NAME\n",
                     calls.size() == 1 ? std::string("a command is") : fmt::format("{} commands are", calls.size()),
                     requested.output, requested.output),
         "", {});
  return yes;
}

}  // namespace

Verb capture_verb(CLI::App& app) {
  const auto requested = std::make_shared<CaptureArguments>();
  CLI::App* verb = app.add_subcommand("capture",
                                      "run a launch script with stand-ins for torchrun and other launchers, and record "
                                      "the commands that it would start");
  verb->add_option("COMMAND", requested->command, "the command after -- that runs the script, such as bash train.sh")
      ->required();
  verb->add_option("-o,--output", requested->output, "write the recorded commands to FILE, which predict reads")
      ->type_name("FILE");
  verb->add_option("--timeout", requested->time_limit, "time limit of the script in seconds")
      ->capture_default_str()
      ->type_name("SECONDS");
  add_examples(*verb,
               {{"capture -- sh -c 'torchrun --nproc-per-node 8 pretrain_gpt.py --seq-length $((8 * 1024))'",
                 "prints the command; for a script that you trust: capture -- bash train.sh"},
                {"capture -o started.sh -- sh -c 'for n in 2 4; do torchrun --nnodes $n pretrain_gpt.py --bf16; done'",
                 "records every command of a loop into a script that predict reads"}});
  return {verb, [requested] { return run(*requested); }, nullptr};
}

}  // namespace tidemark::cli
