#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "parallel/frameworks/pytorch/optimizers/update_rule.hpp"
#include "parallel/torch/operation.hpp"

// Adafactor (Shazeer and Stern, arXiv 1804.04235): second moments of a matrix are kept as a row and a column.

namespace tidemark::parallel::pytorch {
namespace {

using List = std::vector<Tensor>;

constexpr double decay_rate = -0.8;  // of both

Shape column_of(const Shape& sizes) { return with_size(sizes, -1, 1); }
Shape row_of(const Shape& sizes) { return with_size(sizes, -2, 1); }

Tensor number(Session& s, std::string_view what, DType dtype) { return s.empty({}, dtype, what); }

// Tensor.norm(2) / numel ** 0.5.
Tensor root_mean_square(Session& s, const Tensor& x, std::string_view what) {
  const Tensor norm = number(s, "norm", x.dtype);
  s.launch(Operation::Norm, {x}, {norm});
  const double share = 1 / std::sqrt(static_cast<double>(x.elements()));
  return elementwise(s, what, {Operation::Scale, {share}}, {&norm}, norm.dtype);
}

Tensor zeros(Session& s, const Shape& sizes, DType dtype, std::string_view what) {
  Tensor made = s.empty(sizes, dtype, what, Category::OptimizerMoments);
  s.launch({Operation::Fill, {0}}, {}, {made});
  return made;
}

// What a parameter has gone through.
struct Moments {
  std::shared_ptr<Leaf> parameter;
  Tensor mean;               ///< exp_avg, of a beta1
  Tensor of_row, of_column;  ///< of matrices: the means along, and across, rows
  Tensor squares;            ///< of others
  Tensor root_mean_square;   ///< state["RMS"], which stays on the device

  [[nodiscard]] bool factored() const { return parameter->value.sizes.size() > 1; }
};

// transformers/optimization.py Adafactor.step, with scale_parameter = relative_step = False, as TrainingArguments has
// it. Its variables live until the next parameter has its own.
class TransformersRule final : public UpdateRule {
 public:
  TransformersRule(Session& session, const EagerBehavior& behavior, const Parameters& parameters)
      : s_(session), behavior_(behavior) {
    for (const std::shared_ptr<Leaf>& p : parameters) moments_.push_back({p, {}, {}, {}, {}, {}});
  }

  void step(std::int32_t number) override {
    const double decay = 1 - std::pow(number, decay_rate);
    Variables its;
    for (Moments& m : moments_)
      if (m.parameter->gradient.defined()) update(m, decay, its);
  }

 private:
  struct Variables {
    Tensor gradient, wide, update;  ///< `wide`: the parameter in fp32
  };

  static constexpr double epsilon = 1e-30, momentum = 0.9;

  [[nodiscard]] Tensor widened(const Tensor& x) { return x.dtype == DType::FP32 ? x : to(s_, x, DType::FP32); }

  void make_state(Moments& m, const Tensor& gradient) {
    const Shape& sizes = gradient.sizes;
    if (behavior_.small_optimizer.first_moment) m.mean = zeros(s_, sizes, DType::FP32, "exp_avg");
    if (m.factored()) {
      m.of_row = zeros(s_, column_of(sizes), DType::FP32, "exp_avg_sq_row");
      m.of_column = zeros(s_, row_of(sizes), DType::FP32, "exp_avg_sq_col");
    } else {
      m.squares = zeros(s_, sizes, DType::FP32, "exp_avg_sq");
    }
  }

  void add_to(const Tensor& moment, double decay, const Tensor& what) {
    s_.launch({Operation::Scale, {decay}}, {moment}, {moment});
    s_.launch({Operation::AddScaled, {1 - decay}}, {moment, what}, {moment});
  }

  // _approx_sq_grad
  [[nodiscard]] Tensor inverse_root(const Moments& m) {
    const auto divided = [&] {
      const Tensor mean = mean_to(s_, m.of_row, with_size(m.of_row.sizes, -2, 1));
      return elementwise(s_, "divided", Operation::Divide, {&m.of_row, &mean}, DType::FP32);
    };
    const Tensor rows = divided();
    s_.launch({Operation::Power, {-0.5}}, {rows}, {rows});
    const Tensor columns = elementwise(s_, "rsqrt", {Operation::Power, {-0.5}}, {&m.of_column}, DType::FP32);
    return elementwise(s_, "update", Operation::Multiply, {&rows, &columns}, DType::FP32);
  }

  // (grad**2) + eps
  [[nodiscard]] Tensor squared(const Tensor& gradient) {
    const Tensor squares = elementwise(s_, "squares", {Operation::Power, {2}}, {&gradient}, DType::FP32);
    return elementwise(s_, "update", {Operation::AddNumber, {epsilon}}, {&squares}, DType::FP32);
  }

  void update(Moments& m, double decay, Variables& its) {
    const Tensor& value = m.parameter->value;
    its.gradient = m.parameter->gradient;
    its.gradient = widened(its.gradient.detached());
    if (!m.of_row.defined() && !m.squares.defined()) make_state(m, its.gradient);
    its.wide = value.detached();
    its.wide = widened(its.wide);
    m.root_mean_square = root_mean_square(s_, its.wide, "rms");
    s_.reclassify(m.root_mean_square, Category::OptimizerMoments);
    its.update = squared(its.gradient);
    if (m.factored()) {
      add_to(m.of_row, decay, mean_to(s_, its.update, m.of_row.sizes));
      add_to(m.of_column, decay, mean_to(s_, its.update, m.of_column.sizes));
      its.update = inverse_root(m);
    } else {
      add_to(m.squares, decay, its.update);
      its.update = elementwise(s_, "update", {Operation::Power, {-0.5}}, {&m.squares}, DType::FP32);
    }
    s_.launch(Operation::Multiply, {its.update, its.gradient}, {its.update});
    {
      // clip_threshold is 1.
      const Tensor size = root_mean_square(s_, its.update, "size");
      const Tensor divisor = elementwise(s_, "mul_number", {Operation::Scale, {1}}, {&size}, size.dtype);
      s_.launch({Operation::Clamp, {1, std::numeric_limits<double>::infinity()}}, {divisor}, {divisor});
      s_.launch(Operation::Divide, {its.update, divisor}, {its.update});
    }
    s_.launch({Operation::Scale, {usual_learning_rate}}, {its.update}, {its.update});
    if (m.mean.defined()) {
      add_to(m.mean, momentum, its.update);
      its.update = m.mean;
    }
    if (behavior_.weight_decay != 0)
      s_.launch({Operation::AddScaled, {-behavior_.weight_decay * usual_learning_rate}}, {its.wide, its.wide},
                {its.wide});
    {
      const Tensor step = elementwise(s_, "neg", {Operation::Scale, {-1}}, {&its.update}, DType::FP32);
      s_.launch({Operation::AddScaled, {1}}, {its.wide, step}, {its.wide});
    }
    if (value.dtype != DType::FP32) s_.launch(Operation::Copy, {its.wide}, {value.detached()});
  }

  Session& s_;
  const EagerBehavior& behavior_;
  std::vector<Moments> moments_;
};

// torch/optim/_adafactor.py, whose moments have the type of gradients.
class TorchAdafactorRule final : public UpdateRule {
 public:
  TorchAdafactorRule(Session& session, const EagerBehavior& behavior, const Parameters& parameters)
      : s_(session), behavior_(behavior) {
    for (const std::shared_ptr<Leaf>& p : parameters) moments_.push_back({p, {}, {}, {}, {}, {}});
  }

  // _init_group makes all state first.
  void step(std::int32_t number) override {
    number_ = number;
    for (Moments& m : moments_)
      if (m.parameter->gradient.defined()) make_state(m);
    if (behavior_.optimizer == OptimizerKernels::Foreach) {
      update_all_at_once();
      return;
    }
    Variables its;
    for (Moments& m : moments_)
      if (m.parameter->gradient.defined()) update(m, its);
  }

 private:
  struct Variables {
    Tensor row_mean, column_mean, estimate, update, squares;
  };

  void make_state(Moments& m) {
    if (m.of_row.defined() || m.squares.defined()) return;
    const Tensor& gradient = m.parameter->gradient;
    if (m.factored()) {
      m.of_row = zeros(s_, column_of(gradient.sizes), gradient.dtype, "row_var");
      m.of_column = zeros(s_, row_of(gradient.sizes), gradient.dtype, "col_var");
    } else {
      m.squares = zeros(s_, gradient.sizes, gradient.dtype, "variance");
    }
  }

  [[nodiscard]] double weight() const { return std::pow(number_, decay_rate); }
  // torch.finfo(param.dtype).eps
  [[nodiscard]] static double epsilon_of(DType dtype) {
    return dtype == DType::BF16 ? 0x1p-7 : dtype == DType::FP16 ? 0x1p-10 : 0x1p-23;
  }

  // norm(2).item() / numel ** 0.5, a number of the host's.
  [[nodiscard]] Tensor read_root_mean_square(const Tensor& x) {
    const Tensor norm = number(s_, "norm", x.dtype);
    s_.launch(Operation::Norm, {x}, {norm});
    Tensor read = s_.in_registers({}, {}, DType::FP32, "read");
    s_.launch({Operation::Scale, {1 / std::sqrt(static_cast<double>(x.elements()))}}, {norm}, {read});
    return read;
  }
  // A parameter's size decides how far it goes: max(eps2, its root mean square) * rho.
  [[nodiscard]] Tensor step_size(const Tensor& value) {
    const double rho = std::min(usual_learning_rate, 1 / std::sqrt(number_));
    constexpr double least = 1e-3;
    Tensor size = read_root_mean_square(value);
    s_.launch({Operation::Clamp, {least, std::numeric_limits<double>::infinity()}}, {size}, {size});
    s_.launch({Operation::Scale, {rho}}, {size}, {size});
    return size;
  }
  void decay(const Tensor& value) {
    if (behavior_.weight_decay != 0)
      s_.launch({Operation::Scale, {1 - usual_learning_rate * behavior_.weight_decay}}, {value}, {value});
  }
  // torch.linalg.vector_norm(grad, dim, keepdim=True), squared and divided: means of squares.
  [[nodiscard]] Tensor squares_to(const Tensor& gradient, const Shape& sizes) {
    const Tensor squares = s_.in_registers(gradient.sizes, gradient.strides, gradient.dtype, "squares");
    s_.launch({Operation::Power, {2}}, {gradient}, {squares});
    return mean_to(s_, squares, sizes);
  }
  [[nodiscard]] Tensor outer(const Moments& m) { return conv1d(s_, m.of_row, m.of_column, {}); }
  [[nodiscard]] Tensor mean_of_row(const Moments& m) {
    Tensor mean = mean_to(s_, m.of_row, with_size(m.of_row.sizes, -2, 1));
    s_.launch({Operation::Clamp, {epsilon_of(mean.dtype), std::numeric_limits<double>::infinity()}}, {mean}, {mean});
    return mean;
  }
  void take_inverse_root(const Tensor& estimate, const Tensor& gradient) {
    const double least = epsilon_of(estimate.dtype) * epsilon_of(estimate.dtype);
    s_.launch({Operation::Clamp, {least, std::numeric_limits<double>::infinity()}}, {estimate}, {estimate});
    s_.launch({Operation::Power, {-0.5}}, {estimate}, {estimate});
    s_.launch(Operation::Multiply, {estimate, gradient}, {estimate});
  }
  // denom = max(1, its root mean square), by numbers of the host.
  void go(const Tensor& value, const Tensor& update, const Tensor& size) {
    const Tensor divisor = read_root_mean_square(update);
    s_.launch({Operation::Clamp, {1, std::numeric_limits<double>::infinity()}}, {divisor}, {divisor});
    const Tensor step = s_.in_registers(update.sizes, update.strides, update.dtype, "step");
    s_.launch(Operation::Divide, {update, divisor}, {step});
    s_.launch(Operation::Multiply, {step, size}, {step});
    s_.launch({Operation::AddScaled, {-1}}, {value, step}, {value});
  }

  void update(Moments& m, Variables& its) {
    const Tensor& value = m.parameter->value;
    const Tensor& gradient = m.parameter->gradient;
    const Tensor size = step_size(value.detached());
    decay(value);
    if (m.factored()) {
      its.row_mean = squares_to(gradient, m.of_row.sizes);
      s_.launch({Operation::Lerp, {weight()}}, {m.of_row, its.row_mean}, {m.of_row});
      its.column_mean = squares_to(gradient, m.of_column.sizes);
      s_.launch({Operation::Lerp, {weight()}}, {m.of_column, its.column_mean}, {m.of_column});
      its.estimate = outer(m);
      const Tensor mean = mean_of_row(m);
      s_.launch(Operation::Divide, {its.estimate, mean}, {its.estimate});
    } else {
      its.squares = elementwise(s_, "squares", Operation::Multiply, {&gradient, &gradient}, gradient.dtype);
      s_.launch({Operation::Lerp, {weight()}}, {m.squares, its.squares}, {m.squares});
      its.estimate = elementwise(s_, "clone", Operation::Copy, {&m.squares}, m.squares.dtype);
    }
    its.update = its.estimate;
    take_inverse_root(its.update, gradient);
    go(value.detached(), its.update, size);
  }

  // _multi_tensor_adafactor: matrices, then the others, all at once.
  void update_all_at_once() {
    List estimates;
    for (const bool factored : {true, false}) {
      std::vector<Moments*> group;
      for (Moments& m : moments_)
        if (m.factored() == factored && m.parameter->gradient.defined()) group.push_back(&m);
      if (group.empty()) continue;
      const auto squares = [&](Tensor Moments::*moment) {
        List means;
        for (Moments* const m : group) means.push_back(squares_to(m->parameter->gradient, (m->*moment).sizes));
        for (std::size_t i = 0; i < group.size(); ++i)
          s_.launch({Operation::Lerp, {weight()}}, {group[i]->*moment, means[i]}, {group[i]->*moment});
        drop(means);
      };
      List sizes, made;
      for (const Moments* const m : group) sizes.push_back(step_size(m->parameter->value.detached()));
      for (const Moments* const m : group) decay(m->parameter->value);
      if (factored) {
        squares(&Moments::of_row);
        squares(&Moments::of_column);
        for (const Moments* const m : group) made.push_back(outer(*m));
        List means;
        for (const Moments* const m : group) means.push_back(mean_of_row(*m));
        for (std::size_t i = 0; i < group.size(); ++i) s_.launch(Operation::Divide, {made[i], means[i]}, {made[i]});
        drop(means);
      } else {
        List squared;
        for (const Moments* const m : group) {
          const Tensor& g = m->parameter->gradient;
          squared.push_back(elementwise(s_, "squares", Operation::Multiply, {&g, &g}, g.dtype));
        }
        for (std::size_t i = 0; i < group.size(); ++i)
          s_.launch({Operation::Lerp, {weight()}}, {group[i]->squares, squared[i]}, {group[i]->squares});
        drop(squared);
        for (const Moments* const m : group)
          made.push_back(elementwise(s_, "clone", Operation::Copy, {&m->squares}, m->squares.dtype));
      }
      drop(estimates);
      estimates = std::move(made);
      for (std::size_t i = 0; i < group.size(); ++i) take_inverse_root(estimates[i], group[i]->parameter->gradient);
      for (std::size_t i = 0; i < group.size(); ++i) go(group[i]->parameter->value.detached(), estimates[i], sizes[i]);
    }
    drop(estimates);
  }

  Session& s_;
  const EagerBehavior& behavior_;
  std::vector<Moments> moments_;
  std::int32_t number_ = 0;
};

}  // namespace

UpdateRulePtr adafactor_rule(Session& session, const EagerBehavior& behavior, const Parameters& parameters) {
  if (behavior.small_optimizer.torch_adafactor)
    return std::make_unique<TorchAdafactorRule>(session, behavior, parameters);
  return std::make_unique<TransformersRule>(session, behavior, parameters);
}

}  // namespace tidemark::parallel::pytorch
