#pragma once

#include "kernels/namespace.hpp"
#include "sim/base/time.hpp"
#include "sim/program/program.hpp"
#include "topology/cluster.hpp"

namespace tidemark::kernels {

/// A scan of Mamba-2 by chunks, or its backward pass: mamba_ssm's kernels one after the other, each as long as its
/// products take at what attention's reach, or as its bytes take, whichever is longer.
[[nodiscard]] Duration scan_time(const Program& program, const Kernel& kernel, const Device& device);

}  // namespace tidemark::kernels
