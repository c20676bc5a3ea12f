#include "kernels/execute/mutation/mutation.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "kernels/execute/memory_points.hpp"

namespace tidemark::execute {
namespace {

constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

// A buffer's life in a program with frees: ops of it, and the same counted without frees.
struct Life {
  BufferId buffer;
  Bytes size;
  std::size_t alloc = nowhere, free = nowhere;
  std::size_t begin = nowhere, end = nowhere;
};

std::vector<Life> lives(const Program& predicted) {
  std::vector<Life> all(static_cast<std::size_t>(predicted.buffers));
  std::size_t written = 0;
  for (std::size_t i = 0; i < predicted.ops.size(); ++i) {
    if (const auto* free = std::get_if<Free>(&predicted.ops[i])) {
      all[free->buffer.index()].free = i;
      all[free->buffer.index()].end = written - 1;
      continue;
    }
    if (const auto* alloc = std::get_if<Alloc>(&predicted.ops[i])) {
      Life& life = all[alloc->buffer.index()];
      life.buffer = alloc->buffer;
      life.size = alloc->size;
      life.alloc = i;
      life.begin = written;
    }
    ++written;
  }
  return all;
}

// Where a free would stand that the next of those moments does not see any more, nor yet the frees after it; nowhere if
// there is no such moment.
std::size_t after_next(const Program& predicted, std::size_t end, const std::vector<std::size_t>& moments) {
  const auto next = std::lower_bound(moments.begin(), moments.end(), end + 1);
  if (next == moments.end()) return nowhere;
  std::size_t written = 0;
  for (std::size_t i = 0; i < predicted.ops.size(); ++i) {
    if (std::holds_alternative<Free>(predicted.ops[i])) continue;
    if (written++ == *next + 2) return i;
  }
  return predicted.ops.size();
}

// What a mark repeats does nothing.
Op mark_before(const Program& program, std::size_t op) {
  while (op-- > 0)
    if (std::holds_alternative<Mark>(program.ops[op])) return program.ops[op];
  return Mark{};
}

bool is_read_later(const Program& program, std::size_t op, BufferId buffer) {
  for (std::size_t i = op + 1; i < program.ops.size(); ++i) {
    if (const auto* launch = std::get_if<Launch>(&program.ops[i])) {
      const auto its = [&](const Operand& operand) { return operand.buffer == buffer; };
      if (std::ranges::any_of(program[launch->inputs], its)) return true;
      if (std::ranges::any_of(program[launch->outputs], its) || std::ranges::any_of(program[launch->scratch], its))
        return false;
    }
    if (const auto* call = std::get_if<Collective>(&program.ops[i]); call != nullptr && call->in.buffer == buffer)
      return true;
    if (const auto* copy = std::get_if<Memcpy>(&program.ops[i]); copy != nullptr && copy->from.buffer == buffer)
      return true;
  }
  return false;
}

bool uses(const Program& program, CommSlot slot, bool in_order_only) {
  return std::any_of(program.ops.begin(), program.ops.end(), [&](const Op& op) {
    if (const auto* call = std::get_if<Collective>(&op))
      return call->comm == slot &&
             (!in_order_only || call->kind == CollectiveKind::AllGather || call->kind == CollectiveKind::ReduceScatter);
    return false;
  });
}

bool uses(const Workload& workload, CommSlot slot, bool in_order_only) {
  return std::any_of(workload.programs.begin(), workload.programs.end(),
                     [&](const Program& program) { return uses(program, slot, in_order_only); });
}

bool exchanges(const Workload& workload, CommSlot slot) {
  for (const Program& program : workload.programs)
    for (const Op& op : program.ops)
      if (const auto* exchange = std::get_if<Exchange>(&op); exchange != nullptr && exchange->comm == slot) return true;
  return false;
}

Group group_of(const Workload& workload, CommSlot slot, Rank rank) {
  Group group;
  group.tag = World::first_payload_tag + slot.value;
  const Communicator& communicator = workload.communicators[slot.index()];
  if (!is_member(communicator, rank)) return group;
  group.members = group_members(communicator, rank);
  group.me = std::find(group.members.begin(), group.members.end(), rank) - group.members.begin();
  return group;
}

// What a program asks of a communicator, in order.
struct Call {
  CollectiveKind kind;
  Bytes size;
  MatrixRow row;  // empty: an even one
  bool operator==(const Call&) const = default;
};
std::vector<Call> calls(const Program& program, CommSlot slot) {
  std::vector<Call> found;
  for (const Op& op : program.ops)
    if (const auto* call = std::get_if<Collective>(&op); call != nullptr && call->comm == slot)
      found.push_back({call->kind, call->size, call->row.valid() ? program[call->row] : MatrixRow{}});
  return found;
}

// Whether ranks that meet along `other` ask the same of `slot`, so that it comes to an end between them.
bool ends_along(const Workload& workload, CommSlot slot, CommSlot other) {
  std::vector<std::vector<Call>> requested;
  for (const Program& program : workload.programs) requested.push_back(calls(program, slot));
  const auto of = [&](Rank rank) {
    return requested[static_cast<std::size_t>(workload.program_of_rank[rank.index()])];
  };
  const Communicator& across = workload.communicators[other.index()];
  for (Rank rank{0}; rank.value < workload.world_size(); ++rank.value)
    if (of(rank) != of(group_leader(across, rank))) return false;
  return true;
}

// Whether both divide all ranks, each in its own way.
bool crosses(const Workload& workload, CommSlot a, CommSlot b) {
  const auto members = [&](CommSlot slot) {
    std::vector<Rank> found = group_members(workload.communicators[slot.index()], {0});
    std::sort(found.begin(), found.end());
    return found;
  };
  for (const CommSlot slot : {a, b})
    for (const GroupAxis& axis : workload.communicators[slot.index()].axes)
      if (axis.step != 1) return false;
  return members(a) != members(b);
}

// A communicator and another of equal size that can be taken for it: one along which the run still comes to an end,
// where there is such a one.
std::optional<std::pair<CommSlot, CommSlot>> axes_to_confuse(const Workload& workload) {
  std::optional<std::pair<CommSlot, CommSlot>> found;
  const auto slots = static_cast<std::int32_t>(workload.communicators.size());
  const auto size = [&](CommSlot slot) { return group_size(workload.communicators[slot.index()]); };
  for (CommSlot slot{0}; slot.value < slots; ++slot.value) {
    if (size(slot) == 1 || !uses(workload, slot, false)) continue;
    for (CommSlot other{0}; other.value < slots; ++other.value) {
      if (size(other) != size(slot) || !crosses(workload, slot, other)) continue;
      if (ends_along(workload, slot, other)) return std::pair(slot, other);
      if (!found) found = std::pair(slot, other);
    }
  }
  return found;
}

}  // namespace

std::optional<Program> mutated_prediction(const Program& predicted, Mutation mutation, PageScale scale,
                                          const std::vector<std::size_t>& moments) {
  const MemoryPoints points = predicted_points(predicted, scale, moments);
  std::vector<std::size_t> looked_at = moments;
  looked_at.insert(std::lower_bound(looked_at.begin(), looked_at.end(), points.peak.op), points.peak.op);
  const bool of_its_free = mutation == Mutation::DeleteFree || mutation == Mutation::DelayFree;

  const auto large = [&](const Life& life) { return scale.held(life.size) * 50 >= points.peak.resident; };
  const auto better = [&](const Life& a, const Life& b) {
    return large(a) == large(b) ? (large(a) ? a.size < b.size : a.size > b.size) : large(a);
  };
  Life chosen;
  for (const Life& life : lives(predicted)) {
    if (life.alloc == nowhere) continue;
    const auto seen = std::lower_bound(looked_at.begin(), looked_at.end(), life.begin);
    if (seen == looked_at.end() || *seen >= life.end) continue;
    if (of_its_free && (life.free == nowhere || after_next(predicted, life.end, looked_at) == nowhere)) continue;
    if (chosen.alloc == nowhere || better(life, chosen)) chosen = life;
  }
  if (chosen.alloc == nowhere) return std::nullopt;

  Program wrong = predicted;
  switch (mutation) {
    case Mutation::HalveSize:
      std::get<Alloc>(wrong.ops[chosen.alloc]).size = chosen.size / 2;
      return wrong;
    case Mutation::DropBuffer:
      wrong.ops[chosen.alloc] = mark_before(predicted, chosen.alloc);
      if (chosen.free != nowhere) wrong.ops.erase(wrong.ops.begin() + static_cast<std::ptrdiff_t>(chosen.free));
      return wrong;
    case Mutation::DeleteFree:
      wrong.ops.erase(wrong.ops.begin() + static_cast<std::ptrdiff_t>(chosen.free));
      return wrong;
    case Mutation::DelayFree: {
      const auto from = wrong.ops.begin() + static_cast<std::ptrdiff_t>(chosen.free);
      const auto to = wrong.ops.begin() + static_cast<std::ptrdiff_t>(after_next(predicted, chosen.end, looked_at));
      std::rotate(from, from + 1, to);
      return wrong;
    }
    default:
      return std::nullopt;
  }
}

std::optional<GroupCall> first_call(const Workload& workload,
                                    const std::function<bool(const Program& program, const Collective& call)>& such) {
  for (CommSlot slot{0}; slot.index() < workload.communicators.size(); ++slot.value) {
    for (const Program& program : workload.programs) {
      std::size_t turn = 0;
      for (std::size_t i = 0; i < program.ops.size(); ++i) {
        const auto* call = std::get_if<Collective>(&program.ops[i]);
        if (call == nullptr || call->comm != slot) continue;
        const std::size_t its = turn++;
        if (such(program, *call) && is_read_later(program, i, call->out.buffer)) return GroupCall{slot, its};
      }
    }
  }
  return std::nullopt;
}

void change_call(Workload& workload, const GroupCall& call,
                 const std::function<void(Program& program, std::size_t op)>& change) {
  for (Program& program : workload.programs) {
    std::size_t seen = 0;
    for (std::size_t i = 0; i < program.ops.size(); ++i)
      if (const auto* its = std::get_if<Collective>(&program.ops[i]); its != nullptr && its->comm == call.slot)
        if (seen++ == call.turn) change(program, i);
  }
}

std::optional<Workload> without_a_collective(const Workload& workload) {
  const std::optional<GroupCall> call = first_call(workload, [](const Program&, const Collective&) { return true; });
  if (!call) return std::nullopt;
  Workload wrong = workload;
  change_call(wrong, *call, [](Program& program, std::size_t op) { program.ops[op] = mark_before(program, op); });
  return wrong;
}

std::vector<Group> groups_of(const Workload& workload, Rank rank) {
  std::vector<Group> groups;
  for (CommSlot slot{0}; slot.index() < workload.communicators.size(); ++slot.value)
    groups.push_back(group_of(workload, slot, rank));
  return groups;
}

std::optional<std::vector<Group>> mutated_groups(const Workload& workload, Rank rank, Mutation mutation) {
  std::vector<Group> groups = groups_of(workload, rank);
  const auto slots = static_cast<std::int32_t>(groups.size());
  if (mutation == Mutation::WrongAxis) {
    const std::optional<std::pair<CommSlot, CommSlot>> axes = axes_to_confuse(workload);
    if (!axes) return std::nullopt;
    Group& group = groups[axes->first.index()];
    const std::int32_t tag = group.tag;
    group = group_of(workload, axes->second, rank);
    group.tag = tag;
    return groups;
  }
  for (CommSlot slot{0}; slot.value < slots; ++slot.value) {
    Group& group = groups[slot.index()];
    // The last: ranks of a tensor-parallel group, which come first, may well send the same.
    const auto other_axis = [&] {
      CommSlot found{};
      for (CommSlot other{0}; other.value < slots; ++other.value) {
        const Communicator& its = workload.communicators[other.index()];
        const std::int32_t size = group_size(its);
        if (size > 1 && size < workload.world_size() && its.axes.size() == 1 && crosses(workload, slot, other))
          found = other;
      }
      return found;
    };
    if (mutation == Mutation::SwapRanks && uses(workload, slot, true)) {
      if (group.members.empty()) return groups;
      std::swap(group.members[0], group.members[1]);
      if (group.me < 2) group.me = 1 - group.me;
      return groups;
    }
    if (mutation == Mutation::WrongPeer && exchanges(workload, slot)) {
      // Every second stage is taken from the replica next along another axis of two or more.
      const CommSlot aside = other_axis();
      if (!aside.valid()) return std::nullopt;
      const Communicator& across = workload.communicators[aside.index()];
      for (std::int64_t place = 0; place < group.size(); ++place) {
        if ((place - group.me) % 2 == 0) continue;
        Rank& member = group.members[static_cast<std::size_t>(place)];
        const std::vector<Rank> line = group_members(across, member);
        const auto at = static_cast<std::size_t>(std::find(line.begin(), line.end(), member) - line.begin());
        if ((at ^ 1) < line.size()) member = line[at ^ 1];
      }
      return groups;
    }
  }
  return std::nullopt;
}

}  // namespace tidemark::execute
