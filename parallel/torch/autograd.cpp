#include "parallel/torch/autograd.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/session.hpp"
#include "parallel/torch/trace.hpp"
#include "sim/memory/allocator_options.hpp"

namespace tidemark::parallel::torch {
namespace {

constexpr std::int64_t at_once = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t most_reported = std::numeric_limits<std::uint32_t>::digits;  // inputs of a node: Session::unasked

}  // namespace

class Engine {
 public:
  explicit Engine(Session& session)
      : session_(session),
        caller_stream_(session.stream()),
        caller_(std::exchange(session.engine, this)),
        unrequested_of_caller_(std::exchange(session.unrequested, 0)) {}
  ~Engine() {
    session_.engine = caller_;
    session_.unrequested = unrequested_of_caller_;
  }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void run(std::span<WaitingGradient> roots, std::span<WaitingGradient> waiting) {
    for (const WaitingGradient& root : roots) find_graph(*root.edge.node);
    const auto gather = [this](WaitingGradient& its) {
      gathered_of(its.edge.node).gradients[its.edge.input] = std::move(its.gradient);
    };
    for (WaitingGradient& its : waiting) gather(its);
    for (WaitingGradient& root : roots) gather(root);
    // One that others lead to waits for these; one that several edges lead to is ready once.
    for (const WaitingGradient& root : roots)
      if (--root.edge.node->missing_ == 0) ready(*root.edge.node);
    while (!ready_.empty()) {
      std::pop_heap(ready_.begin(), ready_.end());
      const Ready next = ready_.back();
      ready_.pop_back();
      Gathered whole = std::move(gathered_[next.gathered]);
      spare_.push_back(next.gathered);
      run(std::move(whole));
    }
    // GraphTask.exec_post_processing: the caller's stream waits for those that leaves have run on.
    for (const StreamId stream : streams_of_leaves_)
      session_.process.wait(session_.stream(), session_.process.record(stream));
    streams_of_leaves_.clear();
  }

  // GraphTask.exec_info_: nodes that lead to the leaves are run, for the gradients of inputs that lead there.
  std::vector<Tensor> run_towards(std::span<const std::shared_ptr<Leaf>> leaves, std::span<WaitingGradient> roots,
                                  GraphAfterwards afterwards, std::span<WatchedNode> watched) {
    Partial partial{afterwards, {}, {}, {}, {}, {}};
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      partial.leaves.emplace(leaves[i]->value.gradient.node.get(), i);
      partial.types.push_back(leaves[i]->gradient_dtype);
    }
    for (WatchedNode& its : watched) partial.watched.emplace(its.node.get(), &its);
    partial.gradients.resize(leaves.size());
    partial_ = &partial;
    for (const WaitingGradient& root : roots) (void)leads_to_leaves(*root.edge.node);
    std::vector<WaitingGradient> running;
    for (WaitingGradient& root : roots)
      if (partial.leading.at(root.edge.node.get())) running.push_back(std::move(root));
    run(running, {});
    partial_ = nullptr;
    return std::move(partial.gradients);
  }

  Tensor take_waiting(const Edge& edge) {
    const Node& node = *edge.node;
    if (node.engine_ != this || node.gathered_ < 0) return {};
    return std::exchange(gathered_[static_cast<std::size_t>(node.gathered_)].gradients[edge.input], {});
  }

 private:
  /// Gradients of a node's outputs, while some may still be missing.
  struct Gathered {
    Ref<Node> node;
    Gradients gradients;
  };
  struct Ready {
    std::int64_t sequence = 0;
    std::int64_t order = 0;
    std::size_t gathered = 0;
    bool operator<(const Ready& other) const {
      return sequence != other.sequence ? sequence < other.sequence : order < other.order;
    }
  };
  /// What is asked for where not all gradients are.
  struct Partial {
    GraphAfterwards afterwards;
    std::unordered_map<const Node*, std::size_t> leaves;
    std::unordered_map<const Node*, WatchedNode*> watched;
    std::unordered_map<const Node*, bool> leading;  // of all that roots lead to: whether it leads to a leaf
    std::vector<std::optional<DType>> types;        // of leaves
    std::vector<Tensor> gradients;                  // of them
  };
  /// What a node is to the engine in whose backward pass this one runs.
  struct Outer {
    Node* node;
    Engine* engine;
    std::int32_t missing, gathered;
  };

  bool leads_to_leaves(Node& root) {
    struct Visit {
      Node* node;
      std::size_t next;  // input
    };
    std::unordered_map<const Node*, bool>& leading = partial_->leading;
    std::vector<Visit> open;
    const auto enter = [&](Node* node) {
      if (!leading.emplace(node, partial_->leaves.contains(node)).second) return;
      open.push_back({node, 0});
    };
    enter(&root);
    while (!open.empty()) {
      Visit& visit = open.back();
      if (visit.next > 0) {  // what the input before leads to is known
        const Node* const before = visit.node->inputs[visit.next - 1].edge.node.get();
        if (before != nullptr && leading.at(before)) leading.at(visit.node) = true;
      }
      if (visit.next == visit.node->inputs.size()) {
        open.pop_back();
        continue;
      }
      if (Node* const next = visit.node->inputs[visit.next++].edge.node.get(); next != nullptr) enter(next);
    }
    return leading.at(&root);
  }

  // Whether the gradient of that input is asked for.
  [[nodiscard]] bool asks_for(const Node::Input& input) const {
    if (!input.edge.node) return false;
    return partial_ == nullptr || partial_->leading.at(input.edge.node.get());
  }

  void find_graph(Node& root) {
    const bool found = root.engine_ == this;
    if (!found) enter(root);
    ++root.missing_;
    if (found) return;
    std::vector<Node*> open{&root};
    while (!open.empty()) {
      Node* const node = open.back();
      open.pop_back();
      for (const Node::Input& input : node->inputs) {
        if (!asks_for(input)) continue;
        Node* const next = input.edge.node.get();
        if (next->engine_ != this) {
          enter(*next);
          open.push_back(next);
        }
        ++next->missing_;
      }
    }
  }

  void enter(Node& node) {
    if (node.engine_ != nullptr) outer_.push_back({&node, node.engine_, node.missing_, node.gathered_});
    node.engine_ = this;
    node.missing_ = 0;
    node.gathered_ = -1;
  }
  void leave(Node& node) {
    node.engine_ = nullptr;
    for (const Outer& outer : outer_)
      if (outer.node == &node)
        node.engine_ = outer.engine, node.missing_ = outer.missing, node.gathered_ = outer.gathered;
  }

  Gathered& gathered_of(const Ref<Node>& node) {
    if (node->gathered_ < 0) {
      if (spare_.empty()) {
        spare_.push_back(gathered_.size());
        gathered_.emplace_back();
      }
      node->gathered_ = static_cast<std::int32_t>(spare_.back());
      spare_.pop_back();
      Gathered& made = gathered_[static_cast<std::size_t>(node->gathered_)];
      made.node = node;
      made.gradients = Gradients(node->outputs);
    }
    return gathered_[static_cast<std::size_t>(node->gathered_)];
  }

  void ready(const Node& node) {
    ready_.push_back({node.sequence, order_++, static_cast<std::size_t>(node.gathered_)});
    std::push_heap(ready_.begin(), ready_.end());
  }

  void run(Gathered next) {
    const Ref<Node> node = std::move(next.node);
    leave(*node);
    if (partial_ != nullptr) return run_partly(*node, std::move(next.gradients));
    if (session_.tracer != nullptr && node->leaf) return session_.tracer->gathered(*node, next.gradients.front());
    if (node->leaf && node->stream != caller_stream_) streams_of_leaves_.insert(node->stream);
    const OnStream as_before(session_, node->stream);
    Gradients made;
    {
      const Session::BackwardScope scope(session_, *node);
      if (node->before) std::exchange(node->before, nullptr)();
      if (node->scope.valid()) session_.mark(Phase::Backward, node->scope);
      made = node->apply(next.gradients);
      for (std::size_t i = 0; i < made.size(); ++i) {
        const Node::Input& input = node->inputs[i];
        if (!input.edge.node) made[i] = {};
        if (made[i].defined()) made[i] = fitted(std::move(made[i]), input);
      }
      next.gradients.clear();
      if (node->sequence != at_once) node->apply = nullptr;  // what it saved goes
    }
    if (node->sequence == at_once) return;
    const auto inputs = std::exchange(node->inputs, {});
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].edge.node) pass_on(inputs[i].edge, i < made.size() ? std::move(made[i]) : Tensor{}, *node);
    node->frame.clear();
  }

  void run_partly(Node& node, Gradients gradients) {
    if (const auto leaf = partial_->leaves.find(&node); leaf != partial_->leaves.end()) {
      // A product's weight is transposed by a node of its own, behind which the gradient is converted: what the product
      // saved is gone by then.
      Tensor& its = partial_->gradients[leaf->second] = std::move(gradients.front());
      its = to(session_, its, partial_->types[leaf->second].value_or(its.dtype));
      return;
    }
    if (const auto its = partial_->watched.find(&node); its != partial_->watched.end())
      its->second->gradients = gradients;
    const OnStream as_before(session_, node.stream);
    Gradients made;
    {
      const Session::BackwardScope scope(session_, node);
      if (node.before) std::exchange(node.before, nullptr)();
      if (node.scope.valid()) session_.mark(Phase::Backward, node.scope);
      std::uint32_t unrequested = 0;
      for (std::size_t i = 0; i < std::min(node.inputs.size(), most_reported); ++i)
        if (!asks_for(node.inputs[i])) unrequested |= 1U << i;
      session_.unrequested = unrequested;
      made = node.apply(gradients);
      session_.unrequested = 0;
      for (std::size_t i = 0; i < made.size(); ++i) {
        if (!asks_for(node.inputs[i])) made[i] = {};
        if (made[i].defined()) made[i] = fitted(std::move(made[i]), node.inputs[i]);
      }
      gradients.clear();
      if (partial_->afterwards == GraphAfterwards::Goes) node.apply = nullptr;
    }
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (asks_for(node.inputs[i])) pass_on(node.inputs[i].edge, i < made.size() ? std::move(made[i]) : Tensor{}, node);
    node.frame.clear();
  }

  // engine.cpp validate_outputs: a gradient is summed over repeated dimensions and gets its tensor's type.
  Tensor fitted(Tensor gradient, const Node::Input& input) {
    if (gradient.sizes != input.sizes) gradient = sum_to(session_, gradient, input.sizes);
    return to(session_, gradient, input.dtype);
  }

  // input_buffer.cpp: a stream waits for what another one makes for it, which stays until it has been used there.
  void p2p(const Tensor& gradient, StreamId from, const Node& to) {
    if (from == to.stream) return;
    session_.process.wait(to.stream, session_.process.record(from));
    // A modelling choice, for speed: below kMinLargeAlloc a request shares a segment of 20 MiB at most, so that
    // gradients of norms, biases and routers that wait for their accumulators change upper ends by little.
    const bool shows = !to.leaf || gradient.bytes() >= sim::AllocatorOptions::min_large_alloc;
    session_.record_stream(gradient, to.stream, shows);
  }

  void pass_on(const Edge& edge, Tensor gradient, const Node& giver) {
    if (gradient.defined()) p2p(gradient, giver.stream, *edge.node);
    const OnStream summing(session_, edge.node->stream);
    Gathered& gathered = gathered_of(edge.node);
    if (gradient.defined()) accumulate(gathered.gradients[edge.input], std::move(gradient), giver, *edge.node);
    if (--edge.node->missing_ > 0) return;
    if (!edge.node->immediate) return ready(*edge.node);
    const auto place = static_cast<std::size_t>(edge.node->gathered_);
    Gathered whole = std::move(gathered_[place]);
    spare_.push_back(place);
    run(std::move(whole));
  }

  // input_buffer.cpp can_accumulate_inplace: where nobody else holds the sum; a view's base does. A DTensor is no plain
  // tensor.
  void accumulate(Tensor& sum, Tensor gradient, const Node& giver, const Node& taker) {
    if (!sum.defined()) {
      sum = std::move(gradient);
      return;
    }
    const bool in_place =
        (session_.behavior().sums_in_place || taker.immediate) && session_.tracer == nullptr && !taker.of_dtensor;
    if (in_place && sum.storage.use_count() == 1 && !sum.view && sum.dense()) {
      session_.launch(Operation::Add, {sum, gradient}, {sum});
      return;
    }
    if (giver.sum.valid()) {
      Tensor total = session_.empty(sum.sizes, sum.dtype, giver.sum, Category::Temporaries);
      session_.launch(Operation::Add, {sum, gradient}, {total});
      sum = std::move(total);
      return;
    }
    const NoGrad no_grad(session_);
    sum = add(session_, sum, gradient);
  }

  Session& session_;
  StreamId caller_stream_;
  Engine* caller_;  // whose node runs this one
  std::uint32_t unrequested_of_caller_;
  std::vector<Gathered> gathered_;
  std::vector<std::size_t> spare_;  // places in `gathered_`
  std::vector<Ready> ready_;        // a heap: what was made last goes first, and of leaves what came last
  std::vector<Outer> outer_;
  std::set<StreamId> streams_of_leaves_;
  Partial* partial_ = nullptr;  // where not all gradients are asked for
  std::int64_t order_ = 0;
};

std::shared_ptr<Leaf> leaf(Session& session, const Tensor& value) {
  auto made = std::make_shared<Leaf>();
  const Ref<Node> node = session.bare_node();
  node->sequence = at_once;
  node->leaf = true;
  // accumulate_grad.h: the first gradient is taken as it is where nobody else holds it, later ones are added to it.
  node->apply = [&session, slot = std::weak_ptr<Leaf>(made)](const Gradients& gradients) {
    const std::shared_ptr<Leaf> its = slot.lock();
    Tensor gradient = gradients.front();
    if (!its || !gradient.defined()) return Gradients{};
    constexpr long only_here = 2;  // in `gradients` and in `gradient`
    if (its->gradient.defined()) {
      session.launch(Operation::Add, {its->gradient, gradient}, {its->gradient});
    } else if (its->gradient_dtype && *its->gradient_dtype != gradient.dtype) {
      its->gradient = to(session, gradient, *its->gradient_dtype).detached();
    } else if (gradient.storage.use_count() <= only_here && gradient.strides == its->value.strides) {
      its->gradient = gradient.detached();
    } else {
      its->gradient = clone(session, gradient, its->value.strides);
    }
    if (its->parameter) session.reclassify(its->gradient, Category::Gradients);
    if (its->accumulated) its->accumulated(*its);
    return Gradients{};
  };
  made->value = value.detached();
  made->value.gradient = {node, 0};
  return made;
}

std::shared_ptr<Leaf> initialized_parameter(Session& session, std::string_view name, Shape sizes, DType dtype,
                                            Category category) {
  const Session::Scope scope(session, name);
  const Tensor value = session.empty(std::move(sizes), dtype, trained_parameter, category);
  session.launch(Operation::Initialize, {}, {value});
  std::shared_ptr<Leaf> made = leaf(session, value);
  made->parameter = true;
  return made;
}

std::shared_ptr<Leaf> parameter_elsewhere(Session& session, Shape sizes, DType dtype) {
  Tensor value;
  value.strides = contiguous_strides(sizes);
  value.sizes = std::move(sizes);
  value.dtype = dtype;
  std::shared_ptr<Leaf> made = leaf(session, value);
  made->parameter = true;
  return made;
}

void backward(Session& session, const Tensor& root, Tensor gradient, std::vector<WaitingGradient> waiting) {
  const NoGrad no_grad(session);
  WaitingGradient only{root.gradient, std::move(gradient)};
  Engine(session).run({&only, 1}, waiting);
}

void backward(Session& session, std::vector<WaitingGradient> roots) {
  const NoGrad no_grad(session);
  Engine(session).run(roots, {});
}

std::vector<Tensor> gradients_of(Session& session, std::vector<WaitingGradient> roots,
                                 std::span<const std::shared_ptr<Leaf>> leaves, GraphAfterwards afterwards,
                                 std::span<WatchedNode> watched) {
  const NoGrad no_grad(session);
  return Engine(session).run_towards(leaves, roots, afterwards, watched);
}

void register_hook(const Tensor& tensor, std::function<void()> run) {
  std::function<void()>& before = tensor.gradient.node->before;
  if (before)
    before = [first = std::move(before), then = std::move(run)] {
      first();
      then();
    };
  else
    before = std::move(run);
}

Tensor take_waiting(Session& session, const Edge& edge) { return session.engine->take_waiting(edge); }

}  // namespace tidemark::parallel::torch
