#include "kernels/arithmetic/meaning_mutation.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "kernels/execute/executor.hpp"

namespace tidemark::execute {
namespace {

// An op of a step.
struct Place {
  std::size_t op = 0;
  Mark mark;
};

// The first op of a step of which `spoil` makes something.
template <class Spoil>
auto first_in_a_step(const Program& program, Spoil&& spoil) -> decltype(spoil(Place{})) {
  Mark mark;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (const auto* next = std::get_if<Mark>(&program.ops[i])) mark = *next;
    if (mark.step == 0) continue;
    if (auto spoiled = spoil(Place{i, mark})) return spoiled;
  }
  return {};
}

struct Spoiled {
  Program program;
  std::string what;
};
using Spoiling = std::optional<Spoiled>;

std::string reported(const Program& program, const Place& place, const std::string& what) {
  return fmt::format("{}: {}", describe(program, place.op), what);
}

const Launch* launch_at(const Program& program, const Place& place) {
  return std::get_if<Launch>(&program.ops[place.op]);
}

// ---- programs with another launch

OperandList added(Program& program, const std::vector<Operand>& operands) {
  const OperandList list{static_cast<std::uint32_t>(program.operands.size()),
                         static_cast<std::uint32_t>(operands.size())};
  program.operands.insert(program.operands.end(), operands.begin(), operands.end());
  return list;
}
KernelId added(Program& program, Kernel kernel) {
  program.kernels.push_back(std::move(kernel));
  return {static_cast<std::int32_t>(program.kernels.size()) - 1};
}

Program with_operand(const Program& program, std::size_t op, OperandList Launch::*which, std::size_t i, Operand its) {
  Program wrong = program;
  Launch& launch = std::get<Launch>(wrong.ops[op]);
  const std::span<const Operand> before = wrong[launch.*which];
  std::vector<Operand> operands(before.begin(), before.end());
  operands[i] = its;
  launch.*which = added(wrong, operands);
  return wrong;
}

// Views of the operands that are there.
std::vector<ViewId> views_there(const std::vector<ViewId>& views) {
  std::vector<ViewId> there;
  std::ranges::copy_if(views, std::back_inserter(there), &ViewId::valid);
  return there;
}

bool is_number(DType dtype) { return dtype != DType::INT64 && dtype != DType::BOOL && dtype != DType::INT16; }

// ---- what can be done wrong

// A kernel reads another one of its operands in place of what it forgets.
Spoiling forgotten_operand(const Program& program) {
  return first_in_a_step(program, [&](const Place& place) -> Spoiling {
    const Launch* const launch = launch_at(program, place);
    if (launch == nullptr || place.mark.phase != Phase::Backward) return {};
    const std::span<const Operand> inputs = program[launch->inputs];
    const std::vector<ViewId> views = views_there(program[launch->kernel].inputs);
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      if (views[i] != views[0] || inputs[i] == inputs[0] || !is_number(program[views[0]].dtype)) continue;
      const Operation operation = program[launch->kernel].operation;
      if (operation == Operation::Copy) continue;
      return Spoiled{with_operand(program, place.op, &Launch::inputs, i, inputs[0]),
                     reported(program, place,
                              fmt::format("{} reads {} a second time, and {} not at all", name(operation),
                                          describe(program, inputs[0].buffer), describe(program, inputs[i].buffer)))};
    }
    return {};
  });
}

// A kernel reads a part of a buffer that another kernel sees, of the same shape.
Spoiling wrong_cut(const Program& program) {
  std::map<std::pair<BufferId, ViewId>, std::set<OffsetId>> parts;
  const auto each_input = [&](const Launch& launch, auto&& use) {
    const std::vector<ViewId> views = views_there(program[launch.kernel].inputs);
    for (std::size_t i = 0; i < views.size(); ++i) use(i, program[launch.inputs][i], views[i]);
  };
  for (const Op& op : program.ops)
    if (const auto* launch = std::get_if<Launch>(&op))
      each_input(*launch, [&](std::size_t, const Operand& operand, ViewId view) {
        parts[{operand.buffer, view}].insert(operand.offset);
      });
  return first_in_a_step(program, [&](const Place& place) -> Spoiling {
    const Launch* const launch = launch_at(program, place);
    if (launch == nullptr || program[launch->kernel].operation == Operation::Norm) return {};
    Spoiling found;
    each_input(*launch, [&](std::size_t i, const Operand& operand, ViewId view) {
      if (found || !is_number(program[view].dtype)) return;
      for (const OffsetId other : parts.at({operand.buffer, view})) {
        if (program[other] == program[operand.offset]) continue;
        found = {with_operand(program, place.op, &Launch::inputs, i, {operand.buffer, other}),
                 reported(program, place,
                          fmt::format("{} reads {} from byte {} on, not from byte {}",
                                      name(program[launch->kernel].operation), describe(program, operand.buffer),
                                      program[other].count(), program[operand.offset].count()))};
        return;
      }
    });
    return found;
  });
}

Spoiling missing_bias_gradient(const Program& program) {
  return first_in_a_step(program, [&](const Place& place) -> Spoiling {
    const Launch* const launch = launch_at(program, place);
    if (launch == nullptr || place.mark.phase != Phase::Backward) return {};
    const Kernel& kernel = program[launch->kernel];
    if (kernel.operation != Operation::Sum) return {};
    const std::string made = describe(program, program[launch->outputs].front().buffer);
    if (made.find("bias") == std::string::npos) return {};
    Program wrong = program;
    Launch& fill = std::get<Launch>(wrong.ops[place.op]);
    fill.kernel = added(wrong, {.operation = Operation::Fill, .inputs = {}, .outputs = kernel.outputs});
    fill.inputs = {};
    return Spoiled{std::move(wrong), reported(program, place, fmt::format("{} is nothing", made))};
  });
}

Spoiling wrong_scale(const Program& program, bool of_products) {
  return first_in_a_step(program, [&](const Place& place) -> Spoiling {
    const Launch* const launch = launch_at(program, place);
    if (launch == nullptr || place.mark.phase != Phase::Forward) return {};
    Kernel kernel = program[launch->kernel];
    const std::vector<std::string_view>& names = facts_of(kernel.operation).attributes;
    const auto its = std::ranges::find_if(names, [](std::string_view n) { return n == "scale" || n == "factor"; });
    if (its == names.end() || (kernel.operation == Operation::Matmul) != of_products) return {};
    double& scale = kernel.attributes[static_cast<std::size_t>(its - names.begin())];
    const std::string what =
        fmt::format("{} goes by a {} of {} instead of {}", name(kernel.operation), *its, 2 * scale, scale);
    scale *= 2;
    Program wrong = program;
    std::get<Launch>(wrong.ops[place.op]).kernel = added(wrong, std::move(kernel));
    return Spoiled{std::move(wrong), reported(program, place, what)};
  });
}

// What adds to a gradient does so once more.
Spoiling gradient_twice(const Program& program) {
  std::vector<Category> categories(static_cast<std::size_t>(program.buffers));
  for (const Op& op : program.ops)
    if (const auto* alloc = std::get_if<Alloc>(&op)) categories[alloc->buffer.index()] = alloc->category;
  return first_in_a_step(program, [&](const Place& place) -> Spoiling {
    const Launch* const launch = launch_at(program, place);
    if (launch == nullptr || place.mark.phase != Phase::Backward) return {};
    const std::span<const Operand> inputs = program[launch->inputs];
    for (const Operand& sum : program[launch->outputs]) {
      if (categories[sum.buffer.index()] != Category::Gradients || std::ranges::count(inputs, sum) == 0) continue;
      Program wrong = program;
      wrong.ops.insert(wrong.ops.begin() + static_cast<std::ptrdiff_t>(place.op), wrong.ops[place.op]);
      return Spoiled{std::move(wrong),
                     reported(program, place,
                              fmt::format("{} adds to {} twice", name(program[launch->kernel].operation),
                                          describe(program, sum.buffer)))};
    }
    return {};
  });
}

// ---- frees

// What is to be known of a buffer.
struct Life {
  LabelId label;
  Category category = Category::Temporaries;
  std::size_t used = 0, freed = 0;  // last, and at all
};
std::vector<Life> lives(const Program& program) {
  std::vector<Life> all(static_cast<std::size_t>(program.buffers));
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (const auto* alloc = std::get_if<Alloc>(&op)) all[alloc->buffer.index()] = {alloc->label, alloc->category};
    if (const auto* free = std::get_if<Free>(&op)) all[free->buffer.index()].freed = i;
    for_each_operand(program, op, [&](BufferId b) { all[b.index()].used = i; });
  }
  return all;
}

bool uses(const Program& program, const Op& op, BufferId buffer) {
  bool its = false;
  for_each_operand(program, op, [&](BufferId b) { its |= b == buffer; });
  return its;
}

Program with_free_after(const Program& program, std::size_t free, std::size_t op) {
  Program wrong = program;
  const auto from = wrong.ops.begin() + static_cast<std::ptrdiff_t>(free);
  std::rotate(wrong.ops.begin() + static_cast<std::ptrdiff_t>(op) + 1, from, from + 1);
  return wrong;
}

// What a layer's forward pass has saved is given up after the use before its last reader, which is a backward pass, or
// a forward pass that runs again.
Spoiling early_free(const Program& program, bool of_recomputation) {
  const std::vector<Life> all = lives(program);
  return first_in_a_step(program, [&](const Place& place) -> Spoiling {
    const Launch* const launch = launch_at(program, place);
    if (launch == nullptr) return {};
    const bool runs_again = std::ranges::any_of(program[launch->outputs], [&](const Operand& o) {
      return all[o.buffer.index()].category == Category::Recompute;
    });
    if (of_recomputation ? !runs_again : runs_again || place.mark.phase != Phase::Backward) return {};
    for (const Operand& input : program[launch->inputs]) {
      const Life& life = all[input.buffer.index()];
      const bool of_a_layer = program.labels[life.label.index()].layer >= 0;
      if (life.category != Category::SavedActivations || !of_a_layer || life.freed <= place.op) continue;
      if (!of_recomputation && life.used != place.op) continue;
      std::size_t before = place.op;
      while (!uses(program, program.ops[--before], input.buffer))
        if (before == 0) return {};
      return Spoiled{with_free_after(program, life.freed, before),
                     reported(program, place,
                              fmt::format("{} is freed before {} reads it", program[life.label],
                                          name(program[launch->kernel].operation)))};
    }
    return {};
  });
}

// What a unit's parameters were gathered into, or copied out to, is given up after the use before its last reader.
Spoiling early_reshard(const Program& program) {
  std::vector<bool> gathered(static_cast<std::size_t>(program.buffers));
  std::vector<std::size_t> freed(gathered.size()), read(gathered.size());
  std::int32_t step = 0;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (const auto* mark = std::get_if<Mark>(&op)) step = mark->step;
    if (const auto* alloc = std::get_if<Alloc>(&op))
      gathered[alloc->buffer.index()] = step > 0 && alloc->category == Category::Parameters;
    if (const auto* free = std::get_if<Free>(&op)) freed[free->buffer.index()] = i;
    if (const auto* launch = std::get_if<Launch>(&op))
      for (const Operand& input : program[launch->inputs]) read[input.buffer.index()] = i;
  }
  return first_in_a_step(program, [&](const Place& place) -> Spoiling {
    const Launch* const launch = launch_at(program, place);
    if (launch == nullptr || program[launch->kernel].operation == Operation::Copy) return {};
    for (const Operand& input : program[launch->inputs]) {
      const std::size_t its = input.buffer.index();
      if (!gathered[its] || read[its] != place.op || freed[its] <= place.op) continue;
      std::size_t before = place.op;
      while (!uses(program, program.ops[--before], input.buffer))
        if (before == 0) return {};
      return Spoiled{with_free_after(program, freed[its], before),
                     reported(program, place,
                              fmt::format("{} is resharded before {} reads it", describe(program, input.buffer),
                                          name(program[launch->kernel].operation)))};
    }
    return {};
  });
}

Spoiling dropped_copy(const Program& program) {
  return first_in_a_step(program, [&](const Place& place) -> Spoiling {
    const auto* const copy = std::get_if<Memcpy>(&program.ops[place.op]);
    if (copy == nullptr) return {};
    Program without = program;
    without.ops.erase(without.ops.begin() + static_cast<std::ptrdiff_t>(place.op));
    return Spoiled{std::move(without),
                   reported(program, place,
                            fmt::format("{} is not copied to {}", describe(program, copy->from.buffer),
                                        describe(program, copy->to.buffer)))};
  });
}

Spoiling spoiled(const Program& program, Mutation mutation) {
  switch (mutation) {
    case Mutation::EarlyReshard:
      return early_reshard(program);
    case Mutation::DropCopy:
      return dropped_copy(program);
    case Mutation::EarlyFree:
      return early_free(program, false);
    case Mutation::TooLittleSaved:
      return early_free(program, true);
    case Mutation::ForgottenOperand:
      return forgotten_operand(program);
    case Mutation::WrongCut:
      return wrong_cut(program);
    case Mutation::MissingBiasGradient:
      return missing_bias_gradient(program);
    case Mutation::WrongScale: {
      Spoiling found = wrong_scale(program, false);
      return found ? found : wrong_scale(program, true);
    }
    case Mutation::GradientTwice:
      return gradient_twice(program);
    case Mutation::None:
    case Mutation::DeleteFree:
    case Mutation::DelayFree:
    case Mutation::DropBuffer:
    case Mutation::HalveSize:
    case Mutation::DropCollective:
    case Mutation::SwapRanks:
    case Mutation::WrongPeer:
    case Mutation::WrongAxis:
    case Mutation::WrongCount:
    case Mutation::DropReduction:
    case Mutation::WrongShardSize:
      return {};
  }
  return {};
}

// Where a call is and what is wrong with it.
std::string described(const Workload& workload, const GroupCall& call, std::string_view what) {
  std::string at;
  Workload copy = workload;
  change_call(copy, call, [&](Program& program, std::size_t op) {
    const auto& its = std::get<Collective>(program.ops[op]);
    if (at.empty())
      at = fmt::format("{}: {} of {} {}", describe(program, op), name(its.kind), describe(program, its.out.buffer),
                       what);
  });
  return at;
}

std::optional<GroupCall> first_all_gather(const Workload& workload) {
  return first_call(workload,
                    [](const Program&, const Collective& its) { return its.kind == CollectiveKind::AllGather; });
}

std::optional<WrongMeaning> without_collective(const Workload& workload, Rank rank, Mutation mutation,
                                               WrongMeaning wrong) {
  // All ranks begin with the same batch, so that to leave out its broadcast changes nothing.
  const std::optional<GroupCall> call = first_call(workload, [&](const Program&, const Collective& its) {
    return mutation == Mutation::DropReduction ? its.kind == CollectiveKind::ReduceScatter
                                               : its.kind != CollectiveKind::Broadcast;
  });
  if (!call) return std::nullopt;
  Workload dropped = workload;
  change_call(dropped, *call, [](Program& program, std::size_t op) {
    program.ops.erase(program.ops.begin() + static_cast<std::ptrdiff_t>(op));
  });
  wrong.program = dropped.program(rank);
  wrong.what = described(workload, *call, "does not happen");
  return wrong;
}

// In one call: ranks that change places in all of them do so consistently.
std::optional<WrongMeaning> with_swapped_ranks(const Workload& workload, Rank rank, WrongMeaning wrong) {
  const std::optional<GroupCall> call = first_all_gather(workload);
  if (!call) return std::nullopt;
  Workload swapped = workload;
  const CommSlot other{static_cast<std::int32_t>(wrong.groups.size())};
  change_call(swapped, *call,
              [&](Program& program, std::size_t op) { std::get<Collective>(program.ops[op]).comm = other; });
  wrong.program = swapped.program(rank);
  wrong.groups.push_back(wrong.groups[call->slot.index()]);
  Group& group = wrong.groups.back();
  if (group.members.size() > 1) std::swap(group.members[0], group.members[1]);
  if (group.me < 2 && group.members.size() > 1) group.me = 1 - group.me;
  wrong.what = described(workload, *call, "takes its first two ranks for one another");
  return wrong;
}

std::optional<WrongMeaning> with_short_shards(const Workload& workload, Rank rank, WrongMeaning wrong) {
  const std::optional<GroupCall> call = first_all_gather(workload);
  if (!call) return std::nullopt;
  Workload smaller = workload;
  const auto members = static_cast<std::int64_t>(wrong.groups[call->slot.index()].members.size());
  change_call(smaller, *call, [&](Program& program, std::size_t op) {
    auto& its = std::get<Collective>(program.ops[op]);
    its.size = its.size - members * size_of(its.dtype);
  });
  wrong.program = smaller.program(rank);
  wrong.what = described(workload, *call, "takes shards that are an element too short");
  return wrong;
}

}  // namespace

std::optional<WrongMeaning> with_wrong_meaning(const Workload& workload, Rank rank, Mutation mutation) {
  WrongMeaning wrong{workload.program(rank), groups_of(workload, rank), {}};
  if (mutation == Mutation::DropCollective || mutation == Mutation::DropReduction)
    return without_collective(workload, rank, mutation, std::move(wrong));
  if (mutation == Mutation::SwapRanks) return with_swapped_ranks(workload, rank, std::move(wrong));
  if (mutation == Mutation::WrongShardSize) return with_short_shards(workload, rank, std::move(wrong));
  if (mutation == Mutation::WrongPeer || mutation == Mutation::WrongAxis) {
    std::optional<std::vector<Group>> groups = mutated_groups(workload, rank, mutation);
    if (!groups) return std::nullopt;
    wrong.groups = std::move(*groups);
    wrong.what =
        mutation == Mutation::WrongPeer ? "messages go to another replica's stage" : "a group lies along another axis";
    return wrong;
  }
  if (mutation == Mutation::WrongCount) {
    const std::optional<GroupCall> call = first_dispatch(workload);
    if (!call) return std::nullopt;
    wrong.program = with_wrong_count(workload, *call, rank);
    wrong.what = described(workload, *call, "hands the second rank a token of the first one's experts");
    return wrong;
  }
  for (std::size_t p = 0; p < workload.programs.size(); ++p) {
    Spoiling found = spoiled(workload.programs[p], mutation);
    if (!found) continue;
    if (static_cast<std::size_t>(workload.program_of_rank[rank.index()]) == p)
      wrong.program = std::move(found->program);
    wrong.what = std::move(found->what);
    return wrong;
  }
  return std::nullopt;
}

}  // namespace tidemark::execute
