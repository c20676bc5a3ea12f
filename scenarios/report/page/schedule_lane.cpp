#include "scenarios/report/page/schedule_lane.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {
namespace {

// What a transfer is of, and how much it moves.
struct Moved {
  std::int32_t communicator = -1;
  Bytes bytes;
};

void add(ScheduleLane& lane, const Span& span, const Mark& mark) {
  if (lane.passes.empty() || lane.passes.back().phase != mark.phase ||
      lane.passes.back().micro_batch != mark.micro_batch)
    lane.passes.push_back({span.begin, span.end, {}, mark.phase, mark.micro_batch});
  ScheduleLane::Pass& pass = lane.passes.back();
  pass.end = std::max(pass.end, span.end);
  pass.busy += span.end - span.begin;
}

}  // namespace

ScheduleLane schedule_lane(const Job& job, const Trace& trace, Rank rank, std::int32_t step, Duration finest) {
  const Program program = job.program(static_cast<std::size_t>(job.folding.of(rank).program));
  std::vector<Mark> marks(program.ops.size());
  std::vector<Bytes> sizes(static_cast<std::size_t>(program.buffers));
  Mark now;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (const auto* o = std::get_if<Mark>(&program.ops[i])) now = *o;
    if (const auto* o = std::get_if<Alloc>(&program.ops[i])) sizes[o->buffer.index()] = o->size;
    marks[i] = now;
  }
  std::vector<Span> spans;
  for (const Span& span : timeline_of(job, trace, job.class_of(rank), program).spans)
    if (marks[span.op].step == step) spans.push_back(span);
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tuple(a.begin, a.stream, a.op) < std::tuple(b.begin, b.stream, b.op);
  });

  ScheduleLane lane{.rank = rank, .passes = {}, .traffic = {}};
  std::map<std::int32_t, ScheduleLane::Traffic> open;  // by communicator
  const auto moved = [&](const Span& span, const Moved& what) {
    const auto [found, is_new] = open.try_emplace(what.communicator);
    ScheduleLane::Traffic& run = found->second;
    if (!is_new && span.begin - run.end > finest) lane.traffic.push_back(run);
    if (is_new || span.begin - run.end > finest) run = {span.begin, span.end, {}, what.communicator, {}, 0};
    run.end = std::max(run.end, span.end);
    run.busy += span.end - span.begin;
    run.bytes += what.bytes;
    ++run.transfers;
  };
  for (const Span& span : spans)
    std::visit(Overloaded{
                   [&](const Launch&) { add(lane, span, marks[span.op]); },
                   [&](const Collective& o) {
                     moved(span, {static_cast<std::int32_t>(o.comm.index()), o.size});
                   },
                   [&](const Exchange& o) {
                     Bytes bytes;
                     for (const Transfer& t : program[o.transfers]) bytes += t.size(sizes[t.buffer.index()]);
                     moved(span, {static_cast<std::int32_t>(o.comm.index()), bytes});
                   },
                   [&](const Memcpy& o) {
                     moved(span, {-1, o.size});
                   },
                   Ignored<Alloc, Free, CrossStreamUse, Record, Wait, Sync, CreateDriver, CreateCommunicator, Bind,
                           Unbind, Mark>{},
               },
               program.ops[span.op]);
  for (const auto& [communicator, run] : open) lane.traffic.push_back(run);
  std::stable_sort(lane.traffic.begin(), lane.traffic.end(),
                   [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return lane;
}

}  // namespace tidemark::scenarios
