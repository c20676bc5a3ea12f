#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/graph.hpp"
#include "parallel/job.hpp"
#include "parallel/mesh.hpp"
#include "parallel/recompute.hpp"
#include "parallel/sizes.hpp"
#include "parallel/stages.hpp"
#include "parallel/torch/process.hpp"

namespace tidemark::parallel {

/// Variables of the frames that operators' functions run in.
enum class Local : std::uint8_t {
  MixedQkv,
  Query,
  Key,
  Value,
  WordEmbeddings,
  PositionEmbeddings,
  Scores,
  Logits,
  WholeGradient,  ///< a linear's backward function holds the gradient before its reduce-scatter until it returns
  SavedInput,     ///< … and the saved input from which it gathered
  OutputGradient,
};

/// What every part of the lowering of one rank's program shares: the inputs, the program being written, and the
/// framework's caches that fill on first use.
class Emitter : public torch::Process {
 public:
  /// `chunks` are the stages of the model that the rank holds.
  Emitter(const LoweringInput& input, const Communicators& communicators, std::vector<Stage> chunks);

  const ModelGraph& graph;
  const Layout& layout;
  const Train& train;
  const Runtime& runtime;
  const Communicators& comms;
  const std::vector<Stage> chunks;
  const Sizes sizes;

  /// Operators run forward for the second time, because their first run kept nothing.
  bool again = false;

  using Process::mark;
  using Process::program;
  void mark(Phase phase, OperatorId op);

  /// A tensor beside the graph's values: `label` says which, such as "layers.0.mlp.fc1.gathered".
  using Process::alloc;
  /// The same, labelled by an operator and what the operator needs it for.
  BufferId alloc(Bytes size, Category category, OperatorId op, std::string_view use);
  /// The buffer of a value. Saved values count as activations, others as temporaries.
  BufferId alloc(ValueId value);

  using Process::bind;
  using Process::unbind;
  void bind(Local local, BufferId buffer) { program.bind(name(local), buffer); }
  void unbind(Local local) { program.unbind(name(local)); }

  // Caches: made at first use, kept for ever.
  BufferId gemm_workspace();               ///< of the layers' linears
  BufferId linear_workspace(Pass thread);  ///< of the layers' linears, library's or framework's
  /// Megatron's global memory buffer, which grows to the largest tensor that was asked for.
  BufferId global_buffer(Bytes size);
  BufferId head_gather(Bytes size);                     ///< what the LM head gathers its input into
  BufferId rotary_table();                              ///< cosines and sines by position
  BufferId dummy_gradient(const Parameter& parameter);  ///< what autograd gets for a fused weight gradient

  /// Where the weights and their gradients live; set by the construction of the model's state.
  std::vector<BufferId> weight;           ///< by ParameterId
  std::vector<BufferId> chunk_gradients;  ///< by chunk
  BufferId gradients;                     ///< of the chunk that runs now
  void enter(std::int32_t chunk) { gradients = chunk_gradients[static_cast<std::size_t>(chunk)]; }

  [[nodiscard]] bool embedding() const { return chunks.front().embedding; }
  [[nodiscard]] bool head() const { return chunks.back().head; }

  [[nodiscard]] DType gradient_dtype() const { return train.gradient_dtype; }
  [[nodiscard]] bool tensor_parallel() const { return sizes.tensor > 1; }
  [[nodiscard]] bool saved(ValueId value) const { return saved_[value.index()]; }
  /// Whether a value lies within another one's buffer, not side by side.
  [[nodiscard]] bool strided_view(ValueId value) const { return strided_view_[value.index()]; }
  /// Operators of this stage that use a parameter.
  [[nodiscard]] int uses(ParameterId parameter) const { return uses_[parameter.index()]; }
  [[nodiscard]] const std::vector<Segment>& segments() const { return segments_; }

 private:
  static constexpr auto local_names = std::to_array<std::string_view>(
      {"attention.mixed_qkv", "attention.query", "attention.key", "attention.value", "embedding.words",
       "embedding.positions", "attention.scores", "model.logits", "linear_backward.input_gradient",
       "linear_backward.saved_input", "linear_backward.output_gradient"});

  BufferId kept(BufferId buffer, std::string_view name);
  using Process::label;
  LabelId label(OperatorId op, std::string_view use);
  NameId name(Local local);

  std::vector<bool> saved_;        ///< by ValueId: some operator of this stage reads it in its backward pass
  std::vector<bool> kept_;         ///< the same, but for those that run again: what a first run keeps
  std::vector<Segment> segments_;  ///< that this stage recomputes
  std::vector<bool> strided_view_;
  std::vector<int> uses_;  ///< by ParameterId
  std::vector<LabelId> value_labels_;
  std::array<NameId, local_names.size()> local_names_;  ///< of those that have come up
  std::vector<std::vector<std::pair<std::string_view, LabelId>>> operator_labels_;

  BufferId gemm_workspace_, rotary_table_, global_buffer_;
  Bytes global_buffer_size_;
  std::map<std::pair<std::int64_t, std::int64_t>, BufferId> dummy_gradients_;
};

}  // namespace tidemark::parallel
