#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <fmt/format.h>

#include "sim/program/costs.hpp"
#include "sim/program/program_builder.hpp"
#include "tests/namespace.hpp"
#include "tests/sim/program/viewed.hpp"

namespace tidemark::tests {

/// Prices of nothing: drivers and communicators take no memory.
inline DriverCosts free_of_charge(std::size_t communicators = 8) {
  DriverCosts costs;
  costs.communicators.resize(communicators);
  return costs;
}

struct RandomProgramOptions {
  std::int64_t largest = 40 << 20;  ///< bytes of one buffer
  std::int32_t ops = 400;
};

/// A program without frees in which every op of the instruction set occurs: buffers are used and bound at random for a
/// while after their allocation.
inline Program random_program(std::uint64_t seed, const RandomProgramOptions& options = {}) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  ProgramBuilder program;
  std::vector<BufferId> buffers;  // on the device
  std::vector<NameId> bound;
  std::int32_t step = 0, events = 0, communicators = 0, matrices = 0;

  const auto some = [&] {  // one of the last ten
    const std::int64_t reach = std::min<std::int64_t>(10, static_cast<std::int64_t>(buffers.size()));
    return buffers[buffers.size() - 1 - static_cast<std::size_t>(below(reach))];
  };
  const auto size = [&] {
    switch (below(4)) {
      case 0:
        return Bytes{64 + below(2000)};  // views of kernels fit
      case 1:
        return Bytes{64 + below(std::min<std::int64_t>(2 << 20, options.largest))};
      default:
        return Bytes{64 + below(options.largest)};
    }
  };
  program.mark(Phase::Construction, 0, -1, program.label("start"));
  program.push(CreateDriver{DriverResource::Context});
  for (std::int32_t i = 0; i < options.ops; ++i) {
    if (buffers.size() < 2 || below(3) == 0) {
      buffers.push_back(program.alloc(size(), static_cast<Category>(below(category_count - 1)),
                                      program.label(fmt::format("tensor{}", below(20)))));
      continue;
    }
    switch (below(11)) {
      case 0: {
        const NameId name = program.name(fmt::format("variable{}", below(12)));
        program.bind(name, some());
        std::erase(bound, name);
        bound.push_back(name);
        break;
      }
      case 1:
        if (!bound.empty()) {
          program.unbind(bound.back());
          bound.pop_back();
        }
        break;
      case 2:
        if (const BufferId cross_stream = some(); true)
          program.push(CrossStreamUse{cross_stream, StreamId{1}, cross_stream.value % 3 != 0});
        break;
      case 3: {
        const std::int64_t m = below(5), n = below(5), k = below(5);
        const auto some_matrix = [&](std::int64_t rows, std::int64_t columns) {
          return viewed(program, some(), DType::FP16, {rows, columns});
        };
        program.launch({Operation::Matmul, {1}}, {some_matrix(m, k), some_matrix(k, n), {}, {}}, {some_matrix(m, n)});
      } break;
      case 4: {
        const ViewId view = program.view(DType::FP32, {7}, {1});
        const Operand from{some(), program.offset(Bytes{below(9)})};
        const std::vector<ViewedOperand> in{{from, view}}, out{{some(), view}};
        const std::vector<BufferId> scratch{some()};
        program.launch(Operation::Add, in, out, scratch);
      } break;
      case 5:
        if (communicators < 8 && below(4) == 0) program.push(CreateCommunicator{CommSlot{communicators++}});
        if (communicators > 0)
          program.collective(CommSlot{communicators - 1}, {static_cast<CollectiveKind>(below(4)), DType::BOOL}, some(),
                             Operand{some(), program.offset(Bytes{below(3)})}, Bytes{below(60)});
        break;
      case 6:
        if (communicators > 0)
          program.exchange(CommSlot{0}, {{Direction::Send, 1, some()}, {Direction::Receive, -1, some()}});
        break;
      case 7: {  // to the host and back
        const BufferId from = some(), to = some();
        const MemorySpace space = below(2) == 0 ? MemorySpace::Pinned : MemorySpace::Pageable;
        const BufferId host = program.alloc(Bytes{64 + below(5000)}, Category::SavedActivations, program.label("copy"),
                                            StreamId{0}, space);
        program.push(Memcpy{{0}, from, host, Bytes{1}});
        if (below(2) == 0) program.bind(program.name("kept"), host);
        program.push(Memcpy{{0}, host, to, Bytes{1}});
        break;
      }
      case 8:
        if (communicators > 0)
          program.collective(CommSlot{0}, {CollectiveKind::AllToAll, DType::BOOL}, some(), some(),
                             MatrixRow{MatrixId{matrices++}, {Bytes{below(9)}, Bytes{0}}, {Bytes{3}, Bytes{below(9)}}});
        break;
      case 9:
        program.push(Record{EventId{events}, StreamId{0}});
        program.push(Wait{StreamId{1}, EventId{static_cast<std::int32_t>(below(events + 1))}});
        program.push(Sync{EventId{events++}});
        break;
      default: {
        const auto phase = static_cast<Phase>(below(5));
        const auto micro_batch = static_cast<std::int32_t>(below(3)) - 1;
        if (below(3) == 0) ++step;
        program.mark(phase, step, micro_batch, program.label(fmt::format("place{}", below(5))));
      }
    }
  }
  return std::move(program).finish();
}

}  // namespace tidemark::tests
