#pragma once

#include "scenarios/predict/prediction.hpp"
#include "scenarios/recordings/memory_snapshot.hpp"

namespace tidemark::scenarios {

/// What torch.cuda.memory._dump_snapshot would write on a rank after the last simulated step, recorded from the start:
/// every alloc, free and segment with the addresses of the emulated allocator, in host order and host time. A stack is
/// what the tensor is and who asked for it, innermost first: tensor, operator, layer, pass of the step, category.
/// Driver memory has no place in it. As the prediction, it is within the device, and where that is full, without a
/// limit. docs/snapshots.md says more.
[[nodiscard]] MemorySnapshot simulated_snapshot(const Job& job, const Trace& trace, Rank rank);

}  // namespace tidemark::scenarios
