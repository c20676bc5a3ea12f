#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/math/blas.hpp"
#include "kernels/math/families.hpp"
#include "kernels/math/philox.hpp"

// softmax(scale * q k^T + bias) v by head, as FlashAttention has it (Dao, arXiv 2205.14135, 2307.08691, algorithms 1
// and 2; PyTorch's and TransformerEngine's kernels do the same): forward saves the logarithms of the sums of
// exponentials, and backward computes the weights again from them, and each row's sum of gradient times output from the
// output that was saved. Heads of queries share keys and values group by group.

namespace tidemark::math {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Where a head's matrices begin in tensors [batch, sequence, heads, width] that lie row by row.
struct Heads {
  Heads(const Shape& q, const Shape& k, const Shape& v)
      : batches(q[0]), queries(q[1]), keys(k[1]), heads(q[2]), groups(k[2]), width(q[3]), value_width(v[3]) {}

  template <class Real>
  [[nodiscard]] Matrix<Real> of_queries(const std::vector<Real>& x, std::int64_t batch, std::int64_t head,
                                        std::int64_t columns) const {
    return {x.data() + (batch * queries * heads + head) * columns, queries, columns, heads * columns, false};
  }
  // Of the keys or values that the head shares with others.
  template <class Real>
  [[nodiscard]] Matrix<Real> of_keys(const std::vector<Real>& x, std::int64_t batch, std::int64_t head,
                                     std::int64_t columns) const {
    const std::int64_t group = head / (heads / groups);
    return {x.data() + (batch * keys * groups + group) * columns, keys, columns, groups * columns, false};
  }

  std::int64_t batches, queries, keys, heads, groups, width, value_width;
};

// A product becomes a head's part of a tensor, or is added to it.
enum class Part { Made, Added };
template <class Real>
void multiply_into(std::vector<Real>& whole, const Matrix<Real>& part, double scale, const Matrix<Real>& a,
                   const Matrix<Real>& b, Part how) {
  multiply(scale, a, b, how == Part::Added ? 1 : 0, whole.data() + (part.first - whole.data()), part.apart);
}

// Scores of one head at a time, from operands of which q is the call's `first`, and a bias.
template <class Real>
struct Scores {
  Scores(const Call& its, std::size_t first, std::size_t bias_input)
      : call(its),
        shape(its.sizes_in(first), its.sizes_in(first + 1), its.sizes_in(first + 2)),
        q(its.read<Real>(first)),
        k(its.read<Real>(first + 1)),
        v(its.read<Real>(first + 2)),
        values(index(shape.queries * shape.keys)) {
    if (its.in[bias_input].there())
      bias = its.read<Real>(bias_input, {shape.batches, shape.heads, shape.queries, shape.keys});
  }

  // Minus infinity for keys that come after the query, where attention is causal: the last query has the last key's
  // place.
  void compute(std::int64_t batch, std::int64_t head) {
    begin = (batch * shape.heads + head) * shape.queries * shape.keys;
    multiply(scale(), queries(batch, head), keys(batch, head).turned(), 0, values.data(), shape.keys);
    if (!bias.empty())
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += bias[index(begin) + i];
    const bool causal = call.attributes[1] != 0;
    for (std::int64_t query = 0; causal && query < shape.queries; ++query)
      for (std::int64_t key = shape.keys - shape.queries + query + 1; key < shape.keys; ++key)
        values[index(query * shape.keys + key)] = static_cast<Real>(-infinity);
  }

  // What dropout multiplies a weight by, of the head computed last.
  [[nodiscard]] Real left(RandomNumbers& numbers, std::size_t i) const {
    const std::int64_t element = begin + static_cast<std::int64_t>(i);
    const std::int64_t place = call.setting.place ? call.setting.place(element) : element;
    return numbers.uniform(place) >= dropout() ? static_cast<Real>(1 / (1 - dropout())) : Real(0);
  }

  [[nodiscard]] double scale() const { return call.attributes[0]; }
  [[nodiscard]] double dropout() const { return call.attributes[2]; }
  [[nodiscard]] Matrix<Real> matrix() const { return {values.data(), shape.queries, shape.keys, shape.keys, false}; }
  [[nodiscard]] Matrix<Real> queries(std::int64_t batch, std::int64_t head) const {
    return shape.of_queries(q, batch, head, shape.width);
  }
  [[nodiscard]] Matrix<Real> keys(std::int64_t batch, std::int64_t head) const {
    return shape.of_keys(k, batch, head, shape.width);
  }
  [[nodiscard]] Matrix<Real> of_values(std::int64_t batch, std::int64_t head) const {
    return shape.of_keys(v, batch, head, shape.value_width);
  }

  const Call& call;
  Heads shape;
  std::vector<Real> q, k, v, bias;
  std::vector<Real> values;  ///< [queries, keys]
  std::int64_t begin = 0;    ///< which of all heads' scores the head's first one is
};

// Scores become weights; returns the logarithm of the sum of exponentials. Of a query that sees no key nothing comes,
// and its logarithm is infinite, so that its weights are zero again in the backward pass
// (mem_eff_attention/kernel_forward.h).
template <class Real>
double softmax_row(Real* row, std::int64_t keys) {
  Real most = static_cast<Real>(-infinity);
  for (std::int64_t key = 0; key < keys; ++key) most = larger(most, row[key]);
  if (most == static_cast<Real>(-infinity)) {
    std::fill(row, row + keys, Real(0));
    return infinity;
  }
  double sum = 0;
  for (std::int64_t key = 0; key < keys; ++key) sum += static_cast<double>(row[key] = std::exp(row[key] - most));
  for (std::int64_t key = 0; key < keys; ++key) row[key] = static_cast<Real>(static_cast<double>(row[key]) / sum);
  return static_cast<double>(most) + std::log(sum);
}

}  // namespace

template <class Real>
void Attentions<Real>::attention(const Call& c) {
  Scores<Real> scores(c, 0, 3);
  const Heads& s = scores.shape;
  std::vector<Real> y(index(s.batches * s.queries * s.heads * s.value_width));
  std::vector<double> lse;
  RandomNumbers numbers(c.setting.key);
  for (std::int64_t batch = 0; batch < s.batches; ++batch)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      scores.compute(batch, head);
      for (std::int64_t query = 0; query < s.queries; ++query)
        lse.push_back(softmax_row(scores.values.data() + query * s.keys, s.keys));
      if (scores.dropout() > 0)
        for (std::size_t i = 0; i < scores.values.size(); ++i) scores.values[i] *= scores.left(numbers, i);
      multiply_into(y, s.of_queries(y, batch, head, s.value_width), 1, scores.matrix(), scores.of_values(batch, head),
                    Part::Made);
    }
  c.write(0, y);
  c.write(1, lse);
  // The state of the random numbers, which backward draws again: the key, and where its stream begins.
  constexpr std::size_t seed = 2, offset = 3;
  for (const std::size_t state : {seed, offset}) {
    if (!c.out[state].there()) continue;
    std::vector<std::int64_t> words(index(elements_of(c.sizes_out(state))));
    if (state == seed) words.front() = static_cast<std::int64_t>(c.setting.key);
    c.write(state, words);
  }
}

template <class Real>
void Attentions<Real>::attention_backward(const Call& c) {
  Scores<Real> scores(c, 1, 8);
  const Heads& s = scores.shape;
  const std::vector<Real> dy = c.read<Real>(0), y = c.read<Real>(4), lse = c.read<Real>(5);
  const std::vector<std::int64_t> seed = c.read<std::int64_t>(6), offset = c.read<std::int64_t>(7);
  RandomNumbers numbers(seed.empty() ? c.setting.key : static_cast<std::uint64_t>(seed.front()),
                        offset.empty() ? 0 : static_cast<std::uint64_t>(offset.front()));
  std::vector<Real> dq(scores.q.size()), dk(scores.k.size()), dv(scores.v.size());
  std::vector<Real> weights(scores.values.size()), left(scores.values.size(), 1);
  for (std::int64_t batch = 0; batch < s.batches; ++batch)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const Matrix<Real> of_dy = s.of_queries(dy, batch, head, s.value_width);
      const Matrix<Real> of_y = s.of_queries(y, batch, head, s.value_width);
      const Real* const log_sums = &lse[index((batch * s.heads + head) * s.queries)];
      scores.compute(batch, head);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        weights[i] = std::exp(scores.values[i] - log_sums[i / index(s.keys)]);
        if (scores.dropout() > 0) left[i] = scores.left(numbers, i);
        scores.values[i] = weights[i] * left[i];
      }
      multiply_into(dv, s.of_keys(dv, batch, head, s.value_width), 1, scores.matrix().turned(), of_dy, Part::Added);
      // Gradients of the weights that are left, then of scores.
      multiply(1, of_dy, scores.of_values(batch, head).turned(), 0, scores.values.data(), s.keys);
      for (std::int64_t query = 0; query < s.queries; ++query) {
        double products = 0;
        for (std::int64_t i = 0; i < s.value_width; ++i)
          products += static_cast<double>(of_dy.first[query * of_dy.apart + i]) *
                      static_cast<double>(of_y.first[query * of_y.apart + i]);
        for (std::size_t i = index(query * s.keys); i < index((query + 1) * s.keys); ++i)
          scores.values[i] = weights[i] * (scores.values[i] * left[i] - static_cast<Real>(products));
      }
      multiply_into(dq, s.of_queries(dq, batch, head, s.width), scores.scale(), scores.matrix(),
                    scores.keys(batch, head), Part::Made);
      multiply_into(dk, s.of_keys(dk, batch, head, s.width), scores.scale(), scores.matrix().turned(),
                    scores.queries(batch, head), Part::Added);
    }
  c.write(0, dq);
  c.write(1, dk);
  c.write(2, dv);
}

template struct Attentions<float>;
template struct Attentions<double>;

}  // namespace tidemark::math
