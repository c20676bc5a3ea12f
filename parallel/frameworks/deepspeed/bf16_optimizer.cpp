#include "parallel/frameworks/deepspeed/bf16_optimizer.hpp"

#include <limits>
#include <utility>

#include "parallel/frameworks/deepspeed/flat_parameters.hpp"
#include "parallel/torch/operation.hpp"

namespace tidemark::parallel::deepspeed {
namespace {

std::vector<std::int64_t> sizes_of(const NamedParameters& parameters) {
  std::vector<std::int64_t> sizes;
  for (const NamedParameter& p : parameters) sizes.push_back(p.leaf->value.elements());
  return sizes;
}

}  // namespace

Bf16Optimizer::Bf16Optimizer(Session& session, const DataGroup& group, const EagerBehavior& eager, const Train& train,
                             double largest_norm, NamedParameters parameters)
    : s_(session),
      group_(group),
      largest_norm_(largest_norm),
      parameters_(std::move(parameters)),
      dtype_(train.precision),
      layout_(flat_layout(sizes_of(parameters_), group.ranks, FlatOrder::AsRegistered)) {
  const NoGrad no_grad(s_);
  flat_ = flatten(s_, layout_, parameters_, dtype_);
  master_ = wide_copy(s_, part_of(flat_));
  const Session::Scope scope(s_, "flat");
  gradients_ = s_.empty({layout_.elements()}, DType::FP32, "gradients", Category::Gradients);
  s_.launch({Operation::Fill, {0}}, {}, {gradients_});
  optimizer_.emplace(s_, train, eager, Parameters{master_});
}

Tensor Bf16Optimizer::sum_of(std::size_t parameter) const {
  return narrowed(gradients_, 0, layout_.offsets[parameter], layout_.sizes[parameter]);
}

Tensor Bf16Optimizer::part_of(const Tensor& flat) const {
  return narrowed(flat, 0, layout_.partition * group_.rank, layout_.partition);
}

// clear_lp_grads: of former passes, whose memory they keep until the step is over.
void Bf16Optimizer::begin_backward(bool is_boundary) {
  is_boundary_ = is_boundary;
  const NoGrad no_grad(s_);
  std::vector<Tensor> there;
  for (const NamedParameter& p : parameters_)
    if (p.leaf->gradient.defined()) there.push_back(p.leaf->gradient);
  if (!there.empty()) s_.launch({Operation::Fill, {0}}, {}, there);
}

void Bf16Optimizer::finish_backward() {
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "reduce");
  for (std::size_t p = 0; p < parameters_.size(); ++p) {  // update_hp_grads
    const Tensor& gradient = parameters_[p].leaf->gradient;
    const Tensor sum = sum_of(p), wide = to(s_, flattened(gradient), DType::FP32);
    s_.launch(Operation::Add, {sum, wide}, {sum});
  }
  if (!is_boundary_) return;
  // buffered_allreduce_fallback: one tensor, in communication_data_type.
  const Tensor reduced = s_.empty(gradients_.sizes, dtype_, "allreduce_bucket", Category::CommDp);
  s_.launch(Operation::Copy, {gradients_}, {reduced});
  s_.collective(group_.comm, CollectiveKind::AllReduce, reduced, reduced);
  s_.launch({Operation::Scale, {1 / static_cast<double>(group_.ranks)}}, {reduced}, {reduced});
  s_.launch(Operation::Copy, {reduced}, {gradients_});
}

// get_global_norm_of_tensors: each rank asks for that of all gradients.
Tensor Bf16Optimizer::norm() const {
  const Session::Scope scope(s_, "global_norm");
  std::vector<Tensor> norms, places;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    norms.push_back(s_.empty({}, DType::FP32, "norm"));
    s_.launch(Operation::Norm, {sum_of(p)}, {norms.back()});
  }
  const Tensor stacked = s_.empty({static_cast<std::int64_t>(norms.size())}, DType::FP32, "norms");
  for (std::size_t i = 0; i < norms.size(); ++i)
    places.push_back(narrowed(stacked, 0, static_cast<std::int64_t>(i), 1));
  s_.launch(Operation::Copy, norms, places);
  Tensor total = s_.empty({}, DType::FP32, "total");
  s_.launch(Operation::Norm, {stacked}, {total});
  s_.process.synchronize();  // is_invalid_grad_norm
  return total;
}

// clip_tensors_by_global_norm; the host asks whether it has to.
void Bf16Optimizer::clip(const Tensor& norm) {
  constexpr double apart_from_zero = 1e-6;
  s_.mark(Phase::OptimizerStep, "clip_gradients");
  const Session::Scope scope(s_, "clip");
  const Tensor coefficient =
      elementwise(s_, "mul_number", {Operation::AddNumber, {apart_from_zero}}, {&norm}, norm.dtype);
  s_.launch({Operation::Power, {-1}}, {coefficient}, {coefficient});
  s_.launch({Operation::Scale, {largest_norm_}}, {coefficient}, {coefficient});
  s_.process.synchronize();
  const Tensor factor = elementwise(s_, "mul_number", {Operation::Clamp, {-std::numeric_limits<double>::infinity(), 1}},
                                    {&coefficient}, coefficient.dtype);
  for (std::size_t p = 0; p < parameters_.size(); ++p) s_.launch(Operation::Multiply, {sum_of(p), factor}, {sum_of(p)});
}

void Bf16Optimizer::step(const std::function<void()>& gradients_are_there) {
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "zero");
  s_.mark(Phase::OptimizerStep, "grad_norm");
  norm_ = norm();
  gradients_are_there();
  if (largest_norm_ > 0) clip(norm_);
  master_->gradient = part_of(gradients_);
  optimizer_->step();
  master_->gradient = {};
  s_.launch(Operation::Copy, {master_->value}, {part_of(flat_)});  // update_lp_params
  s_.mark(Phase::OptimizerStep, "all_gather");
  s_.collective(group_.comm, CollectiveKind::AllGather, flat_, flat_);  // in place
  s_.mark(Phase::OptimizerStep, "clear_gradients");
  // clear_hp_grads, of the step, and once more of the engine's zero_grad.
  for (int times = 0; times < 2; ++times) s_.launch({Operation::Fill, {0}}, {}, {gradients_});
  for (const NamedParameter& p : parameters_) p.leaf->gradient = {};
}

std::vector<StateTensor> Bf16Optimizer::gradients() const {
  std::vector<StateTensor> made;
  const Tensor part = part_of(gradients_);
  for (const FlatSlice& slice : layout_.slices_of(group_.rank))
    made.push_back(
        state_tensor(parameters_[slice.parameter].name, narrowed(part, 0, slice.at, slice.elements), slice.begin));
  return made;
}

std::vector<StateTensor> Bf16Optimizer::parameters() const {
  std::vector<StateTensor> made;
  for (const NamedParameter& p : parameters_) made.push_back(state_tensor(p.name, p.leaf->value));
  return made;
}

}  // namespace tidemark::parallel::deepspeed
