#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/interrupts.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/threads.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/formats/input_error.hpp"
#include "sim/base/in_parallel.hpp"

// One verb per question. Exit codes: 0 yes, 1 the answer is no, 2 bad input or usage, 3 the machine failed, 4 it
// cannot say.

namespace tidemark::cli {
namespace {

int run(int argc, char** argv) {
  std::string command;
  for (int i = 0; i < argc; ++i) command += (i == 0 ? "" : " ") + std::string(argv[i]);
  CLI::App app("Tidemark predicts the memory of every rank of a distributed training job, and the time of a step.",
               "tidemark");
  app.set_version_flag("--version", TIDEMARK_VERSION);
  app.formatter(help_formatter());
  app.require_subcommand(1);
  const std::array<Verb, 17> verbs{predict_verb(app),
                                   explain_verb(app),
                                   compare_verb(app),
                                   validate_verb(app, command),
                                   calibrate_verb(app),
                                   replay_verb(app),
                                   plan_verb(app),
                                   advise_verb(app),
                                   capacity_verb(app),
                                   estimate_verb(app),
                                   report_verb(app, command),
                                   dry_run_verb(app),
                                   capture_verb(app),
                                   convert_verb(app),
                                   serve_verb(app),
                                   list_verb(app),
                                   completion_verb(app)};

  for (const Verb& verb : verbs) verb.app->group("Commands");
  add_examples(app, {{"predict llama-3.1-8b-8xh100", "predicts an example that Tidemark ships"},
                     {"predict --help", "shows a command's options and examples"}});

  if (argc < 2) {
    complain(first_steps());
    return bad_input;
  }
  refuse_unknown_verb(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    answer(app.help(), "", {});
    return yes;
  } catch (const CLI::CallForVersion&) {
    answer(app.version() + '\n', "", {});
    return yes;
  } catch (const CLI::ParseError& error) {
    throw misuse(app, error);
  }
  refuse_empty_texts(app);
  const auto requested = std::find_if(verbs.begin(), verbs.end(), [](const Verb& verb) { return verb.app->parsed(); });
  try {
    return requested->run();
  } catch (const InputError& error) {
    throw with_file(error, requested->scenario == nullptr ? "" : *requested->scenario);
  }
}

// What no handler takes: an exception of a thread of a library, or one that meets another on its way.
[[noreturn]] void end_badly() {
  const char* why = "an exception came out where none may";
  try {
    if (std::current_exception()) throw;
  } catch (const std::bad_alloc&) {
    why = "out of memory";
  } catch (const std::exception& error) {
    why = error.what();
  } catch (...) {
  }
  std::fprintf(stderr, "tidemark: %s\n", why);
  _exit(machine_failed);
}

}  // namespace
}  // namespace tidemark::cli

int main(int argc, char** argv) {
  // A reader that went away, or a limit on file sizes, is what the write that meets it says.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  std::set_terminate(tidemark::cli::end_badly);
  tidemark::cli::leave_nothing_on_signals();
  // A file that is opened must not become the standard stream that was closed.
  for (int stream = 0; stream <= STDERR_FILENO; ++stream)
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF) static_cast<void>(open("/dev/null", O_RDONLY));
  try {
    const tidemark::sim::ThreadLimit threads(tidemark::cli::working_threads());
    return tidemark::cli::run(argc, argv);
  } catch (const tidemark::scenarios::InputError& error) {
    const bool open = error.leaves_open();
    constexpr const char* why = "cannot say: the launch file uses features that are not modelled\n";
    tidemark::cli::complain((open ? why : "") + std::string(error.what()));
    return open ? tidemark::cli::cannot_say : tidemark::cli::bad_input;
  } catch (const std::bad_alloc&) {
    tidemark::cli::complain("tidemark: out of memory");
    return tidemark::cli::machine_failed;
  } catch (const std::exception& error) {
    tidemark::cli::complain(fmt::format("tidemark: {}", error.what()));
    return tidemark::cli::machine_failed;
  }
}
