#pragma once

#include <filesystem>
#include <string>

#include "scenarios/calibrate/machine_file.hpp"

namespace tidemark::scenarios {

/// Who made files of points, and what they go by.
struct DeviceRun {
  std::string name;              ///< of the files, without their endings
  std::filesystem::path like;    ///< a cluster's file, whose values stay where nothing was measured
  std::string tidemark, date;    ///< as in MachineRun
  std::filesystem::path points;  ///< what tidemark_gpu_points wrote
};

/// Of GPUs. Throws InputError where a file is none of its kind.
[[nodiscard]] MachineFiles device_files(const DeviceRun& run, MachineRun& reported);

}  // namespace tidemark::scenarios
