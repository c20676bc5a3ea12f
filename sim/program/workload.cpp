#include "sim/program/workload.hpp"

#include <algorithm>
#include <cstdint>

#include "sim/base/ensure.hpp"

namespace tidemark::sim {

std::int32_t group_size(const Communicator& communicator) {
  std::int32_t size = 1;
  for (const GroupAxis& axis : communicator.axes) size *= axis.size;
  return size;
}

bool is_member(const Communicator& communicator, Rank rank) {
  return std::all_of(communicator.axes.begin(), communicator.axes.end(),
                     [&](const GroupAxis& axis) { return axis.step == 1 || axis.coordinate(rank) % axis.step == 0; });
}

Rank group_leader(const Communicator& communicator, Rank member) {
  std::int32_t leader = member.value;
  for (const GroupAxis& axis : communicator.axes) leader -= axis.coordinate(member) * axis.stride;
  return {leader};
}

std::vector<Rank> group_members(const Communicator& communicator, Rank member) {
  ensure(is_member(communicator, member), "a group is asked for by one of its members");
  std::vector<Rank> members{group_leader(communicator, member)};
  for (const GroupAxis& axis : communicator.axes) {
    const std::size_t inner = members.size();
    for (std::int32_t i = 1; i < axis.size; ++i)
      for (std::size_t m = 0; m < inner; ++m) members.push_back(Rank{members[m].value + i * axis.step * axis.stride});
  }
  return members;
}

Rank group_neighbour(const Communicator& communicator, Rank member, std::int32_t step) {
  ensure(is_member(communicator, member), "a neighbour is asked for by a member of its group");
  const std::int32_t size = group_size(communicator);
  std::int32_t place = step % size, neighbour = member.value;
  for (std::int32_t inner = 1; const GroupAxis& axis : communicator.axes) {
    const std::int32_t coordinate = axis.coordinate(member);
    neighbour -= coordinate * axis.stride;
    place += (axis.step == 1 ? coordinate : coordinate / axis.step) * inner;
    inner *= axis.size;
  }
  place = (place + size) % size;
  for (const GroupAxis& axis : communicator.axes) {
    neighbour += place % axis.size * axis.step * axis.stride;
    place /= axis.size;
  }
  return {neighbour};
}

}  // namespace tidemark::sim
