#include "sim/workload.hpp"

#include <algorithm>

#include "sim/ensure.hpp"

namespace tidemark {

std::int32_t group_size(const Communicator& communicator) {
  std::int32_t size = 1;
  for (const GroupAxis& axis : communicator.axes) size *= axis.size;
  return size;
}

std::vector<Rank> group_members(const Communicator& communicator, Rank rank) {
  std::int32_t origin = rank.value;
  for (const GroupAxis& axis : communicator.axes) origin -= rank.value / axis.stride % axis.size * axis.stride;
  std::vector<Rank> members{Rank{origin}};
  for (const GroupAxis& axis : communicator.axes) {
    const std::size_t inner = members.size();
    for (std::int32_t i = 1; i < axis.size; ++i)
      for (std::size_t m = 0; m < inner; ++m) members.push_back(Rank{members[m].value + i * axis.stride});
  }
  return members;
}

Rank group_neighbour(const Communicator& communicator, Rank rank, std::int32_t step) {
  const std::vector<Rank> members = group_members(communicator, rank);
  const auto self = std::find(members.begin(), members.end(), rank);
  ensure(self != members.end(), "a rank is a member of its own group");
  const std::int64_t size = static_cast<std::int64_t>(members.size());
  const std::int64_t place = ((self - members.begin() + step) % size + size) % size;
  return members[static_cast<std::size_t>(place)];
}

}  // namespace tidemark
