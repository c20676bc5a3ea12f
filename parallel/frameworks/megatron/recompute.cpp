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

Tensor checkpoint(Worker& w, std::function<Tensor(Tensors)> run, Tensors inputs, LabelId sum) {
  Session& s = w.session;
  std::vector<const Tensor*> all;
  for (const Tensor& x : inputs) all.push_back(&x);
  const auto node = s.node(all);
  std::vector<Saved> saved;
  for (const Tensor& x : inputs) saved.push_back(s.save(x));
  for (Tensor& x : inputs) x = x.detached();
  Tensor out;
  {
    const torch::NoGrad no_grad(s);
    out = run(std::move(inputs));
  }
  node->scope = {};
  node->sum = sum;
  node->apply = [&w, frame = node.get(), run = std::move(run), saved = std::move(saved),
                 first = out.buffer()](Gradients& gradients) mutable {
    std::vector<std::shared_ptr<GraphInput>> inputs;
    Tensors again;
    for (Saved& x : saved) {
      inputs.push_back(graph_input(w.session.unpack(std::exchange(x, {}))));
      again.push_back(inputs.back()->value);
    }
    Tensor out;
    {
      const EnableGrad recording(w.session);
      out = run(std::move(again));
    }
    // What is needed of the first run's output is held here meanwhile.
    if (w.process.allocation(first).category == Category::SavedActivations) w.session.keep(out);
    Tensor gradient = std::move(gradients.front());
    torch::backward(w.session, out, gradient);
    Gradients made;
    for (const auto& input : inputs) made.push_back(std::move(input->gradient));
    // Variables of the function: what the second run gave, the gradient that came in, and what came in first.
    frame->frame = {out.detached(), std::move(gradient)};
    for (const auto& input : inputs) frame->frame.push_back(input->value.detached());
    return made;
  };
  return torch::with(std::move(out), node);
}

}  // namespace tidemark::parallel::megatron
