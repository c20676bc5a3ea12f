#pragma once

#include <array>
#include <string>
#include <vector>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/torch/session.hpp"

namespace tidemark::parallel::megatron {

/// A tensor that an optimizer updates, where it is on the device, flat; and what it is called.
struct Updated {
  std::string name;
  Tensor value;
};

/// transformer_engine/pytorch/optimizers/fused_adam.py with master weights: state of any type, fp32 parameters among
/// it, which are made in the first step.
class FusedAdam {
 public:
  /// Parameters group by group.
  FusedAdam(Session& session, const OptimizerBehavior& behavior, std::vector<std::vector<Updated>> groups);

  /// Of parameters in the order in which they were handed over.
  void step(const std::vector<Tensor>& gradients);

 private:
  // Numbers of a type that may need a factor to be within its range.
  struct State {
    Tensor numbers, factor;
    Tensor transposed;  ///< FP8: what a quantizer that is not told otherwise makes besides
  };
  struct Parameter {
    Updated its;
    std::array<State, 3> states{};  ///< mean, squares, fp32 parameter
    bool made = false;
  };
  // What the kernel reads in place of a state, until the next group's is there.
  struct Unscaled {
    State* state = nullptr;
    Tensor numbers;
  };

  void make(Parameter& parameter);
  [[nodiscard]] Tensor unscaled(const Parameter& parameter, State& state);
  void scale(const Parameter& parameter, const Unscaled& unscaled);
  void update(std::vector<Parameter>& group, const Tensor* gradients, std::vector<Unscaled>& unscaled);
  [[nodiscard]] Tensor temporary(const Parameter& parameter, std::string_view what, DType dtype) const;
  [[nodiscard]] Tensor number(const Parameter& parameter, std::string_view what, Category category) const;
  [[nodiscard]] LabelId label(const Parameter& parameter, std::string_view what) const;
  [[nodiscard]] bool keeps_remainder(const Parameter& parameter) const;

  Session& s_;
  OptimizerBehavior behavior_;
  std::vector<std::vector<Parameter>> groups_;
};

}  // namespace tidemark::parallel::megatron
