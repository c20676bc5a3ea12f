#pragma once

#include <vector>

#include "kernels/namespace.hpp"
#include "sim/base/time.hpp"
#include "sim/program/program.hpp"
#include "topology/cluster.hpp"

namespace tidemark::kernels {

/// How long a kernel runs on a device of its own, by itself. Matrix products: product_time.hpp; attention:
/// attention_time.hpp; all others are bound by memory.
[[nodiscard]] Duration kernel_time(const Program& program, const Kernel& kernel, const Device& device);
/// The device as it is in the middle of a training step: power, and a limit on it, have lowered its clock.
[[nodiscard]] Device under_load(Device device);
/// How long the host thread computes: all kernels there are bound by memory, of whose bandwidth each of a node's
/// devices' ranks has its share, as far as their threads get it.
[[nodiscard]] Duration host_time(const Program& program, const Kernel& kernel, const Cluster& cluster);
/// Of all kernels of a program under load whose host thread computes nothing.
[[nodiscard]] std::vector<Duration> kernel_times(const Program& program, const Device& device);
/// Of all kernels of a program under load, each by its processor; by the cluster's calibration, where it has anything
/// like them.
[[nodiscard]] std::vector<Duration> kernel_times(const Program& program, const Cluster& cluster);
/// The same, and where each comes from.
[[nodiscard]] std::vector<TimeByPoints> sourced_kernel_times(const Program& program, const Cluster& cluster);

/// By kernel, of such times: what each takes for blocks that find no multiprocessor free (second_wave). Empty: no
/// kernel takes anything.
[[nodiscard]] std::vector<Duration> second_waves(const Program& program, const Device& device,
                                                 const std::vector<Duration>& times);

}  // namespace tidemark::kernels
