#pragma once

#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "sim/base/interned.hpp"
#include "sim/program/program.hpp"

namespace tidemark::sim {

/// Writes a program op by op and interns what its ops point to: labels, names, kernels.
class ProgramBuilder {
 public:
  static constexpr StreamId compute{0};

  /// Text that ops of this program can refer to.
  LabelId label(std::string_view text);
  NameId name(std::string_view text);

  BufferId alloc(Bytes size, Category category, LabelId label, StreamId stream = compute,
                 MemorySpace space = MemorySpace::Device);
  /// As `alloc`, for a buffer id that a text names.
  void alloc(BufferId buffer, Bytes size, Category category, LabelId label, StreamId stream,
             MemorySpace space = MemorySpace::Device);
  /// What the allocation at that place counts as is known only now.
  void reclassify(std::size_t op, Category category);
  void relabel(std::size_t op, LabelId label);
  void launch(const Kernel& kernel, std::span<const BufferId> inputs, std::span<const BufferId> outputs,
              StreamId stream = compute);
  void launch(const Kernel& kernel, std::initializer_list<BufferId> inputs, std::initializer_list<BufferId> outputs,
              StreamId stream = compute) {
    launch(kernel, std::span(inputs.begin(), inputs.size()), std::span(outputs.begin(), outputs.size()), stream);
  }
  void collective(CommSlot comm, CollectiveKind kind, BufferId in, BufferId out, Bytes size, StreamId stream = compute);
  /// An uneven one: its size follows from the row.
  void collective(CommSlot comm, CollectiveKind kind, BufferId in, BufferId out, const MatrixRow& row,
                  StreamId stream = compute);
  void exchange(CommSlot comm, std::span<const Transfer> transfers, StreamId stream = compute);
  void exchange(CommSlot comm, std::initializer_list<Transfer> transfers, StreamId stream = compute) {
    exchange(comm, std::span(transfers.begin(), transfers.size()), stream);
  }
  void bind(NameId name, BufferId buffer);
  void unbind(NameId name);
  void mark(Phase phase, std::int32_t step, std::int32_t micro_batch, LabelId label);
  /// Ops that point into no table: free, borrow, memcpy, events, driver resources and communicators.
  void push(const Op& op);

  /// Room for so many ops in all, frees too.
  void reserve(std::size_t ops) { program_.ops.reserve(ops); }

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] Program finish() && { return std::move(program_); }

 private:
  struct KernelHash {
    std::size_t operator()(const Kernel& kernel) const;
  };
  struct RowHash {
    std::size_t operator()(const MatrixRow& row) const { return row.matrix.index(); }
  };

  BufferList operands(std::span<const BufferId> buffers);

  Program program_;
  Interned<Label, std::hash<std::string_view>> labels_;
  Interned<std::string, std::hash<std::string_view>> names_;
  Interned<Kernel, KernelHash> kernels_;
  Interned<MatrixRow, RowHash> rows_;
};

}  // namespace tidemark::sim
