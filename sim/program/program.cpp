#include "sim/program/program.hpp"

#include <algorithm>
#include <numeric>

namespace tidemark::sim {

const View* view_of(const Program& program, ViewId view) { return view.valid() ? &program[view] : nullptr; }

Bytes traffic_of(const Program& program, const Kernel& kernel) {
  if (kernel.fused) return kernel.fused->traffic;
  Bytes sum;
  const auto add = [&](const std::vector<ViewId>& views, std::size_t from = 0) {
    for (std::size_t i = from; i < views.size(); ++i)
      if (const View* view = view_of(program, views[i])) sum += view->bytes();
  };
  const bool looks_up = kernel.operation == Operation::Embedding || kernel.operation == Operation::Gather;
  if (looks_up) {  // [ids table -> y], [x ids -> y]
    const std::size_t ids = kernel.operation == Operation::Embedding ? 0 : 1;
    if (const View* view = view_of(program, kernel.inputs[ids])) sum += view->bytes();
    add(kernel.outputs);
  } else if (kernel.operation == Operation::Scatter && kernel.inputs[0].valid()) {  // [x ids values -> y], in place
    add(kernel.inputs, 1);
    const View &ids = program[kernel.inputs[1]], &y = program[kernel.outputs[0]];
    return sum + ids.stored() * size_of(y.dtype);
  } else if (kernel.operation == Operation::NllLoss) {  // [x labels -> loss total_weight]
    add(kernel.inputs, 1);
  } else {
    add(kernel.inputs);
  }
  add(kernel.outputs);
  return sum;
}

bool equal_but_for_attributes(const Program& a, KernelId of_a, const Program& b, KernelId of_b) {
  const Kernel &x = a[of_a], &y = b[of_b];
  const auto same = [&](ViewId s, ViewId t) {
    const View *of_s = view_of(a, s), *of_t = view_of(b, t);
    return of_s == nullptr || of_t == nullptr ? of_s == of_t : *of_s == *of_t;
  };
  return x.operation == y.operation && x.processor == y.processor && x.fused == y.fused &&
         std::ranges::equal(x.inputs, y.inputs, same) && std::ranges::equal(x.outputs, y.outputs, same);
}

bool equal(const Program& a, KernelId of_a, const Program& b, KernelId of_b) {
  return a[of_a].attributes == b[of_b].attributes && equal_but_for_attributes(a, of_a, b, of_b);
}

bool is_handed_over(const Program& program, const Op& op) {
  return std::visit(Overloaded{
                        [](const Alloc&) { return false; },
                        [](const Free&) { return false; },
                        [](const CrossStreamUse&) { return false; },
                        [&](const Launch& o) { return o.stream.valid() && !program[o.kernel].follows(); },
                        [](const Collective&) { return true; },
                        [](const Exchange&) { return true; },
                        [](const Memcpy&) { return true; },
                        [](const Record&) { return false; },
                        [](const Wait&) { return false; },
                        [](const Sync&) { return false; },
                        [](const CreateDriver&) { return false; },
                        [](const CreateCommunicator&) { return false; },
                        [](const Bind&) { return false; },
                        [](const Unbind&) { return false; },
                        [](const Mark&) { return false; },
                    },
                    op);
}

Bytes larger_side(CollectiveKind kind, const MatrixRow& row) {
  const Bytes in = std::accumulate(row.sends.begin(), row.sends.end(), Bytes{});
  const Bytes out = std::accumulate(row.receives.begin(), row.receives.end(), Bytes{});
  switch (kind) {
    case CollectiveKind::AllGather:
      return out;
    case CollectiveKind::ReduceScatter:
      return in;
    case CollectiveKind::AllToAll:
      return std::max(in, out);
    case CollectiveKind::AllReduce:
    case CollectiveKind::Broadcast:
      break;  // have no parts
  }
  return {};
}

}  // namespace tidemark::sim
