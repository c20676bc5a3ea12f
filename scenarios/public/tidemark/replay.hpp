#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <tidemark/problem.hpp>

namespace tidemark {

/// A memory snapshot of a real run through the emulated allocator: does it replay exactly, what stays after each step,
/// and what would the same requests reserve under other settings (docs/allocator.md)?
struct Replay {
  bool yes = false;  ///< it replays exactly, and does not run out under what was asked
  std::string text;
  std::string json;  ///< "tidemark.replay/1"
};
struct ReplayOptions {
  std::optional<std::int64_t> device;          ///< absent: the one that has a trace
  std::optional<std::string> allocator_conf;   ///< what if: the text of PYTORCH_CUDA_ALLOC_CONF
  std::optional<std::int64_t> capacity_bytes;  ///< what if: what the allocator can get
  std::optional<double> memory_fraction;       ///< what if: the part of it that it may take, from 0 to 1
};
/// Throws InputError for a file, a device or settings that do not make sense.
[[nodiscard]] Replay replay(const std::filesystem::path& snapshot, const ReplayOptions& options = {});

}  // namespace tidemark
