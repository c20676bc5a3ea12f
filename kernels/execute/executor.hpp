#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/execute/backend.hpp"
#include "kernels/execute/expectation.hpp"
#include "kernels/execute/memory_points.hpp"
#include "kernels/execute/references.hpp"
#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"
#include "sim/base/time.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::execute {

/// How a run's memory is measured: by someone else than the one who runs.
template <class P>
concept Probe = requires(P& p) {
  { p.now() } -> std::same_as<Bytes>;   ///< what is held at this moment
  { p.peak() } -> std::same_as<Bytes>;  ///< the highest value since the last call
  p.step_ended();                       ///< all ranks come here, step by step
};

/// What a run of one rank's program came to.
struct RunRecord {
  MemoryPoints memory;
  std::vector<Duration> steps;  ///< wall clock, construction first, without the time that measuring took
  Findings findings;
};

/// "layers.0.norm at op 120 (step 1, forward, micro-batch 0)".
[[nodiscard]] std::string describe(const Program& program, std::size_t op);
/// The label of a buffer.
[[nodiscard]] std::string describe(const Program& program, BufferId buffer);

/// Runs a rank's program, given without frees: counts references itself and releases what nobody refers to, compares
/// every payload that is read with what should be there, and measures memory at the moments given, and the highest
/// value of each phase.
template <Backend B, Probe P>
class Executor {
 public:
  /// `program` and `groups`, by slot, are what runs; `expectation` says what should come of it.
  Executor(const Program& program, const std::vector<Group>& groups, const Expectation& expectation, Rank rank,
           B& backend, P& probe)
      : program_(program),
        groups_(groups),
        expectation_(expectation),
        rank_(rank),
        backend_(backend),
        probe_(probe),
        references_(program_) {}

  /// Called at each mark of the program, with how many of its ops are behind; without it, nothing is.
  std::function<void(std::size_t done, std::size_t all)> progress = {};

  [[nodiscard]] RunRecord run(const std::vector<std::size_t>& moments) {
    auto next = moments.begin();
    step_began_ = Clock::now();
    for (op_ = 0; op_ < program_.ops.size(); ++op_) {
      execute(program_.ops[op_]);
      references_.after(op_, [&](BufferId buffer) { backend_.release(buffer); });
      highest_.allocated = std::max(highest_.allocated, backend_.allocated());
      if (next == moments.end() || *next != op_) continue;
      ++next;
      untimed([&] {
        record_.memory.samples.push_back({op_, mark_.step, mark_.phase, probe_.now(), backend_.allocated()});
      });
    }
    end_phase();
    end_step();
    backend_.finish();
    if (progress) progress(program_.ops.size(), program_.ops.size());  // which ends the line that shows it
    record_.memory.phases = peaks_.all();
    record_.memory.reserved = backend_.reserved();
    for (const MemoryPoint& phase : record_.memory.phases)
      if (phase.resident > record_.memory.peak.resident) record_.memory.peak = phase;
    record_.findings = backend_.findings();
    return std::move(record_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void execute(const Op& op) {
    std::visit(Overloaded{
                   [&](const Alloc& o) {
                     backend_.allocate(o.buffer, o.size, o.stream, o.space);
                     highest_.allocated = std::max(highest_.allocated, backend_.allocated());
                   },
                   [](const Free&) { ensure(false, "an executed program holds no frees"); },
                   [&](const CrossStreamUse& o) { backend_.cross_stream_use(o.buffer, o.stream); },
                   [&](const Launch& o) { launch(o); },
                   [&](const Collective& o) { collective(o); },
                   [&](const Exchange& o) { exchange(o); },
                   [&](const Memcpy& o) { copy(o); },
                   [&](const Record& o) { backend_.record(o.event, o.stream); },
                   [&](const Wait& o) { backend_.wait(o.stream, o.event); },
                   [&](const Sync& o) { backend_.sync(o.event); },
                   [&](const CreateDriver& o) { backend_.create(o.resource); },
                   [&](const CreateCommunicator& o) { backend_.create(o.comm, group(o.comm)); },
                   [](const Bind&) {},
                   [](const Unbind&) {},
                   [&](const Mark& o) { enter(o); },
               },
               op);
  }

  [[nodiscard]] std::string doing() const { return describe(program_, op_); }
  void read(BufferId buffer) {
    for (const Reading& known : readings_)
      if (known.buffer == buffer) return;
    readings_.push_back({buffer, expectation_.before(rank_, op_, buffer), op_});
  }

  void write(BufferId buffer) {
    for (const Writing& known : writings_)
      if (known.buffer == buffer) return;
    writings_.push_back({buffer, Expectation::stamp(rank_, op_, buffer)});
  }

  [[nodiscard]] const Group& group(CommSlot slot) const { return groups_[slot.index()]; }

  void launch(const Launch& o) {
    readings_.clear();
    writings_.clear();
    for (const Operand& operand : program_[o.inputs]) read(operand.buffer);
    for (const OperandList list : {o.outputs, o.scratch})
      for (const Operand& operand : program_[list]) write(operand.buffer);
    backend_.launch(o.stream, program_[o.kernel], readings_, writings_);
  }

  void collective(const Collective& o) {
    readings_.clear();
    read(o.in.buffer);
    backend_.check(o.stream, readings_);
    const Group& its = group(o.comm);
    backend_.collective(o.stream, o.comm, its, o.kind, o.in.buffer, o.out.buffer,
                        parts_of(program_, o, its.size(), expectation_.scale()), doing());
    check_written(o.stream, {o.out.buffer});
  }

  void exchange(const Exchange& o) {
    const Group& its = group(o.comm);
    readings_.clear();
    std::vector<Delivery> deliveries;
    std::vector<BufferId> received;
    for (const Transfer& t : program_[o.transfers]) {
      deliveries.push_back({t, its.at(its.me + t.step)});
      if (t.direction == Direction::Send)
        read(t.buffer);
      else
        received.push_back(t.buffer);
    }
    backend_.check(o.stream, readings_);
    backend_.exchange(o.stream, o.comm, its, deliveries, doing());
    check_written(o.stream, received);
  }

  void copy(const Memcpy& o) {
    readings_.clear();
    read(o.from.buffer);
    backend_.check(o.stream, readings_);
    const Moved moved = moved_by(program_, o, expectation_.scale(), expectation_.words(rank_, o.from.buffer),
                                 expectation_.words(rank_, o.to.buffer));
    backend_.copy(o.stream, o.from.buffer, o.to.buffer, moved);
    check_written(o.stream, {o.to.buffer});
  }

  // What others sent is looked at as soon as it is there, whether or not anyone reads it later.
  void check_written(StreamId stream, const std::vector<BufferId>& buffers) {
    readings_.clear();
    for (const BufferId b : buffers) readings_.push_back({b, expectation_.after(rank_, op_, b), op_});
    backend_.check(stream, readings_);
  }

  template <class Work>
  void untimed(Work&& work) {
    const Clock::time_point began = Clock::now();
    work();
    step_began_ += Clock::now() - began;
  }

  void enter(const Mark& mark) {
    if (progress && op_ > 0) untimed([&] { progress(op_, program_.ops.size()); });
    if (mark.step == mark_.step && mark.phase == mark_.phase) {
      mark_ = mark;
      return;
    }
    end_phase();
    if (mark.step != mark_.step) end_step();
    mark_ = mark;
    highest_ = {op_, mark.step, mark.phase, {}, backend_.allocated()};
  }

  void end_phase() {
    untimed([&] {
      highest_.resident = probe_.peak();
      peaks_.note(highest_);
    });
  }
  void end_step() {
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - step_began_);
    record_.steps.push_back(Duration{took.count() * 1000});
    probe_.step_ended();
    step_began_ = Clock::now();
  }

  const Program& program_;
  const std::vector<Group>& groups_;
  const Expectation& expectation_;
  Rank rank_;
  B& backend_;
  P& probe_;
  References references_;
  std::vector<Reading> readings_;
  std::vector<Writing> writings_;

  std::size_t op_ = 0;
  Mark mark_;
  MemoryPoint highest_;  // of the phase at hand
  PhasePeaks peaks_;
  Clock::time_point step_began_;
  RunRecord record_;
};

}  // namespace tidemark::execute
