#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "sim/program/program.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {

/// The rows of an uneven collective, by place: what each of `n` members sends to each, at most so many bytes, and
/// nothing now and then.
inline std::vector<MatrixRow> random_matrix(std::mt19937& random, CollectiveKind kind, std::size_t n, std::int64_t most,
                                            MatrixId matrix = {0}) {
  const auto part = [&] {
    return Bytes{random() % 4 == 0 ? 0 : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most))};
  };
  std::vector<MatrixRow> rows(n, {matrix, std::vector<Bytes>(n), std::vector<Bytes>(n)});
  std::vector<Bytes> parts(n);
  for (Bytes& its : parts) its = part();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      rows[i].sends[j] = rows[j].receives[i] = kind == CollectiveKind::AllGather       ? parts[i]
                                               : kind == CollectiveKind::ReduceScatter ? parts[j]
                                                                                       : part();
  return rows;
}

}  // namespace tidemark::tests
