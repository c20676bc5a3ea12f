#include <algorithm>
#include <cstddef>
#include <utility>

#include "kernels/execute/mutation/mutation.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::execute {
namespace {

Category category_of(const Program& program, BufferId buffer) {
  for (const Op& op : program.ops)
    if (const auto* alloc = std::get_if<Alloc>(&op); alloc != nullptr && alloc->buffer == buffer)
      return alloc->category;
  return Category::Temporaries;
}

// Where a program makes that call.
std::size_t op_of(const Program& program, const GroupCall& call) {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i)
    if (const auto* its = std::get_if<Collective>(&program.ops[i]); its != nullptr && its->comm == call.slot)
      if (seen++ == call.turn) return i;
  return program.ops.size();
}

// Of what a call sends: the last that wrote it knows rows.
Bytes row_size(const Program& program, std::size_t op, BufferId sent) {
  while (op-- > 0) {
    const auto* launch = std::get_if<Launch>(&program.ops[op]);
    if (launch == nullptr) continue;
    const std::span<const Operand> outputs = program[launch->outputs];
    std::size_t next = 0;
    for (const ViewId id : program[launch->kernel].outputs) {
      if (!id.valid() || outputs[next++].buffer != sent) continue;
      const View& view = program[id];
      return Bytes{view.sizes.size() > 1 ? view.sizes.back() : 1} * size_of(view.dtype).count();
    }
  }
  return {};
}

MatrixRow row_of(const Program& program, const Collective& call, std::int64_t members) {
  if (call.row.valid()) return program[call.row];
  const std::vector<Bytes> even(static_cast<std::size_t>(members), call.size / members);
  return {{}, even, even};
}

}  // namespace

std::optional<GroupCall> first_dispatch(const Workload& workload) {
  return first_call(workload, [](const Program& program, const Collective& call) {
    return call.kind == CollectiveKind::AllToAll && category_of(program, call.out.buffer) == Category::CommEp;
  });
}

Program with_wrong_count(const Workload& workload, const GroupCall& dispatch, Rank rank) {
  Program wrong = workload.program(rank);
  const std::vector<Rank> members = group_members(workload.communicators[dispatch.slot.index()], rank);
  const auto size = static_cast<std::int64_t>(members.size());
  const Program& of_first = workload.program(members.front());
  const std::size_t its_op = op_of(of_first, dispatch), op = op_of(wrong, dispatch);
  if (op == wrong.ops.size()) return wrong;
  const auto& its = std::get<Collective>(of_first.ops[its_op]);
  const Bytes row = row_size(of_first, its_op, its.in.buffer);
  if (row == Bytes{} || row_of(of_first, its, size).sends.front() < row) return wrong;  // nothing to take away

  auto& call = std::get<Collective>(wrong.ops[op]);
  MatrixRow matrix = row_of(wrong, call, size);
  if (!matrix.matrix.valid()) {
    std::int32_t known = 0;
    for (const Program& program : workload.programs)
      for (const MatrixRow& other : program.rows) known = std::max(known, other.matrix.value + 1);
    matrix.matrix = {known};
  }
  const auto place = std::ranges::find(members, rank) - members.begin();
  if (place == 0) {
    matrix.sends[0] = matrix.sends[0] - row;
    matrix.sends[1] = matrix.sends[1] + row;
    matrix.receives[0] = matrix.receives[0] - row;
  } else if (place == 1) {
    matrix.receives[0] = matrix.receives[0] + row;
    for (Op& alloc : wrong.ops)
      if (auto* made = std::get_if<Alloc>(&alloc); made != nullptr && made->buffer == call.out.buffer)
        made->size = made->size + row;
  }
  call.size = larger_side(call.kind, matrix);
  call.row = {static_cast<std::int32_t>(wrong.rows.size())};
  wrong.rows.push_back(std::move(matrix));
  return wrong;
}

}  // namespace tidemark::execute
