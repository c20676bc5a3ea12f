// Any bytes are a snapshot that replays, or an InputError.
#include <cstddef>
#include <cstdint>
#include <string>

#include "scenarios/io/input_error.hpp"
#include "scenarios/io/memory_snapshot.hpp"
#include "scenarios/io/pickle.hpp"
#include "scenarios/io/recorded_trace.hpp"
#include "scenarios/io/trace_replay.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tidemark;
  try {
    const Pickle pickle = read_pickle({reinterpret_cast<const char*>(data), size}, "fuzz", {.values = 1 << 20});
    const MemorySnapshot snapshot = memory_snapshot(pickle, "fuzz");
    static_cast<void>(replay(recorded_trace(snapshot)));
  } catch (const InputError&) {
    // that is what they are for
  }
  return 0;
}
