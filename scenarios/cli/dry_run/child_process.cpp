#include "scenarios/cli/dry_run/child_process.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scenarios/cli/terminal/interrupts.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::cli {
namespace {

constexpr std::chrono::seconds to_say_where{10};
constexpr std::chrono::milliseconds between_looks{10};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

pid_t start(const Child& child) {
  std::vector<std::string> words = child.words, variables;
  for (const auto& [name, value] : child.environment) variables.push_back(name + '=' + value);
  std::vector<char*> arguments = pointers(words), environment = pointers(variables);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (child.output.empty())
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  else
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, child.output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (!child.output.empty()) posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t how;
  posix_spawnattr_init(&how);
  // What this program ignores (main.cpp) is no child's business.
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGXFSZ);
  posix_spawnattr_setsigdefault(&how, &defaults);
  posix_spawnattr_setpgroup(&how, 0);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
  pid_t id = 0;
  const int error = posix_spawnp(&id, arguments.front(), &files, &how, arguments.data(), environment.data());
  posix_spawnattr_destroy(&how);
  posix_spawn_file_actions_destroy(&files);
  if (error == ENOENT || error == EACCES)
    throw InputError(Problem{.file = "the command",
                             .message = fmt::format("there is no program {} that can be run", in_quotes(words.front())),
                             .hint = "name the Python that has PyTorch, by its path or as the shell finds it"});
  if (error != 0) throw std::runtime_error(fmt::format("{}: {}", words.front(), std::strerror(error)));
  return id;
}

// Whether it has ended by then.
bool has_ended(pid_t id, int& status, std::chrono::steady_clock::time_point by, bool for_ever) {
  while (waitpid(id, &status, WNOHANG) == 0) {
    if (!for_ever && std::chrono::steady_clock::now() >= by) return false;
    std::this_thread::sleep_for(between_looks);
  }
  return true;
}

}  // namespace

ChildEnd run_child(const Child& child, const std::function<void()>& tidy) {
  const pid_t id = start(child);
  const LastWords words([&] {
    kill(-id, SIGKILL);
    tidy();
  });
  ChildEnd end;
  int status = 0;
  const auto now = std::chrono::steady_clock::now();
  if (!has_ended(id, status, now + child.time_limit, child.time_limit.count() == 0)) {
    end.took_too_long = true;
    kill(id, SIGABRT);
    if (!has_ended(id, status, std::chrono::steady_clock::now() + to_say_where, false)) {
      kill(-id, SIGKILL);
      has_ended(id, status, {}, true);
    }
  }
  kill(-id, SIGKILL);
  end.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

}  // namespace tidemark::cli
