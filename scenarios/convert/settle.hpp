#pragma once

#include <filesystem>

#include "scenarios/convert/convert.hpp"

namespace tidemark::scenarios {

/// Layers that stages do not share out evenly: the last one has fewer, which is not judged.
void settle_stages(Converted& converted, const std::filesystem::path& data_root);

/// Where a launch file contradicts itself: what the figures are of instead, which is not judged.
void settle_devices(Converted& converted, const ConvertRequest& requested, const std::filesystem::path& data_root);

}  // namespace tidemark::scenarios
