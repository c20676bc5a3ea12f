#pragma once

#include <string>
#include <string_view>

#include "kernels/execute/namespace.hpp"
#include "sim/program/costs.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::execute {

/// All that a run on GPUs needs to know: what runs, and what is predicted for it. As text, it goes to a machine where
/// nothing else of Tidemark is.
struct DeviceJob {
  std::string name;
  Workload workload;  ///< with frees: the prediction; they are taken out of what runs
  Costs costs;        ///< estimates of driver memory; their sources are not kept
};

[[nodiscard]] std::string text(const DeviceJob& job);
/// Throws ProgramTextError.
[[nodiscard]] DeviceJob parse_device_job(std::string_view text);

}  // namespace tidemark::execute
