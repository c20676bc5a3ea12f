#pragma once

#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// What ranks keep, for a while or for good, in memory of their hosts.
struct CpuOffload {
  bool optimizer = false;
  bool parameters = false;
  bool activations = false;

  [[nodiscard]] bool any() const { return optimizer || parameters || activations; }
};
[[nodiscard]] CpuOffload cpu_offload(const RuntimeChoice& runtime);

}  // namespace tidemark::scenarios
