#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "scenarios/cli/namespace.hpp"

namespace tidemark::cli {

/// A program that another one starts and waits for.
struct Child {
  std::vector<std::string> words;  ///< the program, by name or path, and its arguments
  std::map<std::string, std::string> environment;
  std::filesystem::path output;  ///< where all that it prints goes; empty: to standard error
  std::chrono::seconds time_limit{0};
};

struct ChildEnd {
  int status = 0;  ///< as a shell has it: 128 and the signal that ended it
  bool took_too_long = false;
};

/// Runs it to its end, in a process group of its own, of which nothing is left. A child that takes too long is told
/// so by SIGABRT, at which Python's faulthandler prints where it is. On SIGINT and its like `tidy` is called, and the
/// program ends. Throws InputError where there is no such program, std::runtime_error where it cannot be started.
ChildEnd run_child(const Child& child, const std::function<void()>& tidy);

/// This process's own.
[[nodiscard]] std::map<std::string, std::string> own_environment();

}  // namespace tidemark::cli
