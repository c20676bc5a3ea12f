#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sim/base/category.hpp"
#include "sim/base/memory_space.hpp"
#include "sim/base/overloaded.hpp"
#include "sim/base/units.hpp"
#include "sim/program/kernel.hpp"
#include "sim/program/label.hpp"

// A rank is a host thread, some streams and a memory. A program is what that thread calls, in order. Host order is the
// truth for memory: a framework allocates and frees when its host thread runs, not when the device does.

namespace tidemark::sim {

/// Memory that an op reads or writes.
struct Operand {
  BufferId buffer;
  OffsetId offset;  ///< where it begins; invalid: at the buffer's beginning

  Operand() = default;
  Operand(BufferId its, OffsetId from = {}) : buffer(its), offset(from) {}  // NOLINT: a buffer is an operand
  bool operator==(const Operand&) const = default;
};

/// A run of Program::operands.
struct OperandList {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const OperandList&) const = default;
};

/// A run of Program::transfers.
struct TransferList {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const TransferList&) const = default;
};

enum class Direction : std::uint8_t { Send, Receive };

/// One side of a point-to-point message: the peer stands `step` places on in the communicator's group. It is a whole
/// buffer, or one of the equal parts of it.
struct Transfer {
  Direction direction = Direction::Send;
  std::int32_t step = 0;
  BufferId buffer;
  std::int32_t part = 0;
  std::int32_t parts = 1;

  [[nodiscard]] Bytes size(Bytes of_buffer) const { return of_buffer / parts; }
  bool operator==(const Transfer&) const = default;
};

enum class CollectiveKind : std::uint8_t { AllReduce, AllGather, ReduceScatter, Broadcast, AllToAll };

/// How all-reduces and reduce-scatters make one value of those of all members.
enum class Reduction : std::uint8_t { Sum, Average, Largest };

/// What one member of a group sends and receives in an uneven collective, in bytes. Sizes belong to the call, not to a
/// member: `matrix` names all of them together, and those who name one matrix in a group have its rows, so that what
/// one sends to a place is what is received there from it. An all-gather sends everyone the same, a reduce-scatter
/// receives as much from everyone.
struct MatrixRow {
  MatrixId matrix;              ///< numbered by communicator; each group has values of its own
  std::vector<Bytes> sends;     ///< by place in the group
  std::vector<Bytes> receives;  ///< by place in the group
  bool operator==(const MatrixRow&) const = default;
};

constexpr bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter;
}

/// Memory that the driver or a library takes behind the framework's allocator; prices say how much.
enum class DriverResource : std::uint8_t { Context, Modules, NcclKernels, BlasHandle };

enum class Phase : std::uint8_t { Construction, Forward, Backward, OptimizerStep, Communication, Rollout };
inline constexpr std::size_t phases = 6;

struct Alloc {
  BufferId buffer;
  Bytes size;
  Category category = Category::Temporaries;
  StreamId stream;
  LabelId label;  ///< which tensor this is
  MemorySpace space = MemorySpace::Device;
  bool operator==(const Alloc&) const = default;
};
struct Free {
  BufferId buffer;
  bool operator==(const Free&) const = default;
};
/// The buffer is used on another stream. Where record_stream tells the allocator so, its free waits for what is
/// enqueued there; else nothing makes it wait, and that is the framework's own race.
struct CrossStreamUse {
  BufferId buffer;
  StreamId stream;
  bool recorded = true;
  bool operator==(const CrossStreamUse&) const = default;
};
/// Operands are those of the kernel's operation that are there, in its order. Scratch memory is written, and nothing is
/// read that the kernel has not written itself. What the host thread computes goes on no stream.
struct Launch {
  StreamId stream;
  KernelId kernel;
  OperandList inputs, outputs, scratch;
  bool operator==(const Launch&) const = default;
};
/// `size` is what the larger side holds on one rank; in place where `in` and `out` are one buffer. Parts of members are
/// equal unless a row says otherwise, which all-gathers, reduce-scatters and all-to-alls may have; buffers hold them
/// place by place.
struct Collective {
  StreamId stream;
  CommSlot comm;
  CollectiveKind kind = CollectiveKind::AllReduce;
  DType dtype = DType::BF16;
  Reduction reduction = Reduction::Sum;
  Operand in, out;
  RowId row = {};
  Bytes size;
  bool operator==(const Collective&) const = default;
};
/// Sends and receives of one step go out together: apart, two neighbours that hand each other tensors would each wait
/// for the other to receive first.
struct Exchange {
  StreamId stream;
  CommSlot comm;
  TransferList transfers;
  bool operator==(const Exchange&) const = default;
};
/// So many bytes of a buffer move to another one: from the device to its host, or back.
/// (A kernel that copies within the device is a Launch.) The host thread goes on; where it waits for the copy, as CUDA
/// does with pageable memory, the program says so with an event.
struct Memcpy {
  StreamId stream;
  Operand from, to;
  Bytes size;
  bool operator==(const Memcpy&) const = default;
};
struct Record {
  EventId event;
  StreamId stream;
  bool operator==(const Record&) const = default;
};
struct Wait {
  StreamId stream;
  EventId event;
  bool operator==(const Wait&) const = default;
};
struct Sync {
  EventId event;
  bool operator==(const Sync&) const = default;
};
struct CreateDriver {
  DriverResource resource = DriverResource::Context;
  bool operator==(const CreateDriver&) const = default;
};
struct CreateCommunicator {
  CommSlot comm;
  bool operator==(const CreateCommunicator&) const = default;
};
/// A variable of the framework's frames or modules now refers to the buffer; what it referred to before is dropped.
struct Bind {
  NameId name;
  BufferId buffer;
  bool operator==(const Bind&) const = default;
};
struct Unbind {
  NameId name;
  bool operator==(const Unbind&) const = default;
};
/// From here on the rank is at this place of the step. `step` counts from 1; 0 is construction.
struct Mark {
  Phase phase = Phase::Construction;
  std::int32_t step = 0;
  std::int32_t micro_batch = -1;  ///< -1 outside micro-batches
  LabelId label;                  ///< the model's operator or the framework's activity
  bool empties_cache = false;     ///< torch.cuda.empty_cache(): what is cached goes back to the driver
  bool operator==(const Mark&) const = default;
};

using Op = std::variant<Alloc, Free, CrossStreamUse, Launch, Collective, Exchange, Memcpy, Record, Wait, Sync,
                        CreateDriver, CreateCommunicator, Bind, Unbind, Mark>;
static_assert(sizeof(Op) <= 48);  // programs are as long as memory allows

/// What one rank's host thread calls, in order, with the tables its ops point into.
struct Program {
  std::vector<Op> ops;
  std::vector<Operand> operands;
  std::vector<Transfer> transfers;
  std::vector<Kernel> kernels;
  std::vector<View> views;
  std::vector<Bytes> offsets;
  std::vector<MatrixRow> rows;  ///< of uneven collectives
  std::vector<Label> labels;
  std::vector<std::string> names;  ///< of variables; no white space inside
  std::int32_t buffers = 0;        ///< buffer ids are 0 … buffers - 1
  std::int32_t events = 0;

  [[nodiscard]] std::span<const Operand> operator[](OperandList list) const {
    return std::span(operands).subspan(list.first, list.count);
  }
  [[nodiscard]] std::span<const Transfer> operator[](TransferList list) const {
    return std::span(transfers).subspan(list.first, list.count);
  }
  [[nodiscard]] const std::string& operator[](LabelId label) const { return labels[label.index()].text; }
  [[nodiscard]] std::int32_t layer_of(LabelId label) const { return labels[label.index()].layer; }
  [[nodiscard]] const std::string& operator[](NameId name) const { return names[name.index()]; }
  [[nodiscard]] const Kernel& operator[](KernelId kernel) const { return kernels[kernel.index()]; }
  [[nodiscard]] const View& operator[](ViewId view) const { return views[view.index()]; }
  /// Where it begins in its buffer.
  [[nodiscard]] Bytes operator[](OffsetId offset) const { return offset.valid() ? offsets[offset.index()] : Bytes{}; }
  [[nodiscard]] const MatrixRow& operator[](RowId row) const { return rows[row.index()]; }
  bool operator==(const Program&) const = default;
};

constexpr std::string_view name(Phase phase) {
  switch (phase) {
    case Phase::Construction:
      return "construction";
    case Phase::Forward:
      return "forward";
    case Phase::Backward:
      return "backward";
    case Phase::OptimizerStep:
      return "optimizer_step";
    case Phase::Communication:
      return "communication";
    case Phase::Rollout:
      return "rollout";
  }
  return "?";
}

constexpr std::string_view name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllReduce:
      return "all_reduce";
    case CollectiveKind::AllGather:
      return "all_gather";
    case CollectiveKind::ReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::Broadcast:
      return "broadcast";
    case CollectiveKind::AllToAll:
      return "all_to_all";
  }
  return "?";
}

constexpr std::string_view name(Reduction reduction) {
  switch (reduction) {
    case Reduction::Sum:
      return "sum";
    case Reduction::Average:
      return "average";
    case Reduction::Largest:
      return "largest";
  }
  return "?";
}

constexpr std::string_view name(DriverResource resource) {
  switch (resource) {
    case DriverResource::Context:
      return "context";
    case DriverResource::Modules:
      return "modules";
    case DriverResource::NcclKernels:
      return "nccl_kernels";
    case DriverResource::BlasHandle:
      return "blas_handle";
  }
  return "?";
}

/// Calls `use(buffer)` for every buffer that `op` reads, writes or sends, in the order its text names them.
template <class Use>
void for_each_operand(const Program& program, const Op& op, Use&& use) {
  std::visit(Overloaded{
                 [&](const CrossStreamUse& o) { use(o.buffer); },
                 [&](const Launch& o) {
                   for (const OperandList list : {o.inputs, o.outputs, o.scratch})
                     for (const Operand& operand : program[list]) use(operand.buffer);
                 },
                 [&](const Collective& o) {
                   use(o.in.buffer);
                   if (o.out.buffer != o.in.buffer) use(o.out.buffer);
                 },
                 [&](const Exchange& o) {
                   for (const Transfer& t : program[o.transfers]) use(t.buffer);
                 },
                 [&](const Memcpy& o) {
                   use(o.from.buffer);
                   use(o.to.buffer);
                 },
                 Ignored<Alloc, Free, Record, Wait, Sync, CreateDriver, CreateCommunicator, Bind, Unbind, Mark>{},
             },
             op);
}

/// Whether kernels of two programs do the same, but for numbers that they are given.
[[nodiscard]] bool equal_but_for_attributes(const Program& a, KernelId of_a, const Program& b, KernelId of_b);
/// Whether they do the same.
[[nodiscard]] bool equal(const Program& a, KernelId of_a, const Program& b, KernelId of_b);
/// What a kernel sees of memory, by operand; nothing of one that is absent.
[[nodiscard]] const View* view_of(const Program& program, ViewId view);
/// The bytes that a kernel reads and writes, each operand once. A table of which rows are looked up counts with the
/// rows that are read. The first step of a fused kernel has all that the kernel moves.
[[nodiscard]] Bytes traffic_of(const Program& program, const Kernel& kernel);

/// Whether the host thread hands the op to a device: what it spends a launch on. Of a fused kernel the first step is.
[[nodiscard]] bool is_handed_over(const Program& program, const Op& op);

/// What the larger side of an uneven collective holds on the rank whose row this is.
[[nodiscard]] Bytes larger_side(CollectiveKind kind, const MatrixRow& row);

}  // namespace tidemark::sim
