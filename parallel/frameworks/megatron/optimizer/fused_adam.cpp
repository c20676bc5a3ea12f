#include "parallel/frameworks/megatron/optimizer/fused_adam.hpp"

#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "parallel/torch/operation.hpp"

namespace tidemark::parallel::megatron {
namespace {

constexpr std::size_t mean = 0, squares = 1, main_parameter = 2;
constexpr std::array<std::string_view, 3> state_names{"exp_avg", "exp_avg_sq", "main"};

// _apply_scale, dtype_to_range_map: half of what fp16 can hold, all of what E4M3 can.
constexpr double largest_of(DType dtype) { return dtype == DType::FP16 ? 65504.0 / 2 : 448; }
constexpr bool has_range(DType dtype) { return dtype == DType::FP16 || dtype == DType::E4M3; }

}  // namespace

FusedAdam::FusedAdam(Session& session, const OptimizerBehavior& behavior, std::vector<std::vector<Updated>> groups)
    : s_(session), behavior_(behavior) {
  for (std::vector<Updated>& group : groups) {
    std::vector<Parameter>& its = groups_.emplace_back();
    for (Updated& updated : group) its.push_back({std::move(updated)});
  }
}

LabelId FusedAdam::label(const Parameter& parameter, std::string_view what) const {
  return s_.process.label(fmt::format("{}.{}", parameter.its.name, what));
}
Tensor FusedAdam::temporary(const Parameter& parameter, std::string_view what, DType dtype) const {
  return s_.empty(parameter.its.value.sizes, dtype, label(parameter, what), Category::Temporaries);
}
Tensor FusedAdam::number(const Parameter& parameter, std::string_view what, Category category) const {
  return s_.empty({1}, DType::FP32, label(parameter, what), category);
}
bool FusedAdam::keeps_remainder(const Parameter& parameter) const {
  return behavior_.remainders && behavior_.main_parameters == DType::FP32 && parameter.its.value.dtype == DType::BF16;
}

// initialize_state
void FusedAdam::make(Parameter& parameter) {
  if (std::exchange(parameter.made, true)) return;
  const std::array types{behavior_.mean, behavior_.squares,
                         keeps_remainder(parameter) ? DType::INT16 : behavior_.main_parameters};
  for (std::size_t i = 0; i < types.size(); ++i) {
    State& state = parameter.states.at(i);
    const Category category = i == main_parameter ? Category::OptimizerMaster : Category::OptimizerMoments;
    const auto numbers = [&](std::string_view suffix) {
      const std::string name = fmt::format("{}{}", state_names.at(i), suffix);
      Tensor made = s_.empty(parameter.its.value.sizes, types.at(i), label(parameter, name), category);
      if (i != main_parameter || keeps_remainder(parameter)) s_.launch({Operation::Fill, {0}}, {}, {made});
      return made;
    };
    state.numbers = numbers("");
    // Float8Quantizer.make_empty, by rows and by columns; a scale and an amax of its own, and the tensor's inverse.
    if (types.at(i) == DType::E4M3) {
      state.transposed = numbers(".transposed");
      // quantize_(data.float()), of zeros.
      const Tensor bytes = temporary(parameter, "zeros", DType::E4M3),
                   zeros = temporary(parameter, "zeros", DType::FP32);
      s_.launch({Operation::Fill, {0}}, {}, {bytes});
      s_.launch(Operation::Copy, {bytes}, {zeros});
      s_.launch(Operation::Copy, {zeros}, {state.numbers});
    }
    if (types.at(i) != DType::FP32 && types.at(i) != DType::INT16) {
      state.factor = number(parameter, fmt::format("{}.scale", state_names.at(i)), category);
      s_.launch({Operation::Fill, {1}}, {}, {state.factor});
    }
  }
  if (keeps_remainder(parameter)) return;
  // set_scaled_state(param.clone().detach().float())
  Unscaled first{&parameter.states[main_parameter], {}};
  {
    const Tensor clone = temporary(parameter, "clone", parameter.its.value.dtype);
    s_.launch(Operation::Copy, {parameter.its.value}, {clone});
    first.numbers = clone;
    if (clone.dtype != DType::FP32) {
      first.numbers = temporary(parameter, "clone.float", DType::FP32);
      s_.launch(Operation::Copy, {clone}, {first.numbers});
    }
  }
  scale(parameter, first);
}

// get_unscaled_state: what the kernel can read as it is, it does.
Tensor FusedAdam::unscaled(const Parameter& parameter, State& state) {
  const DType dtype = state.numbers.dtype;
  if (dtype == DType::FP32 || dtype == DType::INT16) return state.numbers;
  if (dtype == DType::BF16 && behavior_.fuses_scaling && behavior_.mean == DType::BF16 &&
      behavior_.squares == DType::BF16)
    return state.numbers;
  const Tensor made = temporary(parameter, "unscaled", DType::FP32);
  s_.launch(Operation::Copy, {state.numbers}, {made});
  if (has_range(dtype)) s_.launch(Operation::Multiply, {made, state.factor}, {made});
  return made;
}

// _apply_scale
void FusedAdam::scale(const Parameter& parameter, const Unscaled& unscaled) {
  State& state = *unscaled.state;
  const DType dtype = state.numbers.dtype;
  if (dtype == DType::BF16) {
    const Tensor rounded = temporary(parameter, "rounded", DType::BF16);
    s_.launch(Operation::Copy, {unscaled.numbers}, {rounded});
    s_.launch(Operation::Copy, {rounded}, {state.numbers});
    return;
  }
  if (has_range(dtype)) {
    // torch.aminmax, of which the larger size; a tensor of zeros stays one.
    const Tensor largest = number(parameter, "absmax", Category::Temporaries);
    {
      const Tensor sizes = s_.in_registers(unscaled.numbers.sizes, unscaled.numbers.strides, DType::FP32, "sizes");
      s_.launch(Operation::Absolute, {unscaled.numbers}, {sizes});
      s_.launch(Operation::Largest, {sizes}, {largest});
    }
    s_.launch({Operation::Scale, {1 / largest_of(dtype)}}, {largest}, {state.factor});
    const Tensor inverse = number(parameter, "rscale", Category::Temporaries);
    const Tensor nothing = s_.in_registers({1}, {1}, DType::BOOL, "nothing");
    s_.launch({Operation::Equals, {0}}, {state.factor}, {nothing});
    s_.launch({Operation::Power, {-1}}, {state.factor}, {inverse});
    s_.launch({Operation::MaskedFill, {0}}, {inverse, nothing}, {inverse});
    s_.launch(Operation::Multiply, {unscaled.numbers, inverse}, {unscaled.numbers});
  }
  s_.launch(Operation::Copy, {unscaled.numbers}, {state.numbers});
  if (state.transposed.defined()) s_.launch(Operation::Copy, {unscaled.numbers}, {state.transposed});
}

void FusedAdam::update(std::vector<Parameter>& group, const Tensor* gradients, std::vector<Unscaled>& temporaries) {
  std::vector<Tensor> read, written, parts, whole, models, mains;
  std::vector<const Parameter*> owners;
  for (std::size_t p = 0; p < group.size(); ++p) {
    Parameter& parameter = group[p];
    make(parameter);
    std::array<Tensor, 3> states;
    for (std::size_t i = 0; i < states.size(); ++i) {
      State& state = parameter.states.at(i);
      states.at(i) = unscaled(parameter, state);
      if (states.at(i).storage == state.numbers.storage) continue;
      temporaries.push_back({&state, states.at(i)});
      owners.push_back(&parameter);
    }
    Tensor main = states[main_parameter];
    const Tensor& value = parameter.its.value;
    if (keeps_remainder(parameter)) {
      // Within the kernel.
      const Tensor joined = s_.in_registers(value.sizes, value.strides, DType::FP32, "joined");
      parts.insert(parts.end(), {value, main});
      whole.push_back(joined);
      main = joined;
    } else {
      mains.push_back(main), models.push_back(value);
    }
    read.insert(read.end(), {main, gradients[p], states[mean], states[squares], Tensor{}, Tensor{}});
    written.insert(written.end(), {main, states[mean], states[squares], Tensor{}, Tensor{}});
  }
  if (!whole.empty()) s_.launch(Operation::JoinBits, parts, whole);
  s_.launch({Operation::Adam, {usual_learning_rate}}, read, written);
  read.clear(), written.clear();
  if (!whole.empty()) s_.launch(Operation::SplitBits, whole, parts);
  whole.clear();
  if (!mains.empty()) s_.launch(Operation::Copy, mains, models);
  for (std::size_t i = 0; i < temporaries.size(); ++i) scale(*owners[i], temporaries[i]);
}

void FusedAdam::step(const std::vector<Tensor>& gradients) {
  std::vector<Unscaled> temporaries;
  const Tensor* its = gradients.data();
  for (std::vector<Parameter>& group : groups_) {
    if (group.empty()) continue;
    temporaries.clear();
    update(group, its, temporaries);
    its += group.size();
  }
}

}  // namespace tidemark::parallel::megatron
