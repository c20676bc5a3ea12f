#pragma once

#include <string>
#include <vector>

#include "scenarios/predict/prediction.hpp"
#include "sim/base/estimate.hpp"

namespace tidemark::scenarios {

/// What a rank's device holds behind the framework's allocator: a name for each row, and its price.
struct DeviceRow {
  std::string name;
  Estimate cost;
};
[[nodiscard]] std::vector<DeviceRow> device_rows(const RankGroup& group,
                                                 const std::vector<Communicator>& communicators);

}  // namespace tidemark::scenarios
