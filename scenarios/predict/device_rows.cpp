#include "scenarios/predict/device_rows.hpp"

#include <map>
#include <variant>

#include <fmt/format.h>

#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {

std::vector<DeviceRow> device_rows(const RankGroup& group, const std::vector<Communicator>& communicators) {
  std::vector<DeviceRow> rows;
  std::map<std::string, int> seen;
  for (const DriverRow& row : group.memory.driver) {
    rows.push_back(
        std::visit(Overloaded{
                       [&](DriverResource resource) {
                         return DeviceRow{std::string(name(resource)), group.costs.of(resource)};
                       },
                       [&](CommSlot slot) {
                         return DeviceRow{"communicator " + communicators[slot.index()].name, group.costs.of(slot)};
                       },
                   },
                   row.what));
    if (const int times = ++seen[rows.back().name]; times > 1) rows.back().name += fmt::format(" {}", times);
  }
  return rows;
}

}  // namespace tidemark::scenarios
