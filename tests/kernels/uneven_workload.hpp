#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/liveness.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/workload.hpp"
#include "tests/sim/program/random_matrix.hpp"
#include "tests/sim/program/viewed.hpp"

namespace tidemark::tests {

/// Ranks that say different things to each other, round after round, in groups of `members` and of those `members`
/// apart: what experts do with their tokens. What comes goes to the host and back before it is sent on.
inline Workload uneven_workload(std::uint32_t seed, std::int32_t ranks, std::int32_t members, std::int64_t most) {
  std::mt19937 random(seed);
  Workload workload;
  workload.communicators = {{"near", {{members, 1, 1}}}, {"far", {{ranks / members, members, 1}}}};
  std::vector<ProgramBuilder> programs(static_cast<std::size_t>(ranks));
  std::vector<BufferId> held;  // by rank
  for (ProgramBuilder& program : programs) {
    for (const CommSlot slot : {CommSlot{0}, CommSlot{1}}) program.push(CreateCommunicator{slot});
  }
  const Bytes large{most * ranks};
  for (ProgramBuilder& program : programs) {
    held.push_back(program.alloc(large, Category::Temporaries, program.label("tokens")));
    program.launch(Operation::Fill, {}, {viewed(program, held.back(), DType::BOOL, {large.count()})});
    program.mark(Phase::Forward, 1, 0, program.label("rounds"));
  }
  constexpr std::array kinds{CollectiveKind::AllToAll, CollectiveKind::ReduceScatter, CollectiveKind::AllGather};
  for (std::int32_t round = 0; round < 6; ++round) {
    const CommSlot slot{round % 2};
    const Communicator& communicator = workload.communicators[slot.index()];
    const CollectiveKind kind = kinds[static_cast<std::size_t>(round) % kinds.size()];
    for (Rank leader{0}; leader.value < ranks; ++leader.value) {
      if (group_leader(communicator, leader) != leader) continue;
      const std::vector<Rank> group = group_members(communicator, leader);
      const std::vector<MatrixRow> rows = random_matrix(random, kind, group.size(), most, MatrixId{round});
      for (std::size_t place = 0; place < group.size(); ++place) {
        ProgramBuilder& program = programs[group[place].index()];
        BufferId& buffer = held[group[place].index()];
        const bool in_place = kind != CollectiveKind::AllToAll && round % 4 < 2;
        const BufferId in = std::exchange(
            buffer, in_place ? buffer : program.alloc(large, Category::CommEp, program.label("received")));
        program.collective(slot, {kind, DType::BOOL}, in, buffer, rows[place]);
        if (round % 3 > 0) continue;
        const MemorySpace space = round == 0 ? MemorySpace::Pinned : MemorySpace::Pageable;
        const BufferId kept =
            program.alloc(large, Category::SavedActivations, program.label("kept"), StreamId{0}, space);
        program.push(Memcpy{{0}, buffer, kept, large});
        buffer = program.alloc(large, Category::Temporaries, program.label("back"));
        program.push(Memcpy{{0}, kept, buffer, large});
        const ViewedOperand all = viewed(program, buffer, DType::BOOL, {large.count()});
        program.launch(Operation::Add, {all}, {all});
      }
    }
  }
  for (std::size_t r = 0; r < programs.size(); ++r) {
    workload.program_of_rank.push_back(static_cast<std::int32_t>(r));
    workload.programs.push_back(with_frees(std::move(programs[r]).finish()));
  }
  return workload;
}

}  // namespace tidemark::tests
