#pragma once

#include "scenarios/cli/detail/job_request.hpp"
#include "scenarios/cli/serve/question.hpp"

namespace tidemark::cli {

/// What the fields ask about, as the command line would say it. Pasted texts become files in the folder that the
/// process is in. InputError.
[[nodiscard]] JobWords words_of(const Fields& fields);
/// The job of that question. InputError.
[[nodiscard]] JobRequest job_of(const JobWords& words);

/// "tidemark predict --model llama-3.1-8b …": what asks it in a terminal.
[[nodiscard]] std::string command_of(const JobWords& words, const std::string& verb);

}  // namespace tidemark::cli
