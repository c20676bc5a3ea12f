#include "parallel/torch/process.hpp"

#include <utility>

#include <fmt/format.h>

namespace tidemark::parallel::torch {

Process::Process(const std::vector<Communicator>& groups, Bytes blas_workspace)
    : groups_(groups), created_(groups.size(), false), blas_workspace_size_(blas_workspace) {}

// ---- memory ---------------------------------------------------------------------------------------------------------

BufferId Process::alloc(Bytes size, Category category, LabelId label, StreamId stream, MemorySpace space) {
  barrier_ = here();
  // Pinned blocks wait by themselves for what uses them.
  const StreamId own = space == MemorySpace::Device ? stream : StreamId{};
  lifetimes_.push_back({.made = barrier_, .used = barrier_, .name = {}, .held = false, .own = own});
  return program.alloc(size, category, label, stream, space);
}

const Alloc& Process::allocation(BufferId buffer) const {
  return std::get<Alloc>(written().ops[lifetimes_[buffer.index()].made]);
}

void Process::reclassify(BufferId buffer, Category category) {
  program.reclassify(lifetimes_[buffer.index()].made, category);
}

void Process::relabel(BufferId buffer, LabelId label) { program.relabel(lifetimes_[buffer.index()].made, label); }

void Process::use(BufferId buffer, StreamId stream) {
  Lifetime& its = lifetimes_[buffer.index()];
  its.used = here();
  if (ordered_.valid() && its.own.valid() && stream.valid() && stream != its.own &&
      (stream == ordered_ || its.own == ordered_))
    its.others |= 1U << static_cast<std::uint32_t>(stream.value);
}

// Frees are computed from uses: nothing has to be said of a buffer that is released before anything sees, after its
// last use, that it is still there.
void Process::release(BufferId buffer) {
  Lifetime& its = lifetimes_[buffer.index()];
  its.held = false;
  for (StreamId other{0}; its.others >> static_cast<std::uint32_t>(other.value) != 0; ++other.value)
    if ((its.others >> static_cast<std::uint32_t>(other.value) & 1U) != 0) wait(its.own, record(other));
  if (its.name.valid()) {
    program.unbind(std::exchange(its.name, {}));
  } else if (its.used < barrier_) {
    if (!released_.valid()) released_ = program.name("released");
    program.bind(released_, buffer);
    program.unbind(released_);
  }
}

void Process::expect(std::int64_t times) {
  const auto all = static_cast<std::size_t>(times);
  program.reserve((written().ops.size() + lifetimes_.size()) * all);  // buffers are freed, too
  lifetimes_.reserve(lifetimes_.size() * all);
}

NameId Process::name_of(BufferId buffer) {
  const LabelId label = allocation(buffer).label;
  if (kept_.size() <= label.index()) kept_.resize(label.index() + 1);
  const std::int32_t others = kept_[label.index()]++;
  return program.name(others == 0 ? text(label) : fmt::format("{}[{}]", text(label), others));
}

void Process::keep(BufferId buffer) {
  const NameId name = name_of(buffer);
  lifetimes_[buffer.index()].name = name;
  program.bind(name, buffer);
}

Program Process::finish() && {
  for (std::size_t b = 0; b < lifetimes_.size(); ++b)
    if (lifetimes_[b].held && !lifetimes_[b].name.valid()) keep(BufferId{static_cast<std::int32_t>(b)});
  return std::move(program).finish();
}

// ---- work -----------------------------------------------------------------------------------------------------------

void Process::launch(const Computation& what, std::span<const ViewedOperand> inputs,
                     std::span<const ViewedOperand> outputs, std::span<const BufferId> scratch, StreamId stream) {
  for (const auto& operands : {inputs, outputs})
    for (const ViewedOperand& o : operands)
      if (o.operand.buffer.valid()) use(o.operand.buffer, stream);
  for (const BufferId b : scratch) use(b, stream);
  program.launch(what, inputs, outputs, scratch, stream);
}

void Process::copy(StreamId stream, Operand from, Operand to, Bytes size) {
  use(from.buffer, stream);
  use(to.buffer, stream);
  program.push(Memcpy{stream, from, to, size});
}

void Process::cross_stream_use(BufferId buffer, StreamId stream, bool recorded) {
  use(buffer, stream);
  program.push(CrossStreamUse{buffer, stream, recorded});
}

EventId Process::record(StreamId stream) {
  const EventId event{events_++};
  program.push(Record{event, stream});
  return event;
}

void Process::wait(StreamId stream, EventId event) {
  if (!event.valid()) return;
  barrier_ = here();
  program.push(Wait{stream, event});
}

void Process::synchronize() { synchronize(record(compute_stream)); }

void Process::synchronize(EventId event) {
  barrier_ = here();
  program.push(Sync{event});
}

// ---- communication --------------------------------------------------------------------------------------------------

bool Process::shared(CommSlot comm) const { return comm.valid() && group_size(groups_[comm.index()]) > 1; }

void Process::ensure_created(CommSlot comm) {
  if (created_[comm.index()]) return;
  created_[comm.index()] = true;
  program.push(CreateCommunicator{comm});
}

void Process::collective(CommSlot comm, const CollectiveOp& call, Operand in, Operand out, Bytes size,
                         StreamId stream) {
  if (!shared(comm)) return;
  ensure_created(comm);
  use(in.buffer, stream), use(out.buffer, stream);
  program.collective(comm, call, in, out, size, stream);
}

void Process::collective(CommSlot comm, const CollectiveOp& call, Operand in, Operand out, const MatrixRow& row,
                         StreamId stream) {
  if (!shared(comm)) return;
  ensure_created(comm);
  use(in.buffer, stream), use(out.buffer, stream);
  program.collective(comm, call, in, out, row, stream);
}

void Process::unchecked_collective(CommSlot comm, const CollectiveOp& call, Operand in, Operand out, Bytes size) {
  if (comm.valid()) ensure_created(comm);
  collective(comm, call, in, out, size);
}

EventId Process::collective_aside(CommSlot comm, const CollectiveOp& call, Operand in, Operand out, Bytes size,
                                  StreamId stream) {
  if (!shared(comm)) return {};
  ensure_created(comm);
  wait(stream, record(compute_stream));
  collective(comm, call, in, out, size, stream);
  return record(stream);
}

EventId Process::unchecked_collective_aside(CommSlot comm, const CollectiveOp& call, Operand in, Operand out,
                                            Bytes size, StreamId stream) {
  if (comm.valid()) ensure_created(comm);
  return collective_aside(comm, call, in, out, size, stream);
}

void Process::exchange(CommSlot comm, std::span<const Transfer> transfers, StreamId stream) {
  if (transfers.empty()) return;
  ensure_created(comm);
  for (const Transfer& t : transfers) use(t.buffer, stream);
  program.exchange(comm, transfers, stream);
}

EventId Process::exchange_aside(CommSlot comm, StreamId stream, std::span<const Transfer> transfers) {
  ensure_created(comm);
  wait(stream, record(compute_stream));
  exchange(comm, transfers, stream);
  for (const Transfer& t : transfers)
    if (t.direction == Direction::Send) program.push(CrossStreamUse{t.buffer, stream, records_sent_});
  return record(stream);
}

// ---- drivers and libraries ------------------------------------------------------------------------------------------

void Process::blas_handle(HostThread thread) {
  if (!std::exchange(has_blas_handle_[static_cast<int>(thread)], true)) create(DriverResource::BlasHandle);
}

BufferId Process::blas_workspace(HostThread thread) {
  BufferId& workspace = blas_workspace_[static_cast<int>(thread)];
  if (workspace.valid()) return workspace;
  blas_handle(thread);
  workspace =
      alloc(blas_workspace_size_, Category::Workspaces,
            thread == HostThread::Main ? "workspace.cublas.forward_thread" : "workspace.cublas.autograd_thread");
  keep(workspace);
  return workspace;
}

BufferId Process::blas_lt_workspace(HostThread thread, Bytes size) {
  BufferId& workspace = blas_lt_workspace_[static_cast<int>(thread)];
  if (workspace.valid()) return workspace;
  workspace =
      alloc(size, Category::Workspaces,
            thread == HostThread::Main ? "workspace.cublas_lt.forward_thread" : "workspace.cublas_lt.autograd_thread");
  keep(workspace);
  return workspace;
}

}  // namespace tidemark::parallel::torch
