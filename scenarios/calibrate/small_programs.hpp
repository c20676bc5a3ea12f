#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/program/workload.hpp"

// Programs that do one thing again and again, as the programs of jobs do it: memory is asked for, used and given back,
// what the kernel before has written is in the core's cache, and other operands are not.

namespace tidemark::scenarios {

/// A program, and what of it is to be timed.
struct SmallProgram {
  struct Timed {  ///< ops [begin, end)
    std::size_t begin = 0, end = 0;
  };
  Program program;
  std::vector<Timed> timed;
};

/// c[m, n] = a[m, k] b[k, n] in three ways in turn, as training asks for them: with weights that lie by columns
/// (forward), by rows (gradients of inputs), and added to fp32 sums (gradients of weights).
[[nodiscard]] SmallProgram product_program(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                                           std::int64_t repeats);
/// Fused, causal, without dropout, and its backward pass: `timed` are the one and the other in turn.
[[nodiscard]] SmallProgram attention_program(DType dtype, std::int64_t batch, std::int64_t heads, std::int64_t sequence,
                                             std::int64_t width, std::int64_t repeats);
/// A collective among the members of communicator 0, of `size` bytes on its larger side, after one that lets them
/// begin together.
[[nodiscard]] SmallProgram collective_program(CollectiveKind kind, std::int64_t members, Bytes size,
                                              std::int64_t repeats);
/// There and back between the two members of communicator 0, which begin together: `first` sends first, the other one
/// after it.
[[nodiscard]] SmallProgram message_program(bool first, Bytes size, std::int64_t repeats);
/// Between the device's memory and its host's.
[[nodiscard]] SmallProgram copy_program(bool to_device, Bytes size, std::int64_t repeats);
/// Ops that order things, and do nothing by themselves.
[[nodiscard]] SmallProgram idle_program(std::int64_t repeats);

}  // namespace tidemark::scenarios
