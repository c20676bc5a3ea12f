#pragma once

#include <cstdint>
#include <span>

#include "sim/base/estimate.hpp"
#include "topology/namespace.hpp"

// Device memory that DeepEP takes for a group of ranks, behind PyTorch's allocator.

namespace tidemark::topology {

/// Ranks of the groups that DeepEP has configurations for.
[[nodiscard]] std::span<const std::int32_t> deep_ep_groups();

struct DeepEpUse {
  std::int32_t ranks = 2;         ///< of the group
  std::int64_t hidden_bytes = 0;  ///< of a token
  std::int32_t processors = 20;   ///< multiprocessors of a kernel
};
/// Its buffer, for NVLink and between nodes, and its workspace.
[[nodiscard]] Estimate deep_ep_memory(const DeepEpUse& use);

}  // namespace tidemark::topology
