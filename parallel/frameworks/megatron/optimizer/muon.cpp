#include "parallel/frameworks/megatron/optimizer/muon.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace tidemark::parallel::megatron {
namespace {

// arguments.py's default.
constexpr double momentum_kept = 0.9;

// muon_utils.py _COEFFICIENT_SETS, "quintic": of x, (x xT) x and (x xT)^2 x, step by step and again from the first.
struct Coefficients {
  double of_x, of_cube, of_fifth;
};
constexpr std::array<Coefficients, 5> quintic{{{4.0848, -6.8946, 2.9270},
                                               {3.9505, -6.3029, 2.6377},
                                               {3.7418, -5.5913, 2.3037},
                                               {2.8769, -3.1427, 1.2046},
                                               {2.8366, -3.0525, 1.2012}}};

}  // namespace

LabelId Muon::label(const Matrix& matrix, std::string_view what) const {
  return w_.process.label(fmt::format("{}.{}", matrix.weight->parameter->name, what));
}

Tensor Muon::temporary(const Matrix& matrix, std::string_view what, Shape shape, DType dtype) const {
  return w_.temporary(label(matrix, what), std::move(shape), dtype);
}

Tensor Muon::scaled(const Matrix& matrix, const Tensor& x, double factor) {
  Tensor made = temporary(matrix, "scaled", x.sizes, x.dtype);
  w_.launch({Operation::Scale, {factor}}, {x}, {made});
  return made;
}

// torch.nn.functional.normalize over both dimensions: no norm is as small as eps here.
Tensor Muon::normalized(const Matrix& matrix, const Tensor& x) {
  const Tensor norm = temporary(matrix, "norm", {1}, x.dtype);
  w_.launch(Operation::Norm, {x}, {norm});
  const Tensor clamped = temporary(matrix, "norm_clamped", {1}, x.dtype);
  w_.launch(Operation::Copy, {norm}, {clamped});
  Tensor made = temporary(matrix, "normalized", x.sizes, x.dtype);
  w_.launch(Operation::Divide, {x, clamped}, {made});
  return made;
}

// newton_schulz_step. addmm copies what is added into the result.
Tensor Muon::iteration(const Matrix& matrix, const Tensor& x, std::int64_t step) {
  const Coefficients& its = quintic[static_cast<std::size_t>(step) % quintic.size()];
  const Scratch workspace = w_.process.blas_workspace(HostThread::Main);
  const auto product = [&](const Tensor& a, const Tensor& b, double factor, const Tensor& added, const Tensor& out) {
    w_.launch({Operation::Matmul, {factor}}, {a, b, Tensor{}, added}, {out}, workspace);
  };
  const std::int64_t rows = x.size(0);
  const Tensor square = temporary(matrix, "square", {rows, rows}, x.dtype);
  product(x, swapped(x, 0, 1), 1, {}, square);
  const Tensor sum = temporary(matrix, "square_sum", {rows, rows}, x.dtype);
  w_.launch({Operation::Scale, {its.of_cube}}, {square}, {sum});
  product(square, square, its.of_fifth, sum, sum);
  Tensor next = temporary(matrix, "iterate", x.sizes, x.dtype);
  w_.launch({Operation::Scale, {its.of_x}}, {x}, {next});
  product(sum, x, 1, next, next);
  return next;
}

// newton_schulz: of the smaller side.
Tensor Muon::iterated(const Matrix& matrix, const Tensor& whole) {
  const bool tall = whole.size(0) > whole.size(1);
  Tensor x = normalized(matrix, tall ? swapped(whole, 0, 1) : whole);
  const auto convert = [&](DType dtype) {
    if (x.dtype == dtype) return;
    const Tensor made = temporary(matrix, "converted", x.sizes, dtype);
    w_.launch(Operation::Copy, {x}, {made});
    x = made;
  };
  if (behavior().bf16_products) convert(DType::BF16);
  for (std::int64_t step = 0; step < behavior().steps; ++step) x = iteration(matrix, x, step);
  convert(DType::FP32);
  return tall ? swapped(x, 0, 1) : x;
}

// scaled_orthogonalize_fn, newton_schulz_tp. TransformerEngine says of every linear's weight which dimension would be
// cut, in a group of one too.
Tensor Muon::orthogonal_part(const Matrix& matrix, const Tensor& x) {
  const Parameter& parameter = *matrix.weight->parameter;
  const bool gathers = parameter.cut != WeightCut::None && behavior().across_ranks == MuonAcrossRanks::Duplicated;
  Shape whole = x.sizes;
  Tensor made;
  if (gathers) {
    const int cut = parameter.cut == WeightCut::Rows ? 0 : 1;
    const std::int64_t ranks = w_.sizes.parts_of(parameter), place = parameter.of_expert() ? 0 : w_.place.tensor;
    whole[static_cast<std::size_t>(cut)] *= ranks;
    Shape parts = x.sizes;
    parts[0] *= ranks;
    // torch.distributed.all_gather into a list goes by way of one tensor.
    const Tensor listed = temporary(matrix, "shards", parts, x.dtype);
    const auto part_of = [&](const Tensor& of, int dimension, std::int64_t rank) {
      return narrowed(of, dimension, rank * x.size(dimension), x.size(dimension));
    };
    {
      const Tensor flat = w_.make(label(matrix, "shards_flat"), parts, x.dtype, Category::CommTp);
      w_.session.unchecked_collective(parameter.of_expert() ? w_.comms.expert_tensor : w_.comms.tensor,
                                      CollectiveKind::AllGather, x, flat);
      if (ranks == 1)
        w_.launch(Operation::Copy, {x}, {listed});
      else
        w_.launch(Operation::Copy, {flat}, {listed});
    }
    const Tensor global = temporary(matrix, "gathered", whole, x.dtype);
    std::vector<Tensor> from, to;
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      from.push_back(part_of(listed, 0, rank)), to.push_back(part_of(global, cut, rank));
    w_.launch(Operation::Copy, from, to);
    made = part_of(iterated(matrix, global), cut, place);
  } else {
    made = iterated(matrix, x);
  }
  // get_muon_scale_factor, "spectral"; the extra factor is another product.
  made = scaled(matrix, made, std::sqrt(static_cast<double>(std::max(whole[0], whole[1]))));
  return scaled(matrix, made, 1);
}

Tensor Muon::orthogonal(const Matrix& matrix, const Tensor& momentum) {
  const Parameter& parameter = *matrix.weight->parameter;
  const Model& model = w_.model;
  const std::array<std::int64_t, 3> widths{model.heads / model.kv_heads * model.head_dim, model.head_dim,
                                           model.head_dim};
  const std::int64_t width = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
  const bool joint = parameter.name.ends_with(".attention.qkv.weight") && !model.latent();
  if (!behavior().splits_qkv || !joint || momentum.size(0) % width != 0) return orthogonal_part(matrix, momentum);
  const std::int64_t groups = momentum.size(0) / width, columns = momentum.size(1);
  const auto part = [&](const Tensor& of, std::size_t which) {
    const std::int64_t begin =
        std::accumulate(widths.begin(), widths.begin() + static_cast<std::ptrdiff_t>(which), std::int64_t{0});
    return narrowed(sized(of, {groups, width, columns}), 1, begin, widths[which]);
  };
  std::vector<Tensor> parts, made;
  for (std::size_t which = 0; which < widths.size(); ++which) {
    const Shape sizes{groups, widths[which], columns};
    Tensor copy = part(momentum, which);
    if (groups > 1) {
      copy = temporary(matrix, "part", sizes, momentum.dtype);
      w_.launch(Operation::Copy, {part(momentum, which)}, {copy});
    }
    parts.push_back(sized(copy, {groups * widths[which], columns}));
  }
  for (const Tensor& its : parts) made.push_back(orthogonal_part(matrix, its));
  const Tensor joined = temporary(matrix, "joined", momentum.sizes, momentum.dtype);
  std::vector<Tensor> to;
  for (std::size_t which = 0; which < widths.size(); ++which) {
    made[which] = sized(made[which], {groups, widths[which], columns});
    to.push_back(part(joined, which));
  }
  w_.launch(Operation::Copy, made, to);
  return joined;
}

// OrthogonalizedOptimizer.step: its variable holds a matrix's update until the next one's is there.
void Muon::step(const std::vector<Tensor>& gradients) {
  for (Matrix& matrix : matrices_) {
    if (matrix.momentum.defined()) continue;
    matrix.momentum =
        w_.make(label(matrix, "momentum_buffer"), matrix.value.sizes, DType::FP32, Category::OptimizerMoments);
    w_.launch({Operation::Fill, {0}}, {}, {matrix.momentum});
  }
  Tensor update;
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    const Matrix& matrix = matrices_[i];
    const Tensor gradient = sized(gradients[i], matrix.value.sizes);
    w_.launch({Operation::Lerp, {1 - momentum_kept}}, {matrix.momentum, gradient}, {matrix.momentum});
    Tensor direction = matrix.momentum;
    if (behavior().nesterov) {
      direction = temporary(matrix, "nesterov", gradient.sizes, DType::FP32);
      w_.launch({Operation::Lerp, {momentum_kept}}, {gradient, matrix.momentum}, {direction});
    }
    update = orthogonal(matrix, direction);
    w_.launch({Operation::AddScaled, {-usual_learning_rate}}, {matrix.value, update}, {matrix.value});
  }
}

}  // namespace tidemark::parallel::megatron
