#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/model/model.hpp"
#include "parallel/runtime/versions.hpp"
#include "scenarios/convert/draft.hpp"

// Releases that files state without meaning to: by a container's tag, a list of packages, a tag of Megatron-LM.

namespace tidemark::scenarios {

struct StatedVersion {
  std::string component;  ///< of [runtime.versions]: "torch"
  parallel::Version version;
  std::string by;  ///< what states it, as it is written
  Place place;
};

/// Of a shell script, comments aside: images of NVIDIA's PyTorch containers, and tags and branches of Megatron core.
[[nodiscard]] std::vector<StatedVersion> versions_in_script(std::string_view text);
/// Of a requirements.txt, or what pip freeze prints: packages with exactly one release.
[[nodiscard]] std::vector<StatedVersion> versions_of_packages(std::string_view text);
/// Whether a text is such a list.
[[nodiscard]] bool lists_packages(std::string_view text);

/// Puts them into [runtime.versions], where nothing is said yet. Releases before the first that is known are taken for
/// that one, which is said; a component that two places state otherwise is not judged.
void state_versions(const std::vector<StatedVersion>& stated, Draft& draft);

/// Where nothing states transformers' release, that with which adapters start that drop something out beside `model`'s
/// experts.
void state_release_of_experts(const parallel::Model& model, Draft& draft);

}  // namespace tidemark::scenarios
