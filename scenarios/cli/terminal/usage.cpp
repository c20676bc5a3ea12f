#include "scenarios/cli/terminal/detail/usage.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/execute/world/mpi_worker_pool.hpp"
#include "scenarios/cli/other_names.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::cli {
namespace {

/// The verb that was asked for, or the program itself.
const CLI::App& requested_verb(const CLI::App& app) {
  const std::vector<const CLI::App*> parsed = app.get_subcommands({});
  const auto verb = std::find_if(parsed.begin(), parsed.end(), [](const CLI::App* v) { return v->parsed(); });
  return verb == parsed.end() ? app : **verb;
}

}  // namespace

InputError misuse(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& verb = requested_verb(app);
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) names.push_back(option->get_name());
  const std::string called = &verb == &app ? "tidemark" : "tidemark " + verb.get_name();
  std::string hint = called + " --help says what it takes";
  if (verb.get_name() == "dry-run") hint = "the command follows --: tidemark dry-run -- torchrun train.py";
  for (const std::string& word : app.remaining(true)) {
    if (word.size() < 2 || word[0] != '-') continue;
    const std::string flag = word.substr(0, word.find('='));
    const std::string known = hint_of_flag(flag, names);
    const std::string meant = flag.starts_with("--") ? nearest(flag, names) : "";
    if (known.empty() && meant.empty()) continue;
    hint = known.empty() ? fmt::format("did you mean {}?", meant) : known;
    break;
  }
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return InputError(Problem{.file = called, .message = std::move(message), .hint = std::move(hint)});
}

void refuse_unknown_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const std::string verb = argv[1];
  std::vector<std::string> names;
  for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(known->get_name());
  if (std::ranges::find(names, verb) != names.end()) return;
  const std::string all = fmt::format("{}; tidemark --help describes each", one_of(names));
  std::string hint;
  if (!verb.empty() && !unknown_name_problem(verb, examples_shipped))
    hint = fmt::format("did you mean tidemark predict {}? The command comes first: {}", verb, all);
  else if (verb == "help" || verb == "version")
    hint = fmt::format("did you mean tidemark --{}?", verb);
  else if (const std::string meant = verb_meant(verb, names); !meant.empty())
    hint = fmt::format("did you mean {}? tidemark {} --help shows examples of it", meant, meant);
  else
    hint = all;
  throw InputError(
      Problem{.file = "tidemark", .message = fmt::format("there is no command {}", in_quotes(verb)), .hint = hint});
}

void refuse_empty_texts(const CLI::App& app) {
  for (const CLI::Option* option : requested_verb(app).get_options()) {
    const std::vector<std::string> given = option->results();
    if (option->get_name() == "--alloc-conf" || option->get_name() == "COMMAND" ||
        std::find(given.begin(), given.end(), "") == given.end())
      continue;
    throw InputError(
        Problem{.file = option->get_name(), .message = "is given nothing", .hint = "give it a value, or leave it out"});
  }
}

void add_json(CLI::App& verb, std::string& file) {
  verb.add_option("--json", file, "write the answer as JSON to FILE, or '-': then text goes to stderr")
      ->type_name("FILE");
}

CLI::Option* takes_shipped(CLI::App& verb, CLI::Option* option, const Shipped& kind) {
  option->transform([kind](const std::string& text) { return shipped_file(text, kind); });
  verb.final_callback([option, kind] {
    // Under mpirun ranks of several machines agree on what is missing where, and the first of them says it.
    if (under_mpirun()) return;
    for (const std::string& text : option->results())
      if (const std::optional<Problem> problem = unknown_name_problem(text, kind); problem && !is_override(text))
        throw InputError(*problem);
  });
  return option;
}

CLI::Option* add_scenario(CLI::App& verb, std::string& file, const std::string& what) {
  CLI::Option* option =
      verb.add_option("SCENARIO", file, what + ", or the name of an example that is shipped (tidemark list examples)");
  return takes_shipped(verb, option, examples_shipped)->required();
}

void add_quiet(CLI::App& verb, Loudness& loudness) { verb.add_flag("-q,--quiet", loudness.quiet, "show no progress"); }

}  // namespace tidemark::cli
