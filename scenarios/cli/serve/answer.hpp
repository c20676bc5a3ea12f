#pragma once

#include <string>

#include "scenarios/cli/serve/question.hpp"

namespace tidemark::cli {

/// What a question comes to, as JSON, schema "tidemark.page/1": `status` (an exit code), `verdict`, `headline`, what
/// the fullest device holds by category, its memory over the last step, the step's time and range, the host, pipeline
/// stages, what helps, the command, the scenario and the launch script; or `problems`.
/// This process then reads no files but those that are shipped and its own folder's.
/// The command that asks it in a terminal is in `command_file` of that folder as soon as the question is understood.
inline constexpr const char* command_file = "command.txt";
[[nodiscard]] std::string page_answer(const Fields& fields);

/// The same of what `advise` says: changes by themselves, each with the question that it makes.
[[nodiscard]] std::string page_advice(const Fields& fields);

}  // namespace tidemark::cli
