#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "parallel/torch/tensor.hpp"

// The graph that autograd records, and the engine that runs it backward (torch/csrc/autograd/engine.cpp).

namespace tidemark::parallel::torch {

/// A tensor that a node reads in its backward pass. Under torch.utils.checkpoint it holds nothing until its region has
/// been run again.
class SavedTensor;
using Saved = Ref<SavedTensor>;

class Engine;

/// The backward pass of one operation.
class Node final : public Counted {
 public:
  explicit Node(Pool<Node>& home) : home_(home) {}

  std::int64_t sequence = 0;  ///< nodes made later run earlier
  std::size_t outputs = 1;    ///< of the operation: gradients that `apply` is given
  bool leaf = false;          ///< of a tensor that no operation made
  bool immediate = false;     ///< a leaf that runs before other gradients are passed on
  bool of_dtensor = false;    ///< its gradients are DTensors
  /// What the gradient of each input must look like: it is summed and converted to that.
  struct Input {
    Edge edge;
    Shape sizes;
    DType dtype = DType::BF16;
  };
  SmallVector<Input, 3> inputs;
  /// Gradients of the outputs in, gradients of the inputs out; undefined where none is needed. What it saved is given
  /// up when it has run.
  Closure<Gradients(Gradients&), 256> apply;
  std::function<void()> before;               ///< runs when the gradients are there (Tensor.register_hook)
  StreamId stream;                            ///< on which the operation ran, and its backward pass will
  LabelId scope;                              ///< the module that was running; none: what ran before goes on
  Category category = Category::Temporaries;  ///< of what its backward pass makes
  LabelId sum;                                ///< of its gradient and another one, where sums have labels of their own
  SmallVector<Tensor, 2> frame;               ///< variables of `apply` that live until its gradients are passed on

  [[nodiscard]] bool needs(std::size_t input) const { return inputs[input].edge.node != nullptr; }

 private:
  friend class Engine;
  void unreferenced() override { home_.recycle(this); }

  Pool<Node>& home_;
  // Of the engine that is going to run it: gradients are still to come from so many nodes, and where those that came
  // are.
  Engine* engine_ = nullptr;
  std::int32_t missing_ = 0;
  std::int32_t gathered_ = -1;
};

/// What a parameter is to an optimizer that tells parameters apart.
enum class ParameterRole : std::uint8_t { Hidden, Embedding, Head };

/// A tensor that gathers a gradient: a parameter, or the input of a region that is run again.
struct Leaf {
  Tensor value;     ///< requires a gradient, unless it is frozen
  Tensor gradient;  ///< undefined until a backward pass has come here
  bool parameter = false;
  ParameterRole role = ParameterRole::Hidden;
  /// Of a DTensor that is cut into rows: its gradient is Replicate, and `value` is the rows from this one on.
  std::optional<std::int64_t> rows_of_whole_gradient;
  std::optional<DType> gradient_dtype;     ///< Tensor.grad_dtype: a first gradient is converted to it
  std::function<void(Leaf&)> accumulated;  ///< called when a gradient has come; may be empty

  [[nodiscard]] bool trained() const { return value.requires_grad(); }
  /// requires_grad = False.
  void freeze() { value.gradient = {}; }
};

/// Makes `value` one: autograd will leave its gradient in the leaf.
[[nodiscard]] std::shared_ptr<Leaf> leaf(Session& session, const Tensor& value);
/// A module's parameter, made on the device and initialized there.
[[nodiscard]] std::shared_ptr<Leaf> initialized_parameter(Session& session, std::string_view name, Shape sizes,
                                                          DType dtype, Category category = Category::Parameters);
/// One that has no memory on the device yet: it is on the host, or on device "meta".
[[nodiscard]] std::shared_ptr<Leaf> parameter_elsewhere(Session& session, Shape sizes, DType dtype);
/// Makes a module's parameter, which the module is handed.
using MakeParameter = std::function<std::shared_ptr<Leaf>(const std::string& name, const Shape& sizes, DType dtype)>;

/// A gradient that waits for others of its tensor.
struct WaitingGradient {
  Edge edge;
  Tensor gradient;
};
/// Runs the graph backward from `root`, whose gradient is given. Others are added to those that wait already.
void backward(Session& session, const Tensor& root, Tensor gradient, std::vector<WaitingGradient> waiting = {});
/// The same from several roots at once.
void backward(Session& session, std::vector<WaitingGradient> roots);
/// Gradients of a node's outputs, once they are there: Node.register_prehook.
struct WatchedNode {
  Ref<Node> node;
  Gradients gradients;  ///< empty until then
};
enum class GraphAfterwards : std::uint8_t { Stays, Goes };
/// torch.autograd.grad: the gradients of these leaves, which do not get them, in the types that they would have there;
/// nothing else is made that does not lead to them. Undefined where the roots do not. With GraphAfterwards::Stays nodes
/// keep what they saved and can be run again; else those that ran give it up, but hold the nodes that they lead to.
[[nodiscard]] std::vector<Tensor> gradients_of(Session& session, std::vector<WaitingGradient> roots,
                                               std::span<const std::shared_ptr<Leaf>> leaves,
                                               GraphAfterwards afterwards, std::span<WatchedNode> watched = {});
/// Tensor.register_hook of a tensor that an operation made: `run` is called when its gradient is there, after those
/// that were registered before.
void register_hook(const Tensor& tensor, std::function<void()> run);
/// What the backward pass that runs has come to for that edge so far, taken from it; mostly nothing.
[[nodiscard]] Tensor take_waiting(Session& session, const Edge& edge);

}  // namespace tidemark::parallel::torch
