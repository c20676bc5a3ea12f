#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/job.hpp"
#include "parallel/sizes.hpp"
#include "parallel/stages.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/session.hpp"

// What all of Megatron's modules share while the program of one rank is written.

namespace tidemark::parallel::megatron {

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

/// A tensor that a kernel reads or writes. One that is moved in is referred to for the last time.
class Operand {
 public:
  Operand(BufferId its) : buffer(its) {}
  Operand(const Tensor& tensor) : buffer(tensor.defined() ? tensor.buffer() : BufferId{}) {}
  Operand(Tensor&& tensor)
      : buffer(tensor.defined() ? tensor.buffer() : BufferId{}), last_(std::move(tensor.storage)) {}
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;
  ~Operand() = default;

  const BufferId buffer;  ///< none of a tensor that is not there

 private:
  Ref<Storage> last_;
};
using Operands = std::initializer_list<Operand>;

/// A parameter as a rank holds it.
struct Weight {
  const Parameter* parameter = nullptr;
  std::int64_t rows = 0, columns = 1;
  Tensor value;           ///< requires a gradient; views the parameter buffer where there is one
  Tensor main_gradients;  ///< the contiguous buffer that its gradient lies in
  int uses = 0;           ///< operators of this rank that read it

  [[nodiscard]] std::int64_t elements() const { return rows * columns; }
  [[nodiscard]] Shape shape() const { return columns > 1 ? Shape{rows, columns} : Shape{rows}; }
};

/// One rank's process: the job as it sees it, and what its modules do to the device.
class Worker {
 public:
  Worker(Session& session, const LoweringInput& input, const Communicators& communicators, std::vector<Stage> chunks);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Session& session;
  torch::Process& process;
  const ModelGraph& graph;
  const Model& model;
  const Layout& layout;
  const Train& train;
  const Runtime& runtime;
  const Communicators& comms;
  const std::vector<Stage> chunks;  ///< of the model that the rank holds
  const Sizes sizes;

  [[nodiscard]] bool tensor_parallel() const { return sizes.tensor > 1; }
  [[nodiscard]] bool sequence_parallel() const { return sizes.sequence_parallel; }
  [[nodiscard]] bool embedding() const { return chunks.front().embedding; }
  [[nodiscard]] bool head() const { return chunks.back().head; }
  [[nodiscard]] Name name(std::string path) const { return {process, std::move(path)}; }
  void mark(Phase phase, const Name& module) const { process.mark(phase, module()); }

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
  void launch(const Kernel& kernel, Operands inputs, Operands outputs) const;
  void stream(Streaming kind, Operands inputs, Operands outputs, Bytes read, Bytes written) const {
    launch(Stream{kind, read, written}, inputs, outputs);
  }

  // Collectives of the tensor-parallel group; nothing happens in a group of one.
  void all_reduce(const Tensor& x) const;
  /// The input of every rank, in a tensor of that label.
  [[nodiscard]] Tensor all_gather(LabelId label, Tensor x, Shape whole_shape) const;
  /// Into `out`, beside what the compute stream does next.
  [[nodiscard]] EventId aside(CollectiveKind kind, const Tensor& x, const Tensor& out) const;

  /// A node of autograd's graph; none where no gradient will be asked for. Its backward pass is marked by `mark`, where
  /// that is a label.
  [[nodiscard]] Ref<Node> node(LabelId mark, torch::Operands inputs) const;

  /// What was saved, which is given up here.
  [[nodiscard]] Tensor take(Saved& saved) const;

  // Parameters.
  [[nodiscard]] Weight& weight(ParameterId id) { return weights_[id.index()]; }
  /// Megatron's hook: the gradient is added to that of the micro-batches before.
  void accumulate(const Weight& weight, Tensor gradient) const;

  /// TransformerEngine's WeightGradStore (module/_common.py): while the schedule runs weight gradients later, linears
  /// of layers put them here, with all that they hold.
  std::vector<std::function<void()>>* weight_gradients_later = nullptr;

  // Caches: made at first use, kept for ever.
  [[nodiscard]] BufferId linear_workspace(Pass thread);  ///< of the layers' linears, library's or framework's
  /// Megatron's global memory buffer, which grows to the largest tensor that was asked for.
  [[nodiscard]] Tensor global_buffer(Bytes size);
  [[nodiscard]] Tensor head_gather(Shape sizes);              ///< what the LM head gathers its input into
  [[nodiscard]] Tensor rotary_table();                        ///< cosines and sines by position
  [[nodiscard]] Tensor dummy_gradient(const Weight& weight);  ///< what autograd gets for a fused weight gradient

 private:
  [[nodiscard]] Tensor cache(std::string_view label, Shape sizes, DType dtype, Category category) const;

  std::vector<Weight> weights_;  // by ParameterId
  Tensor gemm_workspace_, global_buffer_, rotary_table_;
  std::array<Tensor, 2> rotary_tables_;  // that the one of both is made of
  std::map<std::pair<std::int64_t, std::int64_t>, Tensor> dummy_gradients_;
};

/// An input of a graph that ends there: of a pipeline stage, or of layers that run again. Autograd leaves its gradient
/// here.
struct GraphInput {
  Tensor value;  ///< requires a gradient
  Tensor gradient;
};
[[nodiscard]] std::shared_ptr<GraphInput> graph_input(Session& session, const Tensor& value);

}  // namespace tidemark::parallel::megatron
