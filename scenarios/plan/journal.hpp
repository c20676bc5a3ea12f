#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "scenarios/plan/tasks.hpp"

namespace tidemark::scenarios {

/// Everything that results depend on.
struct Question {
  std::string text;
  std::map<std::string, std::string, std::less<>> files;  ///< what they say, by the names that the question gives them
  std::string program{};                                  ///< which build of Tidemark answers it
};
/// Of a search of the space by that build of Tidemark.
[[nodiscard]] Question question_of(const Space& space, const PlanOptions& options, std::string program);

/// Remembers every task and its result in a file, as it comes; a search that was interrupted, or killed, goes on from
/// there. The file is of one question and of one build. Records end in checksums: what was cut off in the middle is
/// forgotten. Throws InputError, and leaves what is there as it is, where that is no regular file, no journal or of
/// another question or build, or cannot be written. Once a record could not be written (a full disk), nothing more is:
/// the search ends with std::system_error, and the file holds what was whole before. `inner` has to outlive it.
[[nodiscard]] std::unique_ptr<TaskRunner> journal_runner(TaskRunner& inner, const std::filesystem::path& file,
                                                         const Question& question);

}  // namespace tidemark::scenarios
