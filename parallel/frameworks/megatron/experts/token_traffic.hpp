#pragma once

#include <cstdint>
#include <vector>

#include "parallel/frameworks/megatron/worker.hpp"

namespace tidemark::parallel::megatron {

/// Rows that a rank sends to each place of its group, and receives from it.
struct Traffic {
  std::vector<std::int64_t> sends, receives;

  [[nodiscard]] bool even() const;
  [[nodiscard]] Traffic back() const { return {receives, sends}; }
};

/// All who send to a rank spread their tokens alike: what one of so many sends.
[[nodiscard]] constexpr std::int64_t part_of(std::int64_t rows, std::int64_t sender, std::int64_t senders) {
  return rows * (sender + 1) / senders - rows * sender / senders;
}

/// Rows of `x` go to the places of the group, and `out` is what comes from them. `matrix` names all that is sent so.
void exchange_rows(Worker& w, CommSlot comm, MatrixId matrix, const Traffic& traffic, const Tensor& x,
                   const Tensor& out);

}  // namespace tidemark::parallel::megatron
