#pragma once

#include "parallel/job/job.hpp"
#include "sim/clock/host_costs.hpp"

namespace tidemark::parallel {

/// What the framework's own code takes of a host thread: Python, autograd, the dispatcher and the allocator, without
/// the driver. As measured on one core of `measured_on` by tests/ground_truth/host_code.py; another takes a factor of
/// it. Good to 40 %. Megatron-LM's is that of its local modules, whichever it runs, measured on another processor and
/// scaled by what one addition takes on both.
[[nodiscard]] HostCosts host_code(const LoweringInput& input);
/// The same of any job of Megatron-LM's.
[[nodiscard]] HostCosts megatron_host_code();

inline constexpr const char* measured_on = "AMD EPYC, family 25 model 17";

}  // namespace tidemark::parallel
