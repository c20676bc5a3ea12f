#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <tidemark/scenario.hpp>

namespace tidemark {

/// Does a real run agree? `measured` is a memory snapshot of torch.cuda.memory, or the log of Megatron-LM or
/// torchtitan (docs/snapshots.md).
struct Comparison {
  bool agrees = false;
  std::string text;
  std::string json;  ///< "tidemark.comparison/1"; empty where the job deadlocks
};
struct CompareOptions : Options {
  std::vector<std::int32_t> ranks;     ///< of a snapshot the one that wrote it; none: rank 0, or all that a log has
  std::optional<std::int64_t> device;  ///< of a snapshot that has several
  double tolerance = 0.02;             ///< largest difference, as a share of the measurement
};
[[nodiscard]] std::optional<Comparison> compare(const Scenario& scenario, const std::filesystem::path& measured,
                                                const CompareOptions& options);

}  // namespace tidemark
