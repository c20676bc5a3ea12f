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

CompilePlan compiled(Session& s, const std::vector<Tensor>& inputs, const CompiledRegion::Several& region,
                     const CompileOptions& options) {
  std::vector<std::shared_ptr<Leaf>> leaves;
  std::vector<Tensor> seen;
  for (const Tensor& input : inputs) {
    leaves.push_back(leaf(s, input));
    seen.push_back(input.requires_grad() ? leaves.back()->value : input.detached());
  }
  Tracer tracer(s, inputs, options.others);
  if (options.checkpointed) tracer.recompute();
  Marking marking(tracer, options.policy ? options.policy() : KeepsResult{});
  DispatchMode* const before = std::exchange(s.dispatch_mode, &marking);
  auto cast = std::exchange(s.autocast_cache, {});
  Trace trace = std::move(tracer).of([&] { return region(seen); }, seen);
  s.autocast_cache = std::move(cast);
  s.dispatch_mode = before;
  return plan_of(std::move(trace), s.behavior().activation_memory_budget);
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

Tensor zeros_of(Session& s, const TracedValue& value) {
  Tensor made = s.empty_strided(value.sizes, value.strides, value.dtype, value.what);
  s.launch({Operation::Fill, {0}}, {}, {made});
  return made;
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
    std::vector<Tensor> scratch;
    for (const TracedOperand& o : step.outputs)
      if (o.value != no_value && !tensors[o.value].defined()) tensors[o.value] = made(o.value);
    for (const std::size_t v : step.scratch) scratch.push_back(made(v));
    std::optional<FusedStep> fused = run.fused;
    for (const TracedLaunch& launch : step.launches) {
      Computation what = launch.what;
      what.fused = fused;
      if (fused) fused = FusedStep{.follows = true, .traffic = {}};
      std::vector<Tensor> inputs, outputs;
      for (const TracedOperand& o : launch.inputs) inputs.push_back(seen_as(o, tensors));
      for (const TracedOperand& o : launch.outputs) outputs.push_back(seen_as(o, tensors));
      if (step.workspaces.empty())
        s.launch(what, inputs, outputs, scratch);
      else
        s.launch(what, inputs, outputs, step.workspaces.front());
    }
    while (!scratch.empty()) scratch.pop_back();
    for (const std::size_t v : run.dropped) tensors[v] = {};
  }
}

}  // namespace

std::vector<Tensor> CompiledRegion::several(Session& s, const std::vector<Tensor>& inputs, const Several& region,
                                            const CompileOptions& options) {
  if (s.recorder != nullptr || s.tracer != nullptr) return region(inputs);
  if (!plan_) plan_ = std::make_shared<CompilePlan>(compiled(s, inputs, region, options));
  const CompilePlan& plan = *plan_;
  Ref<Node> node = s.node(inputs);
  std::vector<Tensor> tensors(plan.trace.values.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) tensors[i] = inputs[i].detached();
  if (options.marks.valid()) s.mark(Phase::Forward, options.marks);
  run(s, plan, plan.forward, tensors, false);
  std::vector<Tensor> made;
  for (const TracedOperand& output : plan.trace.outputs) made.push_back(seen_as(output, tensors));
  std::vector<Saved> kept(plan.saved.size());
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = s.save(tensors[plan.saved[i]]);
  tensors.clear();
  if (!node) return made;
  node->outputs = made.size();
  node->apply = [&s, its = plan_, kept = std::move(kept), count = inputs.size(),
                 marks = options.marks](Gradients& g) mutable {
    const CompilePlan& compiled = *its;
    if (marks.valid()) s.mark(Phase::Backward, marks);
    std::vector<Tensor> there(compiled.trace.values.size());
    for (std::size_t i = 0; i < kept.size(); ++i) there[compiled.saved[i]] = s.unpack(std::exchange(kept[i], {}));
    for (std::size_t o = 0; o < compiled.trace.tangents.size(); ++o) {
      const std::size_t v = compiled.trace.tangents[o];
      if (v == no_value) continue;
      // What nobody asked for a gradient of gets one of zeros (set_materialize_grads).
      there[v] = g[o].defined() ? g[o].detached() : zeros_of(s, compiled.trace.values[v]);
    }
    run(s, compiled, compiled.backward, there, true);
    Gradients gradients(count);
    for (std::size_t i = 0; i < count; ++i) gradients[i] = seen_as(compiled.trace.gradients[i], there);
    return gradients;
  };
  for (std::size_t o = 0; o < made.size(); ++o)
    if (plan.trace.tangents[o] != no_value) made[o].gradient = {node, o};
  return made;
}

}  // namespace tidemark::parallel::torch
