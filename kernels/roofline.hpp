#pragma once

#include <vector>

#include "kernels/namespace.hpp"
#include "sim/base/time.hpp"
#include "sim/program/program.hpp"
#include "topology/cluster.hpp"

namespace tidemark::kernels {

/// How long a kernel runs on a device of its own. The slower of arithmetic and memory traffic; the device's
/// efficiencies are the only constants. Matrix products run in tiles, one per multiprocessor at a time, so that a last
/// wave that is not full costs as much as a full one.
[[nodiscard]] Duration kernel_time(const Program& program, const Kernel& kernel, const Device& device);
/// How long the host thread computes: all kernels there are bound by memory, of whose bandwidth each of a node's
/// devices' ranks has its share, as far as their threads get it.
[[nodiscard]] Duration host_time(const Program& program, const Kernel& kernel, const Cluster& cluster);
/// Of all kernels of a program whose host thread computes nothing.
[[nodiscard]] std::vector<Duration> kernel_times(const Program& program, const Device& device);
/// Of all kernels of a program, each by its processor.
[[nodiscard]] std::vector<Duration> kernel_times(const Program& program, const Cluster& cluster);

}  // namespace tidemark::kernels
