#include <cmath>
#include <limits>
#include <vector>

#include "kernels/math/families.hpp"

namespace tidemark::math {

// ATen/native/cuda/Loss.cu, nn.functional.nll_loss with its usual arguments: the mean over labels that are not ignored.
template <class Real>
void Losses<Real>::nll_loss(const Call& c) {
  const std::vector<Real> x = c.read<Real>(0);
  const std::vector<std::int64_t> labels = c.read<std::int64_t>(1);
  const Rows rows = rows_of(c.sizes_in(0));
  double sum = 0, weight = 0;
  for (std::size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] == no_label) continue;
    check_index(labels[t], rows.width, "label");
    sum -= static_cast<double>(x[t * index(rows.width) + index(labels[t])]);
    ++weight;
  }
  c.write(0, std::vector<double>{sum / weight});
  c.write(1, std::vector<double>{weight});
}

template <class Real>
void Losses<Real>::nll_loss_backward(const Call& c) {
  const Real dloss = c.read<Real>(0).front(), weight = c.read<Real>(2).front();
  const std::vector<std::int64_t> labels = c.read<std::int64_t>(1);
  const Rows rows = rows_of(c.sizes_out(0));
  std::vector<Real> dx(index(rows.count * rows.width));
  for (std::size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] == no_label) continue;
    check_index(labels[t], rows.width, "label");
    dx[t * index(rows.width) + index(labels[t])] = -dloss / weight;
  }
  c.write(0, dx);
}

// ---- TransformerEngine's (common/triton/cross_entropy.py), over a vocabulary in parts ------------------------------

namespace {

// Of a token's logits in one part or in several: the largest, the sum of exponentials of what they are less than it,
// and the label's, which is minus infinity where the label is in another part.
struct Statistics {
  static constexpr std::size_t size = 3;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0, target = largest;
};

Statistics merged(const Statistics& a, const Statistics& b) {
  const double most = larger(a.largest, b.largest);
  return {most, a.sum * std::exp(a.largest - most) + b.sum * std::exp(b.largest - most), larger(a.target, b.target)};
}

}  // namespace

template <class Real>
void Losses<Real>::cross_entropy_statistics(const Call& c) {
  const std::vector<Real> logits = c.read<Real>(0);
  const std::vector<std::int64_t> labels = c.read<std::int64_t>(1);
  const Rows rows = rows_of(c.sizes_in(0));
  const std::int64_t first = static_cast<std::int64_t>(c.attributes[0]);
  std::vector<double> all;
  for (std::int64_t t = 0; t < rows.count; ++t) {
    const Real* const row = &logits[index(t * rows.width)];
    Statistics s;
    for (std::int64_t i = 0; i < rows.width; ++i) s.largest = larger(s.largest, static_cast<double>(row[i]));
    for (std::int64_t i = 0; i < rows.width; ++i) s.sum += std::exp(static_cast<double>(row[i]) - s.largest);
    const std::int64_t label = labels[index(t)] - first;
    if (label >= 0 && label < rows.width) s.target = static_cast<double>(row[label]);
    all.insert(all.end(), {s.largest, s.sum, s.target});
  }
  c.write(0, all);
}

// Statistics are [parts, tokens, 3]. The gradient is that of the sum of losses; of a label that is ignored, loss and
// gradient are zero.
template <class Real>
void Losses<Real>::cross_entropy_from_statistics(const Call& c) {
  std::vector<Real> dlogits = c.read<Real>(0);
  const std::vector<std::int64_t> labels = c.read<std::int64_t>(1);
  const std::vector<double> statistics = c.read<double>(2);
  const Rows rows = rows_of(c.sizes_in(0));
  const std::int64_t first = static_cast<std::int64_t>(c.attributes[0]);
  const std::size_t tokens = index(rows.count), parts = statistics.size() / (tokens * Statistics::size);
  std::vector<double> losses(tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    Statistics s;
    for (std::size_t p = 0; p < parts; ++p) {
      const double* const of_part = &statistics[(p * tokens + t) * Statistics::size];
      s = merged(s, {of_part[0], of_part[1], of_part[2]});
    }
    const bool counts = labels[t] != no_label;
    const std::int64_t label = labels[t] - first;
    losses[t] = counts ? s.largest + std::log(s.sum) - s.target : 0;
    for (std::int64_t i = 0; i < rows.width; ++i) {
      Real& x = dlogits[t * index(rows.width) + index(i)];
      const double softmax = std::exp(static_cast<double>(x) - s.largest) / s.sum;
      x = counts ? static_cast<Real>(softmax - (i == label ? 1 : 0)) : Real(0);
    }
  }
  c.write(0, dlogits);
  c.write(1, losses);
}

// ---- Megatron's (core/tensor_parallel/cross_entropy.py, core/fusions/fused_cross_entropy.py) -----------------------

// exp(logits - maximum) and their sums; the label's logit less the maximum, 0 where the label is in another part.
template <class Real>
void Losses<Real>::shifted_exponentials(const Call& c) {
  std::vector<Real> x = c.read<Real>(0);
  const std::vector<Real> maximum = c.read<Real>(1), outside = c.read<Real>(3);
  const std::vector<std::int64_t> ids = c.read<std::int64_t>(2);
  const Rows rows = rows_of(c.sizes_in(0));
  std::vector<double> sums(index(rows.count));
  std::vector<Real> targets(index(rows.count));
  for (std::size_t t = 0; t < sums.size(); ++t) {
    Real* const row = &x[t * index(rows.width)];
    if (!ids.empty()) {
      check_index(ids[t], rows.width, "label");
      const bool here = outside.empty() || outside[t] == 0;
      targets[t] = here ? row[ids[t]] - maximum[t] : Real(0);
    }
    for (std::int64_t i = 0; i < rows.width; ++i)
      sums[t] += static_cast<double>(row[i] = std::exp(row[i] - maximum[t]));
  }
  c.write(0, x);
  c.write(1, sums);
  c.write(2, targets);
}

template <class Real>
void Losses<Real>::vocabulary_loss(const Call& c) {
  std::vector<Real> softmax = c.read<Real>(0);
  const std::vector<Real> sums = c.read<Real>(1), targets = c.read<Real>(2);
  const Rows rows = rows_of(c.sizes_in(0));
  std::vector<Real> losses(index(rows.count));
  for (std::size_t t = 0; t < losses.size(); ++t) {
    losses[t] = std::log(sums[t]) - targets[t];
    for (std::int64_t i = 0; i < rows.width; ++i) softmax[t * index(rows.width) + index(i)] /= sums[t];
  }
  c.write(0, softmax);
  c.write(1, losses);
}

// factor * (softmax - 1 at the label, where it is in this part).
template <class Real>
void Losses<Real>::vocabulary_loss_backward(const Call& c) {
  std::vector<Real> dlogits = c.read<Real>(0);
  const std::vector<std::int64_t> ids = c.read<std::int64_t>(1);
  const std::vector<Real> outside = c.read<Real>(2);
  const Rows rows = rows_of(c.sizes_in(0));
  for (std::size_t t = 0; t < ids.size(); ++t) {
    check_index(ids[t], rows.width, "label");
    dlogits[t * index(rows.width) + index(ids[t])] -= 1 - outside[t];
  }
  for (Real& value : dlogits) value *= static_cast<Real>(c.attributes[0]);
  c.write(0, dlogits);
}

template struct Losses<float>;
template struct Losses<double>;

}  // namespace tidemark::math
