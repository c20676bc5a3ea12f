#include <cmath>
#include <limits>

#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"

namespace tidemark::math {

// ATen/native/cuda/Loss.cu, nn.functional.nll_loss with its usual arguments: the mean over labels that are not ignored.
template <class Call>
void Losses<Call>::nll_loss(const Call& c) {
  const Values<Real> x = c.read(0);
  const Values<std::int64_t> labels = c.integers(1);
  const Rows rows = rows_of(c.sizes_in(0));
  check_indices(c, labels, rows.width, "label", no_label);
  const Values<double> loss = c.sums(1), weight = c.sums(1);
  c.each(1, [=] TIDEMARK_EVERYWHERE(std::int64_t) {
    double sum = 0, counted = 0;
    for (std::int64_t t = 0; t < labels.count; ++t) {
      if (labels[t] == no_label) continue;
      sum -= static_cast<double>(x[t * rows.width + labels[t]]);
      ++counted;
    }
    loss[0] = sum / counted;
    weight[0] = counted;
  });
  c.write(0, loss);
  c.write(1, weight);
}

template <class Call>
void Losses<Call>::nll_loss_backward(const Call& c) {
  const Values<Real> dloss = c.read(0), weight = c.read(2);
  const Values<std::int64_t> labels = c.integers(1);
  const Rows rows = rows_of(c.sizes_out(0));
  check_indices(c, labels, rows.width, "label", no_label);
  const Values<Real> dx = c.room_for(0);
  c.each(labels.count, [=] TIDEMARK_EVERYWHERE(std::int64_t t) {
    for (std::int64_t i = 0; i < rows.width; ++i)
      dx[t * rows.width + i] = labels[t] == i ? -dloss[0] / weight[0] : Real(0);
  });
  c.write(0, dx);
}

// ---- TransformerEngine's (common/triton/cross_entropy.py), over a vocabulary in parts ------------------------------

namespace {

// Of a token's logits in one part or in several: the largest, the sum of exponentials of what they are less than it,
// and the label's, which is minus infinity where the label is in another part.
struct Statistics {
  static constexpr std::int64_t size = 3;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0, target = largest;
};

TIDEMARK_EVERYWHERE Statistics merged(const Statistics& a, const Statistics& b) {
  const double most = larger(a.largest, b.largest);
  return {most, a.sum * std::exp(a.largest - most) + b.sum * std::exp(b.largest - most), larger(a.target, b.target)};
}

}  // namespace

template <class Call>
void Losses<Call>::cross_entropy_statistics(const Call& c) {
  const Values<Real> logits = c.read(0);
  const Values<std::int64_t> labels = c.integers(1);
  const Rows rows = rows_of(c.sizes_in(0));
  const auto first = static_cast<std::int64_t>(c.attributes[0]);
  const Values<double> all = c.sums(rows.count * Statistics::size);
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t t) {
    const Real* const row = &logits[t * rows.width];
    Statistics s;
    for (std::int64_t i = 0; i < rows.width; ++i) s.largest = larger(s.largest, static_cast<double>(row[i]));
    for (std::int64_t i = 0; i < rows.width; ++i) s.sum += std::exp(static_cast<double>(row[i]) - s.largest);
    const std::int64_t label = labels[t] - first;
    if (label >= 0 && label < rows.width) s.target = static_cast<double>(row[label]);
    double* const its = &all[t * Statistics::size];
    its[0] = s.largest, its[1] = s.sum, its[2] = s.target;
  });
  c.write(0, all);
}

// Statistics are [parts, tokens, 3]. The gradient is that of the sum of losses; of a label that is ignored, loss and
// gradient are zero.
template <class Call>
void Losses<Call>::cross_entropy_from_statistics(const Call& c) {
  const Values<Real> dlogits = c.read(0);
  const Values<std::int64_t> labels = c.integers(1);
  const Values<double> statistics = c.doubles(2);
  const Rows rows = rows_of(c.sizes_in(0));
  const auto first = static_cast<std::int64_t>(c.attributes[0]);
  const Values<double> losses = c.sums(rows.count);
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t t) {
    Statistics s;
    for (std::int64_t p = t; p < statistics.count / Statistics::size; p += rows.count) {
      const double* const of_part = &statistics[p * Statistics::size];
      s = merged(s, {of_part[0], of_part[1], of_part[2]});
    }
    const bool counts = labels[t] != no_label;
    const std::int64_t label = labels[t] - first;
    losses[t] = counts ? s.largest + std::log(s.sum) - s.target : 0;
    for (std::int64_t i = 0; i < rows.width; ++i) {
      Real& x = dlogits[t * rows.width + i];
      const double softmax = std::exp(static_cast<double>(x) - s.largest) / s.sum;
      x = counts ? static_cast<Real>(softmax - (i == label ? 1 : 0)) : Real(0);
    }
  });
  c.write(0, dlogits);
  c.write(1, losses);
}

// ---- Megatron's (core/tensor_parallel/cross_entropy.py, core/fusions/fused_cross_entropy.py) -----------------------

// exp(logits - maximum) and their sums; the label's logit less the maximum, 0 where the label is in another part.
template <class Call>
void Losses<Call>::shifted_exponentials(const Call& c) {
  const Values<Real> x = c.read(0), maximum = c.read(1), outside = c.read(3);
  const Values<std::int64_t> ids = c.integers(2);
  const Rows rows = rows_of(c.sizes_in(0));
  check_indices(c, ids, rows.width, "label");
  const Values<double> sums = c.sums(rows.count);
  const Values<Real> targets = c.room(rows.count);
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t t) {
    Real* const row = &x[t * rows.width];
    const bool here = ids.there() && (!outside.there() || outside[t] == 0);
    targets[t] = here ? row[ids[t]] - maximum[t] : Real(0);
    double sum = 0;
    for (std::int64_t i = 0; i < rows.width; ++i) sum += static_cast<double>(row[i] = std::exp(row[i] - maximum[t]));
    sums[t] = sum;
  });
  c.write(0, x);
  c.write(1, sums);
  c.write(2, targets);
}

template <class Call>
void Losses<Call>::vocabulary_loss(const Call& c) {
  const Values<Real> softmax = c.read(0), sums = c.read(1), targets = c.read(2);
  const Rows rows = rows_of(c.sizes_in(0));
  const Values<Real> losses = c.room(rows.count);
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t t) {
    losses[t] = std::log(sums[t]) - targets[t];
    for (std::int64_t i = 0; i < rows.width; ++i) softmax[t * rows.width + i] /= sums[t];
  });
  c.write(0, softmax);
  c.write(1, losses);
}

// factor * (softmax - 1 at the label, where it is in this part).
template <class Call>
void Losses<Call>::vocabulary_loss_backward(const Call& c) {
  const Values<Real> dlogits = c.read(0), outside = c.read(2);
  const Values<std::int64_t> ids = c.integers(1);
  const Rows rows = rows_of(c.sizes_in(0));
  const Real factor = static_cast<Real>(c.attributes[0]);
  check_indices(c, ids, rows.width, "label");
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t t) {
    dlogits[t * rows.width + ids[t]] -= 1 - outside[t];
    for (std::int64_t i = 0; i < rows.width; ++i) dlogits[t * rows.width + i] *= factor;
  });
  c.write(0, dlogits);
}

template struct Losses<FloatCall>;
template struct Losses<DoubleCall>;

}  // namespace tidemark::math
