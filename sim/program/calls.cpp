#include "sim/program/calls.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace tidemark::sim {
namespace {

// A program makes a handful of different calls: looking through them is quicker than any table.
template <class Call>
bool is_new(std::vector<Call>& seen, const Call& call) {
  if (std::find(seen.rbegin(), seen.rend(), call) != seen.rend()) return false;
  seen.push_back(call);
  return true;
}

struct CollectiveCall {
  CommSlot comm;
  CollectiveKind kind;
  Bytes size;
  bool operator==(const CollectiveCall&) const = default;
};

struct Message {
  Direction direction;
  std::int32_t step;
  Bytes size;
  bool operator==(const Message&) const = default;
};
using ExchangeCall = std::pair<CommSlot, std::vector<Message>>;

Program calls_of(const Program& program) {
  Program calls;
  calls.kernels = program.kernels;
  calls.labels = {Label("call")};
  std::vector<Bytes> sizes(static_cast<std::size_t>(program.buffers));
  std::vector<CollectiveCall> collectives;
  std::vector<ExchangeCall> exchanges;
  const auto buffer_of = [&](Bytes size) {
    const BufferId buffer{calls.buffers++};
    calls.ops.emplace_back(Alloc{buffer, size, Category::Temporaries, {0}, LabelId{0}});
    return buffer;
  };
  for (const Op& op : program.ops) {
    if (const auto* alloc = std::get_if<Alloc>(&op)) {
      sizes[alloc->buffer.index()] = alloc->size;
    } else if (const auto* collective = std::get_if<Collective>(&op)) {
      if (!is_new(collectives, {collective->comm, collective->kind, collective->size})) continue;
      Collective call = *collective;
      call.in = call.out = buffer_of(collective->size);
      calls.ops.emplace_back(call);
    } else if (const auto* exchange = std::get_if<Exchange>(&op)) {
      ExchangeCall call{exchange->comm, {}};
      for (const Transfer& t : program[exchange->transfers])
        call.second.push_back({t.direction, t.step, sizes[t.buffer.index()]});
      if (!is_new(exchanges, call)) continue;
      std::vector<Transfer> transfers;
      for (const Message& m : call.second) transfers.push_back({m.direction, m.step, buffer_of(m.size)});
      calls.ops.emplace_back(
          Exchange{exchange->stream,
                   exchange->comm,
                   {static_cast<std::uint32_t>(calls.transfers.size()), static_cast<std::uint32_t>(transfers.size())}});
      calls.transfers.insert(calls.transfers.end(), transfers.begin(), transfers.end());
    }
  }
  return calls;
}

}  // namespace

Workload calls_of(const Workload& workload) {
  Workload calls{{}, workload.program_of_rank, workload.communicators};
  for (const Program& program : workload.programs) calls.programs.push_back(calls_of(program));
  return calls;
}

// What repeats calls nothing else when it does.
Workload calls_of(const RepeatingWorkload& workload) {
  Workload calls{{}, workload.program_of_rank, workload.communicators};
  for (const RepeatingProgram& program : workload.programs) calls.programs.push_back(calls_of(program.rolled));
  return calls;
}

}  // namespace tidemark::sim
