#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "scenarios/cli/namespace.hpp"

namespace tidemark::cli {

struct ServeOptions {
  int port = 0;  ///< 0: any that is free
  std::chrono::milliseconds time_limit{10'000};
  std::string question = {};  ///< "&model=llama-3.1-8b": of a page's link, what the printed address asks
};

/// Serves the page on 127.0.0.1 until a signal ends the program. `ready` hears the page's address, which holds a token
/// that all questions need. InputError where the port is taken.
void serve(const ServeOptions& options, const std::function<void(const std::string& address)>& ready);

}  // namespace tidemark::cli
