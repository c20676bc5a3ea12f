#include "kernels/execute/arithmetic_rank.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "kernels/execute/executor.hpp"
#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::execute {
namespace {

// Bytes of which every floating-point type makes no number, and indices nothing that anyone has.
constexpr std::byte unwritten{0xff};

// What one member of a group hands another, in bytes of the job.
struct Part {
  Bytes offset, size;
};

}  // namespace

ArithmeticRank::ArithmeticRank(const Program& program, const std::vector<Group>& groups, World& world,
                               math::Calculator& calculator, math::Storage storage, ArithmeticHooks hooks)
    : program_(program),
      groups_(groups),
      world_(world),
      calculator_(calculator),
      storage_(storage),
      hooks_(std::move(hooks)),
      held_(static_cast<std::size_t>(program.buffers)) {}

void ArithmeticRank::run() {
  for (op_ = 0; op_ < program_.ops.size(); ++op_) execute(program_.ops[op_]);
  hooks_.before_mark(*this, nullptr);
}

std::string_view ArithmeticRank::label(BufferId buffer) const { return program_[held_[buffer.index()].label]; }

std::byte* ArithmeticRank::memory(BufferId buffer, Bytes offset) const {
  Held& held = held_[buffer.index()];
  if (!held.memory) held.memory = math::memory_of(calculator_, spread(held.size), unwritten);
  return held.memory.get() + spread(offset);
}

math::Array ArithmeticRank::row(std::byte* first, DType dtype, Bytes size) const {
  return {first, {dtype, {size / size_of(dtype)}, {1}}};
}

std::vector<double> ArithmeticRank::values(BufferId buffer, Bytes offset, const View& view) const {
  const bool wide = storage_ == math::Storage::Wide;
  // In wide storage 16-bit types lie as doubles side by side.
  const View row{wide ? DType::BF16 : DType::FP32, view.sizes, contiguous_strides(view.sizes)};
  const math::Memory copy = math::memory_of(calculator_, spread(row.extent()));
  const math::Array from{memory(buffer, offset), view}, to{copy.get(), row};
  calculator_.compute(Operation::Copy, {}, std::array{from}, std::array{to}, {.storage = storage_});
  const auto fetched = [&]<class Number>(Number) {
    std::vector<Number> all(static_cast<std::size_t>(elements_of(view.sizes)));
    calculator_.copy(all.data(), copy.get(), all.size() * sizeof(Number));
    return std::vector<double>(all.begin(), all.end());
  };
  return wide ? fetched(double{}) : fetched(float{});
}

void ArithmeticRank::note(const std::string& what) {
  if (wrong_.empty())
    wrong_ = fmt::format("rank {}, {} (step {}, {}, micro-batch {}): {}", world_.rank().value, program_[at_.label],
                         at_.step, name(at_.phase), at_.micro_batch, what);
}

// `verify` holds programs to that, but not those that were spoiled on purpose.
void ArithmeticRank::must_live(const Op& op) {
  for_each_operand(program_, op, [&](BufferId b) {
    if (!held_[b.index()].live) note(fmt::format("{} is used after it was freed", label(b)));
  });
}

void ArithmeticRank::execute(const Op& op) {
  must_live(op);
  std::visit(Overloaded{
                 [&](const Alloc& o) { allocate(o); },
                 [&](const Free& o) {
                   held_[o.buffer.index()].live = false;
                   held_[o.buffer.index()].memory.reset();
                 },
                 [&](const Launch& o) { launch(o); },
                 [&](const Collective& o) { collective(o); },
                 [&](const Exchange& o) { exchange(o); },
                 [&](const Memcpy& o) { calculator_.copy(memory(o.to), memory(o.from), spread(o.size)); },
                 [&](const Mark& o) {
                   hooks_.before_mark(*this, &o);
                   at_ = o;
                 },
                 // order streams, or names
                 Ignored<Borrow, Record, Wait, Sync, CreateDriver, CreateCommunicator, Bind, Unbind>{},
             },
             op);
}

void ArithmeticRank::allocate(const Alloc& o) { held_[o.buffer.index()] = {{}, o.size, o.label, true}; }

void ArithmeticRank::must_be_numbers(const Launch& o) {
  if (!wrong_.empty()) return;  // and all the rest with it
  std::size_t next = 0;
  for (const ViewId view : program_[o.kernel].inputs) {
    if (!view.valid()) continue;
    const Operand& operand = program_[o.inputs][next++];
    if (calculator_.all_numbers({memory(operand.buffer, program_[operand.offset]), program_[view]}, storage_)) continue;
    const std::vector<double> all = values(operand, program_[view]);
    const auto wrong = std::ranges::find_if(all, [](double x) { return std::isnan(x); });
    return note(fmt::format("{} reads element {} of {}, which nobody wrote", name(program_[o.kernel].operation),
                            wrong - all.begin(), label(operand.buffer)));
  }
}

void ArithmeticRank::launch(const Launch& o) {
  must_be_numbers(o);
  math::Setting setting{.storage = storage_, .step = at_.step};
  hooks_.draws(*this, o, setting);
  setting.initial = [&](std::size_t output, std::int64_t element) {
    return hooks_.initial(at_, label(program_[o.outputs][output].buffer), element);
  };
  const math::Operands operands = math::operands_of(
      program_, o, [&](BufferId b) { return memory(b); }, storage_);
  const Kernel& kernel = program_[o.kernel];
  try {
    calculator_.compute(kernel.operation, kernel.attributes, operands.in, operands.out, setting);
  } catch (const math::WrongIndex& error) {
    note(fmt::format("{}: {}", name(kernel.operation), error.what()));
  }
  hooks_.after_launch(*this, o);
}

// Every member gets what it needs of the others, and reduces by itself, in the order of the group: so all ranks have
// the same numbers, whoever is first.
void ArithmeticRank::collective(const Collective& o) {
  const Group& group = groups_[o.comm.index()];
  const auto n = static_cast<std::int32_t>(group.size());
  const auto me = static_cast<std::int32_t>(group.me);
  ensure(!o.row.valid(), "real numbers go in equal parts as yet");
  const Bytes part = o.size / n;
  const bool in_place = o.in.buffer == o.out.buffer;
  const Bytes in = program_[o.in.offset], out = program_[o.out.offset];
  const auto sent_to = [&](std::int32_t place) -> Part {
    switch (o.kind) {
      case CollectiveKind::AllReduce:
        return {in, o.size};
      case CollectiveKind::AllGather:
        return {in_place ? in + part * me : in, part};
      case CollectiveKind::Broadcast:
        return me == 0 ? Part{in, o.size} : Part{};
      case CollectiveKind::ReduceScatter:
      case CollectiveKind::AllToAll:
        return {in + part * place, part};
    }
    return {};
  };
  const Bytes each = o.kind == CollectiveKind::AllReduce || o.kind == CollectiveKind::Broadcast ? o.size : part;
  const auto sends = [&](std::int32_t place) { return o.kind != CollectiveKind::Broadcast || place == 0; };
  std::vector<math::Memory> received;
  std::vector<Message> messages;
  for (std::int32_t place = 0; place < n; ++place) {
    const Part sent = sent_to(place);
    std::byte* const from = sends(place) ? received.emplace_back(math::memory_of(calculator_, spread(each))).get()
                                         : received.emplace_back().get();
    std::byte* const mine = memory(o.in.buffer, sent.offset);
    if (place == me) {
      if (sent.size > Bytes{}) calculator_.copy(from, mine, spread(each));
      continue;
    }
    if (sent.size > Bytes{}) messages.push_back({Direction::Send, group.at(place), group.tag, mine, spread(sent.size)});
    if (sends(place)) messages.push_back({Direction::Receive, group.at(place), group.tag, from, spread(each)});
  }
  world_.exchange(messages, std::string(name(o.kind)));

  if (!reduces(o.kind)) {
    for (std::int32_t place = 0; place < n; ++place)
      if (sends(place))
        calculator_.copy(memory(o.out.buffer, o.kind == CollectiveKind::Broadcast ? out : out + part * place),
                         received[static_cast<std::size_t>(place)].get(), spread(each));
    return;
  }
  const Bytes to = o.kind == CollectiveKind::ReduceScatter && in_place ? in + part * me : out;
  const std::array result{row(memory(o.out.buffer, to), o.dtype, each)};
  std::vector<math::Array> inputs;
  for (const math::Memory& from : received) inputs.push_back(row(from.get(), o.dtype, each));
  const math::Setting setting{.storage = storage_};
  const auto compute = [&](Operation operation, double attribute, std::span<const math::Array> in_arrays) {
    calculator_.compute(operation, {attribute}, in_arrays, result, setting);
  };
  if (o.reduction == Reduction::Largest) {
    compute(Operation::Copy, 0, std::array{inputs.front()});
    for (std::size_t i = 1; i < inputs.size(); ++i)
      compute(Operation::Maximum, 0, std::array{result.front(), inputs[i]});
    return;
  }
  compute(Operation::Add, 0, inputs);
  if (o.reduction == Reduction::Average) compute(Operation::Scale, 1.0 / n, result);
}

void ArithmeticRank::exchange(const Exchange& o) {
  const Group& group = groups_[o.comm.index()];
  std::vector<Message> messages;
  for (const Transfer& t : program_[o.transfers])
    messages.push_back(
        {t.direction, group.at(group.me + t.step), group.tag, memory(t.buffer), spread(held_[t.buffer.index()].size)});
  world_.exchange(messages, "a message between stages");
}

}  // namespace tidemark::execute
