#include "parallel/torch/compile_plan.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "parallel/compile/partitioner.hpp"

namespace tidemark::parallel::torch {
namespace {

using compile::GraphNode;
using compile::JointGraph;
using compile::Policy;

// What Inductor writes as loops over elements or rows, and fuses.
bool is_fusible(Operation operation) {
  if (operation == Operation::ComplexMultiply) return false;  // Inductor leaves complex numbers to ATen
  return operation == Operation::Fill || (operation >= Operation::Copy && operation < Operation::Embedding) ||
         operation == Operation::Gather || operation == Operation::NllLoss || operation == Operation::NllLossBackward;
}
bool is_elementwise(const TracedStep& step) {
  const Operation operation = step.operation();
  return step.in_one_piece() && is_fusible(operation) && operation >= Operation::Copy && operation < Operation::Sum;
}

// torch.utils.flop_counter: mm_flop, bmm_flop, sdpa_flop; of all else there is nothing to count.
std::int64_t flops_of(const TracedStep& step) {
  constexpr std::int64_t nothing = 1;
  if (step.operation() == Operation::Matmul)
    return 2 * elements_of(step.outputs.front().sizes) * step.inputs.front().sizes.back();
  if (step.operation() == Operation::Attention) {
    const Shape &query = step.inputs[0].sizes, &key = step.inputs[1].sizes;
    return 4 * elements_of(query) * key[1];  // batch, sequence, heads, width
  }
  return nothing;
}

// ---- what is kept ---------------------------------------------------------------------------------------------------

/// The joint graph of a trace, with a node for each way in which a tensor is seen other than it was made.
class JointGraphOf {
 public:
  explicit JointGraphOf(const Trace& trace) : trace_(trace), node_of_(trace.values.size(), no_value) {
    for (std::size_t v = 0; v < trace.values.size(); ++v)
      if (trace.values[v].given) add_given(v, std::ranges::count(trace.tangents, v) > 0, trace.values[v].fixed);
    for (std::size_t s = 0; s < trace.steps.size(); ++s) add(trace.steps[s], s < trace.forward_steps);
    for (const TracedOperand& output : trace.outputs) graph_.outputs.push_back(node(output, false));
    for (const TracedOperand& gradient : trace.gradients)
      if (gradient.value != no_value) graph_.gradients.push_back(node(gradient, false));
  }

  /// Values, each once, in the trace's order.
  [[nodiscard]] std::vector<std::size_t> saved(double budget) const {
    std::set<std::size_t> found;
    for (const std::size_t node : saved_values(graph_, budget)) found.insert(value_of_[node]);
    return {found.begin(), found.end()};
  }

 private:
  std::size_t push(GraphNode node, std::size_t value) {
    graph_.nodes.push_back(std::move(node));
    value_of_.push_back(value);
    return value_of_.size() - 1;
  }

  [[nodiscard]] Bytes bytes(std::size_t value) const {
    const TracedValue& its = trace_.values[value];
    return elements_of(its.sizes) * size_of(its.dtype);
  }

  void add_given(std::size_t value, bool tangent, bool fixed) {
    GraphNode its;
    its.bytes = bytes(value);
    its.input = !tangent, its.tangent = tangent, its.fixed = fixed && !tangent;
    node_of_[value] = push(its, value);
  }

  std::size_t node(const TracedOperand& operand, bool forward) {
    const TracedValue& value = trace_.values[operand.value];
    const std::size_t own = node_of_[operand.value];
    if (operand.sizes == value.sizes && operand.strides == value.strides && operand.dtype == value.dtype) return own;
    const auto [known, added] = views_.try_emplace({operand.value,
                                                    {operand.sizes.begin(), operand.sizes.end()},
                                                    {operand.strides.begin(), operand.strides.end()},
                                                    operand.offset},
                                                   0);
    if (!added) return known->second;
    GraphNode its;
    its.inputs = {own};
    its.bytes = elements_of(operand.sizes) * size_of(operand.dtype);
    its.view = its.fusible = its.recomputable = true;
    if (forward && checkpointed()) its.policy = Policy::Recompute;
    return known->second = push(its, operand.value);
  }
  [[nodiscard]] bool checkpointed() const {
    return std::ranges::any_of(trace_.values, [](const TracedValue& v) { return v.policy == Policy::Recompute; });
  }

  void add(const TracedStep& step, bool forward) {
    GraphNode its;
    for (const TracedOperand& input : step.inputs) {
      if (input.value == no_value) continue;
      const std::size_t from = node(input, forward);
      if (std::ranges::find(its.inputs, from) == its.inputs.end()) its.inputs.push_back(from);
    }
    its.fusible = its.recomputable = is_fusible(step.operation());
    its.joins = step.joins;
    its.intensive = step.operation() == Operation::Matmul || step.operation() == Operation::Attention;
    its.flops = flops_of(step);
    if (step.joins) its.fusible = its.recomputable = false;  // of default_recomputable_ops torch.cat is none
    const auto of_output = [&](std::size_t output) {
      const std::size_t value = step.outputs[output].value;
      its.policy = trace_.values[value].policy;
      its.bytes = bytes(value);
      node_of_[value] = push(its, value);
    };
    if (step.operation() == Operation::RmsNorm || step.operation() == Operation::LayerNorm) {
      // What rows are scaled by first, and then what they scale.
      const std::vector<std::size_t> read = its.inputs;
      for (std::size_t o = 1; o < step.outputs.size(); ++o) {
        its.inputs = {read.front()};
        of_output(o);
      }
      its.inputs = read;
      for (std::size_t o = 1; o < step.outputs.size(); ++o) its.inputs.push_back(node_of_[step.outputs[o].value]);
      return of_output(0);
    }
    if (its.fusible || step.outputs.size() == 1) {
      for (std::size_t o = 0; o < step.outputs.size(); ++o)
        if (step.outputs[o].value != no_value) of_output(o);
      return;
    }
    its.several = true;
    its.policy = trace_.values[step.outputs.front().value].policy;
    for (const TracedOperand& output : step.outputs)
      if (output.value != no_value) its.bytes += bytes(output.value);
    const std::size_t all = push(its, no_value);
    its = {};
    its.inputs = {all};
    its.part = its.fusible = its.recomputable = true;
    for (std::size_t o = 0; o < step.outputs.size(); ++o)
      if (step.outputs[o].value != no_value) of_output(o);
  }

  using View = std::tuple<std::size_t, std::vector<std::int64_t>, std::vector<std::int64_t>, std::int64_t>;
  const Trace& trace_;
  JointGraph graph_;
  std::vector<std::size_t> node_of_;   // by value
  std::vector<std::size_t> value_of_;  // by node
  std::map<View, std::size_t> views_;
};

// ---- what runs in a pass --------------------------------------------------------------------------------------------

/// Steps that make some values out of others, in an order.
class Needed {
 public:
  Needed(const Trace& trace, const std::vector<std::size_t>& there)
      : trace_(trace), maker_(trace.values.size(), no_value), there_(trace.values.size(), false) {
    for (std::size_t s = 0; s < trace.steps.size(); ++s)
      for (const TracedOperand& o : trace.steps[s].outputs)
        if (o.value != no_value) maker_[o.value] = s;
    for (const std::size_t v : there) there_[v] = true;
  }

  [[nodiscard]] std::set<std::size_t> of(const std::vector<std::size_t>& wanted) const {
    std::set<std::size_t> steps;
    std::vector<std::size_t> open;
    const auto need = [&](std::size_t value) {
      if (value != no_value && !there_[value] && maker_[value] != no_value && steps.insert(maker_[value]).second)
        open.push_back(maker_[value]);
    };
    for (const std::size_t v : wanted) need(v);
    while (!open.empty()) {
      const std::size_t step = open.back();
      open.pop_back();
      for (const TracedOperand& o : trace_.steps[step].inputs) need(o.value);
    }
    return steps;
  }
  [[nodiscard]] std::vector<std::size_t> inputs_of(std::size_t step) const {
    std::vector<std::size_t> values;
    for (const TracedOperand& o : trace_.steps[step].inputs)
      if (o.value != no_value) values.push_back(o.value);
    return values;
  }

 private:
  const Trace& trace_;
  std::vector<std::size_t> maker_;
  std::vector<bool> there_;
};

// reordering_to_mimic_autograd_engine: what runs again comes right before what needs it first.
std::vector<std::size_t> like_autograd(const Trace& trace, const Needed& needed, const std::set<std::size_t>& steps) {
  std::vector<std::size_t> order;
  std::set<std::size_t> placed;
  for (const std::size_t step : steps) {
    if (step < trace.forward_steps) continue;
    for (const std::size_t before : needed.of(needed.inputs_of(step)))
      if (steps.contains(before) && placed.insert(before).second) order.push_back(before);
    if (placed.insert(step).second) order.push_back(step);
  }
  return order;
}

// ---- fusion ---------------------------------------------------------------------------------------------------------

/// Inductor's scheduler, as far as memory sees it.
class Scheduler {
 public:
  /// `held`: values that outlive the pass. `donated`: values that are there before, and nobody else's.
  Scheduler(const Trace& trace, std::vector<std::size_t> steps, const std::vector<std::size_t>& held,
            const std::vector<std::size_t>& donated)
      : trace_(trace),
        steps_(std::move(steps)),
        maker_(trace.values.size(), no_value),
        users_(trace.values.size()),
        held_(trace.values.size(), false),
        donated_(trace.values.size(), false) {
    for (std::size_t at = 0; at < steps_.size(); ++at) {
      for (const TracedOperand& o : step(at).outputs)
        if (o.value != no_value) maker_[o.value] = at;
      for (const TracedOperand& i : step(at).inputs)
        if (i.value != no_value) users_[i.value].push_back(at);
    }
    for (const std::size_t v : held) held_[v] = true;
    for (const std::size_t v : donated) donated_[v] = true;
    pass_.placements.resize(trace.values.size());
  }

  CompiledPass pass() {
    place_in_registers();
    find_kernels();
    fuse();
    order_groups();
    drop_at_last_uses();
    return std::move(pass_);
  }

 private:
  [[nodiscard]] const TracedStep& step(std::size_t at) const { return trace_.steps[steps_[at]]; }
  [[nodiscard]] bool fusible(std::size_t at) const { return is_fusible(step(at).operation()); }
  [[nodiscard]] bool in_registers(std::size_t value) const {
    return pass_.placements[value].where == Placement::Where::Registers;
  }

  // What only fused kernels read is computed where it is read.
  void place_in_registers() {
    for (std::size_t v = 0; v < trace_.values.size(); ++v)
      if (maker_[v] != no_value && fusible(maker_[v]) && !held_[v] &&
          std::ranges::all_of(users_[v], [&](std::size_t user) { return fusible(user); }))
        pass_.placements[v].where = Placement::Where::Registers;
  }

  // A kernel is a step whose results lie in memory, with those in registers that it needs.
  void find_kernels() {
    kernel_of_.assign(steps_.size(), no_value);
    for (std::size_t at = 0; at < steps_.size(); ++at) {
      const bool writes = std::ranges::any_of(
          step(at).outputs, [&](const TracedOperand& o) { return o.value != no_value && !in_registers(o.value); });
      if (!writes) continue;
      kernel_of_[at] = kernels_.size();
      kernels_.push_back({.at = at, .reads = {}, .after = {}});
      gather(at, kernels_.back());
    }
    for (Kernel& kernel : kernels_)
      for (const std::size_t v : kernel.reads)
        if (maker_[v] != no_value) kernel.after.insert(kernel_of_[maker_[v]]);
    group_.resize(kernels_.size());
    members_.resize(kernels_.size());
    for (std::size_t k = 0; k < kernels_.size(); ++k) group_[k] = k, members_[k] = {k};
    readers_.resize(trace_.values.size());
    for (std::size_t k = 0; k < kernels_.size(); ++k)
      for (const std::size_t v : kernels_[k].reads) readers_[v].push_back(k);
  }

  struct Kernel {
    std::size_t at = 0;
    std::set<std::size_t> reads;  // values in memory
    std::set<std::size_t> after;  // kernels
    bool done = false;            // its group has run
  };

  void gather(std::size_t at, Kernel& kernel) const {
    for (const TracedOperand& i : step(at).inputs) {
      if (i.value == no_value) continue;
      if (in_registers(i.value))
        gather(maker_[i.value], kernel);
      else
        kernel.reads.insert(i.value);
    }
  }

  [[nodiscard]] std::int64_t elements(std::size_t kernel) const {
    std::int64_t most = 0;
    for (const TracedOperand& o : step(kernels_[kernel].at).outputs)
      if (o.value != no_value) most = std::max(most, elements_of(o.sizes));
    return most;
  }
  // What two kernels both read, or one makes for the other.
  [[nodiscard]] Bytes shared(std::size_t a, std::size_t b) const {
    Bytes sum;
    const auto count = [&](std::size_t value) {
      const TracedValue& its = trace_.values[value];
      sum += elements_of(its.sizes) * size_of(its.dtype);
    };
    for (const std::size_t v : kernels_[b].reads)
      if (kernels_[a].reads.contains(v) || (maker_[v] != no_value && kernel_of_[maker_[v]] == a)) count(v);
    return sum;
  }

  // Whether one group needs what comes after another one in a third.
  [[nodiscard]] bool apart(std::size_t from, std::size_t to) const {
    std::set<std::size_t> seen;
    std::vector<std::pair<std::size_t, bool>> open;  // a kernel, and whether a third group has been passed
    for (const std::size_t k : members_[to]) open.emplace_back(k, false);
    while (!open.empty()) {
      const auto [kernel, passed] = open.back();
      open.pop_back();
      for (const std::size_t before : kernels_[kernel].after) {
        const bool third = passed || (group_[before] != from && group_[before] != to);
        if (group_[before] == from && passed) return true;
        if (group_[before] == from || !seen.insert(2 * before + (third ? 1 : 0)).second) continue;
        for (const std::size_t k : members_[group_[before]]) open.emplace_back(k, third);
      }
    }
    return false;
  }

  // Kernels over as many elements that read the same, or one another, run as one: those first that share most, and of
  // these the nearest (Scheduler.score_fusion).
  void fuse() {
    struct Pair {
      Bytes shared;
      std::size_t near, a, b;
    };
    std::vector<Pair> pairs;
    for (std::size_t b = 0; b < kernels_.size(); ++b) {
      std::set<std::size_t> near;  // what makes, or reads too, what it reads
      for (const std::size_t v : kernels_[b].reads) {
        near.insert(readers_[v].begin(), readers_[v].end());
        if (maker_[v] != no_value) near.insert(kernel_of_[maker_[v]]);
      }
      for (const std::size_t a : near) {
        if (a >= b) break;
        if (!fusible(kernels_[a].at) || !fusible(kernels_[b].at) || elements(a) != elements(b)) continue;
        const Bytes bytes = shared(a, b);
        if (bytes > Bytes{}) pairs.push_back({bytes, kernels_[b].at - kernels_[a].at, a, b});
      }
    }
    std::ranges::stable_sort(pairs, [](const Pair& x, const Pair& y) {
      return x.shared != y.shared ? x.shared > y.shared : x.near < y.near;
    });
    for (const Pair& pair : pairs) {
      const std::size_t a = group_[pair.a], b = group_[pair.b];
      if (a != b && !apart(a, b) && !apart(b, a)) join(std::min(a, b), std::max(a, b));
    }
  }

  void join(std::size_t group, std::size_t other) {
    for (const std::size_t k : members_[other]) group_[k] = group;
    std::vector<std::size_t> both;
    std::ranges::merge(members_[group], members_[other], std::back_inserter(both));
    members_[group] = std::move(both);
    members_[other].clear();
  }

  // Scheduler.topological_sort_schedule: groups in their order, each after what it needs.
  void order_groups() {
    std::vector<bool> visited(kernels_.size());
    for (std::size_t k = 0; k < kernels_.size(); ++k) visit(group_[k], visited);
  }
  void visit(std::size_t group, std::vector<bool>& visited) {
    if (visited[group]) return;
    visited[group] = true;
    const std::vector<std::size_t>& its = members_[group];
    for (const std::size_t k : its)
      for (const std::size_t before : kernels_[k].after) visit(group_[before], visited);
    const std::size_t first = pass_.runs.size();
    for (const std::size_t k : its) {
      place_in_place(k);
      run(kernels_[k].at);
    }
    if (fusible(kernels_[its.front()].at)) mark_fused(first, traffic(its));
    for (const std::size_t k : its) kernels_[k].done = true;
  }

  // What ran from there on is one kernel.
  void mark_fused(std::size_t first, Bytes traffic) {
    const std::size_t runs = pass_.runs.size() - first;
    if (runs == 0 || (runs == 1 && trace_.steps[pass_.runs[first].step].launches.size() == 1)) return;
    for (std::size_t r = first; r < pass_.runs.size(); ++r)
      pass_.runs[r].fused =
          r == first ? FusedStep{.follows = false, .traffic = traffic} : FusedStep{.follows = true, .traffic = {}};
  }

  // What a group's kernel reads of what was there before it, each once, and writes to memory.
  [[nodiscard]] Bytes traffic(const std::vector<std::size_t>& group) const {
    std::map<std::size_t, Bytes> read;  // by value
    Bytes written;
    for (const std::size_t k : group) {
      reads(kernels_[k].at, read);
      for (const TracedOperand& o : step(kernels_[k].at).outputs)
        if (o.value != no_value && !in_registers(o.value)) written += stored(o);
    }
    Bytes sum = written;
    for (const auto& [value, bytes] : read)
      if (maker_[value] == no_value || kernel_of_[maker_[value]] == no_value ||
          group_[kernel_of_[maker_[value]]] != group_[group.front()])
        sum += bytes;
    return sum;
  }
  void reads(std::size_t at, std::map<std::size_t, Bytes>& found) const {
    const TracedStep& its = step(at);
    for (std::size_t i = 0; i < its.inputs.size(); ++i) {
      const TracedOperand& o = its.inputs[i];
      if (o.value == no_value) continue;
      if (in_registers(o.value)) {
        reads(maker_[o.value], found);
        continue;
      }
      // Of a table that is looked up in, what comes out of it.
      const bool looked_up = i == 0 && (its.operation() == Operation::Gather || its.operation() == Operation::NllLoss);
      Bytes& bytes = found[o.value];
      bytes = std::max(bytes, looked_up ? std::min(stored(o), stored(its.outputs.front())) : stored(o));
    }
  }
  static Bytes stored(const TracedOperand& o) { return View{o.dtype, o.sizes, o.strides}.bytes(); }

  // SchedulerNode.decide_inplace_update: a result of an elementwise kernel takes the place of what nobody else reads.
  void place_in_place(std::size_t k) {
    const TracedStep& its = step(kernels_[k].at);
    if (!is_elementwise(its) || its.outputs.size() != 1) return;
    const TracedOperand& made = its.outputs.front();
    const TracedValue& out = trace_.values[made.value];
    for (const std::size_t v : kernels_[k].reads) {
      const TracedValue& in = trace_.values[v];
      const bool own = maker_[v] != no_value || donated_[v];
      if (!own || held_[v] || taken_.contains(v) || in.dtype != out.dtype) continue;
      if (elements_of(in.sizes) != elements_of(out.sizes) || !seen_alike(k, v, made)) continue;
      const bool only_here =
          std::ranges::all_of(readers_[v], [&](std::size_t other) { return other == k || kernels_[other].done; });
      if (!only_here) continue;
      taken_.insert(v);
      pass_.placements[made.value] = {Placement::Where::InPlace, v};
      return;
    }
  }
  // Each element is read where its result is written.
  [[nodiscard]] bool seen_alike(std::size_t k, std::size_t value, const TracedOperand& made) const {
    const auto contiguous = [](const TracedOperand& o) { return o.strides == contiguous_strides(o.sizes); };
    const auto alike = [&](std::size_t at) {
      return std::ranges::all_of(step(at).inputs, [&](const TracedOperand& i) {
        return i.value != value || (contiguous(i) && contiguous(made) && i.offset == made.offset);
      });
    };
    return std::ranges::all_of(users_[value], [&](std::size_t at) {
      return (at != kernels_[k].at && kernel_of_[at] != no_value) || alike(at);
    });
  }

  void run(std::size_t at) {
    for (const TracedOperand& i : step(at).inputs)
      if (i.value != no_value && in_registers(i.value)) run(maker_[i.value]);
    if (!ran_.insert(at).second) return;
    pass_.runs.push_back({.step = steps_[at], .fused = {}, .dropped = {}});
  }

  // What is in registers needs what it is made of as long as it is needed itself.
  void drop_at_last_uses() {
    std::vector<std::size_t> last(trace_.values.size(), no_value);
    const auto used = [&](std::size_t value, std::size_t at) {
      if (last[value] == no_value || last[value] < at) last[value] = at;
    };
    for (std::size_t r = pass_.runs.size(); r-- > 0;) {
      const TracedStep& its = trace_.steps[pass_.runs[r].step];
      std::size_t until = r;
      for (const TracedOperand& o : its.outputs) {
        if (o.value == no_value) continue;
        used(o.value, r);
        if (in_registers(o.value)) until = std::max(until, last[o.value]);
      }
      for (const TracedOperand& i : its.inputs)
        if (i.value != no_value) used(i.value, until);
    }
    for (std::size_t v = 0; v < last.size(); ++v)
      if (last[v] != no_value && !held_[v]) pass_.runs[last[v]].dropped.push_back(v);
  }

  const Trace& trace_;
  std::vector<std::size_t> steps_;
  std::vector<std::size_t> maker_;               // by value: a place in `steps_`
  std::vector<std::vector<std::size_t>> users_;  // by value: places
  std::vector<bool> held_, donated_;
  std::vector<Kernel> kernels_;
  std::vector<std::size_t> kernel_of_;             // by place
  std::vector<std::size_t> group_;                 // by kernel: its first
  std::vector<std::vector<std::size_t>> members_;  // by group
  std::vector<std::vector<std::size_t>> readers_;  // by value: kernels
  std::set<std::size_t> ran_;                      // places
  std::set<std::size_t> taken_;                    // values in whose place others are
  CompiledPass pass_;
};

}  // namespace

CompilePlan plan_of(Trace trace, double budget) {
  CompilePlan plan;
  plan.trace = std::move(trace);
  const Trace& its = plan.trace;
  std::vector<std::size_t> given, gradients, donated;
  for (std::size_t v = 0; v < its.values.size(); ++v)
    if (its.values[v].given) given.push_back(v);
  for (const TracedOperand& gradient : its.gradients)
    if (gradient.value != no_value) gradients.push_back(gradient.value);

  const std::vector<std::size_t> cut = JointGraphOf(its).saved(budget);
  std::vector<std::size_t> there = given;
  there.insert(there.end(), cut.begin(), cut.end());
  const Needed needed(its, there);
  const std::set<std::size_t> backward = needed.of(gradients);
  // _extract_fwd_bwd_modules: of the cut, what the backward pass does read.
  std::set<std::size_t> read;
  for (const std::size_t step : backward)
    for (const std::size_t v : needed.inputs_of(step)) read.insert(v);
  std::ranges::copy_if(cut, std::back_inserter(plan.saved), [&](std::size_t v) { return read.contains(v); });
  std::vector<std::size_t> kept = plan.saved;
  std::ranges::copy_if(plan.saved, std::back_inserter(donated), [&](std::size_t v) { return !its.values[v].given; });

  for (const TracedOperand& output : its.outputs) kept.push_back(output.value);
  const std::set<std::size_t> forward = Needed(its, given).of(kept);
  std::vector<std::size_t> held = kept;
  held.insert(held.end(), given.begin(), given.end());
  plan.forward = Scheduler(its, {forward.begin(), forward.end()}, held, {}).pass();

  plan.backward = Scheduler(its, like_autograd(its, needed, backward), gradients, donated).pass();
  return plan;
}

}  // namespace tidemark::parallel::torch
