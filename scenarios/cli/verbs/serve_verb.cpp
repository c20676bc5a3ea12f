#include <algorithm>
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
#include "scenarios/formats/input_error.hpp"

namespace tidemark::cli {
namespace {

struct ServeArguments {
  std::int64_t port = 0, time_limit = 10;
  std::string answer_in_folder, link;
};

// What follows the token in the address: what a link of such a page asks, wherever it listened.
std::string question_of(const std::string& link) {
  if (link.empty()) return {};
  const std::size_t begin = link.find("/?"), hash = std::min(link.find('#'), link.size());
  if (begin == std::string::npos || begin > hash || !link.starts_with("http://"))
    throw InputError(Problem{.file = link,
                             .message = "is not a link of the page",
                             .hint = "the page has one below its form, such as http://127.0.0.1:8080/?model=…; "
                                     "of a file: tidemark predict FILE"});
  std::string out;
  for (std::size_t at = begin + 2; at < hash;) {
    const std::size_t end = std::min(link.find('&', at), hash);
    const std::string field = link.substr(at, end - at);
    if (!field.empty() && !field.starts_with("token=")) out += '&' + field;
    at = end + 1;
  }
  for (const char c : out)
    if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '\x7f')
      throw InputError(Problem{.file = link, .message = "has a character that no link has", .hint = "copy it again"});
  return out + link.substr(hash);
}

int run(const ServeArguments& requested) {
  if (!requested.answer_in_folder.empty()) return answer_in(requested.answer_in_folder);
  serve({.port = static_cast<int>(requested.port),
         .time_limit = std::chrono::seconds(requested.time_limit),
         .question = question_of(requested.link)},
        [](const std::string& address) { answer(fmt::format("open {}\nCtrl-C ends it\n", address), "", {}); });
  return yes;
}

}  // namespace

Verb serve_verb(CLI::App& app) {
  const auto requested = std::make_shared<ServeArguments>();
  CLI::App* verb = app.add_subcommand("serve", "try layouts on a local web page");
  verb->add_option("LINK", requested->link, "a link of the page, from another day or another person")
      ->type_name("LINK");
  verb->add_option("--port", requested->port, "port on 127.0.0.1 (default: any free port)")
      ->check(CLI::Range(0, 65535))
      ->type_name("N");
  verb->add_option("--time-limit", requested->time_limit, "time limit of one answer in seconds")
      ->check(CLI::Range(1, 600))
      ->type_name("SECONDS")
      ->capture_default_str();
  // What the server starts for each question.
  verb->add_option("--answer-in", requested->answer_in_folder)->group("");
  add_examples(*verb, {{"serve", "prints the address to open in a browser"},
                       {"serve --port 8080", "listens on a fixed port"},
                       {"serve 'http://127.0.0.1:8080/?model=llama-3.1-8b&cluster=h100-sxm-80g&gpus=8&sequence=4096'",
                        "asks what a link asks"}});
  return {verb, [requested] { return run(*requested); }, nullptr};
}

}  // namespace tidemark::cli
