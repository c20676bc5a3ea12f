#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "scenarios/cli/serve/question.hpp"

namespace tidemark::cli {

enum class Ask : std::uint8_t { Answer, Advice };

struct AskLimits {
  std::chrono::milliseconds time{10'000};
  std::size_t at_once = 2;       ///< processes that answer
  std::size_t remembered = 512;  ///< answers
};

struct Reply {
  std::optional<std::string> json;  ///< answer.hpp; nothing where it took too long
  std::string command = {};         ///< then: what asks it in a terminal, if the question was understood
};

/// Answers questions, each in a process of its own, which is ended where it takes too long, and remembers answers.
/// While nobody asks it answers what may be asked next.
class Asker {
 public:
  explicit Asker(AskLimits limits);
  ~Asker();
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  [[nodiscard]] Reply ask(Ask what, const Fields& fields);
  /// What is remembered of it.
  [[nodiscard]] std::optional<std::string> remembered(const Fields& fields);
  /// Answers these when there is time, in their order, and forgets those that were wanted before.
  void look_ahead(std::vector<Fields> next);
  /// Ends the processes that answer, and leaves no folder of theirs. From here on there are no answers.
  void stop();
  /// How many questions are left to look ahead at.
  [[nodiscard]] std::size_t ahead();

 private:
  Reply run(Ask what, const Fields& fields, bool ahead);
  void remember(const std::string& key, std::string answer);
  void work_ahead();

  AskLimits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t processes_ = 0, running_ = 0,
              wanted_ = 0;        // processes; of them or waiting for one: for somebody who asked
  std::list<std::string> order_;  // of use, the latest first
  std::map<std::string, std::pair<std::string, std::list<std::string>::iterator>> answers_;
  std::deque<Fields> next_;
  bool ends_ = false;
  std::thread ahead_;
};

/// The other side: answers the question in that folder, in this process.
int answer_in(const std::filesystem::path& folder);

}  // namespace tidemark::cli
