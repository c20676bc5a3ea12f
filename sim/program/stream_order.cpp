#include "sim/program/stream_order.hpp"

#include <algorithm>

namespace tidemark::sim {
namespace {

std::size_t streams_of(const Program& program) {
  std::int32_t most = 0;
  for (const Op& op : program.ops)
    std::visit(
        [&](const auto& o) {
          if constexpr (requires { o.stream; }) most = std::max(most, o.stream.value);
        },
        op);
  return static_cast<std::size_t>(most) + 1;
}

}  // namespace

StreamOrder::StreamOrder(const Program& program)
    : program_(program),
      known_(streams_of(program), Clock(streams_of(program))),
      host_(known_.size()),
      issued_(known_.size()),
      recorded_(static_cast<std::size_t>(program.events)),
      uses_(static_cast<std::size_t>(program.buffers)) {}

void StreamOrder::merge(Clock& into, const Clock& from) {
  for (std::size_t s = 0; s < from.size(); ++s) into[s] = std::max(into[s], from[s]);
}

void StreamOrder::use(StreamId stream, BufferId buffer) {
  Use& its = uses_[buffer.index()];
  if (stream == its.own) return;
  its.by.resize(issued_.size());
  its.by[stream.index()] = issued_[stream.index()];
}

void StreamOrder::note(const Op& op) {
  const auto work = [&](StreamId stream) {
    ++issued_[stream.index()];
    merge(known_[stream.index()], host_);  // what the host has waited for lies before all it gives out from then on
    for_each_operand(program_, op, [&](BufferId b) { use(stream, b); });
  };
  if (const auto* alloc = std::get_if<Alloc>(&op)) {
    uses_[alloc->buffer.index()] = {alloc->stream, {}, false};
  } else if (const auto* borrow = std::get_if<Borrow>(&op)) {
    uses_[borrow->buffer.index()].borrowed = true;
  } else if (const auto* launch = std::get_if<Launch>(&op)) {
    work(launch->stream);
  } else if (const auto* collective = std::get_if<Collective>(&op)) {
    work(collective->stream);
  } else if (const auto* exchange = std::get_if<Exchange>(&op)) {
    work(exchange->stream);
  } else if (const auto* record = std::get_if<Record>(&op)) {
    Clock& at = recorded_[record->event.index()];
    at = known_[record->stream.index()];
    at[record->stream.index()] = issued_[record->stream.index()];
  } else if (const auto* wait = std::get_if<Wait>(&op)) {
    merge(known_[wait->stream.index()], recorded_[wait->event.index()]);
  } else if (const auto* sync = std::get_if<Sync>(&op)) {
    merge(host_, recorded_[sync->event.index()]);
  }
}

std::optional<StreamId> StreamOrder::still_using(BufferId buffer) const {
  const Use& its = uses_[buffer.index()];
  if (its.borrowed || its.by.empty()) return std::nullopt;
  const Clock& before = known_[its.own.index()];
  for (std::size_t s = 0; s < its.by.size(); ++s)
    if (its.by[s] > std::max(host_[s], before[s])) return StreamId{static_cast<std::int32_t>(s)};
  return std::nullopt;
}

}  // namespace tidemark::sim
