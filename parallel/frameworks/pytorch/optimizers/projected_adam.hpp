#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/frameworks/pytorch/optimizers/update_rule.hpp"

namespace tidemark::parallel::pytorch {

/// Adam, whose moments are those of gradients that were projected to fewer dimensions: galore_torch's and
/// apollo_torch's steps, as transformers sets them up ("std": the longer side is projected).
class ProjectedAdam : public UpdateRule {
 public:
  ProjectedAdam(Session& session, const EagerBehavior& behavior, const Parameters& parameters);
  void step(std::int32_t number) final;

 protected:
  struct State {
    std::shared_ptr<Leaf> parameter;
    bool projected;
    Tensor projection;  ///< made anew every 200 steps
    Tensor mean, squares;
    Tensor norm;  ///< APOLLO's: of the last step's scaled gradient
  };
  /// What step's variables hold until the next parameter has its own; those behind `update` are APOLLO's.
  struct Variables {
    Tensor gradient, denominator, update, factor, scaled, scaled_norm, limiter;
  };

  [[nodiscard]] std::int64_t rank() const;
  Session& s_;

 private:
  /// [rank, columns] from the right, [rows, rank] from the left, of the gradient's type.
  [[nodiscard]] virtual Tensor projection_of(const Tensor& gradient, bool right) = 0;
  /// Makes of the update of projected gradients one of the parameter.
  virtual void bring_back(State& state, Variables& its) = 0;

  [[nodiscard]] Tensor project(State& state, const Tensor& gradient);
  [[nodiscard]] Tensor zeros_like(const Tensor& x, std::string_view what);
  void update(State& state, double size, Variables& its);

  const EagerBehavior& behavior_;
  std::vector<State> states_;
};

/// Whether a gradient is projected from the right.
[[nodiscard]] inline bool from_the_right(const Tensor& gradient) { return gradient.size(0) >= gradient.size(1); }

}  // namespace tidemark::parallel::pytorch
