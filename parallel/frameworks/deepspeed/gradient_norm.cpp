#include "parallel/frameworks/deepspeed/gradient_norm.hpp"

#include <limits>

#include "parallel/frameworks/deepspeed/host_copies.hpp"
#include "parallel/torch/ops/reduction.hpp"

namespace tidemark::parallel::deepspeed {

void agree_on_overflow(Session& s, const DataGroup& group, const Tensor& all) {
  const Session::Scope scope(s, "overflow");
  const Tensor found = s.empty({}, DType::FP32, "found");
  if (all.defined() && is_on_host(s, all)) {  // the same there
    const auto looked_for = [&] {
      const OnHost host(s);
      const Tensor absolute = s.empty(all.sizes, all.dtype, "absolute");
      s.launch(Operation::Copy, {all}, {absolute});
      Tensor made = s.empty({}, DType::FP32, "found");
      s.launch(Operation::Norm, {absolute}, {made}, s.empty(all.sizes, DType::BOOL, "isinf"));
      return made;
    };
    copy_over(s, looked_for(), found);
  } else if (all.defined()) {  // torch.isinf(…).any(): absolute values, and which of them is infinite
    const std::vector<Tensor> made{s.empty(all.sizes, all.dtype, "absolute"), s.empty(all.sizes, DType::BOOL, "isinf")};
    s.launch({Operation::Fill, {0}}, {}, {found}, made);
  } else {  // amax and amin of each gradient: nothing as large as one is made
    s.launch({Operation::Fill, {0}}, {}, {found});
  }
  s.collective(group.comm, CollectiveKind::AllReduce, found, found);
  s.process.synchronize();
}

namespace {

// A number of so many next to each other that are as wide as fp64, which kernels here do not know.
Tensor number(const Tensor& all, std::size_t i) {
  Tensor made = narrowed(all, 0, 2 * static_cast<std::int64_t>(i), 1);
  made.sizes = {};
  made.strides = {};
  return made;
}
Tensor numbers(Session& s, std::string_view what, std::size_t count) {
  return s.empty({2 * static_cast<std::int64_t>(count)}, DType::FP32, what);
}

Tensor scalar(Session& s, std::string_view what, NormType type) {
  if (type == NormType::Narrow) return s.empty({}, DType::FP32, what);
  return number(numbers(s, what, 1), 0);
}

// torch.stack, then a norm over all.
void take_norm_of_all(Session& s, const std::vector<Tensor>& norms, const Tensor& stacked, const Tensor& total) {
  std::vector<Tensor> places;
  for (std::size_t i = 0; i < norms.size(); ++i) places.push_back(number(stacked, i));
  s.launch(Operation::Copy, norms, places);
  Tensor all = stacked;
  all.sizes = {static_cast<std::int64_t>(norms.size())};
  all.strides = {2};
  s.launch(Operation::Norm, {all}, {total});
}

}  // namespace

Tensor unscaled(Session& s, const Tensor& norm, double loss_scale, NormType type) {
  Tensor made = scalar(s, "unscaled_norm", type);
  s.launch({Operation::Scale, {1 / loss_scale}}, {norm}, {made});
  return made;
}

Tensor norm_in_fp64(Session& s, const Tensor& gradient) {
  const Tensor wide = s.empty({gradient.elements()}, DType::INT64, "fp64");  // as wide
  Tensor norm = scalar(s, "norm", NormType::Wide);
  std::vector<Tensor> scratch = torch::reduction_scratch(s, wide, {}, torch::fp64_sum);
  scratch.insert(scratch.begin(), wide);
  s.launch(Operation::Norm, {gradient}, {norm}, scratch);
  while (!scratch.empty()) scratch.pop_back();
  return norm;
}

Tensor global_norm_on_host(Session& s, const DataGroup& group, const std::vector<Tensor>& norms) {
  const Session::Scope scope(s, "global_norm");
  const auto on_host = [&](const Shape& sizes, std::string_view what) {
    const OnHost host(s);
    return s.empty(sizes, DType::FP32, what);
  };
  const Tensor total = on_host({}, "total");
  if (norms.empty()) {
    const OnHost host(s);
    s.launch({Operation::Fill, {0}}, {}, {total});
  } else {
    const Tensor requested = on_host({static_cast<std::int64_t>(norms.size())}, "norms");
    for (std::size_t i = 0; i < norms.size(); ++i) {
      s.copy(norms[i], narrowed(requested, 0, static_cast<std::int64_t>(i), 1));
      s.process.synchronize(s.process.record(s.stream()));
    }
    const OnHost host(s);
    s.launch(Operation::Norm, {requested}, {total});
  }
  const OnHost host(s);
  s.launch({Operation::Power, {2}}, {total}, {total});
  s.sum_over(group.comm, total);
  s.launch({Operation::Power, {0.5}}, {total}, {total});
  return total;
}

Tensor global_norm(Session& s, const DataGroup& group, const std::vector<Tensor>& gradients, NormType type) {
  const Session::Scope scope(s, "global_norm");
  std::vector<Tensor> norms;
  for (const Tensor& gradient : gradients) norms.push_back(norm_in_fp64(s, gradient));
  Tensor total;
  if (norms.empty()) {
    total = scalar(s, "total", type);
    s.launch({Operation::Fill, {0}}, {}, {total});
  } else {
    const Tensor stacked = numbers(s, "norms", norms.size());
    total = scalar(s, "total", type);
    take_norm_of_all(s, norms, stacked, total);
  }
  s.launch({Operation::Power, {2}}, {total}, {total});
  s.collective(group.comm, CollectiveKind::AllReduce, total, total);
  s.launch({Operation::Power, {0.5}}, {total}, {total});
  return total;
}

Tensor combined_norm(Session& s, const std::vector<Tensor>& norms) {
  const Session::Scope scope(s, "global_norm");
  const Tensor stacked = numbers(s, "norms", norms.size());
  Tensor total = scalar(s, "total", NormType::Wide);
  take_norm_of_all(s, norms, stacked, total);
  return total;
}

void unscale_and_clip(Session& s, const Tensor& gradients, const Tensor& norm, const Scaling& scaling,
                      const std::function<void()>& unscaled) {
  if (scaling.loss_scale != 1) s.launch({Operation::Scale, {1 / scaling.loss_scale}}, {gradients}, {gradients});
  unscaled();
  if (scaling.largest == 0) return;
  // clip = ((norm / loss_scale) + 1e-6) / largest, at least 1, by which gradients are divided. DeepSpeed divides by
  // both at once.
  constexpr double apart_from_zero = 1e-6;
  s.mark(Phase::OptimizerStep, "clip_gradients");
  const Session::Scope scope(s, "clip");
  const Tensor clip = mul_number(s, norm, 1 / scaling.loss_scale);
  s.launch({Operation::AddNumber, {apart_from_zero}}, {clip}, {clip});
  s.launch({Operation::Scale, {1 / scaling.largest}}, {clip}, {clip});
  const Tensor factor = elementwise(s, "mul_number", {Operation::Clamp, {1, std::numeric_limits<double>::infinity()}},
                                    {&clip}, clip.dtype);
  s.launch({Operation::Power, {-1}}, {factor}, {factor});
  s.launch(Operation::Multiply, {gradients, factor}, {gradients});
}

}  // namespace tidemark::parallel::deepspeed
