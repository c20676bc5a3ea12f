#pragma once

#include "kernels/namespace.hpp"
#include "sim/base/time.hpp"
#include "sim/program/program.hpp"
#include "topology/cluster.hpp"

namespace tidemark::kernels {

/// A kernel that is bound by memory: `kernel_latency`, and its bytes at what such kernels reach of the bandwidth.
[[nodiscard]] Duration memory_time(const Program& program, const Kernel& kernel, const Device& device);

/// What a kernel of this operation reaches of what ordinary ones do: less where it gathers rows, or where few threads
/// wait for long ones.
[[nodiscard]] Ratio share_of_ordinary(Operation operation, const Device& device);

}  // namespace tidemark::kernels
