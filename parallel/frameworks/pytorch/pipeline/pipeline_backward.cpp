#include "parallel/frameworks/pytorch/pipeline/pipeline_backward.hpp"

#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "parallel/torch/operation.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::pytorch {
namespace {

using NodeSet = std::unordered_set<const Node*>;

// A graph with its edges turned round.
class ReverseGraph {
 public:
  explicit ReverseGraph(const Ref<Node>& root) {
    std::vector<const Node*> open{root.get()};
    nodes_.emplace(root.get(), root);
    while (!open.empty()) {
      const Node* const node = open.back();
      open.pop_back();
      for (const Node::Input& input : node->inputs) {
        const Ref<Node>& next = input.edge.node;
        if (!next) continue;
        givers_[next.get()].push_back(node);
        if (nodes_.emplace(next.get(), next).second) open.push_back(next.get());
      }
    }
  }

  [[nodiscard]] const Ref<Node>& node(const Node* its) const { return nodes_.at(its); }

  /// reverse_closure: all that lead to a node, up to those of `end`, which are told apart.
  struct Closure {
    NodeSet all;
    std::vector<const Node*> ends;
  };
  [[nodiscard]] Closure closure(const Node* from, const NodeSet& end) const {
    Closure found{{from}, {}};
    std::vector<const Node*> open{from};
    while (!open.empty()) {
      const auto its = givers_.find(open.back());
      open.pop_back();
      if (its == givers_.end()) continue;
      for (const Node* const giver : its->second) {
        if (!found.all.insert(giver).second) continue;
        (end.contains(giver) ? found.ends : open).push_back(giver);
      }
    }
    return found;
  }

 private:
  std::unordered_map<const Node*, Ref<Node>> nodes_;
  std::unordered_map<const Node*, std::vector<const Node*>> givers_;
};

// get_param_groups, in the order of weights.
std::vector<ParameterGroup> parameter_groups(const Ref<Node>& root, const Leaf& input, const Parameters& weights) {
  const ReverseGraph graph(root);
  const NodeSet of_input = graph.closure(input.value.gradient.node.get(), {}).all;
  std::vector<ParameterGroup> groups;
  std::unordered_map<const Node*, std::size_t> places;
  for (const std::shared_ptr<Leaf>& weight : weights) {
    const std::vector<const Node*> ends = graph.closure(weight->value.gradient.node.get(), of_input).ends;
    if (ends.empty()) continue;
    ensure(ends.size() == 1, "a weight of a pipeline's stage is used once");
    const auto [place, is_new] = places.emplace(ends.front(), groups.size());
    if (is_new) groups.push_back({{}, {graph.node(ends.front()), {}}});
    groups[place->second].weights.push_back(weight);
  }
  return groups;
}

}  // namespace

std::vector<ParameterGroup> stage_backward_input(Session& s, WaitingGradient root, const std::shared_ptr<Leaf>& input,
                                                 const Parameters& weights) {
  std::vector<ParameterGroup> groups = parameter_groups(root.edge.node, *input, weights);
  std::vector<WatchedNode> watched;
  for (ParameterGroup& group : groups) watched.push_back(std::move(group.intermediate));
  const Tensor gradient = root.gradient;  // a variable refers to it until the pass is over
  std::vector<WaitingGradient> roots;
  roots.push_back(std::move(root));
  std::vector<Tensor> made = gradients_of(s, std::move(roots), std::span(&input, 1), GraphAfterwards::Stays, watched);
  input->gradient = std::move(made.front());
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].intermediate = std::move(watched[i]);
  return groups;
}

void stage_backward_weight(Session& s, std::vector<ParameterGroup> groups) {
  std::vector<Tensor> made;  // of a group, until those of the next are there
  for (ParameterGroup& group : groups) {
    const WatchedNode intermediate = std::exchange(group.intermediate, {});
    std::vector<WaitingGradient> roots;
    for (std::size_t i = 0; i < intermediate.gradients.size(); ++i)
      if (intermediate.gradients[i].defined()) roots.push_back({{intermediate.node, i}, intermediate.gradients[i]});
    if (roots.empty()) continue;
    made = gradients_of(s, std::move(roots), group.weights, GraphAfterwards::Goes);
    for (std::size_t i = 0; i < made.size(); ++i) {
      Leaf& weight = *group.weights[i];
      if (weight.gradient.defined())
        s.launch(Operation::Add, {weight.gradient, made[i]}, {weight.gradient});
      else
        weight.gradient = made[i].detached();
      s.reclassify(weight.gradient, Category::Gradients);
    }
  }
}

}  // namespace tidemark::parallel::pytorch
