#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/program/program.hpp"

namespace tidemark::sim {

/// Whether ranks that look at other rows of a vocabulary, or at other experts, are told apart by that. They take as
/// long.
enum class OwnRows : std::uint8_t { Same, Any };

/// Whether a rank that runs `own` takes as long as one that runs `simulated`, found from the programs: the same marks,
/// collectives, messages, records and waits in order, and the same kernels within micro-batches. Outside of
/// micro-batches a rank is by itself: kernels over pieces of parameters differ from rank to rank, by microseconds, and
/// tell nobody apart.
///
/// Then, for each op of `own`, the op of `simulated` that its host thread comes to at the same time: the n-th op that
/// must be alike for the n-th, and from each on kernel by kernel. Nothing where the programs are not alike.
[[nodiscard]] std::optional<std::vector<std::uint32_t>> timed_like(const Program& simulated, const Program& own,
                                                                   OwnRows rows = OwnRows::Same);

}  // namespace tidemark::sim
