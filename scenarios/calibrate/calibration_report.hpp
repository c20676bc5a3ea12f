#pragma once

#include <string>

#include "scenarios/calibrate/machine_file.hpp"

namespace tidemark::scenarios {

/// What was measured, in a screen: constants, how well points tell each other, and what was not measured.
[[nodiscard]] std::string calibration_report(const MachineRun& run, const MachineFiles& files,
                                             const std::string& written);
/// The whole of it.
[[nodiscard]] std::string calibration_json(const MachineRun& run, const MachineFiles& files);

}  // namespace tidemark::scenarios
