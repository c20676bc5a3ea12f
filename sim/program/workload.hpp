#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/program/program.hpp"

namespace tidemark::sim {

/// One axis of the job along which a group's members differ. A rank's coordinate is rank / stride, counted round the
/// axis; members are those at coordinates 0, step, 2 step, …, `size` of them.
struct GroupAxis {
  std::int32_t size = 1;
  std::int32_t stride = 1;
  std::int32_t step = 1;

  [[nodiscard]] std::int32_t coordinate(Rank rank) const { return rank.value / stride % ((size - 1) * step + 1); }
  bool operator==(const GroupAxis&) const = default;
};

/// What carries the messages between two ranks of a group: the group's own communicator, as for sends and receives that
/// are handed over together, or one of just these two ranks, which PyTorch makes for those that are not; or the copy
/// engines of devices that reach each other's memory, without any library's channels.
enum class MessageRoute : std::uint8_t { Group, Pairs, CopyEngines };

/// A communicator as each rank sees its own: "my pipeline group". A rank's group holds the ranks that differ from it
/// along these axes only; the first axis runs fastest.
struct Communicator {
  std::string name;
  std::vector<GroupAxis> axes;
  MessageRoute messages = MessageRoute::Group;
  bool operator==(const Communicator&) const = default;
};

[[nodiscard]] std::int32_t group_size(const Communicator& communicator);
/// Whether the rank is in any group of this communicator: along an axis with steps, some are not.
[[nodiscard]] bool is_member(const Communicator& communicator, Rank rank);
/// The lowest rank of a member's group.
[[nodiscard]] Rank group_leader(const Communicator& communicator, Rank member);
/// The ranks of a member's group, in group order.
[[nodiscard]] std::vector<Rank> group_members(const Communicator& communicator, Rank member);
/// The rank `step` places on from a member in its group, round the end.
[[nodiscard]] Rank group_neighbour(const Communicator& communicator, Rank member, std::int32_t step);

/// Who runs what: every rank's program, ranks of equal role sharing one, and the communicators that slots stand for.
struct Workload {
  std::vector<Program> programs;
  std::vector<std::int32_t> program_of_rank;  ///< index into programs, by rank
  std::vector<Communicator> communicators;    ///< by CommSlot

  [[nodiscard]] std::int32_t world_size() const { return static_cast<std::int32_t>(program_of_rank.size()); }
  [[nodiscard]] const Program& program(Rank rank) const {
    return programs[static_cast<std::size_t>(program_of_rank[rank.index()])];
  }
};

}  // namespace tidemark::sim
