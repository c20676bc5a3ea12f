#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/serve/asker.hpp"
#include "scenarios/cli/serve/server.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"

namespace tidemark::cli {
namespace {

struct ServeArguments {
  std::int64_t port = 0, time_limit = 10;
  std::string answer_in_folder;
};

int run(const ServeArguments& requested) {
  if (!requested.answer_in_folder.empty()) return answer_in(requested.answer_in_folder);
  serve({.port = static_cast<int>(requested.port), .time_limit = std::chrono::seconds(requested.time_limit)},
        [](const std::string& address) { answer(fmt::format("open {}\nCtrl-C ends it\n", address), "", {}); });
  return yes;
}

}  // namespace

Verb serve_verb(CLI::App& app) {
  const auto requested = std::make_shared<ServeArguments>();
  CLI::App* verb = app.add_subcommand("serve", "try layouts on a local web page");
  verb->add_option("--port", requested->port, "port on 127.0.0.1 (default: any free port)")
      ->check(CLI::Range(0, 65535))
      ->type_name("N");
  verb->add_option("--time-limit", requested->time_limit, "time limit of one answer in seconds")
      ->check(CLI::Range(1, 600))
      ->type_name("SECONDS")
      ->capture_default_str();
  // What the server starts for each question.
  verb->add_option("--answer-in", requested->answer_in_folder)->group("");
  add_examples(
      *verb, {{"serve", "prints the address to open in a browser"}, {"serve --port 8080", "listens on a fixed port"}});
  return {verb, [requested] { return run(*requested); }, nullptr};
}

}  // namespace tidemark::cli
