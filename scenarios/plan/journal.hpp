#pragma once

#include <filesystem>
#include <memory>

#include "scenarios/plan/tasks.hpp"

namespace tidemark::scenarios {

/// Remembers every task and its result in a file, as it comes; a search that was interrupted, or killed, goes on from
/// there. The file is of one question: `question` names everything that results depend on. Records end in checksums:
/// what was cut off in the middle is forgotten. Throws InputError where the file is of another question, or cannot be
/// written. `inner` has to outlive it.
[[nodiscard]] std::unique_ptr<TaskRunner> journal_runner(TaskRunner& inner, const std::filesystem::path& file,
                                                         const std::string& question);

}  // namespace tidemark::scenarios
