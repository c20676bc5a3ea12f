#pragma once

#include "scenarios/cli/detail/job_request.hpp"
#include "scenarios/cli/serve/question.hpp"

namespace tidemark::cli {

/// The job that the fields ask about. A pasted text becomes a file in the folder that the process is in. InputError.
[[nodiscard]] JobRequest job_of(const Fields& fields);

}  // namespace tidemark::cli
