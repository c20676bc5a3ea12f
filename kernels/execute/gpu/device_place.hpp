#pragma once

#include <cstdint>

#include "kernels/execute/world/world.hpp"

namespace tidemark::execute {

/// Where a rank's device stands among the others'.
struct Place {
  std::int32_t devices = 1;  ///< of this machine
  std::int32_t ranks_on_machine = 1;
  std::int32_t device = 0;  ///< the rank's
  [[nodiscard]] bool shared() const { return ranks_on_machine > devices; }
};

/// Of this rank, as mpirun placed it; where ranks share a device, NCCL is told to let them. Throws where there is none.
[[nodiscard]] Place take_place(const World& world);

}  // namespace tidemark::execute
