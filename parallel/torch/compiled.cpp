#include "parallel/torch/compiled.hpp"

#include <algorithm>
#include <utility>

#include "parallel/torch/compile_plan.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/trace.hpp"

namespace tidemark::parallel::torch {
namespace {

// What a policy says of results becomes a mark of the traced tensors (CheckpointPolicy in the graph's meta).
class Marking final : public DispatchMode {
 public:
  Marking(Tracer& tracer, KeepsResult keeps) : tracer_(tracer), keeps_(std::move(keeps)) {}
  bool recalls(Dispatched, std::span<Tensor>) override { return false; }
  void made(Dispatched what, std::span<const Tensor> results) override {
    if (!keeps_ || !keeps_(what)) return;
    for (const Tensor& result : results) tracer_.keep(result);
  }

 private:
  Tracer& tracer_;
  KeepsResult keeps_;
};

CompilePlan compiled(Session& s, const std::vector<Tensor>& inputs,
                     const std::function<Tensor(const std::vector<Tensor>&)>& region, const CompileOptions& options) {
  std::vector<std::shared_ptr<Leaf>> leaves;
  std::vector<Tensor> seen;
  for (const Tensor& input : inputs) {
    leaves.push_back(leaf(s, input));
    seen.push_back(input.requires_grad() ? leaves.back()->value : input.detached());
  }
  Tracer tracer(s, inputs);
  if (options.checkpointed) tracer.recompute();
  Marking marking(tracer, options.policy ? options.policy() : KeepsResult{});
  DispatchMode* const before = std::exchange(s.dispatch_mode, &marking);
  auto cast = std::exchange(s.autocast_cache, {});
  Trace trace = std::move(tracer).of([&] { return region(seen); }, seen);
  s.autocast_cache = std::move(cast);
  s.dispatch_mode = before;
  return plan_of(std::move(trace));
}

// A tensor of the trace as an operation sees it.
Tensor seen_as(const TracedOperand& operand, const std::vector<Tensor>& tensors) {
  if (operand.value == no_value) return {};
  Tensor seen = tensors[operand.value].detached();
  seen.sizes = operand.sizes, seen.strides = operand.strides;
  seen.offset += operand.offset;
  seen.dtype = operand.dtype;
  return seen;
}

void run(Session& s, const CompilePlan& plan, const CompiledPass& pass, std::vector<Tensor>& tensors, bool again) {
  const Trace& trace = plan.trace;
  for (const CompiledPass::Run& run : pass.runs) {
    const TracedStep& step = trace.steps[run.step];
    const bool recomputed = again && run.step < trace.forward_steps;
    const auto made = [&](std::size_t v) {
      const TracedValue& its = trace.values[v];
      const Placement& placement = pass.placements[v];
      switch (placement.where) {
        case Placement::Where::Registers:
          return s.in_registers(its.sizes, its.strides, its.dtype, its.what);
        case Placement::Where::InPlace: {
          Tensor there = tensors[placement.of].detached();
          there.sizes = its.sizes, there.strides = its.strides;
          return there;
        }
        case Placement::Where::Memory:
          break;
      }
      return recomputed ? s.empty_strided(its.sizes, its.strides, its.dtype, its.what, Category::Recompute)
                        : s.empty_strided(its.sizes, its.strides, its.dtype, its.what);
    };
    std::vector<Tensor> inputs, outputs, scratch;
    for (const TracedOperand& o : step.outputs)
      if (o.value != no_value && !tensors[o.value].defined()) tensors[o.value] = made(o.value);
    for (const std::size_t v : step.scratch) scratch.push_back(made(v));
    for (const TracedOperand& o : step.inputs) inputs.push_back(seen_as(o, tensors));
    for (const TracedOperand& o : step.outputs) outputs.push_back(seen_as(o, tensors));
    if (step.workspaces.empty())
      s.launch(step.what, inputs, outputs, scratch);
    else
      s.launch(step.what, inputs, outputs, step.workspaces.front());
    inputs.clear(), outputs.clear();
    while (!scratch.empty()) scratch.pop_back();
    for (const std::size_t v : run.dropped) tensors[v] = {};
  }
}

}  // namespace

Tensor CompiledRegion::operator()(Session& s, const std::vector<Tensor>& inputs,
                                  const std::function<Tensor(const std::vector<Tensor>&)>& region,
                                  const CompileOptions& options) {
  if (s.recorder != nullptr) return region(inputs);
  if (!plan_) plan_ = std::make_shared<CompilePlan>(compiled(s, inputs, region, options));
  const CompilePlan& plan = *plan_;
  Ref<Node> node = s.node(inputs);
  std::vector<Tensor> tensors(plan.trace.values.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) tensors[i] = inputs[i].detached();
  run(s, plan, plan.forward, tensors, false);
  Tensor out = seen_as(plan.trace.output, tensors);
  std::vector<Tensor> kept(plan.trace.values.size());
  for (const std::size_t v : plan.saved) {
    kept[v] = tensors[v];
    s.keep(kept[v]);
  }
  tensors.clear();
  if (node)
    node->apply = [&s, its = plan_, kept = std::move(kept), count = inputs.size()](Gradients& g) mutable {
      std::vector<Tensor> there = std::move(kept);
      // What the output's gradient is comes last of what is given.
      for (std::size_t v = there.size(); v-- > 0;)
        if (its->trace.values[v].given) {
          there[v] = g.front().detached();
          break;
        }
      run(s, *its, its->backward, there, true);
      Gradients made(count);
      for (std::size_t i = 0; i < count; ++i) made[i] = seen_as(its->trace.gradients[i], there);
      return made;
    };
  return with(std::move(out), std::move(node));
}

}  // namespace tidemark::parallel::torch
