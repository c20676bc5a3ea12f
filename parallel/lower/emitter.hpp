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
#include "sim/program/program_builder.hpp"

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
class Emitter {
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
  ProgramBuilder program;

  /// Operators run forward for the second time, because their first run kept nothing.
  bool again = false;

  /// From here on ops belong to that phase and label.
  void mark(Phase phase, std::string_view label);
  void mark(Phase phase, OperatorId op);
  void mark(Phase phase, LabelId label) { program.mark(phase, step_, micro_batch_, label); }
  void at(std::int32_t step, std::int32_t micro_batch) { step_ = step, micro_batch_ = micro_batch; }

  /// A tensor beside the graph's values: `label` says which, such as "layers.0.mlp.fc1.gathered".
  BufferId alloc(Bytes size, Category category, std::string_view label);
  /// The same, labelled by an operator and what the operator needs it for.
  BufferId alloc(Bytes size, Category category, OperatorId op, std::string_view use);
  /// The buffer of a value. Saved values count as activations, others as temporaries.
  BufferId alloc(ValueId value);

  void bind(std::string_view name, BufferId buffer) { program.bind(program.name(name), buffer); }
  void unbind(std::string_view name) { program.unbind(program.name(name)); }
  void bind(Local local, BufferId buffer) { program.bind(name(local), buffer); }
  void unbind(Local local) { program.unbind(name(local)); }

  /// A collective of my group; creates the communicator at its first use. Nothing happens in a group of one.
  void collective(CommSlot comm, CollectiveKind kind, BufferId in, BufferId out, Bytes size);
  /// The same where the framework does not look at the group's size first: a group of one still gets its communicator.
  void unchecked_collective(CommSlot comm, CollectiveKind kind, BufferId in, BufferId out, Bytes size);
  /// The same beside what the compute stream does next; `join` makes that stream wait for it.
  [[nodiscard]] EventId collective_aside(CommSlot comm, CollectiveKind kind, BufferId in, BufferId out, Bytes size);
  void join(EventId event);
  void exchange(CommSlot comm, const std::vector<Transfer>& transfers);
  /// The same on a stream of its own, after what the compute stream has been given; what is sent may be freed at once,
  /// but is not handed out again before it is gone.
  [[nodiscard]] EventId exchange_aside(CommSlot comm, StreamId stream, const std::vector<Transfer>& transfers);
  /// The host thread waits until the device has done all it was given.
  void synchronize();

  // Caches: made at first use, kept for ever.
  BufferId gemm_workspace();               ///< of the layers' linears
  void blas_handle(Pass thread);           ///< PyTorch has one for each thread, made when it is needed
  BufferId blas_workspace(Pass thread);    ///< of the framework's own GEMMs: forward or autograd thread
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
  static constexpr StreamId compute_stream{0};
  static constexpr StreamId communication_stream{1};
  static constexpr auto local_names = std::to_array<std::string_view>(
      {"attention.mixed_qkv", "attention.query", "attention.key", "attention.value", "embedding.words",
       "embedding.positions", "attention.scores", "model.logits", "linear_backward.input_gradient",
       "linear_backward.saved_input", "linear_backward.output_gradient"});

  [[nodiscard]] bool shared(CommSlot comm) const;  ///< has other members
  void ensure_created(CommSlot comm);
  [[nodiscard]] EventId record(StreamId stream);
  BufferId keep(BufferId buffer, std::string_view name);
  LabelId label(OperatorId op, std::string_view use);
  NameId name(Local local);

  std::vector<bool> saved_;        ///< by ValueId: some operator of this stage reads it in its backward pass
  std::vector<bool> kept_;         ///< the same, but for those that run again: what a first run keeps
  std::vector<Segment> segments_;  ///< that this stage recomputes
  std::vector<bool> strided_view_;
  std::vector<int> uses_;  ///< by ParameterId
  std::vector<bool> created_;
  std::vector<LabelId> value_labels_;
  std::array<NameId, local_names.size()> local_names_;  ///< of those that have come up
  std::vector<std::vector<std::pair<std::string_view, LabelId>>> operator_labels_;
  std::int32_t step_ = 0;
  std::int32_t micro_batch_ = -1;
  std::int32_t events_ = 0;

  BufferId gemm_workspace_, rotary_table_, global_buffer_;
  Bytes global_buffer_size_;
  bool has_blas_handle_[2] = {};
  BufferId blas_workspace_[2];
  std::map<std::pair<std::int64_t, std::int64_t>, BufferId> dummy_gradients_;
};

}  // namespace tidemark::parallel
