// Any bytes are a snapshot that replays, or an InputError; what is accepted both whole and piece by piece says the
// same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/recordings/memory_snapshot.hpp"
#include "scenarios/recordings/pickle/pickle.hpp"
#include "scenarios/recordings/recorded_trace.hpp"
#include "scenarios/recordings/survivors.hpp"
#include "scenarios/recordings/trace_replay.hpp"
#include "scenarios/recordings/what_if.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using namespace tidemark::scenarios;

constexpr PickleLimits limits{.values = 1 << 20};

// Whatever a snapshot's recording says, these are answers.
std::optional<ReplayReport> replayed(const MemorySnapshot& snapshot) {
  try {
    const RecordedTrace trace = recorded_trace(snapshot);
    const ReplayReport report = replay(trace);
    static_cast<void>(survivors(trace, steps_of(trace, snapshot.annotations, 0)));
    static_cast<void>(what_if(trace, report, {.options = {.expandable_segments = true}, .capacity = {}}));
    static_cast<void>(what_if(trace, report, {.options = trace.options, .capacity = Bytes{100 << 20}}));
    return report;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

std::optional<MemorySnapshot> in_pieces(std::string_view bytes) {
  MemorySnapshot snapshot;
  std::vector<std::vector<TraceEvent>> traces;
  try {
    snapshot = read_memory_snapshot(
        [&](char* into, std::size_t most) {
          const std::size_t n = std::min({most, bytes.size(), std::size_t{7}});
          bytes.copy(into, n);
          bytes.remove_prefix(n);
          return n;
        },
        "fuzz",
        [&](std::size_t device, const TraceEvent& event) {
          traces.resize(std::max(traces.size(), device + 1));
          traces[device].push_back(event);
        },
        limits);
  } catch (const InputError&) {
    return std::nullopt;
  }
  std::move(traces.begin(), traces.end(), snapshot.device_traces.begin());
  return snapshot;
}

// The same for snapshots that say the same: stacks, frames and categories are numbered as they come.
class Text {
 public:
  explicit Text(const MemorySnapshot& snapshot) : snapshot_(snapshot) {
    for (const SegmentRecord& segment : snapshot.segments) {
      write("segment", segment.device, segment.address.value, segment.size.count(), segment.stream,
            static_cast<int>(segment.pool), segment.mempool.first, segment.mempool.second, segment.expandable ? 1 : 0);
      write(segment.stack);
      for (const BlockRecord& block : segment.blocks) {
        write("block", block.address.value, block.size.count(), block.requested.count(), static_cast<int>(block.state));
        write(block.stack);
      }
    }
    for (const std::vector<TraceEvent>& trace : snapshot.device_traces) {
      write("trace");
      for (const TraceEvent& event : trace) {
        write(name(event.action), event.address.value, event.size.count(), event.stream, event.mempool.first,
              event.mempool.second, event.time_us.value_or(-1));
        write(event.stack);
        if (event.category.valid()) write(snapshot.categories[event.category.index()]);
      }
    }
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void write(StackId stack) {
    if (!stack.valid()) return;
    for (const FrameId id : snapshot_.stacks[stack.index()]) {
      const StackFrame& frame = snapshot_.frames[id.index()];
      write("frame", frame.name, frame.file, frame.line);
    }
  }
  template <class... Words>
  void write(const Words&... words) {
    (write_word(words), ...);
    text_ += '\n';
  }
  void write_word(std::string_view word) { text_.append(word).append(" "); }
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void write_word(Number number) { text_.append(std::to_string(number)).append(" "); }

  const MemorySnapshot& snapshot_;
  std::string text_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::optional<MemorySnapshot> streamed = in_pieces(bytes);
  try {
    const MemorySnapshot whole = memory_snapshot(read_pickle(bytes, "fuzz", limits), "fuzz");
    const std::optional<ReplayReport> report = replayed(whole);
    if (streamed && (replayed(*streamed) != report || Text(*streamed).text() != Text(whole).text() ||
                     streamed->settings != whole.settings || streamed->annotations != whole.annotations))
      std::abort();
  } catch (const InputError&) {
    // That is what they are for. What is not kept, such as a list in an event that holds itself, is not judged either.
  }
  return 0;
}
