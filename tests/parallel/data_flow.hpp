#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "parallel/job/mesh.hpp"
#include "sim/base/ensure.hpp"
#include "sim/program/workload.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests {

/// One pass of an operator over one micro-batch, on one tensor-parallel rank of one data-parallel replica.
struct Origin {
  OperatorId op;
  std::int32_t micro_batch = 0, data = 0, tensor = 0;

  /// The same work, maybe another rank's part of it.
  [[nodiscard]] bool same_pass(const Origin& other) const {
    return op == other.op && micro_batch == other.micro_batch && data == other.data;
  }
  auto operator<=>(const Origin&) const = default;
};
using Origins = std::vector<Origin>;  // in order, each once

/// Runs all programs of a job side by side up to the first update, with, in place of numbers, whose results a buffer
/// holds: the operators whose forward passes made a value, and those whose backward passes made a gradient. Of each
/// operator's pass it notes whose results it read. Additions, and the operators that do nothing else, hand on what they
/// get; gradient buffers collect what is added to them.
class DataFlow {
 public:
  DataFlow(const Lowered& lowered, const Workload& workload) : lowered_(lowered), workload_(workload) {
    for (std::size_t o = 0; o < lowered.graph.operators.size(); ++o)
      operator_named_.emplace(lowered.graph.operators[o].name, OperatorId{static_cast<std::int32_t>(o)});
    for (Rank rank{0}; rank.value < workload.world_size(); ++rank.value) {
      Process process{.rank = rank, .at = coordinates(lowered.job.layout, rank), .program = &workload.program(rank)};
      process.buffers.resize(static_cast<std::size_t>(process.program->buffers));
      processes_.push_back(std::move(process));
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (Process& process : processes_)
        while (!process.done && step(process)) moved = true;
    }
    for (const Process& process : processes_) ensure(process.done, "all ranks come to their update");
  }

  /// Whose values (Pass::Forward) or gradients (Pass::Backward) an operator's pass read; where ranks bring together
  /// what they have of it before it is done, all of them read what any does.
  [[nodiscard]] Origins read_by(Phase pass, const Origin& who) const {
    const auto read = [&](const Origin& one) {
      const std::map<Origin, Origins>& noted = read_[pass == Phase::Forward ? 0 : 1];
      const auto found = noted.find(one);
      return found == noted.end() ? Origins{} : found->second;
    };
    Origins all;
    for (const Origin& origin : read(who)) {
      if (!origin.same_pass(who)) all = united(all, {origin});
      if (origin.same_pass(who))
        for (const Origin& theirs : read(origin))
          if (!theirs.same_pass(who)) all = united(all, {theirs});
    }
    return all;
  }
  /// Whose gradients are in the rank's gradient buffers when it updates its parameters.
  [[nodiscard]] Origins gradients(Rank rank) const {
    Origins all;
    for (const Buffer& buffer : processes_[rank.index()].buffers)
      if (buffer.holds == Holds::ParameterGradients) all = united(all, buffer.backward);
    return all;
  }
  /// Elements that a micro-batch added to the rank's gradient buffers.
  [[nodiscard]] std::int64_t elements_added(Rank rank, std::int32_t micro_batch) const {
    const auto found = processes_[rank.index()].added.find(micro_batch);
    return found == processes_[rank.index()].added.end() ? 0 : found->second;
  }

  /// Whether an operator hands on what it gets: additions and views.
  [[nodiscard]] static bool hands_on(const Operator& op) {
    return op.does == Does::AddsResidual || op.does == Does::Transposes || op.does == Does::Cuts;
  }

 private:
  enum class Holds : std::uint8_t { Tensor, ParameterGradients, NoResult };  // workspaces and tables: of nobody
  struct Buffer {
    Origins forward, backward;
    Holds holds = Holds::Tensor;
  };
  struct Process {
    Rank rank;
    Coordinates at;
    const Program* program = nullptr;
    std::size_t op = 0;
    std::vector<Buffer> buffers{};
    std::vector<BufferId> scratch{};
    Phase phase = Phase::Construction;
    Origin self{};  ///< the operator's pass that runs, if any
    std::map<CommSlot, std::int32_t> calls{};
    bool posted = false;  ///< its part of the op it waits in
    bool done = false;
    std::map<std::int32_t, std::int64_t> added{};  // by micro-batch
  };
  // What the members of a group bring to one call.
  struct Meeting {
    std::map<Rank, Buffer> parts;
    std::size_t left = 0;
  };

  static Origins united(const Origins& a, const Origins& b) {
    if (a.empty()) return b;
    if (b.empty()) return a;
    Origins all;
    std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
    return all;
  }

  // False where it has to wait for others.
  bool step(Process& p) {
    const Op& op = p.program->ops[p.op];
    bool goes_on = true;
    if (const Alloc* o = std::get_if<Alloc>(&op))
      allocate(p, *o);
    else if (const Free* freed = std::get_if<Free>(&op))
      p.buffers[freed->buffer.index()] = {};
    else if (const Mark* mark = std::get_if<Mark>(&op))
      enter(p, *mark);
    else if (const Launch* launch = std::get_if<Launch>(&op))
      run(p, *launch);
    else if (const Collective* collective = std::get_if<Collective>(&op))
      goes_on = meet(p, *collective);
    else if (const Exchange* exchange = std::get_if<Exchange>(&op))
      goes_on = p2p(p, *exchange);
    if (goes_on && ++p.op == p.program->ops.size()) p.done = true;
    return goes_on;
  }

  static void allocate(Process& p, const Alloc& o) {
    const std::string& label = (*p.program)[o.label];
    Buffer& buffer = p.buffers[o.buffer.index()];
    if (label.starts_with("gradient_buffer")) buffer.holds = Holds::ParameterGradients;
    if (o.category == Category::Workspaces) buffer.holds = Holds::NoResult;
    if (label.starts_with("global_memory_buffer")) p.scratch.push_back(o.buffer);
  }

  void enter(Process& p, const Mark& mark) {
    const std::string& label = (*p.program)[mark.label];
    if (mark.step == 1 && mark.phase == Phase::OptimizerStep && label == "optimizer_step") p.done = true;
    p.phase = mark.phase;
    const auto op = operator_named_.find(label);
    const bool passes = mark.phase == Phase::Forward || mark.phase == Phase::Backward;
    p.self = {passes && op != operator_named_.end() ? op->second : OperatorId{}, mark.micro_batch, p.at.data,
              p.at.tensor};
    for (const BufferId b : p.scratch) p.buffers[b.index()] = {};  // whoever is next finds nothing of use in it
  }

  void run(Process& p, const Launch& launch) {
    const Kernel& kernel = (*p.program)[launch.kernel];
    Buffer in;
    for (const Operand& operand : (*p.program)[launch.inputs]) {
      const Buffer& buffer = p.buffers[operand.buffer.index()];
      if (p.self.op.valid() && buffer.holds == Holds::ParameterGradients) continue;  // is added to, not read
      in.forward = united(in.forward, buffer.forward);
      in.backward = united(in.backward, buffer.backward);
    }
    const bool adds = kernel.operation == Operation::Add || kernel.operation == Operation::BiasDropoutAdd;
    // Where an operator that hands on has a bias, its gradient is a sum of what it is handed.
    const bool sums = kernel.operation == Operation::Sum;
    if (p.self.op.valid() && !adds && (sums || !hands_on(lowered_.graph[p.self.op]))) {
      const bool forward = p.phase == Phase::Forward;
      Origins& read = forward ? in.forward : in.backward;
      Origins& noted = read_[forward ? 0 : 1][p.self];
      noted = united(noted, read);
      std::erase_if(read, [&](const Origin& origin) { return !origin.same_pass(p.self); });
      read = united(read, {p.self});
    }
    if (p.phase == Phase::Forward) in.backward.clear();
    if (p.phase == Phase::Backward) in.forward.clear();
    for (std::size_t i = 0; i < launch.outputs.count; ++i) {
      Buffer& out = p.buffers[(*p.program)[launch.outputs][i].buffer.index()];
      if (out.holds == Holds::NoResult) continue;
      const bool collects = out.holds == Holds::ParameterGradients && p.self.op.valid();
      if (collects) p.added[p.self.micro_batch] += (*p.program)[there(kernel.outputs)[i]].stored();
      out = {collects ? out.forward : in.forward, collects ? united(out.backward, in.backward) : in.backward,
             out.holds};
    }
  }

  // Views of operands that are there.
  static std::vector<ViewId> there(std::vector<ViewId> views) {
    std::erase_if(views, [](ViewId view) { return !view.valid(); });
    return views;
  }

  bool meet(Process& p, const Collective& o) {
    const Communicator& group = workload_.communicators[o.comm.index()];
    const std::size_t members = static_cast<std::size_t>(group_size(group));
    const std::tuple call{o.comm, group_leader(group, p.rank), p.calls[o.comm]};
    Meeting& meeting = meetings_[call];
    if (!p.posted) meeting.parts.emplace(p.rank, p.buffers[o.in.buffer.index()]);
    p.posted = true;
    if (meeting.parts.size() < members) return false;
    Buffer all;
    for (const auto& [rank, part] : meeting.parts) {
      all.forward = united(all.forward, part.forward);
      all.backward = united(all.backward, part.backward);
    }
    Buffer& out = p.buffers[o.out.buffer.index()];
    out = {std::move(all.forward), std::move(all.backward), out.holds};
    if (++meeting.left == members) meetings_.erase(call);
    ++p.calls[o.comm];
    p.posted = false;
    return true;
  }

  bool p2p(Process& p, const Exchange& o) {
    const Communicator& group = workload_.communicators[o.comm.index()];
    const auto letters = [&](Rank from, Rank to, std::int32_t step) -> std::deque<Buffer>& {
      return letters_[{o.comm, from, to, step}];
    };
    bool all_there = true;
    for (const Transfer& t : (*p.program)[o.transfers]) {
      const Rank peer = group_neighbour(group, p.rank, t.step);
      if (t.direction == Direction::Receive)
        all_there = all_there && !letters(peer, p.rank, -t.step).empty();
      else if (!p.posted)
        letters(p.rank, peer, t.step).push_back(p.buffers[t.buffer.index()]);
    }
    p.posted = !all_there;
    if (!all_there) return false;
    for (const Transfer& t : (*p.program)[o.transfers]) {
      if (t.direction != Direction::Receive) continue;
      std::deque<Buffer>& box = letters(group_neighbour(group, p.rank, t.step), p.rank, -t.step);
      p.buffers[t.buffer.index()] = std::move(box.front());
      box.pop_front();
    }
    return true;
  }

  const Lowered& lowered_;
  const Workload& workload_;
  std::map<std::string, OperatorId, std::less<>> operator_named_;
  std::vector<Process> processes_;
  std::map<Origin, Origins> read_[2];  // by pass
  std::map<std::tuple<CommSlot, Rank, std::int32_t>, Meeting> meetings_;
  std::map<std::tuple<CommSlot, Rank, Rank, std::int32_t>, std::deque<Buffer>> letters_;  // from, to, step
};

}  // namespace tidemark::tests
