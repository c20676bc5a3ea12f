#include "parallel/frameworks/deepspeed/flat_layout.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tidemark::parallel::deepspeed {

std::int64_t FlatLayout::used() const { return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}); }

std::vector<FlatSlice> FlatLayout::slices_of(std::int64_t rank) const {
  const std::int64_t first = partition * rank, last = first + partition;
  std::vector<FlatSlice> slices;
  for (const std::size_t p : order) {
    const std::int64_t begin = std::max(offsets[p], first), end = std::min(offsets[p] + sizes[p], last);
    if (begin < end) slices.push_back({p, begin - offsets[p], end - begin, begin - first});
  }
  return slices;
}

std::vector<FlatLayout::Piece> FlatLayout::pieces_of(std::size_t parameter) const {
  std::vector<Piece> pieces;
  const std::int64_t end = offsets[parameter] + sizes[parameter];
  for (std::int64_t at = offsets[parameter]; at < end;) {
    const std::int64_t rank = at / partition, next = std::min(end, (rank + 1) * partition);
    pieces.push_back({rank, next - at});
    at = next;
  }
  return pieces;
}

FlatLayout flat_layout(std::vector<std::int64_t> sizes, std::int64_t ranks, FlatOrder order) {
  FlatLayout made;
  made.sizes = std::move(sizes);
  made.ranks = ranks;
  made.offsets.resize(made.sizes.size());
  // Every so many-th parameter, then their neighbours (_round_robin_reorder).
  const std::size_t apart = order == FlatOrder::RoundRobin ? static_cast<std::size_t>(ranks) : 1;
  for (std::size_t first = 0; first < apart; ++first)
    for (std::size_t p = first; p < made.sizes.size(); p += apart) made.order.push_back(p);
  std::int64_t at = 0;
  for (const std::size_t p : made.order) {
    made.offsets[p] = at;
    at += made.sizes[p];
  }
  constexpr std::int64_t elements_of_4_bytes = 2;
  const std::int64_t aligned = elements_of_4_bytes * ranks;
  made.partition = (at + aligned - 1) / aligned * elements_of_4_bytes;
  return made;
}

}  // namespace tidemark::parallel::deepspeed
