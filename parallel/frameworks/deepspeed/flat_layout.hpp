#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Parameters one after another in a flat buffer, of which each rank updates an equal part
// (deepspeed/runtime/zero/stage_1_and_2.py, bf16_optimizer.py).

namespace tidemark::parallel::deepspeed {

/// What of a parameter lies in a rank's partition.
struct FlatSlice {
  std::size_t parameter = 0;
  std::int64_t begin = 0, elements = 0;  ///< of its elements
  std::int64_t at = 0;                   ///< in the partition
  bool operator==(const FlatSlice&) const = default;
};

struct FlatLayout {
  std::vector<std::int64_t> sizes;    ///< elements; by parameter
  std::vector<std::size_t> order;     ///< of parameters in the buffer
  std::vector<std::int64_t> offsets;  ///< in it; by parameter
  std::int64_t partition = 0;         ///< elements of each rank's part
  std::int64_t ranks = 1;

  [[nodiscard]] std::int64_t elements() const { return partition * ranks; }
  /// Elements of the buffer that no parameter has are at its end.
  [[nodiscard]] std::int64_t used() const;
  /// In the buffer's order.
  [[nodiscard]] std::vector<FlatSlice> slices_of(std::int64_t rank) const;
  /// A parameter's, by the ranks that have them.
  struct Piece {
    std::int64_t rank = 0, elements = 0;
  };
  [[nodiscard]] std::vector<Piece> pieces_of(std::size_t parameter) const;
};

enum class FlatOrder : std::uint8_t { AsRegistered, RoundRobin };

/// The buffer ends at a multiple of two elements a rank: where NCCL begins is aligned to 4 bytes.
[[nodiscard]] FlatLayout flat_layout(std::vector<std::int64_t> sizes, std::int64_t ranks, FlatOrder order);

}  // namespace tidemark::parallel::deepspeed
