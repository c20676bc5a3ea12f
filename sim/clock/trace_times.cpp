#include "sim/clock/trace_times.hpp"

#include <algorithm>

namespace tidemark::sim {
namespace {

// Spans of one stream are in order of ops and of ends; `before(op)` is the first op after it.
template <class Before>
std::vector<std::vector<ProgramTimes::Work>> works(const ClassTimeline& timeline, Before before) {
  std::vector<std::vector<ProgramTimes::Work>> streams;
  for (const Span& span : timeline.spans) {
    if (span.stream.index() >= streams.size()) streams.resize(span.stream.index() + 1);
    streams[span.stream.index()].push_back({before(span.op), span.end});
  }
  return streams;
}

}  // namespace

ProgramTimes times_of(const ClassTimeline& timeline, const std::vector<std::uint32_t>& places) {
  if (!timeline.cycles.empty()) {
    ProgramTimes times = times_of(timeline);
    times.places = &places;
    return times;
  }
  ProgramTimes times;
  times.host.reserve(places.size());
  for (const std::uint32_t place : places)
    times.host.push_back(timeline.host[std::min<std::size_t>(place, timeline.host.size() - 1)]);
  times.streams = works(timeline, [&](std::uint32_t op) {
    return static_cast<std::uint32_t>(std::upper_bound(places.begin(), places.end(), op) - places.begin());
  });
  return times;
}

ProgramTimes times_of(const ClassTimeline& timeline) {
  return {timeline.host, works(timeline, [](std::uint32_t op) { return op + 1; }), timeline.cycles, nullptr};
}

}  // namespace tidemark::sim
