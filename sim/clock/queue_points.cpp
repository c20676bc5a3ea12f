#include "sim/clock/queue_points.hpp"

#include "sim/base/overloaded.hpp"

namespace tidemark::sim {
namespace {

// The stream that the host thread hands the op to; none where it does not.
StreamId handed_to(const Program& program, const Op& op) {
  if (const auto* o = std::get_if<Launch>(&op)) return program[o->kernel].follows() ? StreamId{} : o->stream;
  if (const auto* o = std::get_if<Collective>(&op)) return o->stream;
  if (const auto* o = std::get_if<Exchange>(&op)) return o->stream;
  if (const auto* o = std::get_if<Memcpy>(&op)) return o->stream;
  return {};
}

}  // namespace

bool fills(const LaunchQueue& queue, const Program& program, std::span<const Repeat> repeats) {
  if (queue.depth >= LaunchQueue::endless) return false;
  std::vector<std::int64_t> launched(static_cast<std::size_t>(queue.channels), 0);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const StreamId stream = handed_to(program, program.ops[i]);
    if (!stream.valid()) continue;
    while (!repeats.empty() && i >= repeats.front().last) repeats = repeats.subspan(1);
    const bool repeated = !repeats.empty() && i >= repeats.front().first;
    std::int64_t& its = launched[queue.channel_of(stream)];
    its += repeated ? 1 + repeats.front().more : 1;
    if (its > queue.depth) return true;
  }
  return false;
}

}  // namespace tidemark::sim
