#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sim/base/interned.hpp"
#include "sim/program/program.hpp"

namespace tidemark::sim {

/// What a kernel is to compute.
struct Computation {
  Computation(Operation its, Attributes values = {}) : operation(its), attributes(values) {}  // NOLINT: most take none

  Operation operation;
  Attributes attributes;
  std::optional<FusedStep> fused{};
};

/// An operand of a kernel, and how the kernel sees it. No buffer: the operand is absent.
struct ViewedOperand {
  Operand operand;
  ViewId view;
};

/// What a collective does to elements of a type.
struct CollectiveOp {
  CollectiveOp(CollectiveKind its, DType type, Reduction how = Reduction::Sum)
      : kind(its), dtype(type), reduction(how) {}

  CollectiveKind kind;
  DType dtype;
  Reduction reduction;
};

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
  /// How a kernel of this program can see memory.
  ViewId view(DType dtype, const Shape& sizes, const Shape& strides);
  /// Where an operand of this program can begin; at the beginning, none is needed.
  OffsetId offset(Bytes from);
  /// Operands of the operation in its order; absent ones have no buffer. Without a stream, the host thread computes.
  void launch(const Computation& what, std::span<const ViewedOperand> inputs, std::span<const ViewedOperand> outputs,
              std::span<const BufferId> scratch = {}, StreamId stream = compute);
  void launch(const Computation& what, std::initializer_list<ViewedOperand> inputs,
              std::initializer_list<ViewedOperand> outputs, StreamId stream = compute) {
    launch(what, std::span(inputs.begin(), inputs.size()), std::span(outputs.begin(), outputs.size()), {}, stream);
  }
  /// `size`: of the larger side; an even one.
  void collective(CommSlot comm, const CollectiveOp& call, Operand in, Operand out, Bytes size,
                  StreamId stream = compute);
  /// An uneven one: its size follows from the row.
  void collective(CommSlot comm, const CollectiveOp& call, Operand in, Operand out, const MatrixRow& row,
                  StreamId stream = compute);
  void exchange(CommSlot comm, std::span<const Transfer> transfers, StreamId stream = compute);
  void exchange(CommSlot comm, std::initializer_list<Transfer> transfers, StreamId stream = compute) {
    exchange(comm, std::span(transfers.begin(), transfers.size()), stream);
  }
  void bind(NameId name, BufferId buffer);
  void unbind(NameId name);
  void mark(Phase phase, std::int32_t step, std::int32_t micro_batch, LabelId label, bool empties_cache = false);
  /// Ops that point into no table: free, borrow, memcpy, events, driver resources and communicators.
  void push(const Op& op);

  /// Room for so many ops in all, frees too.
  void reserve(std::size_t ops) { program_.ops.reserve(ops); }

  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] Program finish() && { return std::move(program_); }

 private:
  // A kernel as it is asked for, and views likewise: equal to what is interned, without being made.
  struct RequestedKernel;
  struct RequestedView;
  struct KernelHash {
    std::size_t operator()(const RequestedKernel& kernel) const;
  };
  struct ViewHash {
    std::size_t operator()(const RequestedView& view) const;
  };
  struct BytesHash {
    std::size_t operator()(Bytes offset) const { return static_cast<std::size_t>(offset.count()); }
  };
  struct RowHash {
    std::size_t operator()(const MatrixRow& row) const { return row.matrix.index(); }
  };

  OperandList operands(std::span<const ViewedOperand> all);

  Program program_;
  Interned<Label, std::hash<std::string_view>> labels_;
  Interned<std::string, std::hash<std::string_view>> names_;
  Interned<Kernel, KernelHash> kernels_;
  Interned<View, ViewHash> views_;
  Interned<Bytes, BytesHash> offsets_;
  Interned<MatrixRow, RowHash> rows_;
};

}  // namespace tidemark::sim
