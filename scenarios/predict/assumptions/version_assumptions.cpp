#include "scenarios/predict/assumptions/version_assumptions.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/version_text.hpp"

namespace tidemark::scenarios {
namespace {

// Frameworks that are one runtime's: under another one their release is told only where a scenario asks for one.
bool of_its_runtime_only(std::string_view component) {
  return component == "torchtitan" || component == "deepspeed" || component == "bitsandbytes" ||
         component == "liger_kernel" || component == "litgpt";
}

}  // namespace

std::vector<std::string> version_assumptions(const RuntimeChoice& runtime) {
  std::vector<std::string> list;
  std::string idle;
  const std::span<const KnownReleases> known = known_releases(runtime.name);
  for (const Component& component : components) {
    const Version requested = runtime.versions.*component.version;
    const auto found =
        std::find_if(known.begin(), known.end(), [&](const KnownReleases& k) { return k.key == component.key; });
    if (found == known.end() && of_its_runtime_only(component.key) && requested == Versions{}.*component.version)
      continue;
    if (found == known.end())
      idle += fmt::format("{}{} {}", idle.empty() ? "" : ", ", component.name, text(requested));
    else if (requested > found->last)
      list.push_back(fmt::format("{} {}: as of {}, the last release that Tidemark knows", component.name,
                                 text(requested), text(found->last)));
  }
  list.push_back("versions that select nothing: " + idle);
  return list;
}

}  // namespace tidemark::scenarios
