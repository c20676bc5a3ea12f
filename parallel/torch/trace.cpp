#include "parallel/torch/trace.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel::torch {

Tracer::Tracer(Session& session, const std::vector<Tensor>& inputs, std::size_t others)
    : session_(session), prefix_(session.scope().valid() ? session.process.text(session.scope()).size() + 1 : 0) {
  ensure(session.tracer == nullptr, "regions that are compiled do not lie within each other");
  for (const Tensor& input : inputs) {
    given_.push_back({input.buffer(), input.offset});
    trace_.values.push_back(
        {input.sizes, input.strides, input.dtype, {}, compile::Policy::None, true, given_.size() > others});
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
  if (is_traced(buffer))
    return {static_cast<std::size_t>(buffer.value - first), tensor.sizes, tensor.strides, tensor.offset, tensor.dtype};
  std::size_t value = no_value;
  for (std::size_t i = 0; i < given_.size(); ++i)
    if (given_[i].buffer == buffer && given_[i].offset <= tensor.offset &&
        (value == no_value || given_[value].offset < given_[i].offset))
      value = i;
  ensure(value != no_value, "a region that is compiled reads what it is given");
  return {value, tensor.sizes, tensor.strides, tensor.offset - given_[value].offset, tensor.dtype};
}

void Tracer::launched(const Computation& what, Operands inputs, Operands outputs, const Scratch& scratch) {
  TracedLaunch launch{what, {}, {}};
  for (std::size_t i = 0; i < inputs.size(); ++i) launch.inputs.push_back(operand(inputs[i], inputs.buffer(i)));
  for (std::size_t i = 0; i < outputs.size(); ++i) launch.outputs.push_back(operand(outputs[i], outputs.buffer(i)));
  const std::size_t made = launch.outputs.front().value;
  const bool writes_on = made != no_value && !trace_.steps.empty() && trace_.steps.back().outputs.size() == 1 &&
                         trace_.steps.back().outputs.front().value == made && trace_.steps.size() > first_of_pass_;
  if (!writes_on) trace_.steps.emplace_back();
  TracedStep& step = trace_.steps.back();
  for (const TracedOperand& input : launch.inputs)
    if (input.value != made) step.inputs.push_back(input);
  std::vector<TracedOperand> values;
  for (const TracedOperand& output : launch.outputs) {
    const auto same = [&](const TracedOperand& other) { return other.value == output.value; };
    if (output.value == no_value || std::ranges::none_of(values, same)) values.push_back(output);
  }
  if (writes_on || values.size() < launch.outputs.size()) {
    ensure(values.size() == 1, "parts of one value are written");
    const TracedValue& whole = trace_.values[made];
    values.front() = {made, whole.sizes, whole.strides, 0, whole.dtype};
    step.joins |= values.size() < launch.outputs.size();
  }
  step.outputs = std::move(values);
  step.launches.push_back(std::move(launch));
  for (const BufferId buffer : scratch.buffers()) {
    if (is_traced(buffer))
      step.scratch.push_back(static_cast<std::size_t>(buffer.value - first));
    else
      step.workspaces.push_back(buffer);
  }
}

void Tracer::gathered(const Node& leaf, const Tensor& gradient) { gradients_.emplace_back(&leaf, gradient); }

void Tracer::keep(const Tensor& made) {
  trace_.values[operand(made, made.buffer()).value].policy = compile::Policy::Save;
}

Trace Tracer::of(const std::function<std::vector<Tensor>()>& region, const std::vector<Tensor>& inputs) && {
  std::vector<Tensor> outputs = region();
  trace_.forward_steps = first_of_pass_ = trace_.steps.size();
  policy_ = compile::Policy::None;
  const LabelId label = session_.process.label("tangent");
  std::vector<WaitingGradient> roots;
  for (const Tensor& output : outputs) {
    trace_.outputs.push_back(operand(output, output.buffer()));
    trace_.tangents.push_back(no_value);
    if (!output.requires_grad()) continue;
    const BufferId tangent = alloc(output.sizes, output.strides, output.dtype, label);
    trace_.values.back().given = true;
    trace_.values.back().what = "output_gradient";
    trace_.tangents.back() = trace_.values.size() - 1;
    Tensor gradient = output.detached();
    gradient.storage = session_.storage_of(tangent);
    gradient.offset = 0;
    roots.push_back({output.gradient, std::move(gradient)});
  }
  outputs.clear();
  backward(session_, std::move(roots));
  for (const Tensor& input : inputs) {
    trace_.gradients.emplace_back();
    for (const auto& [leaf, its] : gradients_)
      if (leaf == input.gradient.node.get() && its.defined()) trace_.gradients.back() = operand(its, its.buffer());
  }
  gradients_.clear();
  return std::move(trace_);
}

}  // namespace tidemark::parallel::torch
