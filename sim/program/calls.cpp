#include "sim/program/calls.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/base/overloaded.hpp"

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
  RowId row;
  Bytes size;
  bool operator==(const CollectiveCall&) const = default;
};

struct Copy {
  MemorySpace from, to;
  Bytes size;
  bool operator==(const Copy&) const = default;
};

struct Message {
  Direction direction;
  std::int32_t step;
  Bytes size;
  bool operator==(const Message&) const = default;
};
using ExchangeCall = std::pair<CommSlot, std::vector<Message>>;

class Calls {
 public:
  explicit Calls(const Program& program) : program_(program), allocs_(static_cast<std::size_t>(program.buffers)) {
    calls_.kernels = program.kernels;
    calls_.views = program.views;
    calls_.rows = program.rows;
    calls_.labels = {Label("call")};
  }

  Program all() && {
    for (const Op& op : program_.ops)
      std::visit(Overloaded{
                     [&](const Alloc& o) {
                       allocs_[o.buffer.index()] = {o.size, o.space};
                     },
                     [&](const Collective& o) { add(o); },
                     [&](const Exchange& o) { add(o); },
                     [&](const Memcpy& o) { add(o); },
                     Ignored<Free, CrossStreamUse, Launch, Record, Wait, Sync, CreateDriver, CreateCommunicator, Bind,
                             Unbind, Mark>{},
                 },
                 op);
    return std::move(calls_);
  }

 private:
  struct Allocated {
    Bytes size;
    MemorySpace space = MemorySpace::Device;
  };

  BufferId buffer_of(Bytes size, MemorySpace space = MemorySpace::Device) {
    const BufferId buffer{calls_.buffers++};
    calls_.ops.emplace_back(Alloc{buffer, size, Category::Temporaries, {0}, LabelId{0}, space});
    return buffer;
  }

  void add(const Collective& o) {
    if (!is_new(collectives_, {o.comm, o.kind, o.row, o.size})) return;
    Collective call = o;
    call.in = call.out = Operand(buffer_of(o.size));
    calls_.ops.emplace_back(call);
  }

  void add(const Exchange& o) {
    ExchangeCall call{o.comm, {}};
    for (const Transfer& t : program_[o.transfers])
      call.second.push_back({t.direction, t.step, t.size(allocs_[t.buffer.index()].size)});
    if (!is_new(exchanges_, call)) return;
    std::vector<Transfer> transfers;
    for (const Message& m : call.second) transfers.push_back({m.direction, m.step, buffer_of(m.size)});
    calls_.ops.emplace_back(
        Exchange{o.stream,
                 o.comm,
                 {static_cast<std::uint32_t>(calls_.transfers.size()), static_cast<std::uint32_t>(transfers.size())}});
    calls_.transfers.insert(calls_.transfers.end(), transfers.begin(), transfers.end());
  }

  void add(const Memcpy& o) {
    const Copy call{allocs_[o.from.buffer.index()].space, allocs_[o.to.buffer.index()].space, o.size};
    if (!is_new(copies_, call)) return;
    const BufferId from = buffer_of(o.size, call.from);
    calls_.ops.emplace_back(Memcpy{o.stream, from, buffer_of(o.size, call.to), o.size});
  }

  const Program& program_;
  std::vector<Allocated> allocs_;  // by buffer
  std::vector<CollectiveCall> collectives_;
  std::vector<ExchangeCall> exchanges_;
  std::vector<Copy> copies_;
  Program calls_;
};

}  // namespace

Workload calls_of(const Workload& workload) {
  Workload calls{{}, workload.program_of_rank, workload.communicators};
  for (const Program& program : workload.programs) calls.programs.push_back(Calls(program).all());
  return calls;
}

// What repeats calls nothing else when it does.
Workload calls_of(const RepeatingWorkload& workload) {
  Workload calls{{}, workload.program_of_rank, workload.communicators};
  for (const Outline& program : workload.programs) calls.programs.push_back(Calls(program.shown()).all());
  return calls;
}

}  // namespace tidemark::sim
