#include "parallel/torch/autograd.hpp"

#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "parallel/torch/aten.hpp"
#include "parallel/torch/session.hpp"

namespace tidemark::parallel::torch {
namespace {

constexpr std::int64_t at_once = std::numeric_limits<std::int64_t>::max();

class Engine {
 public:
  explicit Engine(Session& session) : session_(session) {}

  void run(const Edge& root, Tensor gradient) {
    count_dependencies(*root.node);
    std::vector<Tensor> first(root.node->outputs);
    first[root.input] = std::move(gradient);
    ready_.emplace(root.node->sequence, Waiting{root.node, std::move(first)});
    while (!ready_.empty()) {
      const auto last = std::prev(ready_.end());
      Waiting next = std::move(last->second);
      ready_.erase(last);
      run(std::move(next));
    }
  }

 private:
  struct Waiting {
    std::shared_ptr<Node> node;
    std::vector<Tensor> gradients;
  };

  void count_dependencies(Node& root) {
    std::vector<Node*> open{&root};
    std::unordered_map<const Node*, bool> seen{{&root, true}};
    while (!open.empty()) {
      Node* const node = open.back();
      open.pop_back();
      for (const Node::Input& input : node->inputs) {
        if (!input.edge.node) continue;
        ++dependencies_[input.edge.node.get()];
        if (!std::exchange(seen[input.edge.node.get()], true)) open.push_back(input.edge.node.get());
      }
    }
  }

  void run(Waiting next) {
    const std::shared_ptr<Node> node = std::move(next.node);
    std::vector<Tensor> made;
    {
      const Session::BackwardScope scope(session_, *node);
      session_.process.mark(Phase::Backward, node->scope);
      made = node->apply(next.gradients);
      for (std::size_t i = 0; i < made.size(); ++i) {
        const Node::Input& input = node->inputs[i];
        if (!input.edge.node) made[i] = {};
        if (made[i].defined()) made[i] = fitted(std::move(made[i]), input);
      }
      next.gradients.clear();
      if (node->sequence != at_once) node->apply = nullptr;  // what it saved goes
    }
    const std::vector<Node::Input> inputs =
        node->sequence == at_once ? std::vector<Node::Input>{} : std::exchange(node->inputs, {});
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].edge.node) pass_on(inputs[i].edge, i < made.size() ? std::move(made[i]) : Tensor{});
  }

  // engine.cpp validate_outputs: a gradient is summed over repeated dimensions and gets its tensor's type.
  Tensor fitted(Tensor gradient, const Node::Input& input) {
    if (gradient.sizes != input.sizes) gradient = sum_to(session_, gradient, input.sizes);
    return to(session_, gradient, input.dtype);
  }

  void pass_on(const Edge& edge, Tensor gradient) {
    Waiting& waiting = waiting_[edge.node.get()];
    if (!waiting.node) {
      waiting.node = edge.node;
      waiting.gradients.resize(edge.node->outputs);
    }
    if (gradient.defined()) accumulate(waiting.gradients[edge.input], std::move(gradient));
    if (--dependencies_[edge.node.get()] > 0) return;
    Waiting whole = std::move(waiting);
    waiting_.erase(edge.node.get());
    ready_.emplace(whole.node->sequence, std::move(whole));
  }

  // input_buffer.cpp can_accumulate_inplace: where nobody else holds the sum; a view's base does.
  void accumulate(Tensor& sum, Tensor gradient) {
    if (!sum.defined()) {
      sum = std::move(gradient);
      return;
    }
    if (session_.habits().sums_in_place && sum.storage.use_count() == 1 && !sum.view && sum.dense()) {
      session_.stream(Streaming::Add, {sum, gradient}, {sum});
      return;
    }
    const NoGrad no_grad(session_);
    sum = add(session_, sum, gradient);
  }

  Session& session_;
  std::unordered_map<const Node*, int> dependencies_;
  std::unordered_map<const Node*, Waiting> waiting_;
  std::multimap<std::int64_t, Waiting> ready_;
};

}  // namespace

std::shared_ptr<Leaf> leaf(Session& session, const Tensor& value) {
  auto made = std::make_shared<Leaf>();
  auto node = std::make_shared<Node>();
  node->sequence = at_once;
  node->leaf = true;
  node->scope = session.process.label(session.path().empty() ? "model" : session.path());
  // accumulate_grad.h: the first gradient is taken as it is where nobody else holds it, later ones are added to it.
  node->apply = [&session, slot = std::weak_ptr<Leaf>(made)](const std::vector<Tensor>& gradients) {
    const std::shared_ptr<Leaf> its = slot.lock();
    Tensor gradient = gradients.front();
    if (!its || !gradient.defined()) return std::vector<Tensor>{};
    constexpr long only_here = 2;  // in `gradients` and in `gradient`
    if (its->gradient.defined()) {
      session.stream(Streaming::Add, {its->gradient, gradient}, {its->gradient});
    } else if (gradient.storage.use_count() <= only_here && gradient.strides == its->value.strides) {
      its->gradient = gradient.detached();
    } else {
      its->gradient = clone(session, gradient, its->value.strides);
    }
    if (its->parameter) session.reclassify(its->gradient, Category::Gradients);
    if (its->accumulated) its->accumulated(*its);
    return std::vector<Tensor>{};
  };
  made->value = value.detached();
  made->value.gradient = {node, 0};
  return made;
}

void backward(Session& session, const Tensor& root, Tensor gradient) {
  const NoGrad no_grad(session);
  Engine(session).run(root.gradient, std::move(gradient));
}

}  // namespace tidemark::parallel::torch
