#include "parallel/frameworks/megatron/recompute.hpp"

#include <utility>

namespace tidemark::parallel::megatron {
namespace {

// A forward pass inside a backward one records anew.
class EnableGrad {
 public:
  explicit EnableGrad(Session& session) : session_(session), before_(std::exchange(session.grad_enabled, true)) {}
  ~EnableGrad() { session_.grad_enabled = before_; }
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  Session& session_;
  bool before_;
};

}  // namespace

Tensor checkpoint(Worker& w, std::function<Tensor(Tensors)> run, Tensors inputs) {
  Session& s = w.session;
  const Ref<Node> node = s.node(inputs);
  std::vector<Saved> saved;
  for (const Tensor& x : inputs) saved.push_back(s.save(x));
  for (Tensor& x : inputs) x = x.detached();
  Tensor out;
  {
    const torch::NoGrad no_grad(s);
    out = run(std::move(inputs));
  }
  node->scope = {};
  node->apply = [&w, frame = node.get(), run = std::move(run), saved = std::move(saved),
                 first = out.buffer()](Gradients& gradients) mutable {
    std::vector<std::shared_ptr<GraphInput>> detached;
    Tensors again;
    for (Saved& x : saved) {
      detached.push_back(graph_input(w.session, w.take(x)));
      again.push_back(detached.back()->value);
    }
    Tensor output;
    {
      const EnableGrad recording(w.session);
      output = run(std::move(again));
    }
    // What is needed of the first run's output is held here meanwhile.
    if (w.process.allocation(first).category == Category::SavedActivations) w.session.keep(output);
    // What came to the inputs on other ways already is added to inside, where their last gradients are made.
    std::vector<torch::WaitingGradient> waiting;
    for (std::size_t i = 0; i < detached.size(); ++i)
      if (Tensor others = torch::take_waiting(w.session, frame->inputs[i].edge); others.defined())
        waiting.push_back({detached[i]->value.gradient, std::move(others)});
    Tensor gradient = std::move(gradients.front());
    torch::backward(w.session, output, gradient, std::move(waiting));
    Gradients made;
    for (const auto& input : detached) made.push_back(std::move(input->gradient));
    // Variables of the function: what the second run gave, the gradient that came in, and what came in first.
    frame->frame = {output.detached(), std::move(gradient)};
    for (const auto& input : detached) frame->frame.push_back(input->value.detached());
    return made;
  };
  return torch::with(std::move(out), node);
}

}  // namespace tidemark::parallel::megatron
