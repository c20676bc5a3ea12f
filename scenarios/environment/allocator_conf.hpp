#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/formats/toml_reader.hpp"
#include "sim/memory/allocator_options.hpp"

namespace tidemark::scenarios {

/// What is wrong with a text of settings. `at` counts its characters from 0.
struct AllocatorConfProblem {
  std::size_t at = 0;
  std::string message;
  std::string hint;
  ProblemKind kind = ProblemKind::Wrong;

  friend bool operator==(const AllocatorConfProblem&, const AllocatorConfProblem&) = default;
};

/// What a text of settings of PyTorch's CUDA allocator says.
struct AllocatorConf {
  AllocatorOptions options;
  std::vector<std::string> remarks;  ///< settings that are understood and change nothing here, and why
  std::vector<AllocatorConfProblem> problems;
};

/// Reads the very text of PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF: what PyTorch takes is taken, with its meaning,
/// and what it refuses is refused, in its words where it has some (c10/core/AllocatorConfig.cpp and
/// c10/cuda/CUDAAllocatorConfig.cpp, PyTorch 2.10; `>` in a list of divisions as since 2.9).
AllocatorConf parse_allocator_conf(std::string_view text);

/// Reads a key of a table that holds such a text, and reports its problems at their places in it.
std::string read_allocator_text(TomlReader& table, std::string_view key);

/// The same, where a mistake ends the work: throws InputError, which names `source` and the place in the text.
AllocatorConf read_allocator_conf(std::string_view text, const std::string& source);

}  // namespace tidemark::scenarios
