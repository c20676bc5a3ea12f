#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "parallel/job/sizes.hpp"
#include "parallel/job/stages.hpp"
#include "tests/parallel/data_flow.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests {

/// What the model's graph and the layout say of what DataFlow sees in a job's programs.
class ExpectedFlow {
 public:
  explicit ExpectedFlow(const Lowered& lowered) : lowered_(lowered), graph_(lowered.graph) {
    for (const Operator& op : graph_.operators) {
      std::set<OperatorId>& makers = makers_.emplace_back();
      std::set<OperatorId>& readers = readers_.emplace_back();
      for (const ValueId v : op.inputs) add_makers(v, makers);
      if (reads_values_as_they_lie(op)) add_makers(op_that_makes(op.inputs.back()).inputs.front(), makers);
      for (const ValueId v : op.outputs) add_readers(v, readers);
    }
  }

  /// Whose values or gradients an operator's pass has to read, neither more nor less.
  [[nodiscard]] Origins read_by(Phase pass, const Origin& who) const {
    const std::set<OperatorId>& neighbours = (pass == Phase::Forward ? makers_ : readers_)[who.op.index()];
    Origins all;
    for (const OperatorId from : neighbours) {
      const bool of_all = pass == Phase::Forward ? sums_values(from) || gathers_values(who.op)
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
    return chunks_of_rank(static_cast<std::int32_t>(graph_.model.layers.size()), lowered_.job.layout, pipeline);
  }
  [[nodiscard]] bool holds(const std::vector<Stage>& stages, const Operator& op) const {
    return std::any_of(stages.begin(), stages.end(), [&](const Stage& stage) {
      return stage.holds(op.layer, static_cast<std::int32_t>(graph_.model.layers.size()));
    });
  }

 private:
  void add(Origins& all, OperatorId op, const Origin& place, bool of_all) const {
    for (std::int32_t t = 0; t < lowered_.job.layout.tensor; ++t)
      if (of_all || t == place.tensor) all.push_back({op, place.micro_batch, place.data, t});
  }

  // The local layers' products take values where the joint projection left them; their gradient goes the way of the
  // others.
  [[nodiscard]] bool reads_values_as_they_lie(const Operator& op) const {
    return op.does == Does::Attends && graph_.model.positions == Positions::Rotary &&
           lowered_.job.train.attention == AttentionKernel::Local;
  }
  [[nodiscard]] const Operator& op_that_makes(ValueId v) const {
    return *std::find_if(graph_.operators.begin(), graph_.operators.end(), [&](const Operator& op) {
      return std::find(op.outputs.begin(), op.outputs.end(), v) != op.outputs.end();
    });
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
    return graph_[op].does == Does::Multiplies && graph_[graph_[op].parameters.front()].cut == cut;
  }
  [[nodiscard]] bool norm_of_all_heads(OperatorId op) const {
    return graph_[op].does == Does::TurnsAndCuts && graph_.model.qk_norm == QkNorm::AllHeads;
  }
  [[nodiscard]] bool sums_values(OperatorId op) const {
    return linear(op, WeightCut::Columns) || graph_[op].does == Does::LooksUp || norm_of_all_heads(op);
  }
  [[nodiscard]] bool sums_gradients(OperatorId op) const {
    return linear(op, WeightCut::Rows) || graph_[op].does == Does::ProjectsWords || norm_of_all_heads(op);
  }
  // The loss is over the whole vocabulary. Sequence parallelism: what reads whole sequences gathers them.
  [[nodiscard]] bool gathers_values(OperatorId op) const {
    if (graph_[op].does == Does::ComparesWords || norm_of_all_heads(op)) return true;
    return lowered_.job.layout.sequence_parallel &&
           (linear(op, WeightCut::Rows) || graph_[op].does == Does::ProjectsWords);
  }
  [[nodiscard]] bool gathers_gradients(OperatorId op) const {
    if (norm_of_all_heads(op)) return true;
    return lowered_.job.layout.sequence_parallel &&
           (linear(op, WeightCut::Columns) || graph_[op].does == Does::LooksUp);
  }
  // Norms of single heads see the rank's heads only; under sequence parallelism norms of the stream, and biases added
  // to it, see the rank's tokens only. Positions are looked up before the sequence is cut.
  [[nodiscard]] bool in_parts(const Operator& op, const Parameter& parameter) const {
    if (op.does == Does::TurnsAndCuts) return true;
    return lowered_.job.layout.sequence_parallel && !parameter.name.starts_with("positions");
  }

  const Lowered& lowered_;
  const ModelGraph& graph_;
  std::vector<std::set<OperatorId>> makers_, readers_;  // by operator; those that hand on are looked through
};

}  // namespace tidemark::tests
