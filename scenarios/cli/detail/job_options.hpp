#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "scenarios/cli/detail/launch_options.hpp"
#include "scenarios/cli/namespace.hpp"
#include "scenarios/formats/toml_value.hpp"

namespace tidemark::cli {

/// How a job is spread and trained, where no file says it. Model, cluster, GPUs and batches are LaunchOptions, since
/// they say what files of frameworks do not.
struct LayoutOptions {
  std::string runtime = "megatron", headroom;
  std::optional<std::int64_t> tensor, context, expert, pipeline, chunks;
  bool sequence_parallel = false;
  std::string sharding, precision, recompute;

  /// Anything is said.
  [[nodiscard]] bool any() const;
};
void add_layout_options(CLI::App& verb, LayoutOptions& options);

/// The scenario that they stand for. InputError, in the name of `verb`, where one is missing that has no default.
[[nodiscard]] TomlTable document_of(const LaunchOptions& job, const LayoutOptions& layout, const std::string& verb);

}  // namespace tidemark::cli
