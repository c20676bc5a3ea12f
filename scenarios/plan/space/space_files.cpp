#include "scenarios/plan/space/space_files.hpp"

#include <cstdint>
#include <map>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/toml_text.hpp"
#include "scenarios/reader/document_parts.hpp"
#include "scenarios/scenario/named_files.hpp"

namespace tidemark::scenarios {

std::vector<std::filesystem::path> files_read(const Space& space) {
  std::vector<std::filesystem::path> files = files_named(space.base, space.folders);
  for (const Axis& axis : space.axes)
    for (const AxisValue& value : axis.values)
      for (const AxisValue::Setting& setting : value.settings) {
        if (setting.key.size() != 1) continue;
        const TomlTable alone{{{setting.key.front(), {}, setting.value}}};
        for (std::filesystem::path& file : files_named(alone, space.folders)) files.push_back(std::move(file));
      }
  return files;
}

void refuse_no_candidates(const Space& space, const std::string& file) {
  std::map<std::string, std::int64_t> reasons;
  for (std::int64_t c = 0; c < space.size(); ++c) {
    const auto made = candidate(space, c);
    if (std::holds_alternative<Scenario>(made)) return;
    ++reasons[std::get<NoCandidate>(made).reason];
  }
  std::string why;
  for (const auto& [reason, count] : reasons) why += fmt::format("{}{} x {}", why.empty() ? "" : "; ", count, reason);
  std::vector<Problem> problems{
      {.file = file,
       .message = fmt::format("none of the {} combinations is a valid job: {}", space.size(), why),
       .hint = "the first of them, as predict would read it:"}};
  const auto first = scenario_or_problems(space.document(0), file, space.folders, space.files);
  if (const auto* its = std::get_if<std::vector<Problem>>(&first))
    problems.insert(problems.end(), its->begin(), its->end());
  else
    problems.front().hint = "other values on some axis would do";
  throw InputError(std::move(problems));
}

std::string scenario_text(const Space& space, std::int64_t candidate) {
  TomlTable document = space.document(candidate);
  for (std::string* name : file_names(document))
    if (std::filesystem::exists(space.folders.folder / *name))
      *name = std::filesystem::absolute(space.folders.folder / *name).lexically_normal().string();
  return toml_text(document);
}

}  // namespace tidemark::scenarios
