#include "kernels/arithmetic/arithmetic_rank.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
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

// One after the other, in members' order.
std::vector<Part> side_by_side(const std::vector<Bytes>& sizes) {
  std::vector<Part> parts;
  Bytes offset;
  for (const Bytes size : sizes) {
    parts.push_back({offset, size});
    offset += size;
  }
  return parts;
}

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
  for (op_ = 0; op_ < program_.ops.size(); ++op_) {
    execute(program_.ops[op_]);
    if (hooks_.after_op) hooks_.after_op(*this);
  }
  if (hooks_.before_mark) hooks_.before_mark(*this, nullptr);
}

std::string_view ArithmeticRank::label(BufferId buffer) const { return program_[held_[buffer.index()].label]; }

std::byte* ArithmeticRank::memory(BufferId buffer, Bytes offset) const {
  Held& held = held_[buffer.index()];
  // Somewhere, even of nothing: an operand that is nowhere is absent.
  if (!held.memory) held.memory = math::memory_of(calculator_, std::max<std::size_t>(spread(held.size), 1), unwritten);
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
    wrong_ = fmt::format("rank {}, {} (step {}, {}, micro-batch {}): {}", world_.rank().value,
                         at_.label.valid() ? program_[at_.label] : "start", at_.step, name(at_.phase), at_.micro_batch,
                         what);
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
                 [&](const Memcpy& o) {
                   calculator_.copy(memory(o.to.buffer, program_[o.to.offset]),
                                    memory(o.from.buffer, program_[o.from.offset]), spread(o.size));
                 },
                 [&](const Mark& o) {
                   if (hooks_.before_mark) hooks_.before_mark(*this, &o);
                   at_ = o;
                 },
                 // order streams, or names
                 Ignored<CrossStreamUse, Record, Wait, Sync, CreateDriver, CreateCommunicator, Bind, Unbind>{},
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
    if (wrong == all.end()) continue;
    return note(fmt::format("{} reads element {} of {}, which nobody wrote", name(program_[o.kernel].operation),
                            wrong - all.begin(), label(operand.buffer)));
  }
}

// What runs under one mark for all layers says by what it makes which one it is of.
std::int32_t ArithmeticRank::layer_of(const Launch& o) const {
  const std::int32_t marked = at_.label.valid() ? program_.layer_of(at_.label) : -1;
  if (marked >= 0 || program_[o.outputs].empty()) return marked;
  return program_.layer_of(held_[program_[o.outputs].front().buffer.index()].label);
}

void ArithmeticRank::launch(const Launch& o) {
  must_be_numbers(o);
  math::Setting setting{.storage = storage_, .step = at_.step};
  if (hooks_.draws) hooks_.draws(*this, o, setting);
  if (hooks_.initial)
    setting.initial = [&](std::size_t output, std::int64_t element) {
      return hooks_.initial(at_, label(program_[o.outputs][output].buffer), element);
    };
  const math::Operands operands = math::operands_of(
      program_, o, [&](BufferId b) { return memory(b); }, storage_);
  const Kernel& kernel = program_[o.kernel];
  if (hooks_.route)
    setting.route = [&](std::int64_t token, std::int64_t choice) { return hooks_.route(layer_of(o), token, choice); };
  try {
    calculator_.compute(kernel.operation, kernel.attributes, operands.in, operands.out, setting);
  } catch (const math::WrongIndex& error) {
    note(fmt::format("{}: {}", name(kernel.operation), error.what()));
  }
  if (hooks_.after_launch) hooks_.after_launch(*this, o);
}

namespace {

// Of a member's input, what another one gets; of its output, where what comes from there belongs. Parts of no bytes are
// sent too: whoever expects more is told.
struct PartsOfCall {
  CollectiveKind kind;
  Bytes size;
  std::size_t me;
  bool in_place;
  const std::vector<Part>&sends, &receives;

  [[nodiscard]] Part whole() const { return {{}, size}; }
  [[nodiscard]] Part in_place_part(const Part& mine) const { return {in_place ? mine.offset : Bytes{}, mine.size}; }

  [[nodiscard]] std::optional<Part> sent_to(std::size_t place) const {
    switch (kind) {
      case CollectiveKind::AllReduce:
        return whole();
      case CollectiveKind::Broadcast:
        return me == 0 ? std::optional(whole()) : std::nullopt;
      case CollectiveKind::AllGather:
        return in_place_part(receives[me]);
      case CollectiveKind::ReduceScatter:
      case CollectiveKind::AllToAll:
        return sends[place];
    }
    return {};
  }

  [[nodiscard]] std::optional<Part> received_from(std::size_t place) const {
    switch (kind) {
      case CollectiveKind::AllReduce:
        return whole();
      case CollectiveKind::Broadcast:
        return place == 0 ? std::optional(whole()) : std::nullopt;
      case CollectiveKind::ReduceScatter:
        return in_place_part(sends[me]);
      case CollectiveKind::AllGather:
      case CollectiveKind::AllToAll:
        return receives[place];
    }
    return {};
  }
};

}  // namespace

// Every member gets what it needs of the others, and reduces by itself, in the order of the group: so all ranks have
// the same numbers, whoever is first.
void ArithmeticRank::collective(const Collective& o) {
  const Group& group = groups_[o.comm.index()];
  const auto n = static_cast<std::size_t>(group.size()), me = static_cast<std::size_t>(group.me);
  const std::vector<Bytes> even(n, o.size / group.size());
  const std::vector<Part> sends = side_by_side(o.row.valid() ? program_[o.row].sends : even);
  const std::vector<Part> receives = side_by_side(o.row.valid() ? program_[o.row].receives : even);
  const PartsOfCall parts{o.kind, o.size, me, o.in.buffer == o.out.buffer, sends, receives};
  std::vector<math::Memory> received(n);
  std::vector<Message> messages;
  for (std::size_t place = 0; place < n; ++place) {
    const std::optional<Part> sent = parts.sent_to(place), taken = parts.received_from(place);
    if (taken) received[place] = math::memory_of(calculator_, spread(taken->size));
    std::byte* const from = received[place].get();
    std::byte* const data = sent ? memory(o.in.buffer, program_[o.in.offset] + sent->offset) : nullptr;
    if (place == me) {
      ensure(!sent || sent->size == taken->size, "a member takes from itself what it hands itself");
      if (sent) calculator_.copy(from, data, spread(sent->size));
      continue;
    }
    const Rank peer = group.at(static_cast<std::int64_t>(place));
    if (sent) messages.push_back({Direction::Send, peer, group.tag, data, spread(sent->size)});
    if (taken) messages.push_back({Direction::Receive, peer, group.tag, from, spread(taken->size)});
  }
  world_.exchange(messages, std::string(name(o.kind)));

  const auto output = [&](const Part& part) { return memory(o.out.buffer, program_[o.out.offset] + part.offset); };
  if (!reduces(o.kind)) {
    for (std::size_t place = 0; place < n; ++place)
      if (const std::optional<Part> taken = parts.received_from(place))
        calculator_.copy(output(*taken), received[place].get(), spread(taken->size));
    return;
  }
  const Part part = *parts.received_from(me);
  const std::array result{row(output(part), o.dtype, part.size)};
  std::vector<math::Array> inputs;
  for (const math::Memory& from : received) inputs.push_back(row(from.get(), o.dtype, part.size));
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
  if (o.reduction == Reduction::Average) compute(Operation::Scale, 1.0 / static_cast<double>(n), result);
}

void ArithmeticRank::exchange(const Exchange& o) {
  const Group& group = groups_[o.comm.index()];
  std::vector<Message> messages;
  for (const Transfer& t : program_[o.transfers]) {
    const Bytes size = t.size(held_[t.buffer.index()].size);
    messages.push_back(
        {t.direction, group.at(group.me + t.step), group.tag, memory(t.buffer, size * t.part), spread(size)});
  }
  world_.exchange(messages, "a message between ranks");
}

}  // namespace tidemark::execute
