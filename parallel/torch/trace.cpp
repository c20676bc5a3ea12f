#include "parallel/torch/trace.hpp"

#include <utility>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel::torch {

Tracer::Tracer(Session& session, const std::vector<Tensor>& inputs)
    : session_(session), prefix_(session.process.text(session.scope()).size() + 1) {
  ensure(session.tracer == nullptr, "regions that are compiled do not lie within each other");
  for (const Tensor& input : inputs) {
    given_.push_back(input.buffer());
    trace_.values.push_back({input.sizes, input.strides, input.dtype, {}, compile::Policy::None, true});
  }
  session.tracer = this;
}

Tracer::~Tracer() { session_.tracer = nullptr; }

BufferId Tracer::alloc(const Shape& sizes, const Shape& strides, DType dtype, LabelId label) {
  const std::string& text = session_.process.text(label);
  trace_.values.push_back({sizes, strides, dtype, text.substr(std::min(prefix_, text.size())), policy_});
  return BufferId{first + static_cast<std::int32_t>(trace_.values.size() - 1)};
}

TracedOperand Tracer::operand(const Tensor& tensor, BufferId buffer) const {
  if (!buffer.valid()) return {};
  std::size_t value = static_cast<std::size_t>(buffer.value - first);
  if (!is_traced(buffer)) {
    value = static_cast<std::size_t>(std::ranges::find(given_, buffer) - given_.begin());
    ensure(value < given_.size(), "a region that is compiled reads what it is given");
  }
  return {value, tensor.sizes, tensor.strides, tensor.offset, tensor.dtype};
}

void Tracer::launched(const Computation& what, Operands inputs, Operands outputs, const Scratch& scratch) {
  TracedStep step{what, {}, {}, {}, {}};
  for (std::size_t i = 0; i < inputs.size(); ++i) step.inputs.push_back(operand(inputs[i], inputs.buffer(i)));
  for (std::size_t i = 0; i < outputs.size(); ++i) step.outputs.push_back(operand(outputs[i], outputs.buffer(i)));
  for (const BufferId buffer : scratch.buffers()) {
    if (is_traced(buffer))
      step.scratch.push_back(static_cast<std::size_t>(buffer.value - first));
    else
      step.workspaces.push_back(buffer);
  }
  trace_.steps.push_back(std::move(step));
}

void Tracer::gathered(const Node& leaf, const Tensor& gradient) { gradients_.emplace_back(&leaf, gradient); }

void Tracer::keep(const Tensor& made) {
  trace_.values[operand(made, made.buffer()).value].policy = compile::Policy::Save;
}

Trace Tracer::of(const std::function<Tensor()>& region, const std::vector<Tensor>& inputs) && {
  Tensor output = region();
  trace_.forward_steps = trace_.steps.size();
  trace_.output = operand(output, output.buffer());
  policy_ = compile::Policy::None;
  const LabelId label = session_.process.label("tangent");
  const BufferId tangent = alloc(output.sizes, output.strides, output.dtype, label);
  trace_.values.back().given = true;
  Tensor gradient = output.detached();
  gradient.storage = session_.storage_of(tangent);
  backward(session_, output, gradient);
  gradient = {}, output = {};
  for (const Tensor& input : inputs) {
    trace_.gradients.emplace_back();
    for (const auto& [leaf, its] : gradients_)
      if (leaf == input.gradient.node.get()) trace_.gradients.back() = operand(its, its.buffer());
  }
  gradients_.clear();
  return std::move(trace_);
}

}  // namespace tidemark::parallel::torch
