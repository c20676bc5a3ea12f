#pragma once

#include <string>

#include "scenarios/recordings/snapshot_replay.hpp"

namespace tidemark::scenarios {

/// The answer of `replay` on one screen: yes or no first.
[[nodiscard]] std::string replay_text(const SnapshotReplay& answer);
/// The same for programs, with every number: schema "tidemark.replay/1".
[[nodiscard]] std::string replay_json(const SnapshotReplay& answer);

/// Where in the program a stack was: its innermost frames that name a file of Python, at most `frames` of them, as
/// "model.py:12 forward < train.py:80 main". Empty without frames.
[[nodiscard]] std::string place_text(const MemorySnapshot& snapshot, StackId stack, std::size_t frames);

}  // namespace tidemark::scenarios
