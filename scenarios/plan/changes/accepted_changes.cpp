#include "scenarios/plan/changes/accepted_changes.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <variant>

#include "scenarios/plan/changes/changes.hpp"

namespace tidemark::scenarios {

AcceptedChanges::AcceptedChanges(TomlTable document, const std::filesystem::path& file, const ScenarioFolders& folders,
                                 const Scenario& scenario)
    : space_{file.stem().string(), std::move(document), folders, {}, {}} {
  space_.files = files_of(space_.base, file, folders);
  Changes changes = changes_of(space_.base, scenario);
  axes_ = std::move(changes.of_job);
  std::ranges::move(changes.of_training, std::back_inserter(axes_));
}

bool AcceptedChanges::any(std::string_view axis, std::string_view value) const {
  const auto its = std::ranges::find(axes_, axis, &Axis::name);
  if (its == axes_.end()) return false;
  Space one = space_;
  one.axes = {*its};
  for (std::size_t v = 1; v < its->values.size(); ++v)
    if (its->values[v].text.starts_with(value) &&
        std::holds_alternative<Scenario>(candidate(one, static_cast<std::int64_t>(v))))
      return true;
  return false;
}

}  // namespace tidemark::scenarios
