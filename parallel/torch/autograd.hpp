#pragma once

#include <cstdint>
#include <functional>
#include <memory>

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
  /// What the gradient of each input must look like: it is summed and converted to that.
  struct Input {
    Edge edge;
    Shape sizes;
    DType dtype = DType::BF16;
  };
  SmallVector<Input, 3> inputs;
  /// Gradients of the outputs in, gradients of the inputs out; undefined where none is needed. What it saved is given
  /// up when it has run.
  Closure<Gradients(const Gradients&), 256> apply;
  LabelId scope;                              ///< the module that was running
  Category category = Category::Temporaries;  ///< of what its backward pass makes

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

/// A tensor that gathers a gradient: a parameter, or the input of a region that is run again.
struct Leaf {
  Tensor value;     ///< requires a gradient
  Tensor gradient;  ///< undefined until a backward pass has come here
  bool parameter = false;
  std::function<void(Leaf&)> accumulated;  ///< called when a gradient has come; may be empty
};

/// Makes `value` one: autograd will leave its gradient in the leaf.
[[nodiscard]] std::shared_ptr<Leaf> leaf(Session& session, const Tensor& value);

/// Runs the graph backward from `root`, whose gradient is given.
void backward(Session& session, const Tensor& root, Tensor gradient);

}  // namespace tidemark::parallel::torch
