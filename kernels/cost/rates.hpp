#pragma once

#include "kernels/namespace.hpp"
#include "sim/base/time.hpp"
#include "sim/program/program.hpp"
#include "topology/cluster.hpp"

namespace tidemark::kernels {

__extension__ using Wide = __int128;

/// Of products, by the type of what is multiplied.
[[nodiscard]] OperationRate peak_rate(const Device& device, DType dtype);
/// `operations` at a rate, rounded up.
[[nodiscard]] Duration time_of(Wide operations, OperationRate rate);
/// Before a large kernel's first operation and after its last.
[[nodiscard]] Duration start_of_large(const Device& device);
/// Bytes at what a device reaches of its memory's bandwidth.
[[nodiscard]] Duration time_of(Bytes traffic, const Device& device);

}  // namespace tidemark::kernels
