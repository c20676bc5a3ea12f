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

namespace {

// core/tensor_parallel/utils.py split_tensor_into_1d_equal_chunks, whose chunk takes the tensor's place wherever it is
// held, and gather_split_1d_tensor.
void share_out(Worker& w, const Tensor& x) {
  const std::int64_t part = x.elements() / w.sizes.tensor;
  Tensor chunk = w.make(w.process.label("checkpoint.part"), {part}, x.dtype, Category::SavedActivations);
  w.launch(Operation::Copy, {narrowed(sized(x.detached(), {x.elements()}), 0, w.first_row(part), part)}, {chunk});
  w.session.replace(x, std::move(chunk));
}
Tensor gathered(Worker& w, const Tensor& x) {
  Tensor part{x.storage, {x.elements() / w.sizes.tensor}, {1}, 0, x.dtype, {}};
  return w.all_gather(w.process.label("checkpoint.gathered"), std::move(part), x.sizes);
}

// The inputs of a second run, which gathers gradients of its own.
using GraphInputs = std::vector<std::shared_ptr<AutogradInput>>;
Tensors values_of(const GraphInputs& inputs) {
  Tensors values;
  for (const auto& input : inputs) values.push_back(input->value);
  return values;
}

}  // namespace

Tensor checkpoint(Worker& w, std::function<Tensor(Tensors)> run, Tensors inputs, SavedInputs saved_inputs) {
  Session& s = w.session;
  const Ref<Node> node = s.node(inputs);
  const bool shared_out = saved_inputs == SavedInputs::SharedOut && w.tensor_parallel();
  for (Tensor& x : inputs) x = x.detached();
  Tensors arguments = inputs;
  Tensor out;
  {
    const torch::NoGrad no_grad(s);
    out = run(std::move(inputs));
  }
  if (!node) return out;
  if (shared_out) share_out(w, arguments.front());
  std::vector<Saved> saved;
  for (const Tensor& x : arguments) saved.push_back(s.save(x));
  arguments.clear();
  node->scope = {};
  node->apply = [&w, frame = node.get(), run = std::move(run), saved = std::move(saved), shared_out,
                 first = out.buffer()](Gradients& gradients) mutable {
    GraphInputs detached;
    for (Saved& x : saved) {
      Tensor whole = w.take(x);
      if (shared_out && detached.empty()) whole = gathered(w, whole);
      detached.push_back(autograd_input(w.session, whole));
    }
    Tensors again = values_of(detached);
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
      if (!frame->needs(i))
        continue;  // a mask
      else if (Tensor others = torch::take_waiting(w.session, frame->inputs[i].edge); others.defined())
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

// Attributes of the object, and of its autograd function's context.
struct CheckpointWithoutOutput::State {
  std::function<Tensors(Tensors)> run;
  std::vector<Saved> saved;
  Tensors outputs;     ///< of the first run, as long as they are discarded
  GraphInputs inputs;  ///< of the second
  Tensors again;       ///< its outputs, which lead to its graph
};

CheckpointWithoutOutput::CheckpointWithoutOutput(Worker& w) : w_(w), state_(std::make_shared<State>()) {}

Tensors CheckpointWithoutOutput::operator()(std::function<Tensors(Tensors)> run, Tensors inputs) {
  Session& s = w_.session;
  const Ref<Node> node = s.node(inputs);
  State& its = *state_;
  if (node)
    for (const Tensor& x : inputs) its.saved.push_back(s.save(x));
  for (Tensor& x : inputs) x = x.detached();
  Tensors outputs;
  {
    const torch::NoGrad no_grad(s);
    outputs = run(std::move(inputs));
  }
  for (const Tensor& x : outputs) its.outputs.push_back(x.detached());
  if (!node) return outputs;
  its.run = std::move(run);
  node->scope = {};
  node->outputs = outputs.size();
  node->apply = [&w = w_, state = state_](Gradients& gradients) {
    std::vector<torch::WaitingGradient> roots;
    const Tensors again = std::move(state->again);
    for (std::size_t i = 0; i < again.size(); ++i)
      if (gradients[i].defined()) roots.push_back({again[i].gradient, gradients[i]});
    torch::backward(w.session, std::move(roots));
    Gradients made;
    for (const auto& input : state->inputs) made.push_back(std::move(input->gradient));
    return made;
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] = torch::with(std::move(outputs[i]), node, i);
  return outputs;
}

Tensor RecomputedNorm::operator()(const Norm& its, Tensor x) {
  if (!w_.train.recompute.selects(RecomputedModule::LayerNorm)) return norm(w_, its, std::move(x));
  Tensors inputs;
  inputs.push_back(std::move(x));
  const auto run = [this_worker = &w_, &its](Tensors of) {
    return Tensors{norm(*this_worker, its, std::move(of.front()))};
  };
  return std::move(checkpoint_.emplace(w_)(run, std::move(inputs)).front());
}

void RecomputedNorm::discard_output(const Tensor& hook) {
  if (checkpoint_) checkpoint_->discard_outputs(hook);
}

void CheckpointWithoutOutput::discard_outputs(const Tensor& hook) {
  for (const Tensor& x : state_->outputs) w_.session.discard(x);
  if (!hook.requires_grad()) return;
  torch::register_hook(hook, [&w = w_, state = state_] {
    State& its = *state;
    for (Saved& x : its.saved) its.inputs.push_back(autograd_input(w.session, w.take(x)));
    {
      const EnableGrad recording(w.session);
      its.again = std::exchange(its.run, nullptr)(values_of(its.inputs));
    }
    for (std::size_t i = 0; i < its.outputs.size(); ++i) w.session.restore(its.outputs[i], its.again[i]);
    its.outputs.clear();
  });
}

}  // namespace tidemark::parallel::megatron
