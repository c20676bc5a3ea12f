#pragma once

#include <filesystem>
#include <string_view>

#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/namespace.hpp"
#include "scenarios/scenario/scenario_files.hpp"
#include "topology/calibration.hpp"
#include "topology/cluster.hpp"

namespace tidemark::scenarios {

/// What a calibration file says (docs/calibration.md): times of kernels and transfers that were measured on a machine
/// with such devices, of whose peaks fractions are. Throws InputError.
[[nodiscard]] Calibration parse_calibration(std::string_view text, const std::filesystem::path& file,
                                            const Device& device);

/// What the key `calibration` names, which is in one of the folders, unless its text has been read before; none where
/// it is left out, or wrong, which is then reported.
[[nodiscard]] SharedCalibration read_calibration_key(TomlReader& top, const ScenarioFolders& folders,
                                                     Problems& problems, const Device& device,
                                                     const ScenarioFiles& read_before = {});

}  // namespace tidemark::scenarios
