#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "parallel/mesh.hpp"
#include "parallel/sizes.hpp"
#include "parallel/stages.hpp"
#include "sim/ensure.hpp"
#include "sim/workload.hpp"
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
  [[nodiscard]] Origins read_by(Pass pass, const Origin& who) const {
    const auto read = [&](const Origin& one) {
      const auto found = read_[static_cast<int>(pass)].find(one);
      return found == read_[static_cast<int>(pass)].end() ? Origins{} : found->second;
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
    return std::holds_alternative<Residual>(op.type) || std::holds_alternative<Transpose>(op.type) ||
           std::holds_alternative<Split>(op.type);
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
      goes_on = hand_over(p, *exchange);
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
    const Stream* stream = std::get_if<Stream>(&kernel);
    Buffer in;
    for (const BufferId b : (*p.program)[launch.inputs]) {
      const Buffer& buffer = p.buffers[b.index()];
      if (p.self.op.valid() && buffer.holds == Holds::ParameterGradients) continue;  // is added to, not read
      in.forward = united(in.forward, buffer.forward);
      in.backward = united(in.backward, buffer.backward);
    }
    const bool adds = stream != nullptr && stream->kind == Streaming::Add;
    // Where an operator that hands on has a bias, its gradient is a sum of what it is handed.
    const bool sums = stream != nullptr && stream->kind == Streaming::Reduce;
    if (p.self.op.valid() && !adds && (sums || !hands_on(lowered_.graph[p.self.op]))) {
      const Pass pass = p.phase == Phase::Forward ? Pass::Forward : Pass::Backward;
      Origins& read = pass == Pass::Forward ? in.forward : in.backward;
      Origins& noted = read_[static_cast<int>(pass)][p.self];
      noted = united(noted, read);
      std::erase_if(read, [&](const Origin& origin) { return !origin.same_pass(p.self); });
      read = united(read, {p.self});
    }
    if (p.phase == Phase::Forward) in.backward.clear();
    if (p.phase == Phase::Backward) in.forward.clear();
    for (const BufferId b : (*p.program)[launch.outputs]) {
      Buffer& out = p.buffers[b.index()];
      if (out.holds == Holds::NoResult) continue;
      const bool collects = out.holds == Holds::ParameterGradients && p.self.op.valid();
      if (collects) p.added[p.self.micro_batch] += elements_written(kernel);
      out = {collects ? out.forward : in.forward, collects ? united(out.backward, in.backward) : in.backward,
             out.holds};
    }
  }

  [[nodiscard]] std::int64_t elements_written(const Kernel& kernel) const {
    if (const Gemm* gemm = std::get_if<Gemm>(&kernel)) return gemm->m * gemm->n;
    const Stream* stream = std::get_if<Stream>(&kernel);
    ensure(stream != nullptr, "gradients are added to by products and sums");
    return stream->written / size_of(lowered_.job.train.gradient_dtype);
  }

  bool meet(Process& p, const Collective& o) {
    const Communicator& group = workload_.communicators[o.comm.index()];
    const std::size_t members = static_cast<std::size_t>(group_size(group));
    const std::tuple call{o.comm, group_leader(group, p.rank), p.calls[o.comm]};
    Meeting& meeting = meetings_[call];
    if (!p.posted) meeting.parts.emplace(p.rank, p.buffers[o.in.index()]);
    p.posted = true;
    if (meeting.parts.size() < members) return false;
    Buffer all;
    for (const auto& [rank, part] : meeting.parts) {
      all.forward = united(all.forward, part.forward);
      all.backward = united(all.backward, part.backward);
    }
    Buffer& out = p.buffers[o.out.index()];
    out = {std::move(all.forward), std::move(all.backward), out.holds};
    if (++meeting.left == members) meetings_.erase(call);
    ++p.calls[o.comm];
    p.posted = false;
    return true;
  }

  bool hand_over(Process& p, const Exchange& o) {
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

/// What the model's graph and the layout say of the same.
class ExpectedFlow {
 public:
  explicit ExpectedFlow(const Lowered& lowered) : lowered_(lowered), graph_(lowered.graph) {
    for (const Operator& op : graph_.operators) {
      std::set<OperatorId>& makers = makers_.emplace_back();
      std::set<OperatorId>& readers = readers_.emplace_back();
      for (const ValueId v : op.inputs) add_makers(v, makers);
      for (const ValueId v : op.outputs) add_readers(v, readers);
    }
  }

  /// Whose values or gradients an operator's pass has to read, neither more nor less.
  [[nodiscard]] Origins read_by(Pass pass, const Origin& who) const {
    const std::set<OperatorId>& neighbours = (pass == Pass::Forward ? makers_ : readers_)[who.op.index()];
    Origins all;
    for (const OperatorId from : neighbours) {
      const bool of_all = pass == Pass::Forward ? sums_values(from) || gathers_values(who.op)
                                                : sums_gradients(from) || gathers_gradients(who.op);
      add(all, from, who, of_all);
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  /// Whose gradients a rank has to have in its buffers when it updates, at least: of its own parameters, from every
  /// micro-batch of every replica, from the other end of the pipeline where that has a copy, and from the whole
  /// tensor-parallel group where each computed a part.
  [[nodiscard]] Origins gradients(const Coordinates& at) const {
    Origins all;
    const std::vector<Stage> mine = chunks(at.pipeline);
    const bool ends = mine.front().embedding || mine.back().head;
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      const Operator& op = graph_.operators[o];
      if (op.parameters.empty()) continue;
      const bool tied = graph_.model.tied_embeddings && graph_[op.parameters.front()].vocabulary;
      if (!holds(mine, op) && !(tied && ends)) continue;
      const bool of_all = std::any_of(op.parameters.begin(), op.parameters.end(), [&](ParameterId p) {
        return lowered_.job.layout.tensor > 1 && graph_[p].cut == WeightCut::None && in_parts(op, graph_[p]);
      });
      for (std::int32_t m = 0; m < micro_batches(); ++m)
        for (std::int32_t d = 0; d < lowered_.job.layout.data; ++d)
          add(all, {static_cast<std::int32_t>(o)}, {{}, m, d, at.tensor}, of_all);
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  /// Elements that a micro-batch adds to a rank's gradient buffers: those of every parameter that an operator of its
  /// stages has. A weight that two of them have is added to for each, but for gradients that autograd sums before.
  [[nodiscard]] std::int64_t elements_added(std::int32_t pipeline) const {
    const Sizes sizes = sizes_of(graph_.model, lowered_.job.layout, lowered_.job.train, lowered_.runtime);
    const std::vector<Stage> mine = chunks(pipeline);
    std::int64_t all = 0;
    for (const Operator& op : graph_.operators)
      if (holds(mine, op))
        for (const ParameterId p : op.parameters) all += sizes.elements(graph_[p]);
    const bool both = graph_.model.tied_embeddings && mine.front().embedding && mine.back().head;
    if (both && lowered_.runtime.dummy_gradient == DummyGradient::None)
      all -= sizes.elements(graph_.parameters.front());
    return all;
  }

  [[nodiscard]] std::int32_t micro_batches() const {
    return static_cast<std::int32_t>(micro_batches_of(lowered_.job.train, lowered_.job.layout));
  }
  [[nodiscard]] std::vector<Stage> chunks(std::int32_t pipeline) const {
    return chunks_of_rank(static_cast<std::int32_t>(graph_.model.layers), lowered_.job.layout, pipeline);
  }
  [[nodiscard]] bool holds(const std::vector<Stage>& stages, const Operator& op) const {
    return std::any_of(stages.begin(), stages.end(), [&](const Stage& stage) {
      return stage.holds(op.layer, static_cast<std::int32_t>(graph_.model.layers));
    });
  }

 private:
  void add(Origins& all, OperatorId op, const Origin& place, bool of_all) const {
    for (std::int32_t t = 0; t < lowered_.job.layout.tensor; ++t)
      if (of_all || t == place.tensor) all.push_back({op, place.micro_batch, place.data, t});
  }

  void add_makers(ValueId v, std::set<OperatorId>& makers) const {
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      const Operator& op = graph_.operators[o];
      if (std::find(op.outputs.begin(), op.outputs.end(), v) == op.outputs.end()) continue;
      if (!DataFlow::hands_on(op)) makers.insert({static_cast<std::int32_t>(o)});
      if (DataFlow::hands_on(op))
        for (const ValueId in : op.inputs) add_makers(in, makers);
    }
  }
  void add_readers(ValueId v, std::set<OperatorId>& readers) const {
    for (std::size_t o = 0; o < graph_.operators.size(); ++o) {
      const Operator& op = graph_.operators[o];
      if (std::find(op.inputs.begin(), op.inputs.end(), v) == op.inputs.end()) continue;
      if (!DataFlow::hands_on(op)) readers.insert({static_cast<std::int32_t>(o)});
      if (DataFlow::hands_on(op))
        for (const ValueId out : op.outputs) add_readers(out, readers);
    }
  }

  // Tensor parallelism: what comes out of a row-parallel linear and the embedding is summed over ranks, forward; what
  // comes out of column-parallel ones and the head is, backward. Norms over all heads are of all ranks both ways.
  [[nodiscard]] bool linear(OperatorId op, WeightCut cut) const {
    return std::holds_alternative<Linear>(graph_[op].type) && graph_[graph_[op].parameters.front()].cut == cut;
  }
  [[nodiscard]] bool norm_of_all_heads(OperatorId op) const {
    return std::holds_alternative<Rotary>(graph_[op].type) && graph_.model.qk_norm == QkNorm::AllHeads;
  }
  [[nodiscard]] bool sums_values(OperatorId op) const {
    return linear(op, WeightCut::Columns) || std::holds_alternative<Embedding>(graph_[op].type) ||
           norm_of_all_heads(op);
  }
  [[nodiscard]] bool sums_gradients(OperatorId op) const {
    return linear(op, WeightCut::Rows) || std::holds_alternative<Head>(graph_[op].type) || norm_of_all_heads(op);
  }
  // The loss is over the whole vocabulary. Sequence parallelism: what reads whole sequences gathers them.
  [[nodiscard]] bool gathers_values(OperatorId op) const {
    if (std::holds_alternative<Loss>(graph_[op].type) || norm_of_all_heads(op)) return true;
    return lowered_.job.layout.sequence_parallel &&
           (linear(op, WeightCut::Rows) || std::holds_alternative<Head>(graph_[op].type));
  }
  [[nodiscard]] bool gathers_gradients(OperatorId op) const {
    if (norm_of_all_heads(op)) return true;
    return lowered_.job.layout.sequence_parallel &&
           (linear(op, WeightCut::Columns) || std::holds_alternative<Embedding>(graph_[op].type));
  }
  // Norms of single heads see the rank's heads only; under sequence parallelism norms of the stream, and biases added
  // to it, see the rank's tokens only. Positions are looked up before the sequence is cut.
  [[nodiscard]] bool in_parts(const Operator& op, const Parameter& parameter) const {
    if (std::holds_alternative<Rotary>(op.type)) return true;
    return lowered_.job.layout.sequence_parallel && !parameter.name.starts_with("positions");
  }

  const Lowered& lowered_;
  const ModelGraph& graph_;
  std::vector<std::set<OperatorId>> makers_, readers_;  // by operator; those that hand on are looked through
};

}  // namespace tidemark::tests
