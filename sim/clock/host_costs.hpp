#pragma once

#include <array>
#include <cstddef>

#include "sim/base/time.hpp"
#include "sim/program/program.hpp"

namespace tidemark::sim {

/// What a host thread spends on each op that it hands to a device.
struct HostCosts {
  Duration launch;  ///< in the driver
  /// By Phase: in the framework, besides: Python, autograd, the dispatcher, the allocator.
  std::array<Duration, phases> code{};
  /// By Phase: more for a collective of the ranks that share out parameters, in hooks of the module whose parameters or
  /// gradients it moves.
  std::array<Duration, phases> hooks{};
  CommSlot hooked{};  ///< those ranks

  HostCosts() = default;
  HostCosts(Duration of_driver) : launch(of_driver) {}  // NOLINT(google-explicit-constructor): a driver alone

  [[nodiscard]] Duration of(Phase phase) const { return launch + code[static_cast<std::size_t>(phase)]; }
  [[nodiscard]] Duration of_collective(Phase phase, CommSlot comm) const {
    return comm == hooked ? of(phase) + hooks[static_cast<std::size_t>(phase)] : of(phase);
  }
  bool operator==(const HostCosts&) const = default;
};

}  // namespace tidemark::sim
