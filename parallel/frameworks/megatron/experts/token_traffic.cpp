#include "parallel/frameworks/megatron/experts/token_traffic.hpp"

#include <algorithm>

namespace tidemark::parallel::megatron {

bool Traffic::even() const {
  const auto same = [&](std::int64_t rows) { return rows == sends.front(); };
  return std::ranges::all_of(sends, same) && std::ranges::all_of(receives, same);
}

void exchange_rows(Worker& w, CommSlot comm, MatrixId matrix, const Traffic& traffic, const Tensor& x,
                   const Tensor& out) {
  if (traffic.even()) return w.session.collective(comm, CollectiveKind::AllToAll, x, out);
  Shape sizes = out.sizes;
  sizes[0] = 1;
  const Bytes row = elements_of(sizes) * size_of(x.dtype);  // there may be none
  MatrixRow requested{matrix, {}, {}};
  for (const std::int64_t rows : traffic.sends) requested.sends.push_back(row * rows);
  for (const std::int64_t rows : traffic.receives) requested.receives.push_back(row * rows);
  w.session.collective(comm, CollectiveKind::AllToAll, x, out, requested);
}

}  // namespace tidemark::parallel::megatron
