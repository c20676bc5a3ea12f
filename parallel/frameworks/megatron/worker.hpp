#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/job/job.hpp"
#include "parallel/job/sizes.hpp"
#include "parallel/job/stages.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/session.hpp"

// What all of Megatron's modules share while the program of one rank is written.

namespace tidemark::parallel::megatron {

class ModuleOffload;

using Tensors = std::vector<Tensor>;

/// What a module calls itself, and the labels of what it makes.
class Name {
 public:
  Name() = default;
  Name(torch::Process& process, std::string path) : process_(&process), path_(std::move(path)) {}

  /// The module's own.
  [[nodiscard]] LabelId operator()() const { return (*this)({}); }
  /// "layers.0.mlp.fc1.gathered"; `use` is a literal.
  [[nodiscard]] LabelId operator()(std::string_view use) const;

 private:
  torch::Process* process_ = nullptr;
  std::string path_;
  mutable std::vector<std::pair<const char*, LabelId>> known_;
};

/// TransformerEngine's second stream for attention of context-parallel ranks, which all layers share.
inline constexpr StreamId attention_stream{4};
/// That of DeepEP's buffer.
inline constexpr StreamId token_stream{5};
/// NCCL's, of the groups that parameters are the same over: buckets go there beside the passes.
inline constexpr StreamId data_stream{12}, expert_data_stream{13};
/// On which DistributedDataParallel is made where that is not what all else runs on (CoreBehavior::wraps_aside):
/// autograd passes gradients of parameters on there.
inline constexpr StreamId wrapper_stream{14};

/// A parameter as a rank holds it.
struct Weight {
  const Parameter* parameter = nullptr;
  std::int64_t rows = 0, columns = 1;
  Tensor value;           ///< requires a gradient; views the parameter buffer where there is one
  Tensor main_gradients;  ///< its place in the contiguous buffer of gradients, with the weight's shape
  int uses = 0;           ///< operators of this rank that read it
  std::function<void()> gradient_arrived{};  ///< is called when a micro-batch's gradient has been added, if there

  [[nodiscard]] std::int64_t elements() const { return rows * columns; }
  [[nodiscard]] Shape shape() const { return parameter->matrix() ? Shape{rows, columns} : Shape{rows}; }
};

/// Numbers of a step's losses that stay on the device.
struct StepLosses {
  Tensor total_tokens;            ///< while the schedule runs
  std::deque<Tensor> of_passes;   ///< whose backward pass is still to come, or that a variable refers to
  Tensor tokens;                  ///< of the pass before
  std::deque<Tensor> of_running;  ///< reports of micro-batches that are on their way
  std::vector<Tensor> reports;    ///< of the step's others: sum and tokens
  Tensor reduced, logged;         ///< of the last step; since the log was written
};

/// What a router keeps from one micro-batch to the next; which of it there is, model and losses say.
struct RouterBuffers {
  Tensor expert_bias, tokens_per_expert;  ///< of a router whose choice loads move
  Tensor step_tokens, passes;             ///< that chose each expert since the step began, and of how many passes
};

/// One rank's process: the job as it sees it, and what its modules do to the device.
class Worker {
 public:
  Worker(Session& session, const LoweringInput& input, const Communicators& communicators, const Coordinates& place);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Session& session;
  torch::Process& process;
  const BuiltModel& built;
  const Model& model;
  const Layout& layout;
  const Train& train;
  const Runtime& runtime;
  const Communicators& comms;
  const Coordinates place;          ///< of the rank
  const std::vector<Stage> chunks;  ///< of the model that the rank holds
  std::int32_t running_chunk = 0;   ///< of these, the one whose pass it is
  const Sizes sizes;
  std::set<std::string_view> tuned_kernels;  ///< Triton's that have run once in this process

  /// Of those that a layer has, the first that this rank holds.
  [[nodiscard]] std::int64_t first_expert() const { return parallel::first_expert(model, layout, place); }
  [[nodiscard]] bool tensor_parallel() const { return sizes.tensor > 1; }
  [[nodiscard]] bool sequence_parallel() const { return sizes.sequence_parallel; }
  /// The first of this rank's rows, of those that are cut into equal parts for tensor-parallel ranks.
  [[nodiscard]] std::int64_t first_row(std::int64_t rows) const { return place.tensor * rows; }
  [[nodiscard]] bool embedding() const { return chunks.front().embedding; }
  [[nodiscard]] bool head() const { return chunks.back().head; }
  [[nodiscard]] Name name(std::string path) const { return {process, std::move(path)}; }
  void mark(Phase phase, const Name& module) const { process.mark(phase, module()); }

  /// Of a step's loss, that of one micro-batch.
  [[nodiscard]] double micro_batch_share() const { return 1.0 / static_cast<double>(micro_batches_of(train, layout)); }

  // Shapes of one micro-batch.
  [[nodiscard]] std::int64_t tokens() const { return sizes.tokens; }
  [[nodiscard]] Shape per_token() const { return {tokens()}; }
  [[nodiscard]] Shape whole(std::int64_t width) const { return {tokens(), width}; }
  /// Of the residual stream: whole, or cut along the sequence.
  [[nodiscard]] Shape residual(std::int64_t width) const {
    return {sequence_parallel() ? tokens() / sizes.tensor : tokens(), width};
  }
  /// Cut along the width.
  [[nodiscard]] Shape part(std::int64_t width) const { return {tokens(), width / sizes.tensor}; }

  // Tensors, in the training's precision where nothing is said.
  [[nodiscard]] Tensor make(LabelId label, Shape shape, DType dtype, Category category) const {
    return session.empty(shape, dtype, label, category);
  }
  [[nodiscard]] Tensor temporary(LabelId label, Shape shape, DType dtype) const {
    return make(label, std::move(shape), dtype, Category::Temporaries);
  }
  [[nodiscard]] Tensor temporary(LabelId label, Shape shape) const {
    return temporary(label, std::move(shape), train.precision);
  }
  [[nodiscard]] Tensor like(LabelId label, const Tensor& x) const { return temporary(label, x.sizes, x.dtype); }
  [[nodiscard]] Tensor communicated(LabelId label, Shape shape, DType dtype) const {
    return make(label, std::move(shape), dtype, Category::CommTp);
  }
  [[nodiscard]] Tensor communicated(LabelId label, Shape shape) const {
    return communicated(label, std::move(shape), train.precision);
  }

  // Kernels.
  void launch(const Computation& what, Operands inputs, Operands outputs, const Scratch& scratch = {}) const {
    session.launch(what, inputs, outputs, scratch);
  }

  /// Copies rows of tokens that lie sequence first into a tensor of rows that lie batch first, or back: `outer` is how
  /// many there are, in `from`, of that which comes first.
  void transpose_tokens(Tensor from, const Tensor& to, std::int64_t outer) const;

  /// A context-parallel rank's tokens of whole sequences, which lie along that dimension: of as many chunks as twice
  /// the ranks, one from the beginning and the one that is as far from the end.
  void own_tokens(const Name& name, Tensor whole, const Tensor& own, int dimension) const;

  // Collectives of the tensor-parallel group; nothing happens in a group of one.
  void all_reduce(const Tensor& x, Reduction reduction = Reduction::Sum) const;
  /// The input of every rank, in a tensor of that label.
  [[nodiscard]] Tensor all_gather(LabelId label, Tensor x, Shape whole_shape) const;
  /// Into `out`, beside what the compute stream does next.
  [[nodiscard]] EventId aside(CollectiveKind kind, const Tensor& x, const Tensor& out) const;

  /// A node of autograd's graph; none where no gradient will be asked for. Its backward pass is marked by `mark`, where
  /// that is a label.
  [[nodiscard]] Ref<Node> node(LabelId mark, Operands inputs) const;

  /// What was saved, which is given up here.
  [[nodiscard]] Tensor take(Saved& saved) const;

  /// Whether what autograd is given for a tied weight's gradient, which the GEMM has added already, is zero, and what
  /// lookups add to it counts (zero_out_wgrad of core/models/common/language_module/language_module.py). Otherwise
  /// Megatron drops the sum of both.
  [[nodiscard]] bool zeroes_dummies() const { return model.tied_embeddings && layout.pipeline == 1; }

  // Parameters.
  [[nodiscard]] Weight& weight(ParameterId id) { return weights_[id.value]; }
  /// Those that somebody asked for, by number.
  [[nodiscard]] const std::map<std::int32_t, Weight>& weights() const { return weights_; }
  /// Megatron's hook: the gradient is added to that of the micro-batches before.
  void accumulate(const Weight& weight, Tensor gradient) const;

  /// TransformerEngine's WeightGradStore (module/_common.py): while the schedule runs weight gradients later, linears
  /// of layers put them here, with all that they hold.
  std::vector<std::function<void()>>* weight_gradients_later = nullptr;

  /// Of the pass: the batch's, which layers are given; undefined where they are given none.
  Tensor attention_mask;
  /// core/transformer/utils.py get_default_causal_mask, which was cached before core 0.16: of layers that are given
  /// none.
  [[nodiscard]] Tensor causal_mask();

  StepLosses losses;
  std::vector<Tensor> inverse_frequencies;  ///< of each chunk's positions

  std::vector<std::pair<std::string, RouterBuffers>> routers;  ///< by what they are called

  /// Where modules' saved tensors go to the host.
  ModuleOffload* module_offload = nullptr;

  /// Memory that tensor-parallel ranks reach of each other, by the product that it is for (user_buffers.hpp).
  std::map<std::string, Tensor, std::less<>> user_buffers;

  // Caches: made at first use, kept for ever.
  [[nodiscard]] BufferId linear_workspace(HostThread thread);  ///< of the layers' linears, library's or framework's
  [[nodiscard]] BufferId library_workspace();                  ///< of the library's GEMMs, whatever layers are made of
  /// Of the library's GEMMs beside which Userbuffers are used: one for each of three streams.
  [[nodiscard]] BufferId user_buffer_workspace();
  /// One of those that the library's grouped GEMMs take turns with, each on a stream.
  [[nodiscard]] BufferId grouped_workspace(std::size_t gemm);
  static constexpr std::size_t grouped_streams = 4;  // TransformerEngine 2.11, gemm/cublaslt_gemm.cu
  /// Megatron's global memory buffer, which grows to the largest tensor that was asked for.
  enum class GlobalBuffer : std::uint8_t { Usual, FirstOfTwo, SecondOfTwo };  ///< two that take turns
  [[nodiscard]] Tensor global_buffer(const Shape& sizes, GlobalBuffer which = GlobalBuffer::Usual);
  [[nodiscard]] Tensor head_gather(Shape sizes);  ///< what the LM head gathers its input into
  [[nodiscard]] Tensor rotary_table();            ///< of the chunk: angles by position, each twice
  [[nodiscard]] bool caches_dummy(const Weight& weight) const;

  [[nodiscard]] Tensor dummy_gradient(const Weight& weight);  ///< what autograd gets for a fused weight gradient

 private:
  [[nodiscard]] Tensor cache(std::string_view label, Shape sizes, DType dtype, Category category) const;

  std::map<std::int32_t, Weight> weights_;
  Tensor gemm_workspace_, user_buffer_workspace_, causal_mask_;
  std::array<Tensor, 3> global_buffers_;
  std::array<Tensor, grouped_streams> grouped_workspaces_;
  struct RotaryTables {
    Tensor shared;
    std::array<Tensor, 2> parts;  // that the one of both is made of
  };
  std::map<std::int32_t, RotaryTables> rotary_tables_;  // by chunk
  std::map<std::pair<std::int64_t, std::int64_t>, Tensor> dummy_gradients_;
};

/// An input of a graph that ends there: of a pipeline stage, or of layers that run again. Autograd leaves its gradient
/// here.
struct AutogradInput {
  Tensor value;  ///< requires a gradient
  Tensor gradient;
};
[[nodiscard]] std::shared_ptr<AutogradInput> autograd_input(Session& session, const Tensor& value);

}  // namespace tidemark::parallel::megatron
