#include <cmath>
#include <limits>
#include <vector>

#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"
#include "kernels/math/philox.hpp"

// softmax(scale * q k^T + bias) v by head, as FlashAttention has it (Dao, arXiv 2205.14135, 2307.08691, algorithms 1
// and 2; PyTorch's and TransformerEngine's kernels do the same): forward saves the logarithms of the sums of
// exponentials, and backward computes the weights again from them, and each row's sum of gradient times output from the
// output that was saved. Heads of queries share keys and values group by group.

namespace tidemark::math {
namespace {

// Where a head's matrices begin in tensors [batch, sequence, heads, width] that lie row by row.
struct Heads {
  Heads(const Shape& q, const Shape& k, const Shape& v)
      : batches(q[0]), queries(q[1]), keys(k[1]), heads(q[2]), groups(k[2]), width(q[3]), value_width(v[3]) {}

  template <class Real>
  [[nodiscard]] Matrix<Real> of_queries(Values<Real> x, std::int64_t batch, std::int64_t head,
                                        std::int64_t columns) const {
    return {x.first + (batch * queries * heads + head) * columns, queries, columns, heads * columns, false};
  }
  // Of the keys or values that the head shares with others.
  template <class Real>
  [[nodiscard]] Matrix<Real> of_keys(Values<Real> x, std::int64_t batch, std::int64_t head,
                                     std::int64_t columns) const {
    const std::int64_t group = head / (heads / groups);
    return {x.first + (batch * keys * groups + group) * columns, keys, columns, groups * columns, false};
  }

  std::int64_t batches, queries, keys, heads, groups, width, value_width;
};

// A product becomes a head's part of a tensor, or is added to it.
enum class Part { Made, Added };

// Scores of one head at a time, from operands of which q is the call's `first`, and a bias.
template <class Call>
struct Scores {
  using Real = typename Call::Real;

  Scores(const Call& its, std::size_t first, std::size_t bias_input)
      : call(its),
        shape(its.sizes_in(first), its.sizes_in(first + 1), its.sizes_in(first + 2)),
        q(its.read(first)),
        k(its.read(first + 1)),
        v(its.read(first + 2)),
        values(its.room(shape.queries * shape.keys)) {
    if (its.in[bias_input].there())
      bias = its.read(bias_input, {shape.batches, shape.heads, shape.queries, shape.keys});
  }

  // Minus infinity for keys that come after the query, where attention is causal, and for those before its window; the
  // last query has the last key's place.
  void compute(std::int64_t batch, std::int64_t head) {
    begin = (batch * shape.heads + head) * values.count;
    call.engine.multiply(scale(), queries(batch, head), keys(batch, head).turned(), 0, values.first, shape.keys);
    const auto causal = static_cast<std::int64_t>(call.attributes[1]);
    const std::int64_t width = shape.keys, first = begin, ahead = shape.keys - shape.queries;
    const Values<Real> scores = values, added = bias;
    call.each(scores.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
      if (added.there()) scores[i] += added[first + i];
      const std::int64_t query = i / width + ahead, key = i % width;
      const bool unseen = (causal > 0 && key > query) || (causal > 1 && key <= query - causal);
      if (unseen) scores[i] = -std::numeric_limits<Real>::infinity();
    });
  }

  // What dropout multiplies the weights by, of the head computed last; random numbers are drawn by key and offset.
  void draw(Values<Real> left, std::uint64_t key, std::uint64_t offset) const {
    const double probability = dropout();
    const std::int64_t first = begin;
    const PartOfWhole drawn = call.setting.drawn;
    call.ranges(left.count, [=] TIDEMARK_EVERYWHERE(std::int64_t from, std::int64_t to) {
      RandomNumbers numbers(key, offset);
      for (std::int64_t i = from; i < to; ++i) {
        const bool kept = numbers.uniform(drawn.place(first + i)) >= probability;
        left[i] = kept ? static_cast<Real>(1 / (1 - probability)) : Real(0);
      }
    });
  }

  [[nodiscard]] double scale() const { return call.attributes[0]; }
  [[nodiscard]] double dropout() const { return call.attributes[2]; }
  [[nodiscard]] Matrix<Real> matrix() const { return {values.first, shape.queries, shape.keys, shape.keys, false}; }
  [[nodiscard]] Matrix<Real> queries(std::int64_t batch, std::int64_t head) const {
    return shape.of_queries(q, batch, head, shape.width);
  }
  [[nodiscard]] Matrix<Real> keys(std::int64_t batch, std::int64_t head) const {
    return shape.of_keys(k, batch, head, shape.width);
  }
  [[nodiscard]] Matrix<Real> of_values(std::int64_t batch, std::int64_t head) const {
    return shape.of_keys(v, batch, head, shape.value_width);
  }
  void multiply_into(Values<Real> whole, const Matrix<Real>& part, double by, const Matrix<Real>& a,
                     const Matrix<Real>& b, Part how) const {
    call.engine.multiply(by, a, b, how == Part::Added ? 1 : 0, whole.first + (part.first - whole.first), part.apart);
  }

  const Call& call;
  Heads shape;
  Values<Real> q, k, v, bias;
  Values<Real> values;     ///< [queries, keys]
  std::int64_t begin = 0;  ///< which of all heads' scores the head's first one is
};

// Scores become weights; returns the logarithm of the sum of exponentials. Of a query that sees no key nothing comes,
// and its logarithm is infinite, so that its weights are zero again in the backward pass
// (mem_eff_attention/kernel_forward.h).
template <class Real>
TIDEMARK_EVERYWHERE double softmax_row(Real* row, std::int64_t keys) {
  constexpr Real none = -std::numeric_limits<Real>::infinity();
  Real most = none;
  for (std::int64_t key = 0; key < keys; ++key) most = larger(most, row[key]);
  if (most == none) {
    for (std::int64_t key = 0; key < keys; ++key) row[key] = 0;
    return std::numeric_limits<double>::infinity();
  }
  double sum = 0;
  for (std::int64_t key = 0; key < keys; ++key) sum += static_cast<double>(row[key] = std::exp(row[key] - most));
  for (std::int64_t key = 0; key < keys; ++key) row[key] = static_cast<Real>(static_cast<double>(row[key]) / sum);
  return static_cast<double>(most) + std::log(sum);
}

}  // namespace

template <class Call>
void Attentions<Call>::attention(const Call& c) {
  Scores<Call> scores(c, 0, 3);
  const Heads& s = scores.shape;
  const std::int64_t keys = s.keys;
  const Values<Real> y = c.room(s.batches * s.queries * s.heads * s.value_width);
  const Values<Real> weights = scores.values, left = c.room(weights.count);
  const Values<double> lse = c.sums(s.batches * s.heads * s.queries);
  for (std::int64_t batch = 0; batch < s.batches; ++batch)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      scores.compute(batch, head);
      double* const log_sums = lse.first + (batch * s.heads + head) * s.queries;
      c.each(s.queries, [=] TIDEMARK_EVERYWHERE(std::int64_t query) {
        log_sums[query] = softmax_row(&weights[query * keys], keys);
      });
      if (scores.dropout() > 0) {
        scores.draw(left, c.setting.key, 0);
        c.each(left.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { weights[i] *= left[i]; });
      }
      scores.multiply_into(y, s.of_queries(y, batch, head, s.value_width), 1, scores.matrix(),
                           scores.of_values(batch, head), Part::Made);
    }
  c.write(0, y);
  c.write(1, lse);
  // The state of the random numbers, which backward draws again: the key, and where its stream begins.
  constexpr std::size_t seed = 2, offset = 3;
  for (const std::size_t state : {seed, offset}) {
    if (!c.out[state].there()) continue;
    std::vector<std::int64_t> words(static_cast<std::size_t>(elements_of(c.sizes_out(state))));
    if (state == seed) words.front() = static_cast<std::int64_t>(c.setting.key);
    c.write(state, c.brought(words));
  }
}

template <class Call>
void Attentions<Call>::attention_backward(const Call& c) {
  Scores<Call> scores(c, 1, 8);
  const Heads& s = scores.shape;
  const Values<Real> dy = c.read(0), y = c.read(4), lse = c.read(5);
  const std::vector<std::int64_t> seed = c.fetched(c.integers(6)), offset = c.fetched(c.integers(7));
  const std::uint64_t key = seed.empty() ? c.setting.key : static_cast<std::uint64_t>(seed.front());
  const std::uint64_t stream = offset.empty() ? 0 : static_cast<std::uint64_t>(offset.front());
  const Values<Real> dq = c.room(scores.q.count), dk = c.room(scores.k.count), dv = c.room(scores.v.count);
  c.each(dk.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { dk[i] = 0; });
  c.each(dv.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { dv[i] = 0; });
  const Values<Real> values = scores.values, weights = c.room(values.count), left = c.room(values.count);
  c.each(left.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { left[i] = 1; });
  const std::int64_t keys = s.keys, columns = s.value_width;
  for (std::int64_t batch = 0; batch < s.batches; ++batch)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      const Matrix<Real> of_dy = s.of_queries(dy, batch, head, columns);
      const Matrix<Real> of_y = y.there() ? s.of_queries(y, batch, head, columns) : Matrix<Real>{};
      const Real* const log_sums = lse.first + (batch * s.heads + head) * s.queries;
      scores.compute(batch, head);
      if (scores.dropout() > 0) scores.draw(left, key, stream);
      c.each(weights.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
        weights[i] = std::exp(values[i] - log_sums[i / keys]);
        values[i] = weights[i] * left[i];
      });
      scores.multiply_into(dv, s.of_keys(dv, batch, head, columns), 1, scores.matrix().turned(), of_dy, Part::Added);
      // Gradients of the weights that are left, then of scores.
      c.engine.multiply(1, of_dy, scores.of_values(batch, head).turned(), 0, values.first, keys);
      c.each(s.queries, [=] TIDEMARK_EVERYWHERE(std::int64_t query) {
        double products = 0;  // of the gradient and y: without it, of what that is a sum of
        for (std::int64_t i = query * keys; of_y.first == nullptr && i < (query + 1) * keys; ++i)
          products += static_cast<double>(weights[i] * left[i]) * static_cast<double>(values[i]);
        for (std::int64_t i = 0; of_y.first != nullptr && i < columns; ++i)
          products += static_cast<double>(of_dy.first[query * of_dy.apart + i]) *
                      static_cast<double>(of_y.first[query * of_y.apart + i]);
        for (std::int64_t i = query * keys; i < (query + 1) * keys; ++i)
          values[i] = weights[i] * (values[i] * left[i] - static_cast<Real>(products));
      });
      scores.multiply_into(dq, s.of_queries(dq, batch, head, s.width), scores.scale(), scores.matrix(),
                           scores.keys(batch, head), Part::Made);
      scores.multiply_into(dk, s.of_keys(dk, batch, head, s.width), scores.scale(), scores.matrix().turned(),
                           scores.queries(batch, head), Part::Added);
    }
  c.write(0, dq);
  c.write(1, dk);
  c.write(2, dv);
}

template struct Attentions<FloatCall>;
template struct Attentions<DoubleCall>;

}  // namespace tidemark::math
