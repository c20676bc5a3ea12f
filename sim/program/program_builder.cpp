#include "sim/program/program_builder.hpp"

#include <algorithm>

#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"

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

std::size_t ProgramBuilder::KernelHash::operator()(const Kernel& kernel) const {
  return std::visit(
      Overloaded{
          [](const Gemm& k) { return mix(mix(mix(1, k.m), k.n), k.k); },
          [](const Attention& k) {
            return mix(mix(mix(mix(2, k.sequence), k.heads), k.kv_heads), static_cast<int>(k.pass));
          },
          [](const Stream& k) { return mix(mix(mix(3, static_cast<int>(k.kind)), k.read.count()), k.written.count()); },
      },
      kernel);
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

BufferList ProgramBuilder::operands(std::span<const BufferId> buffers) {
  const BufferList list{static_cast<std::uint32_t>(program_.operands.size()),
                        static_cast<std::uint32_t>(buffers.size())};
  program_.operands.insert(program_.operands.end(), buffers.begin(), buffers.end());
  return list;
}

void ProgramBuilder::reclassify(std::size_t op, Category category) {
  std::get<Alloc>(program_.ops[op]).category = category;
}

void ProgramBuilder::relabel(std::size_t op, LabelId label) { std::get<Alloc>(program_.ops[op]).label = label; }

void ProgramBuilder::launch(const Kernel& kernel, std::span<const BufferId> inputs, std::span<const BufferId> outputs,
                            StreamId stream) {
  const KernelId id{kernels_.place(program_.kernels, kernel)};
  const BufferList in = operands(inputs);
  const BufferList out = operands(outputs);
  program_.ops.emplace_back(Launch{stream, id, in, out});
}

void ProgramBuilder::collective(CommSlot comm, CollectiveKind kind, BufferId in, BufferId out, Bytes size,
                                StreamId stream) {
  program_.ops.emplace_back(Collective{stream, comm, kind, in, out, {}, size});
}

void ProgramBuilder::collective(CommSlot comm, CollectiveKind kind, BufferId in, BufferId out, const MatrixRow& row,
                                StreamId stream) {
  const RowId id{rows_.place(program_.rows, row)};
  program_.ops.emplace_back(Collective{stream, comm, kind, in, out, id, larger_side(kind, row)});
}

void ProgramBuilder::exchange(CommSlot comm, std::span<const Transfer> transfers, StreamId stream) {
  const TransferList list{static_cast<std::uint32_t>(program_.transfers.size()),
                          static_cast<std::uint32_t>(transfers.size())};
  program_.transfers.insert(program_.transfers.end(), transfers.begin(), transfers.end());
  program_.ops.emplace_back(Exchange{stream, comm, list});
}

void ProgramBuilder::bind(NameId name, BufferId buffer) { program_.ops.emplace_back(Bind{name, buffer}); }
void ProgramBuilder::unbind(NameId name) { program_.ops.emplace_back(Unbind{name}); }

void ProgramBuilder::mark(Phase phase, std::int32_t step, std::int32_t micro_batch, LabelId label) {
  program_.ops.emplace_back(Mark{phase, step, micro_batch, label});
}

void ProgramBuilder::push(const Op& op) {
  if (const Record* record = std::get_if<Record>(&op))
    program_.events = std::max(program_.events, record->event.value + 1);
  program_.ops.push_back(op);
}

}  // namespace tidemark::sim
