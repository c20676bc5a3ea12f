#include "scenarios/cli/detail/usage.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/output.hpp"
#include "scenarios/io/suggestion.hpp"

namespace tidemark::cli {
namespace {

/// The verb that was asked for, or the program itself.
const CLI::App& asked_verb(const CLI::App& app) {
  const std::vector<const CLI::App*> parsed = app.get_subcommands({});
  const auto verb = std::find_if(parsed.begin(), parsed.end(), [](const CLI::App* v) { return v->parsed(); });
  return verb == parsed.end() ? app : **verb;
}

}  // namespace

InputError misuse(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& verb = asked_verb(app);
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options()) names.push_back(option->get_name());
  const std::string called = &verb == &app ? "tidemark" : "tidemark " + verb.get_name();
  std::string hint = called + " --help says what it takes";
  for (const std::string& word : app.remaining(true))
    if (const std::string meant = nearest(word.substr(0, word.find('=')), names);
        word.starts_with("--") && !meant.empty())
      hint = fmt::format("did you mean {}?", meant);
  std::string message = error.what();
  std::replace(message.begin(), message.end(), '\n', ' ');
  return InputError(Problem{.file = called, .message = std::move(message), .hint = std::move(hint)});
}

void refuse_unknown_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const std::string verb = argv[1];
  const auto verbs = app.get_subcommands([](const CLI::App*) { return true; });
  if (std::any_of(verbs.begin(), verbs.end(), [&](const CLI::App* known) { return known->get_name() == verb; })) return;
  throw InputError(Problem{.file = "tidemark",
                           .message = fmt::format("there is no verb '{}'", verb),
                           .hint = "predict, explain, estimate, plan, advise, capacity, compare, replay, validate, "
                                   "calibrate, report, convert, list and completion are; see tidemark --help"});
}

void refuse_empty_texts(const CLI::App& app) {
  for (const CLI::Option* option : asked_verb(app).get_options()) {
    const std::vector<std::string> given = option->results();
    if (option->get_name() == "--alloc-conf" || std::find(given.begin(), given.end(), "") == given.end()) continue;
    throw InputError(
        Problem{.file = option->get_name(), .message = "is given nothing", .hint = "give it a value, or leave it out"});
  }
}

void add_json(CLI::App& verb, std::string& file) {
  verb.add_option("--json", file, "write the answer as JSON to FILE, or '-': then text goes to stderr")
      ->type_name("FILE");
}

std::string shipped_file(const std::string& text, const char* folder) {
  std::error_code ignored;
  if (text.empty() || text.find('.') == 0 || std::filesystem::exists(text, ignored)) return text;
  const std::filesystem::path shipped = data_root() / folder / (text + ".toml");
  return std::filesystem::exists(shipped, ignored) ? shipped.string() : text;
}

std::string as_typed(const std::string& file) {
  const std::filesystem::path name = std::filesystem::path(file).lexically_relative(data_root() / "examples");
  if (name.empty() || *name.begin() == "..") return file;
  return std::filesystem::path(name).replace_extension().string();
}

CLI::Option* add_scenario(CLI::App& verb, std::string& file, const std::string& what) {
  return verb
      .add_option("SCENARIO", file, what + ", or the name of an example that comes along (tidemark list examples)")
      ->transform([](const std::string& text) { return shipped_file(text, "examples"); })
      ->required();
}

void add_quiet(CLI::App& verb, Loudness& loudness) {
  verb.add_flag("-q,--quiet", loudness.quiet, "do not tell how far it is");
}

}  // namespace tidemark::cli
