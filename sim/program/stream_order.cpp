#include "sim/program/stream_order.hpp"

#include <algorithm>

#include "sim/base/overloaded.hpp"

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

void StreamOrder::write(StreamId stream, BufferId buffer) {
  uses_[buffer.index()].written = {stream, issued_[stream.index()]};
}

void StreamOrder::note(const Op& op) {
  const auto work = [&](StreamId stream) {
    ++issued_[stream.index()];
    merge(known_[stream.index()], host_);  // what the host has waited for lies before all it gives out from then on
    for_each_operand(program_, op, [&](BufferId b) { use(stream, b); });
  };
  std::visit(Overloaded{
                 [&](const Alloc& o) {
                   // Host memory waits by itself: PyTorch's pinned blocks for what uses them (CachingHostAllocator).
                   const bool on_device = o.space == MemorySpace::Device;
                   uses_[o.buffer.index()] = {on_device ? o.stream : StreamId{}, {}, false, {}};
                 },
                 [&](const CrossStreamUse& o) { uses_[o.buffer.index()].cross_stream = true; },
                 [&](const Launch& o) {
                   if (!o.stream.valid()) {  // to its end
                     for (const Operand& operand : program_[o.outputs]) uses_[operand.buffer.index()].written = {};
                     return;
                   }
                   work(o.stream);
                   for (const Operand& operand : program_[o.outputs]) write(o.stream, operand.buffer);
                 },
                 [&](const Collective& o) {
                   work(o.stream);
                   write(o.stream, o.out.buffer);
                 },
                 [&](const Exchange& o) {
                   work(o.stream);
                   for (const Transfer& t : program_[o.transfers])
                     if (t.direction == Direction::Receive) write(o.stream, t.buffer);
                 },
                 [&](const Memcpy& o) {
                   work(o.stream);
                   write(o.stream, o.to.buffer);
                 },
                 [&](const Record& o) {
                   Clock& at = recorded_[o.event.index()];
                   at = known_[o.stream.index()];
                   at[o.stream.index()] = issued_[o.stream.index()];
                 },
                 [&](const Wait& o) { merge(known_[o.stream.index()], recorded_[o.event.index()]); },
                 [&](const Sync& o) { merge(host_, recorded_[o.event.index()]); },
                 Ignored<Free, CreateDriver, CreateCommunicator, Bind, Unbind, Mark>{},
             },
             op);
}

std::optional<StreamId> StreamOrder::still_using(BufferId buffer) const {
  const Use& its = uses_[buffer.index()];
  if (its.cross_stream || its.by.empty() || !its.own.valid()) return std::nullopt;
  const Clock& before = known_[its.own.index()];
  for (std::size_t s = 0; s < its.by.size(); ++s)
    if (its.by[s] > std::max(host_[s], before[s])) return StreamId{static_cast<std::int32_t>(s)};
  return std::nullopt;
}

std::optional<StreamId> StreamOrder::still_copying(BufferId buffer) const {
  const Use& its = uses_[buffer.index()];
  for (std::size_t s = 0; s < its.by.size(); ++s)
    if (its.by[s] > host_[s]) return StreamId{static_cast<std::int32_t>(s)};
  return std::nullopt;
}

StreamOrder::Moment StreamOrder::next_of(StreamId stream) const {
  return {stream, stream.valid() ? issued_[stream.index()] + 1 : 0};
}

bool StreamOrder::lies_before(const Moment& moment, StreamId reader) const {
  if (!moment.stream.valid() || moment.stream == reader) return true;
  const std::size_t writer = moment.stream.index();
  const std::int64_t known = reader.valid() ? known_[reader.index()][writer] : 0;
  return moment.work <= std::max(host_[writer], known);
}

std::optional<StreamId> StreamOrder::still_writing(BufferId buffer, StreamId reader) const {
  const Moment& written = uses_[buffer.index()].written;
  if (lies_before(written, reader)) return std::nullopt;
  return written.stream;
}

}  // namespace tidemark::sim
