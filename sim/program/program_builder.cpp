#include "sim/program/program_builder.hpp"

#include <algorithm>

#include "sim/base/ensure.hpp"

namespace tidemark::sim {
namespace {

template <class Ids, class Text>
std::int32_t intern(Ids& ids, std::vector<Text>& texts, std::string_view text) {
  const std::size_t known = texts.size();
  const std::int32_t id = ids.place(texts, text);
  const auto parts_words = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  if (texts.size() > known)
    ensure(!text.empty() && std::none_of(text.begin(), text.end(), parts_words), "labels and names are single words");
  return id;
}

std::size_t mix(std::size_t seed, std::int64_t value) {
  return seed ^ (static_cast<std::size_t>(value) + 0x9e3779b97f4a7c15ULL + (seed << 6U) + (seed >> 2U));
}

}  // namespace

struct ProgramBuilder::RequestedView {
  DType dtype;
  const Shape& sizes;
  const Shape& strides;

  explicit operator View() const { return {dtype, sizes, strides}; }
  friend bool operator==(const View& known, const RequestedView& requested) {
    return known.dtype == requested.dtype && known.sizes == requested.sizes && known.strides == requested.strides;
  }
};

struct ProgramBuilder::RequestedKernel {
  const Computation& what;
  std::span<const ViewedOperand> inputs, outputs;
  Processor processor;

  static std::vector<ViewId> views(std::span<const ViewedOperand> operands) {
    std::vector<ViewId> views;
    views.reserve(operands.size());
    for (const ViewedOperand& o : operands) views.push_back(o.view);
    return views;
  }
  explicit operator Kernel() const {
    return {what.operation, what.attributes, views(inputs), views(outputs), processor, what.fused};
  }
  friend bool operator==(const Kernel& known, const RequestedKernel& requested) {
    const auto same = [](const std::vector<ViewId>& views, std::span<const ViewedOperand> operands) {
      return std::ranges::equal(views, operands, {}, {}, &ViewedOperand::view);
    };
    return known.operation == requested.what.operation && known.processor == requested.processor &&
           known.fused == requested.what.fused && same(known.inputs, requested.inputs) &&
           same(known.outputs, requested.outputs) && known.attributes == requested.what.attributes;
  }
};

std::size_t ProgramBuilder::ViewHash::operator()(const RequestedView& view) const {
  std::size_t hash = static_cast<std::size_t>(view.dtype);
  for (const std::int64_t size : view.sizes) hash = mix(hash, size);
  for (const std::int64_t stride : view.strides) hash = mix(hash, stride);
  return hash;
}

std::size_t ProgramBuilder::KernelHash::operator()(const RequestedKernel& kernel) const {
  std::size_t hash = static_cast<std::size_t>(kernel.what.operation);
  if (kernel.what.fused) hash = mix(hash, kernel.what.fused->traffic.count());
  for (const ViewedOperand& o : kernel.inputs) hash = mix(hash, o.view.value);
  for (const ViewedOperand& o : kernel.outputs) hash = mix(hash, o.view.value);
  return hash;
}

LabelId ProgramBuilder::label(std::string_view text) { return {intern(labels_, program_.labels, text)}; }
NameId ProgramBuilder::name(std::string_view text) { return {intern(names_, program_.names, text)}; }

BufferId ProgramBuilder::alloc(Bytes size, Category category, LabelId label, StreamId stream, MemorySpace space) {
  const BufferId buffer{program_.buffers};
  alloc(buffer, size, category, label, stream, space);
  return buffer;
}

void ProgramBuilder::alloc(BufferId buffer, Bytes size, Category category, LabelId label, StreamId stream,
                           MemorySpace space) {
  program_.buffers = std::max(program_.buffers, buffer.value + 1);
  program_.ops.emplace_back(Alloc{buffer, size, category, stream, label, space});
}

OperandList ProgramBuilder::operands(std::span<const ViewedOperand> all) {
  const auto first = static_cast<std::uint32_t>(program_.operands.size());
  for (const ViewedOperand& o : all)
    if (o.operand.buffer.valid()) program_.operands.push_back(o.operand);
  return {first, static_cast<std::uint32_t>(program_.operands.size()) - first};
}

void ProgramBuilder::reclassify(std::size_t op, Category category) {
  std::get<Alloc>(program_.ops[op]).category = category;
}

void ProgramBuilder::relabel(std::size_t op, LabelId label) { std::get<Alloc>(program_.ops[op]).label = label; }

ViewId ProgramBuilder::view(DType dtype, const Shape& sizes, const Shape& strides) {
  return {views_.place(program_.views, RequestedView{dtype, sizes, strides})};
}

OffsetId ProgramBuilder::offset(Bytes from) {
  return from == Bytes{} ? OffsetId{} : OffsetId{offsets_.place(program_.offsets, from)};
}

void ProgramBuilder::launch(const Computation& what, std::span<const ViewedOperand> inputs,
                            std::span<const ViewedOperand> outputs, std::span<const BufferId> scratch,
                            StreamId stream) {
  const KernelId id{kernels_.place(
      program_.kernels, RequestedKernel{what, inputs, outputs, stream.valid() ? Processor::Device : Processor::Host})};
  const OperandList in = operands(inputs), out = operands(outputs);
  const OperandList spare{static_cast<std::uint32_t>(program_.operands.size()),
                          static_cast<std::uint32_t>(scratch.size())};
  program_.operands.insert(program_.operands.end(), scratch.begin(), scratch.end());
  program_.ops.emplace_back(Launch{stream, id, in, out, spare});
}

void ProgramBuilder::collective(CommSlot comm, const CollectiveOp& call, Operand in, Operand out, Bytes size,
                                StreamId stream) {
  program_.ops.emplace_back(Collective{stream, comm, call.kind, call.dtype, call.reduction, in, out, {}, size});
}

void ProgramBuilder::collective(CommSlot comm, const CollectiveOp& call, Operand in, Operand out, const MatrixRow& row,
                                StreamId stream) {
  const RowId id{rows_.place(program_.rows, row)};
  program_.ops.emplace_back(
      Collective{stream, comm, call.kind, call.dtype, call.reduction, in, out, id, larger_side(call.kind, row)});
}

void ProgramBuilder::exchange(CommSlot comm, std::span<const Transfer> transfers, StreamId stream) {
  const TransferList list{static_cast<std::uint32_t>(program_.transfers.size()),
                          static_cast<std::uint32_t>(transfers.size())};
  program_.transfers.insert(program_.transfers.end(), transfers.begin(), transfers.end());
  program_.ops.emplace_back(Exchange{stream, comm, list});
}

void ProgramBuilder::bind(NameId name, BufferId buffer) { program_.ops.emplace_back(Bind{name, buffer}); }
void ProgramBuilder::unbind(NameId name) { program_.ops.emplace_back(Unbind{name}); }

void ProgramBuilder::mark(Phase phase, std::int32_t step, std::int32_t micro_batch, LabelId label, bool empties_cache) {
  program_.ops.emplace_back(Mark{phase, step, micro_batch, label, empties_cache});
}

void ProgramBuilder::push(const Op& op) {
  if (const Record* record = std::get_if<Record>(&op))
    program_.events = std::max(program_.events, record->event.value + 1);
  program_.ops.push_back(op);
}

}  // namespace tidemark::sim
