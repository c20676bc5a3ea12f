#pragma once

#include <functional>
#include <thread>

#include "scenarios/cli/namespace.hpp"

namespace tidemark::cli {

/// From here on SIGINT, SIGTERM and SIGHUP end the program as they do by default, but leave no unfinished files. One
/// that was ignored before (nohup) stays ignored.
void leave_nothing_on_signals();

/// While it lives, `say` is called before such a signal ends the program, on a thread of its own while others work on.
class LastWords {
 public:
  explicit LastWords(std::function<void()> say);
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  std::thread speaker_;
};

}  // namespace tidemark::cli
