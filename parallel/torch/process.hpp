#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/namespace.hpp"
#include "sim/program/program_builder.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::parallel::torch {

/// Threads of a process that launch kernels: the one that runs the program, and autograd's for the device.
enum class HostThread : std::uint8_t { Main, Autograd };

/// One process of a job while its program is written: its memory, its streams, the groups it is a member of, and where
/// in the step it is.
class Process {
 public:
  static constexpr StreamId compute_stream{0};
  static constexpr StreamId communication_stream{1};

  /// `groups` are the job's communicators by slot; `blas_workspace` is what each cuBLAS handle works in.
  Process(const std::vector<Communicator>& groups, Bytes blas_workspace);

  // ---- where it is: from a mark on, ops belong to that phase and label

  void at(std::int32_t step, std::int32_t micro_batch) { step_ = step, micro_batch_ = micro_batch; }
  [[nodiscard]] std::int32_t step() const { return step_; }
  void mark(Phase phase, std::string_view label) { mark(phase, program.label(label)); }
  void mark(Phase phase, LabelId label) {
    barrier_ = here();
    ++marks_;
    phase_ = phase, label_ = label;
    program.mark(phase, step_, micro_batch_, label);
  }

  /// torch.cuda.empty_cache().
  void empty_cache() {
    barrier_ = here();
    ++marks_;
    program.mark(phase_, step_, micro_batch_, label_, true);
  }

  LabelId label(std::string_view text) { return program.label(text); }
  [[nodiscard]] const std::string& text(LabelId label) const { return program.program()[label]; }

  // ---- memory

  /// Lives until its last use, unless something holds it.
  BufferId alloc(Bytes size, Category category, LabelId label, StreamId stream = compute_stream,
                 MemorySpace space = MemorySpace::Device);
  BufferId alloc(Bytes size, Category category, std::string_view label, StreamId stream = compute_stream) {
    return alloc(size, category, program.label(label), stream);
  }
  /// Variables refer to the buffer until it is released, or else until the process ends.
  void hold(BufferId buffer) { lifetimes_[buffer.index()].held = true; }
  void release(BufferId buffer);
  /// The buffer is released only where it is said so; programs call it by its label.
  void keep(BufferId buffer);
  /// A variable refers to the buffer, and to nothing else, until it is bound again or unbound.
  void bind(std::string_view name, BufferId buffer) { program.bind(program.name(name), buffer); }
  void unbind(std::string_view name) { program.unbind(program.name(name)); }

  /// What a buffer was allocated as; what it counts as may be known only later.
  [[nodiscard]] const Alloc& allocation(BufferId buffer) const;
  void reclassify(BufferId buffer, Category category);
  void relabel(BufferId buffer, LabelId label);
  /// Room for so many ops in all, frees too.
  void reserve(std::size_t ops) { program.reserve(ops); }

  // ---- work

  ViewId view(DType dtype, const Shape& sizes, const Shape& strides) { return program.view(dtype, sizes, strides); }
  OffsetId offset(Bytes from) { return program.offset(from); }
  void launch(const Computation& what, std::span<const ViewedOperand> inputs, std::span<const ViewedOperand> outputs,
              std::span<const BufferId> scratch, StreamId stream = compute_stream);
  /// Between the device and the host, on that stream.
  void copy(StreamId stream, Operand from, Operand to, Bytes size);

  /// What goes between that stream and others without record_stream: the buffer's stream waits for them when it is
  /// given up. PyTorch leaves that to the program, whose next work on the stream has to come after theirs; here it is
  /// said.
  void order_frees(StreamId stream) { ordered_ = stream; }
  /// What goes out beside the computing stream is marked by record_stream: ProcessGroupNCCL before PyTorch 2.8.
  void record_sent(bool records) { records_sent_ = records; }
  /// The buffer is used on another stream: when it is freed, it is not handed out again before that is done.
  void cross_stream_use(BufferId buffer, StreamId stream, bool recorded = true);
  [[nodiscard]] EventId record(StreamId stream);
  /// What the stream is given from now on waits for the event; an event that nobody recorded is over.
  void wait(StreamId stream, EventId event);
  void join(EventId event) { wait(compute_stream, event); }
  /// The host thread waits until the device has done all that the compute stream was given.
  void synchronize();
  /// … or until the event is over.
  void synchronize(EventId event);

  // ---- communication; the communicator is made at its first use

  /// A collective of my group. Nothing happens in a group of one.
  void collective(CommSlot comm, const CollectiveOp& call, Operand in, Operand out, Bytes size,
                  StreamId stream = compute_stream);
  /// An uneven one.
  void collective(CommSlot comm, const CollectiveOp& call, Operand in, Operand out, const MatrixRow& row,
                  StreamId stream = compute_stream);
  /// The same where the framework does not look at the group's size first: a group of one still gets its communicator.
  void unchecked_collective(CommSlot comm, const CollectiveOp& call, Operand in, Operand out, Bytes size);
  /// The same beside what the compute stream does next; `join` makes that stream wait for it.
  [[nodiscard]] EventId collective_aside(CommSlot comm, const CollectiveOp& call, Operand in, Operand out, Bytes size,
                                         StreamId stream = communication_stream);
  [[nodiscard]] EventId unchecked_collective_aside(CommSlot comm, const CollectiveOp& call, Operand in, Operand out,
                                                   Bytes size, StreamId stream);
  void exchange(CommSlot comm, std::span<const Transfer> transfers, StreamId stream = compute_stream);
  /// The same on a stream of its own, after what the compute stream has been given; what is sent may be freed at once,
  /// but is not handed out again before it is gone.
  [[nodiscard]] EventId exchange_aside(CommSlot comm, StreamId stream, std::span<const Transfer> transfers);

  // ---- what drivers and libraries take

  void create(DriverResource resource) { program.push(CreateDriver{resource}); }
  void blas_handle(HostThread thread);         ///< PyTorch has one for each thread, made when it is needed
  BufferId blas_workspace(HostThread thread);  ///< of the framework's own GEMMs
  /// … of those to which a bias is added, where they keep one of their own.
  BufferId blas_lt_workspace(HostThread thread, Bytes size);
  [[nodiscard]] Bytes blas_workspace_size() const { return blas_workspace_size_; }

  /// So many times what was written so far will be written in all.
  void expect(std::int64_t times);
  /// What was written so far.
  [[nodiscard]] const Program& written() const { return program.program(); }
  [[nodiscard]] std::size_t marks() const { return marks_; }
  /// The whole program, without frees. What variables still hold is never freed.
  [[nodiscard]] Program finish() &&;

 protected:
  [[nodiscard]] bool shared(CommSlot comm) const;  ///< has other members

  ProgramBuilder program;

 private:
  friend class Meanwhile;
  struct Lifetime {
    std::uint32_t made = 0;  ///< place of its alloc in the program
    std::uint32_t used = 0;  ///< place of the last op that uses it
    NameId name;             ///< bound to it
    bool held = false;
    StreamId own;
    std::uint32_t others = 0;  ///< streams that have used it, a bit for each, where frees are put in order
  };
  void use(BufferId buffer, StreamId stream);
  void ensure_created(CommSlot comm);
  [[nodiscard]] std::uint32_t here() const { return static_cast<std::uint32_t>(program.program().ops.size()); }
  NameId name_of(BufferId buffer);

  const std::vector<Communicator>& groups_;
  std::vector<bool> created_;        // by slot
  std::vector<Lifetime> lifetimes_;  // by buffer
  std::vector<std::int32_t> kept_;   // by label: how many names it gave
  std::uint32_t barrier_ = 0;  // place of the last op that sees what is live, or that another stream's work ends at
  NameId released_;
  StreamId ordered_;
  bool records_sent_ = true;
  std::int32_t step_ = 0;
  std::int32_t micro_batch_ = -1;
  std::int32_t events_ = 0;
  std::size_t marks_ = 0;  // written so far
  Phase phase_{};          // of the last one
  LabelId label_;
  Bytes blas_workspace_size_;
  bool has_blas_handle_[2] = {};
  BufferId blas_workspace_[2], blas_lt_workspace_[2];
};

/// What happens meanwhile belongs to that phase and label; then it goes on as it was marked before.
class Meanwhile {
 public:
  Meanwhile(Process& process, Phase phase, std::string_view label)
      : process_(process), phase_(process.phase_), label_(process.label_) {
    process.mark(phase, label);
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;
  ~Meanwhile() { process_.mark(phase_, label_); }

 private:
  Process& process_;
  Phase phase_;
  LabelId label_;
};

}  // namespace tidemark::parallel::torch
