#include "sim/clock/trace_times.hpp"

#include <algorithm>

#include "sim/base/ensure.hpp"

namespace tidemark::sim {
namespace {

// Spans of one stream are in order of ops and of ends; `before(op)` is the first op after it.
template <class Before>
std::vector<std::vector<ProgramTimes::Work>> works(const ClassTrace& trace, Before before) {
  std::vector<std::vector<ProgramTimes::Work>> streams;
  for (const Span& span : trace.spans) {
    if (span.stream.index() >= streams.size()) streams.resize(span.stream.index() + 1);
    streams[span.stream.index()].push_back({before(span.op), span.end});
  }
  return streams;
}

}  // namespace

ProgramTimes times_of(const ClassTrace& trace, const std::vector<std::uint32_t>& places) {
  ensure(!trace.host.empty(), "the trace has a timeline");
  ProgramTimes times;
  times.host.reserve(places.size());
  for (const std::uint32_t place : places)
    times.host.push_back(trace.host[std::min<std::size_t>(place, trace.host.size() - 1)]);
  times.streams = works(trace, [&](std::uint32_t op) {
    return static_cast<std::uint32_t>(std::upper_bound(places.begin(), places.end(), op) - places.begin());
  });
  return times;
}

ProgramTimes times_of(const ClassTrace& trace) {
  ensure(!trace.host.empty(), "the trace has a timeline");
  return {trace.host, works(trace, [](std::uint32_t op) { return op + 1; })};
}

}  // namespace tidemark::sim
