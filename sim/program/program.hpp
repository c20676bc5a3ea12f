#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sim/base/category.hpp"
#include "sim/base/units.hpp"
#include "sim/program/kernel.hpp"
#include "sim/program/label.hpp"

// A rank is a host thread, some streams and a memory. A program is what that thread calls, in order. Host order is the
// truth for memory: a framework allocates and frees when its host thread runs, not when the device does.

namespace tidemark::sim {

/// A run of Program::operands.
struct BufferList {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const BufferList&) const = default;
};

/// A run of Program::transfers.
struct TransferList {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  bool operator==(const TransferList&) const = default;
};

enum class Direction : std::uint8_t { Send, Receive };

/// One side of a point-to-point message: the peer stands `step` places on in the communicator's group.
struct Transfer {
  Direction direction = Direction::Send;
  std::int32_t step = 0;
  BufferId buffer;
  bool operator==(const Transfer&) const = default;
};

enum class CollectiveKind : std::uint8_t { AllReduce, AllGather, ReduceScatter, Broadcast, AllToAll };

/// Memory that the driver or a library takes behind the framework's allocator; prices say how much.
enum class DriverResource : std::uint8_t { Context, Modules, NcclKernels, BlasHandle };

enum class Phase : std::uint8_t { Construction, Forward, Backward, OptimizerStep, Communication };

struct Alloc {
  BufferId buffer;
  Bytes size;
  Category category = Category::Temporaries;
  StreamId stream;
  LabelId label;  ///< which tensor this is
  bool operator==(const Alloc&) const = default;
};
struct Free {
  BufferId buffer;
  bool operator==(const Free&) const = default;
};
/// The buffer is used on another stream: its free waits for what is enqueued there.
struct Borrow {
  BufferId buffer;
  StreamId stream;
  bool operator==(const Borrow&) const = default;
};
struct Launch {
  StreamId stream;
  KernelId kernel;
  BufferList inputs, outputs;
  bool operator==(const Launch&) const = default;
};
/// `size` is what the larger side holds on one rank; in place where `in` and `out` are one buffer.
struct Collective {
  StreamId stream;
  CommSlot comm;
  CollectiveKind kind = CollectiveKind::AllReduce;
  BufferId in, out;
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
  bool operator==(const Mark&) const = default;
};

using Op = std::variant<Alloc, Free, Borrow, Launch, Collective, Exchange, Record, Wait, Sync, CreateDriver,
                        CreateCommunicator, Bind, Unbind, Mark>;

/// What one rank's host thread calls, in order, with the tables its ops point into.
struct Program {
  std::vector<Op> ops;
  std::vector<BufferId> operands;
  std::vector<Transfer> transfers;
  std::vector<Kernel> kernels;
  std::vector<Label> labels;
  std::vector<std::string> names;  ///< of variables; no white space inside
  std::int32_t buffers = 0;        ///< buffer ids are 0 … buffers - 1
  std::int32_t events = 0;

  [[nodiscard]] std::span<const BufferId> operator[](BufferList list) const {
    return std::span(operands).subspan(list.first, list.count);
  }
  [[nodiscard]] std::span<const Transfer> operator[](TransferList list) const {
    return std::span(transfers).subspan(list.first, list.count);
  }
  [[nodiscard]] const std::string& operator[](LabelId label) const { return labels[label.index()].text; }
  [[nodiscard]] std::int32_t layer_of(LabelId label) const { return labels[label.index()].layer; }
  [[nodiscard]] const std::string& operator[](NameId name) const { return names[name.index()]; }
  [[nodiscard]] const Kernel& operator[](KernelId kernel) const { return kernels[kernel.index()]; }
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
  if (const Launch* launch = std::get_if<Launch>(&op)) {
    for (const BufferId b : program[launch->inputs]) use(b);
    for (const BufferId b : program[launch->outputs]) use(b);
  } else if (const Collective* collective = std::get_if<Collective>(&op)) {
    use(collective->in);
    if (collective->out != collective->in) use(collective->out);
  } else if (const Exchange* exchange = std::get_if<Exchange>(&op)) {
    for (const Transfer& t : program[exchange->transfers]) use(t.buffer);
  } else if (const Borrow* borrow = std::get_if<Borrow>(&op)) {
    use(borrow->buffer);
  }
}

}  // namespace tidemark::sim
