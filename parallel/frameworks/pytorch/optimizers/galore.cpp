#include <algorithm>

#include "parallel/frameworks/pytorch/optimizers/projected_adam.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/products.hpp"

// galore_torch/adamw.py, galore_projector.py (1.0): moments of a gradient that was projected to its first singular
// vectors, and the update brought back. As transformers sets it up: "std", every 200 steps.

namespace tidemark::parallel::pytorch {
namespace {

constexpr double usual_scale = 0.25;  // trainer_optimizer.py _get_galore_optimizer

class GaloreRule final : public ProjectedAdam {
 public:
  using ProjectedAdam::ProjectedAdam;

 private:
  struct Decomposition {
    Tensor u, s, vh;
  };

  // torch.linalg.svd(full_matrices=False), by cuSOLVER's gesvdj (BatchLinearAlgebraLib.cpp): of a copy by columns,
  // which it overwrites. U lies by columns, V^H by rows. Which numbers come out is left to copies of others.
  [[nodiscard]] Decomposition decomposed(const Tensor& matrix) {
    const std::int64_t rows = matrix.size(0), columns = matrix.size(1), least = std::min(rows, columns);
    Decomposition made;
    made.u = s_.empty_strided({rows, least}, {1, rows}, DType::FP32, "svd_u");
    made.s = s_.empty({least}, DType::FP32, "svd_s");
    made.vh = s_.empty({least, columns}, DType::FP32, "svd_vh");
    const Tensor info = s_.empty({}, DType::INT32, "svd_info");
    s_.launch({Operation::Fill, {0}}, {}, {info});
    const Tensor copy = s_.empty_strided({rows, columns}, {1, rows}, DType::FP32, "svd_copy");
    s_.launch(Operation::Copy, {matrix}, {copy});
    s_.launch(Operation::Copy, {narrowed(copy, 1, 0, least)}, {made.u});
    s_.launch(Operation::Copy, {narrowed(copy, 0, 0, least)}, {made.vh});
    s_.launch(Operation::Copy, {sized(narrowed(rows < columns ? made.u : made.vh, 1, 0, 1), {least})}, {made.s});
    return made;
  }

  // get_orthogonal_matrix: of fp32 gradients a view, which holds all of the vectors.
  [[nodiscard]] Tensor projection_of(const Tensor& gradient, bool right) override {
    const Tensor matrix = to(s_, gradient, DType::FP32);
    const Decomposition made = decomposed(matrix);
    const std::int64_t first_ones = std::min(rank(), made.s.size(0));
    const Tensor first = right ? narrowed(made.vh, 0, 0, first_ones) : narrowed(made.u, 1, 0, first_ones);
    return to(s_, first, gradient.dtype);
  }

  void bring_back(State& state, Variables& its) override {
    const bool right = from_the_right(its.update);
    const Tensor whole = conv1d(s_, right ? its.update : state.projection, right ? state.projection : its.update, {});
    its.update = elementwise(s_, "norm_grad", {Operation::Scale, {usual_scale}}, {&whole}, whole.dtype);
  }
};

}  // namespace

UpdateRulePtr galore_rule(Session& session, const EagerBehavior& behavior, const Parameters& parameters) {
  return std::make_unique<GaloreRule>(session, behavior, parameters);
}

}  // namespace tidemark::parallel::pytorch
