#pragma once

#include <iosfwd>

#include "scenarios/recordings/memory_snapshot.hpp"

namespace tidemark::scenarios {

/// Writes a snapshot as torch.cuda.memory._dump_snapshot would: read_memory_snapshot gives it back, pickle.load reads
/// it, and so does pytorch.org/memory_viz. Frames and stacks are written once, and shared as the snapshot shares them.
void write_memory_snapshot(std::ostream& out, const MemorySnapshot& snapshot);

}  // namespace tidemark::scenarios
