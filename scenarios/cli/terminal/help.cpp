#include "scenarios/cli/terminal/detail/help.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/terminal/terminal.hpp"
#include "scenarios/formats/format.hpp"

namespace tidemark::cli {
namespace {

constexpr std::size_t left_column = 28;

// Wider lines are hard to read, narrower ones are broken by the terminal itself.
std::size_t help_columns() {
  const std::size_t columns = terminal(STDOUT_FILENO).columns;
  return columns == 0 ? 100 : std::clamp<std::size_t>(columns, left_column + 20, 120);
}

// A name, and beside or below it what it means.
std::string entry(const std::string& name, const std::string& meaning) {
  std::string out = "  " + name;
  if (meaning.empty()) return out + '\n';
  const bool below = out.size() + 2 > left_column;
  out += below ? "\n" : std::string(left_column - out.size(), ' ');
  for (std::size_t n = 0; const std::string& line : wrapped(meaning, help_columns() - left_column))
    out += std::string(n++ == 0 && !below ? 0 : left_column, ' ') + line + '\n';
  return out;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool positional) const override {
    return entry(make_option_name(option, positional) + (positional ? "" : make_option_opts(option)),
                 make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* verb) const override {
    return entry(verb->get_name(), verb->get_description());
  }
  std::string make_description(const CLI::App* app) const override {
    return folded(Formatter::make_description(app), help_columns());
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return folded(Formatter::make_usage(app, std::move(name)), help_columns());
  }
};

bool shell_finds(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((std::filesystem::path(folder.empty() ? "." : folder) / program).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace

void add_examples(CLI::App& verb, const std::vector<Example>& examples) {
  std::string text = "Examples:";
  for (const Example& example : examples)
    text += fmt::format("\n  tidemark {}\n      {}", example.command, example.says);
  verb.footer(text);
}

std::shared_ptr<CLI::FormatterBase> help_formatter() {
  auto formatter = std::make_shared<HelpFormatter>();
  formatter->label("SUBCOMMAND", "COMMAND ...");
  formatter->label("Positionals", "Arguments");
  return formatter;
}

std::string first_steps() {
  const bool found = shell_finds("tidemark");
  const std::string called = found ? "tidemark" : program_path().string();
  std::string out =
      "Tidemark predicts the memory of every rank of a distributed training job, and the time of a step.\n";
  out += fmt::format("\nTry an example:\n  {} predict llama-3.1-8b-8xh100\n", called);
  out += fmt::format(
      "\nPredict your own job, and write it as a scenario file to edit (see list models and list clusters):\n  {0} "
      "predict --model "
      "llama-3.1-8b --cluster h100-sxm-80g --gpus 8 --sequence 8192 --tensor 2\n  {0} predict --model llama-3.1-8b "
      "--cluster h100-sxm-80g --gpus 8 --sequence 8192 --tensor 2 --print-scenario > job.toml\n",
      called);
  out += fmt::format(
      "\nList all commands, and show the options and examples of one:\n  {0} --help\n  {0} predict --help\n", called);
  if (!found)
    out += fmt::format("\nThe shell does not find tidemark by name yet. To change that:\n  export PATH=\"{}:$PATH\"\n",
                       program_path().parent_path().string());
  return out;
}

}  // namespace tidemark::cli
