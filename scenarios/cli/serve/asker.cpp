#include "scenarios/cli/serve/asker.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scenarios/cli/dry_run/dry_runs.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/serve/answer.hpp"

namespace tidemark::cli {
namespace {

constexpr std::chrono::milliseconds poll_interval{3};
constexpr rlim_t most_memory = rlim_t{8} << 30, most_cpu_seconds = 120;

std::string key_of(const Fields& fields) {
  return nlohmann::json(fields).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

pid_t start(const std::filesystem::path& folder) {
  std::string program = std::filesystem::read_symlink("/proc/self/exe").string(), verb = "serve", flag = "--answer-in",
              where = folder.string();
  char* words[] = {program.data(), verb.data(), flag.data(), where.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", 0, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", 1, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", 1, 0);
  posix_spawnattr_t how;
  posix_spawnattr_init(&how);
  posix_spawnattr_setpgroup(&how, 0);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
  pid_t id = 0;
  const int error = posix_spawn(&id, program.c_str(), &files, &how, words, environ);
  posix_spawnattr_destroy(&how);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw std::runtime_error(fmt::format("{}: {}", program, std::strerror(error)));
  return id;
}

}  // namespace

Asker::Asker(AskLimits limits) : limits_(limits), ahead_([this] { work_ahead(); }) {}

Asker::~Asker() {
  stop();
  ahead_.join();
}

void Asker::stop() {
  std::unique_lock lock(mutex_);
  ends_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return processes_ == 0; });
}

std::optional<std::string> Asker::remembered(const Fields& fields) {
  const std::lock_guard lock(mutex_);
  const auto found = answers_.find(key_of(fields));
  if (found == answers_.end()) return {};
  order_.splice(order_.begin(), order_, found->second.second);
  return found->second.first;
}

void Asker::remember(const std::string& key, std::string answer) {
  if (answers_.contains(key)) return;
  order_.push_front(key);
  answers_.emplace(key, std::pair(std::move(answer), order_.begin()));
  while (answers_.size() > limits_.remembered) {
    answers_.erase(order_.back());
    order_.pop_back();
  }
}

Reply Asker::ask(Ask what, const Fields& fields) {
  if (what == Ask::Answer)
    if (std::optional<std::string> known = remembered(fields)) return {std::move(known)};
  {
    std::unique_lock lock(mutex_);
    ++wanted_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return running_ < limits_.at_once || ends_; });
    ++running_;
  }
  Reply answer;
  std::exception_ptr failure;
  try {
    answer = run(what, fields, false);
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    --running_;
    --wanted_;
    if (answer.json && what == Ask::Answer) remember(key_of(fields), *answer.json);
  }
  changed_.notify_all();
  if (failure) std::rethrow_exception(failure);
  return answer;
}

Reply Asker::run(Ask what, const Fields& fields, bool ahead) {
  {
    const std::lock_guard lock(mutex_);
    if (ends_) return {.json = {}};
    ++processes_;
  }
  const std::shared_ptr<void> counted(nullptr, [this](void*) {
    const std::lock_guard lock(mutex_);
    --processes_;
    changed_.notify_all();
  });
  const TemporaryFolder folder;
  {
    std::ofstream question(folder.path() / "question.json", std::ios::binary);
    question << nlohmann::json{{"fields", fields}, {"advice", what == Ask::Advice}}.dump(
        -1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (!question.flush()) throw std::system_error(errno, std::generic_category(), folder.path().string());
  }
  const pid_t id = start(folder.path());
  if (ahead) setpriority(PRIO_PROCESS, static_cast<id_t>(id), 15);
  const auto until = std::chrono::steady_clock::now() + limits_.time;
  int status = 0;
  while (waitpid(id, &status, WNOHANG) == 0) {
    bool give_up = std::chrono::steady_clock::now() >= until;
    {
      const std::lock_guard lock(mutex_);
      give_up = give_up || ends_ || (ahead && wanted_ > 0);
    }
    if (give_up) {
      kill(-id, SIGKILL);
      waitpid(id, &status, 0);
      return {.json = {}, .command = text_of(folder.path() / command_file)};
    }
    std::this_thread::sleep_for(poll_interval);
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != yes)
    throw std::runtime_error("the answering process ended without a message");
  return {.json = text_of(folder.path() / "answer.json")};
}

void Asker::look_ahead(std::vector<Fields> next) {
  {
    const std::lock_guard lock(mutex_);
    next_.assign(std::make_move_iterator(next.begin()), std::make_move_iterator(next.end()));
  }
  changed_.notify_all();
}

std::size_t Asker::ahead() {
  const std::lock_guard lock(mutex_);
  return next_.size();
}

void Asker::work_ahead() {
  while (true) {
    Fields fields;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || (!next_.empty() && wanted_ == 0); });
      if (ends_) return;
      fields = next_.front();
      if (answers_.contains(key_of(fields))) {
        next_.pop_front();
        continue;
      }
    }
    std::optional<std::string> answer;
    try {
      answer = run(Ask::Answer, fields, true).json;
    } catch (const std::exception&) {
      answer = {};  // whoever asks it will hear why
    }
    const std::lock_guard lock(mutex_);
    const bool interrupted = !answer && wanted_ > 0;
    if (answer) remember(key_of(fields), std::move(*answer));
    if (!interrupted && !next_.empty() && next_.front() == fields) next_.pop_front();
  }
}

int answer_in(const std::filesystem::path& folder) {
  const rlimit memory{most_memory, most_memory}, cpu{most_cpu_seconds, most_cpu_seconds};
  setrlimit(RLIMIT_AS, &memory);
  setrlimit(RLIMIT_CPU, &cpu);
  std::filesystem::current_path(folder);
  const nlohmann::json question = nlohmann::json::parse(text_of("question.json"));
  const Fields fields = question["fields"].get<Fields>();
  const std::string answer = question["advice"].get<bool>() ? page_advice(fields) : page_answer(fields);
  std::ofstream out("answer.json", std::ios::binary);
  out << answer;
  return out.flush() ? yes : machine_failed;
}

}  // namespace tidemark::cli
