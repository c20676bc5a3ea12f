#include "sim/memory/waited_work.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/overloaded.hpp"

namespace tidemark::sim {

std::int64_t& WaitedWork::entry(Clock& clock, StreamId stream) {
  if (clock.size() <= stream.index()) clock.resize(stream.index() + 1, 0);
  return clock[stream.index()];
}

void WaitedWork::merge(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (std::size_t s = 0; s < from.size(); ++s) into[s] = std::max(into[s], from[s]);
}

WaitedWork::Clock& WaitedWork::of(std::vector<Clock>& clocks, std::size_t index) {
  if (clocks.size() <= index) clocks.resize(index + 1);
  return clocks[index];
}

void WaitedWork::wait(const Event& event) {
  std::int64_t& known = entry(host_, event.stream);
  known = std::max(known, event.work);
}

void WaitedWork::note(const Op& op) {
  const auto work = [&](const auto& o) {
    if (o.stream.valid()) ++entry(issued_, o.stream);
  };
  std::visit(Overloaded{
                 [&](const Launch& o) { work(o); },
                 [&](const Collective& o) { work(o); },
                 [&](const Exchange& o) { work(o); },
                 [&](const Memcpy& o) { work(o); },
                 [&](const Record& o) {
                   Clock clock = of(known_, o.stream.index());
                   entry(clock, o.stream) = at(issued_, o.stream);
                   of(recorded_, o.event.index()) = std::move(clock);
                 },
                 [&](const Wait& o) { merge(of(known_, o.stream.index()), of(recorded_, o.event.index())); },
                 [&](const Sync& o) { merge(host_, of(recorded_, o.event.index())); },
                 Ignored<Alloc, Free, CrossStreamUse, CreateDriver, CreateCommunicator, Bind, Unbind, Mark>{},
             },
             op);
}

}  // namespace tidemark::sim
