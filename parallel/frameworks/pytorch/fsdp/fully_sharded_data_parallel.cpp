#include "parallel/frameworks/pytorch/fsdp/fully_sharded_data_parallel.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "parallel/frameworks/transformers/adapters.hpp"
#include "parallel/torch/operation.hpp"

namespace tidemark::parallel::pytorch {
namespace {

// _limiter_utils.py _max_num_inflight_all_gathers.
constexpr std::size_t most_frees_waiting = 2;

// algorithms/_comm_hooks/default_hooks.py _get_gradient_predivide_factor: about half of the division comes before the
// sum. Of a number of ranks that is no power of two the factor need not divide it.
double predivided_by(std::int64_t ranks) {
  std::int64_t factor = 1;
  while (ranks % factor == 0 && ranks / factor > factor) factor *= 2;
  return static_cast<double>(factor);
}

// Of a parameter's module. Those of the model are a level deeper than their names here say, but for the head.
std::int64_t depth_of(const std::string& name) {
  return std::ranges::count(name, '.') + (name.starts_with("lm_head.") ? 0 : 1);
}

}  // namespace

// ---- made once -----------------------------------------------------------------------------------------------------

std::shared_ptr<Leaf> FullyShardedDataParallel::parameter(const std::string& name, const Shape& sizes, DType computed) {
  const bool adapts = transformers::is_adapter(name);
  const DType kept = adapts ? computed : kept_;
  on_host_.push_back({name, parameter_elsewhere(s_, sizes, behavior_.mixed ? behavior_.param_dtype : computed), kept});
  if (behavior_.offload) {
    const Session::Scope scope(s_, s_.process.label(name));
    const OnHost host(s_);
    on_host_.back().made = s_.empty(sizes, kept, trained_parameter, adapts ? Category::Adapters : Category::Parameters);
    s_.launch(Operation::Initialize, {}, {on_host_.back().made});
  }
  return on_host_.back().leaf;
}

// Adapters have a type of their own.
DType FullyShardedDataParallel::kept_as(const Leaf& its) const {
  const auto known = std::ranges::find_if(on_host_, [&](const MadeOnHost& made) { return made.leaf.get() == &its; });
  return known->kept;
}

ForwardHooks FullyShardedDataParallel::hooks_of(Unit* its) {
  ForwardHooks hooks;
  // What runs again within the unit's own backward pass finds it unsharded, and leaves it so (BACKWARD_PRE).
  hooks.before = [this, its](const Tensor& input) {
    if (its->ran_pre_backward) return input;
    pre_forward(*its);
    follow_input(*its, input);
    return input;
  };
  hooks.after = [this, its](const Tensor& output) {
    if (!its->ran_pre_backward) post_forward(*its, output);
    return output;
  };
  return hooks;
}

// Wrapped from within: what PEFT's policy (utils/other.py fsdp_auto_wrap_policy) finds in a layer, a unit for each
// adapter's linears, then the layer with what is left, and the model.
void FullyShardedDataParallel::shard(CausalLM& model) {
  model_ = &model;
  in_order_of(model.parameters(), on_host_);
  std::vector<FlattenedParameter> of_root;
  const auto unit = [&](const std::string& name, std::vector<FlattenedParameter> parameters) {
    auto made = std::make_unique<Unit>();
    const DType kept = kept_as(*parameters.front().module);
    made->flat = std::make_unique<FlatParameter>(s_, mesh_, behavior_, name, std::move(parameters), kept);
    units_.push_back(std::move(made));
    return units_.back().get();
  };
  const auto flattened = [&](std::size_t at) {
    MadeOnHost& its = on_host_[at];
    return FlattenedParameter{its.name,
                              its.leaf,
                              elements_of(its.leaf->value.sizes),
                              depth_of(its.name),
                              std::exchange(its.made, {}),
                              its.leaf->trained()};
  };
  std::map<const Leaf*, ForwardHooks*> of_adapters;
  for (const CausalLM::NamedModule& its : model.named_modules())
    if (its.linear != nullptr && its.linear->lora) {
      of_adapters.emplace(its.linear->lora->down.get(), &its.linear->lora->of_down);
      of_adapters.emplace(its.linear->lora->up.get(), &its.linear->lora->of_up);
      its.linear->lora->shown = kept_as(*its.linear->lora->down);
    }
  // A parameter goes into a unit of its own, or to those that are left.
  const auto take = [&](std::size_t at, std::vector<FlattenedParameter>& left) {
    const auto its = of_adapters.find(on_host_[at].leaf.get());
    if (its == of_adapters.end()) return left.push_back(flattened(at));
    std::vector<FlattenedParameter> alone;  // no list, which would hold on to what the host has
    alone.push_back(flattened(at));
    *its->second = hooks_of(unit(on_host_[at].name, std::move(alone)));
    if (behavior_.mixed) its->second->inputs = behavior_.param_dtype;
  };
  std::size_t next = 0;
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    const CausalLM::Range range = model.parameters_of_layer(layer);
    while (next < range.begin) take(next++, of_root);
    std::vector<FlattenedParameter> of_layer;
    const auto first = static_cast<std::ptrdiff_t>(units_.size());
    while (next < range.end) take(next++, of_layer);
    ForwardHooks hooks = hooks_of(unit(model.name_of_layer(layer), std::move(of_layer)));
    hooks.around_checkpoint = around_checkpoint_;
    model.hook_layer(layer, std::move(hooks));
    std::rotate(units_.begin() + first, units_.end() - 1, units_.end());  // FSDP knows a unit before those within it
  }
  while (next < on_host_.size()) take(next++, of_root);
  unit("root", std::move(of_root))->root = true;
  std::rotate(units_.rbegin(), units_.rbegin() + 1, units_.rend());
}

void FullyShardedDataParallel::init() {
  if (std::exchange(initialized_, true)) return;
  if (behavior_.buffer_dtype) model_->cast_buffers(*behavior_.buffer_dtype);
  for (const auto& unit : units_) {
    unit->flat->init_attributes();
    if (!unit->flat->trained()) continue;
    unit->flat->flat().accumulated = [this, its = unit.get()](Leaf&) { post_backward(*its); };
  }
}

// ---- unsharded and sharded again -----------------------------------------------------------------------------------

void FullyShardedDataParallel::unshard(Unit& unit) {
  const NoGrad no_grad(s_);
  {
    const OnStream casting(s_, FlatStreams::pre_unshard);
    if (unit.flat->pre_unshard()) s_.process.wait(FlatStreams::unshard, s_.process.record(FlatStreams::pre_unshard));
  }
  if (behavior_.limits_all_gathers && frees_.size() >= most_frees_waiting) {
    s_.process.synchronize(frees_.front());
    frees_.pop_front();
  }
  const OnStream gathering(s_, FlatStreams::unshard);
  unit.flat->unshard();
  unit.flat->post_unshard();
}

void FullyShardedDataParallel::unshard_for_backward(Unit& unit) {
  unit.flat->write_gradients_back();
  unshard(unit);
}

void FullyShardedDataParallel::reshard(Unit& unit, FlatParameter::Unsharded whole) {
  unit.flat->reshard(whole);
  if (behavior_.limits_all_gathers && whole == FlatParameter::Unsharded::Freed)
    frees_.push_back(s_.process.record(s_.stream()));
  unit.prefetched = false;
}

// _should_free_in_backward
FlatParameter::Unsharded FullyShardedDataParallel::left_by_backward() const {
  const bool frees = !behavior_.whole && (reduces_gradients_ || behavior_.reshards_after_forward);
  return frees ? FlatParameter::Unsharded::Freed : FlatParameter::Unsharded::Kept;
}

void FullyShardedDataParallel::prefetch_forward(const Unit& unit) {
  if (!behavior_.forward_prefetch || !unit.pre_forward_index) return;
  const std::size_t next = *unit.pre_forward_index + 1;
  if (next >= pre_forward_order_.size()) return;
  Unit& its = *pre_forward_order_[next];
  if (!its.needs_pre_forward_unshard || std::exchange(its.prefetched, true)) return;
  unshard(its);
  its.flat->use_unsharded_views();
}

void FullyShardedDataParallel::prefetch_backward(const Unit& unit) {
  if (!unit.post_forward_index || *unit.post_forward_index == 0) return;
  Unit& its = *post_forward_order_[*unit.post_forward_index - 1];
  if (its.needs_pre_backward_unshard && !std::exchange(its.prefetched, true)) unshard_for_backward(its);
}

// ---- hooks of modules ----------------------------------------------------------------------------------------------

void FullyShardedDataParallel::root_pre_forward() {
  init();
  if (behavior_.forward_prefetch)
    for (const auto& unit : units_) unit->needs_pre_forward_unshard = true, unit->prefetched = false;
  for (const StreamId stream : {FlatStreams::unshard, FlatStreams::pre_unshard})
    s_.process.wait(stream, s_.process.record(Process::compute_stream));
  for (const auto& unit : units_) unit->flat->reset_gradient();
  pre_forward(*units_.front());
}

void FullyShardedDataParallel::root_post_forward(CausalLM::Outputs& outputs) {
  post_forward(*units_.front(), outputs.loss);
}

void FullyShardedDataParallel::pre_forward(Unit& unit) {
  if (first_pass_ && !unit.pre_forward_index) {
    unit.pre_forward_index = pre_forward_order_.size();
    pre_forward_order_.push_back(&unit);
  }
  if (!unit.prefetched) {
    unshard(unit);
    unit.flat->use_unsharded_views();
  }
  unit.needs_pre_forward_unshard = false;
  s_.process.join(s_.process.record(FlatStreams::unshard));
  prefetch_forward(unit);
}

// The root's stay for its backward pass.
void FullyShardedDataParallel::post_forward(Unit& unit, const Tensor& output) {
  if (!unit.post_forward_index) unit.post_forward_index = post_forward_order_.size();
  post_forward_order_.push_back(&unit);
  const bool frees = !unit.root && !behavior_.whole && behavior_.reshards_after_forward;
  reshard(unit, frees ? FlatParameter::Unsharded::Freed : FlatParameter::Unsharded::Kept);
  if (behavior_.reshards_after_forward) unit.flat->use_sharded_views();
  unit.ran_pre_backward = false;
  unit.needs_pre_backward_unshard = output.requires_grad();
  if (output.requires_grad()) register_hook(output, [this, &unit] { pre_backward(unit); });
}

// ---- hooks of tensors and gradients --------------------------------------------------------------------------------

void FullyShardedDataParallel::pre_backward(Unit& unit) {
  if (std::exchange(unit.ran_pre_backward, true)) return;
  if (unit.root)
    for (const auto& each : units_) each->flat->reset_gradient();
  if (unit.needs_pre_backward_unshard) {
    if (!unit.prefetched) unshard_for_backward(unit);
    s_.process.join(s_.process.record(FlatStreams::unshard));
  }
  unit.needs_pre_backward_unshard = false;
  if (behavior_.backward_prefetch == BackwardPrefetch::Pre) prefetch_backward(unit);
  unit.flat->prepare_gradient_for_backward();
}

// _post_backward_reshard
void FullyShardedDataParallel::reshard_after_backward(Unit& unit) {
  reshard(unit, left_by_backward());
  unit.flat->use_sharded_views();
  if (behavior_.backward_prefetch == BackwardPrefetch::Post) prefetch_backward(unit);
}

// _register_post_backward_reshard_only_hook: once its input has a gradient, a frozen unit is resharded. Until the
// backward pass is over, the hook refers to where that gradient goes: a leaf, where the layer runs again with
// reentrance.
void FullyShardedDataParallel::follow_input(Unit& unit, const Tensor& input) {
  if (unit.flat->trained() || unit.hooked_input || !s_.grad_enabled || !input.defined() || !input.requires_grad())
    return;
  const std::shared_ptr<Leaf>& again = s_.checkpointed_input;
  if (again && again->value.gradient.node == input.gradient.node)
    unit.hooked_input = again;
  else
    unit.hooked_input = std::make_shared<bool>();
  register_hook(input, [this, &unit] { reshard_after_backward(unit); });
}

void FullyShardedDataParallel::post_backward(Unit& unit) {
  reshard_after_backward(unit);
  if (!reduces_gradients_) return unit.flat->use_unsharded_gradient_views();
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, unit.flat->name());
  s_.process.wait(FlatStreams::post_backward, s_.process.record(s_.stream()));
  const OnStream reducing(s_, FlatStreams::post_backward);
  const Tensor computed = std::exchange(unit.flat->flat().gradient, {});
  Tensor gradient = computed;
  if (computed.dtype != behavior_.reduce_dtype) {
    gradient = s_.empty(computed.sizes, behavior_.reduce_dtype, "gradient", Category::Gradients);
    s_.launch(Operation::Copy, {computed}, {gradient});
  }
  reduce(unit, std::move(gradient));
  s_.record_stream(computed, FlatStreams::post_backward);
}

void FullyShardedDataParallel::divide(const Tensor& gradient, double divisor) {
  if (divisor > 1) s_.launch({Operation::Scale, {1 / divisor}}, {gradient}, {gradient});
}

// _reduce_grad, _reduce_grad_no_shard
void FullyShardedDataParallel::reduce(Unit& unit, Tensor gradient) {
  const std::int64_t ranks = mesh_.ranks * mesh_.replicas;
  const double before = predivided_by(ranks), after = static_cast<double>(ranks) / before;
  FlatParameter& flat = *unit.flat;
  if (!flat.sharded()) {
    divide(gradient, before);
    s_.collective(mesh_.replicate, CollectiveKind::AllReduce, gradient, gradient);
    divide(gradient, after);
    return flat.keep_reduced(std::move(gradient));
  }
  Tensor padded = gradient;
  if (const std::int64_t all = flat.of_rank() * mesh_.ranks, its = flat.elements(); all > its) {
    padded = s_.empty({all}, gradient.dtype, "padded_gradient", Category::Gradients);
    s_.launch({Operation::Fill, {0}}, {}, {narrowed(padded, 0, its, all - its)});
    s_.launch(Operation::Copy, {gradient}, {narrowed(padded, 0, 0, its)});
  }
  const Tensor reduced = s_.empty({flat.of_rank()}, gradient.dtype, "sharded_gradient", Category::Gradients);
  divide(padded, before);
  s_.collective(mesh_.shard, CollectiveKind::ReduceScatter, padded, reduced);
  if (mesh_.replicas == 1) {
    divide(reduced, after);
    return flat.keep_reduced(reduced);
  }
  s_.process.wait(FlatStreams::all_reduce, s_.process.record(FlatStreams::post_backward));
  const OnStream across(s_, FlatStreams::all_reduce);
  s_.record_stream(reduced, FlatStreams::all_reduce);
  s_.collective(mesh_.replicate, CollectiveKind::AllReduce, reduced, reduced);
  divide(reduced, after);
  flat.keep_reduced(reduced);
}

void FullyShardedDataParallel::finish_backward() {
  if (reduces_gradients_) {
    s_.process.join(s_.process.record(FlatStreams::post_backward));
    if (mesh_.replicas > 1 && !behavior_.whole) s_.process.join(s_.process.record(FlatStreams::all_reduce));
    if (behavior_.offload) s_.process.synchronize();
    for (const auto& unit : units_) unit->flat->prepare_gradient_for_optim();
  }
  first_pass_ = false;
  post_forward_order_.clear();
  for (const auto& unit : units_) {
    if (!unit->flat->trained() && unit->flat->unsharded()) reshard(*unit, left_by_backward());  // _catch_all_reshard
    unit->hooked_input.reset();
    unit->ran_pre_backward = unit->needs_pre_backward_unshard = unit->prefetched = false;
    unit->post_forward_index.reset();
  }
}

// ---- what the optimizer sees ---------------------------------------------------------------------------------------

// clip_grad_norm_: norms in fp32, their squares summed over the ranks that share out parameters.
bool FullyShardedDataParallel::clip_grad_norm() {
  if (behavior_.whole) return false;
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "clip_grad_norm");
  s_.mark(Phase::OptimizerStep, "clip_grad_norm");
  const auto scalar = [&](const Computation& what, const Tensor& x) {
    return elementwise(s_, "mul_number", what, {&x}, DType::FP32);
  };
  if (!zero_scalar_.defined()) {
    const OnDevice device(s_);
    zero_scalar_ = s_.empty({}, DType::FP32, "zero_scalar", Category::Workspaces);
    s_.launch({Operation::Fill, {0}}, {}, {zero_scalar_});
  }
  std::vector<Tensor> gradients;
  for (const std::shared_ptr<Leaf>& p : parameters()) gradients.push_back(p->gradient);
  const auto moved_to = [&](const Tensor& made, const Tensor& from) {
    const OnDevice device(s_);
    s_.copy(from, made);
    s_.process.synchronize();
    return made;
  };
  const Tensor of_rank = gradients.empty() ? Tensor{} : norm_of(gradients);
  Tensor total;
  {
    const OnDevice device(s_);
    Tensor local = of_rank.defined() ? of_rank : zero_scalar_;
    if (behavior_.offload && of_rank.defined()) local = moved_to(s_.empty({}, DType::FP32, "norm"), of_rank);
    total = scalar({Operation::Power, {2}}, local);
    s_.collective(mesh_.shard, CollectiveKind::AllReduce, total, total);
    total = scalar({Operation::Power, {0.5}}, total);
  }
  if (behavior_.offload) total = moved_to(s_.empty({}, DType::FP32, "total_norm"), total);
  constexpr double largest_norm = 1, apart_from_zero = 1e-6;
  const Tensor coefficient = scalar({Operation::AddNumber, {apart_from_zero}}, total);
  s_.launch({Operation::Power, {-1}}, {coefficient}, {coefficient});
  s_.launch({Operation::Scale, {largest_norm}}, {coefficient}, {coefficient});
  const Tensor clamped = scalar({Operation::Clamp, {-std::numeric_limits<double>::infinity(), 1}}, coefficient);
  for (const Tensor& gradient : gradients) s_.launch(Operation::Multiply, {gradient, clamped}, {gradient});
  return true;
}

// _get_grad_norm
Tensor FullyShardedDataParallel::norm_of(const std::vector<Tensor>& gradients) {
  std::vector<Tensor> norms, places;
  for (const Tensor& gradient : gradients) {
    norms.push_back(s_.empty({}, DType::FP32, "norm"));
    s_.launch(Operation::Norm, {gradient}, {norms.back()});
  }
  const Tensor stacked = s_.empty({static_cast<std::int64_t>(norms.size())}, DType::FP32, "norms");
  for (std::size_t i = 0; i < norms.size(); ++i)
    places.push_back(narrowed(stacked, 0, static_cast<std::int64_t>(i), 1));
  s_.launch(Operation::Copy, norms, places);
  Tensor total = s_.empty({}, DType::FP32, "total_norm");
  s_.launch(Operation::Norm, {stacked}, {total});
  return total;
}

void FullyShardedDataParallel::before_zero_grad() {
  for (const StreamId stream : {FlatStreams::post_backward, FlatStreams::all_reduce})
    if (stream == FlatStreams::post_backward || (mesh_.replicas > 1 && !behavior_.whole))
      s_.process.wait(stream, s_.process.record(Process::compute_stream));
  for (const auto& unit : units_) unit->flat->before_zero_grad();
}

// In the order of named_parameters: a flat parameter is one of its wrapped module, before those of modules within.
Parameters FullyShardedDataParallel::parameters() const {
  Parameters all;
  if (!behavior_.original_parameters) {
    for (const auto& unit : units_)
      if (unit->flat->trained()) all.push_back(unit->flat->optimized());
    return all;
  }
  for (const MadeOnHost& its : on_host_)
    for (const auto& unit : units_)
      for (const FlatParameter::HeldPiece& held : unit->flat->pieces())
        if (held.module == its.leaf.get()) all.push_back(held.optimized);
  return all;
}

std::vector<ShardPiece> FullyShardedDataParallel::pieces() const {
  std::vector<ShardPiece> all;
  for (const auto& unit : units_)
    for (FlatParameter::HeldPiece& held : unit->flat->pieces()) all.push_back(std::move(held.piece));
  return all;
}

}  // namespace tidemark::parallel::pytorch
