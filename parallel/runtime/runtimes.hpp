#pragma once

#include <span>
#include <string_view>

#include "parallel/runtime/releases.hpp"
#include "parallel/runtime/runtime.hpp"

namespace tidemark::parallel {

/// A training framework as files name it.
struct RuntimeKind {
  std::string_view name;
  Runtime (*runtime)(const Versions& versions, const RuntimeSettings& settings, const Target& target);
  std::span<const KnownReleases> (*releases)();
  bool eager = false;            ///< runs the modules of transformers, operation by operation
  bool fully_sharded = false;    ///< parameters, gradients and optimizer state are sharded over data-parallel ranks
  bool flat_parameters = false;  ///< … unit by unit, as one flat parameter each
  bool titan = false;            ///< … of torchtitan's modules, in its loop
  bool zero = false;             ///< so are they, as far as the layout says: DeepSpeed
};

/// Those that are modelled; the first is what is meant where none is named.
[[nodiscard]] std::span<const RuntimeKind> runtimes();

/// Of that name, which is one of them.
[[nodiscard]] const RuntimeKind& runtime_kind(std::string_view name);
[[nodiscard]] Runtime runtime_named(std::string_view name, const Versions& versions, const RuntimeSettings& settings,
                                    const Target& target);
/// Of every component that selects habits of the runtime; the others select nothing. docs/versions.md says how each
/// range was read.
[[nodiscard]] std::span<const KnownReleases> known_releases(std::string_view name);

}  // namespace tidemark::parallel
