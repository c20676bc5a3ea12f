#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/formats/toml_value.hpp"

namespace tidemark::cli {

/// A job that is said in options, where no file says it.
struct JobOptions {
  std::string model, cluster, runtime = "megatron", headroom;  ///< names of what is shipped, or files
  std::optional<std::int64_t> gpus, sequence, micro_batch, global_batch;
  std::optional<std::int64_t> tensor, context, expert, pipeline, chunks;
  bool sequence_parallel = false;
  std::string sharding, precision, recompute;

  /// Anything but model, cluster, GPUs and batches, which say what files of frameworks do not.
  [[nodiscard]] bool lays_out() const;
};

/// Those of how a job is spread and trained.
void add_layout_options(CLI::App& verb, JobOptions& options);

/// The scenario that they stand for. InputError where one is missing that has no default.
[[nodiscard]] TomlTable document_of(const JobOptions& options);

}  // namespace tidemark::cli
