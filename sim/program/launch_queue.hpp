#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "sim/base/units.hpp"

namespace tidemark::sim {

/// What a host thread can hand to its device ahead of time. The driver has a ring of launches for each channel to the
/// device and deals streams out over channels (CUDA_DEVICE_MAX_CONNECTIONS). A launch that finds its ring full blocks
/// the host thread until the device begins the oldest launch of that ring.
struct LaunchQueue {
  /// Launches of a channel. NVIDIA documents no number: who timed launches of one kernel saw about the first thousand
  /// return at once and each later one wait for a kernel to end, for each stream (NVIDIA developer forum topic 68937);
  /// 512 to 1,024 are plausible, and the larger lets the host run ahead farther.
  std::int64_t depth = 1024;
  std::int32_t channels = 8;  ///< CUDA's default

  static constexpr std::int64_t endless = std::numeric_limits<std::int64_t>::max() / 4;

  [[nodiscard]] std::size_t channel_of(StreamId stream) const {
    return static_cast<std::size_t>(stream.value) % static_cast<std::size_t>(channels);
  }
  bool operator==(const LaunchQueue&) const = default;
};

}  // namespace tidemark::sim
