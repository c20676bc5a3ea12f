#pragma once

namespace tidemark::cli {

/// What the program says to a shell.
constexpr int yes = 0, no = 1, bad_input = 2, machine_failed = 3, cannot_say = 4;

}  // namespace tidemark::cli
