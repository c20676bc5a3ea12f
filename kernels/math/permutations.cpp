#include <algorithm>
#include <string>
#include <vector>

#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"

// Tokens, a row for each expert that they chose, and back (TransformerEngine pytorch/permutation.py).

namespace tidemark::math {
namespace {

// That rows which a map names are all rows that there are, each once.
class RowCheck {
 public:
  explicit RowCheck(std::int64_t rows) : named_(static_cast<std::size_t>(rows)) {}

  void name(std::int64_t row) {
    const auto rows = static_cast<std::int64_t>(named_.size());
    if (row < 0 || row >= rows) report_index(row, rows, "row");
    if (named_[static_cast<std::size_t>(row)]) throw WrongIndex("row " + std::to_string(row) + " is named twice");
    named_[static_cast<std::size_t>(row)] = true;
  }
  void over() const {
    const auto said = std::count(named_.begin(), named_.end(), true);
    if (said != static_cast<std::int64_t>(named_.size()))
      throw WrongIndex("a map names " + std::to_string(said) + " rows, where there are " +
                       std::to_string(named_.size()));
  }

 private:
  std::vector<bool> named_;
};

// TransformerEngine's map (pytorch/triton/permutation.py make_row_id_map), [tokens, 2 * experts + 1]: of a token, the
// rows that it goes to, the last one first; from place `experts` on, the experts that these are for; and in the last
// place how many they are. What lies between, TransformerEngine leaves as it was; here it is -1.
struct TokenRows {
  Values<std::int64_t> map;
  std::int64_t tokens, experts;

  [[nodiscard]] TIDEMARK_EVERYWHERE std::int64_t width() const { return 2 * experts + 1; }
  [[nodiscard]] TIDEMARK_EVERYWHERE std::int64_t count(std::int64_t token) const {
    return map[token * width() + 2 * experts];
  }
  [[nodiscard]] TIDEMARK_EVERYWHERE std::int64_t row(std::int64_t token, std::int64_t i) const {
    return map[token * width() + i];
  }
  /// Of the token and that row's expert, in what there is for each of both.
  [[nodiscard]] TIDEMARK_EVERYWHERE std::int64_t pair(std::int64_t token, std::int64_t i) const {
    return token * experts + map[token * width() + experts + i];
  }
};

template <class Call>
TokenRows token_rows(const Call& c, std::size_t input, std::int64_t rows) {
  const Shape& sizes = c.sizes_in(input);
  const TokenRows read{c.integers(input), sizes[0], (sizes[1] - 1) / 2};
  std::vector<std::int64_t> all = c.fetched(read.map);
  const TokenRows seen{{all.data(), read.map.count}, read.tokens, read.experts};
  RowCheck check(rows);
  for (std::int64_t token = 0; token < seen.tokens; ++token) {
    const std::int64_t count = seen.count(token);
    if (count < 0 || count > seen.experts) report_index(count, seen.experts + 1, "number of experts");
    for (std::int64_t i = 0; i < count; ++i) {
      check.name(seen.row(token, i));
      const std::int64_t expert = seen.pair(token, i) - token * seen.experts;
      if (expert < 0 || expert >= seen.experts) report_index(expert, seen.experts, "expert");
    }
  }
  check.over();
  return read;
}

}  // namespace

// Rows are those of the first expert first, and of each expert in the order of tokens.
template <class Call>
void Permutations<Call>::token_map(const Call& c) {
  const std::vector<std::int64_t> chosen = c.fetched(c.integers(0));
  const Rows rows = rows_of(c.sizes_in(0));
  const std::int64_t experts = rows.width, width = 2 * experts + 1;
  ensure(rows_of(c.sizes_out(0)).width == width, "a map has room for each expert twice, and for a number");
  std::vector<std::int64_t> map(static_cast<std::size_t>(rows.count * width), -1);
  std::int64_t row = 0;
  for (std::int64_t token = 0; token < rows.count; ++token) map[static_cast<std::size_t>((token + 1) * width - 1)] = 0;
  for (std::int64_t expert = 0; expert < experts; ++expert)
    for (std::int64_t token = 0; token < rows.count; ++token) {
      if (chosen[static_cast<std::size_t>(token * experts + expert)] == 0) continue;
      std::int64_t* const its = map.data() + token * width;
      const std::int64_t number = its[2 * experts]++;
      std::copy_backward(its, its + number, its + number + 1);
      std::copy_backward(its + experts, its + experts + number, its + experts + number + 1);
      its[0] = row++;
      its[experts] = expert;
    }
  c.write(0, c.brought(map));
}

// A row whose probability is zero pads its expert's (Megatron-LM core/transformer/moe/moe_utils.py pad_routing_map).
template <class Call>
void Permutations<Call>::permute_rows(const Call& c) {
  const Values<Real> x = c.read(0), probs = c.read(2);
  const Rows rows = rows_of(c.sizes_out(0));
  const TokenRows of = token_rows(c, 1, rows.count);
  const Values<Real> y = c.room_for(0), permuted_probs = c.room(rows.count);
  c.each(of.tokens, [=] TIDEMARK_EVERYWHERE(std::int64_t token) {
    for (std::int64_t i = 0; i < of.count(token); ++i) {
      const std::int64_t row = of.row(token, i);
      const Real prob = permuted_probs[row] = probs.there() ? probs[of.pair(token, i)] : Real(1);
      for (std::int64_t e = 0; e < rows.width; ++e)
        y[row * rows.width + e] = prob == 0 ? Real(0) : x[token * rows.width + e];
    }
  });
  c.write(0, y);
  c.write(1, permuted_probs);
}

// A token is the sum of its rows, weighted where there are weights.
template <class Call>
void Permutations<Call>::unpermute_rows(const Call& c) {
  const Values<Real> x = c.read(0), weights = c.read(2), permuted_probs = c.read(3);
  const Rows rows = rows_of(c.sizes_in(0));
  const TokenRows of = token_rows(c, 1, rows.count);
  const Values<Real> y = c.room_for(0), probs = c.room(of.tokens * of.experts);
  c.each(of.tokens, [=] TIDEMARK_EVERYWHERE(std::int64_t token) {
    for (std::int64_t e = 0; e < rows.width; ++e) y[token * rows.width + e] = 0;
    for (std::int64_t expert = 0; expert < of.experts; ++expert) probs[token * of.experts + expert] = 0;
    for (std::int64_t i = 0; i < of.count(token); ++i) {
      const std::int64_t row = of.row(token, i), pair = of.pair(token, i);
      const Real weight = weights.there() ? weights[pair] : Real(1);
      for (std::int64_t e = 0; e < rows.width; ++e) y[token * rows.width + e] += weight * x[row * rows.width + e];
      if (permuted_probs.there()) probs[pair] = permuted_probs[row];
    }
  });
  c.write(0, y);
  c.write(1, probs);
}

// Of weighted rows.
template <class Call>
void Permutations<Call>::unpermute_rows_backward(const Call& c) {
  const Values<Real> dy = c.read(0), x = c.read(2), weights = c.read(3);
  const Rows rows = rows_of(c.sizes_out(0));
  const TokenRows of = token_rows(c, 1, rows.count);
  const Values<Real> dx = c.room_for(0);
  const Values<double> dweights = c.sums(of.tokens * of.experts);
  c.each(of.tokens, [=] TIDEMARK_EVERYWHERE(std::int64_t token) {
    for (std::int64_t expert = 0; expert < of.experts; ++expert) dweights[token * of.experts + expert] = 0;
    for (std::int64_t i = 0; i < of.count(token); ++i) {
      const std::int64_t row = of.row(token, i), pair = of.pair(token, i);
      double products = 0;
      for (std::int64_t e = 0; e < rows.width; ++e) {
        const Real g = dy[token * rows.width + e];
        dx[row * rows.width + e] = weights[pair] * g;
        products += static_cast<double>(g) * static_cast<double>(x[row * rows.width + e]);
      }
      dweights[pair] = products;
    }
  });
  c.write(0, dx);
  c.write(1, dweights);
}

// Where each row goes when chunks of rows come in another order: the n-th then is chunk order[n] now.
template <class Call>
void Permutations<Call>::chunk_map(const Call& c) {
  const std::vector<std::int64_t> sizes = c.fetched(c.integers(0)), order = c.fetched(c.integers(1));
  const auto chunks = static_cast<std::int64_t>(sizes.size());
  const std::int64_t rows = elements_of(c.sizes_out(0));
  std::vector<std::int64_t> begins{0}, map(static_cast<std::size_t>(rows));
  for (const std::int64_t size : sizes) begins.push_back(begins.back() + size);
  RowCheck check(rows);
  std::int64_t next = 0;
  for (const std::int64_t chunk : order) {
    if (chunk < 0 || chunk >= chunks) report_index(chunk, chunks, "chunk");
    const auto its = static_cast<std::size_t>(chunk);
    for (std::int64_t row = begins[its]; row < begins[its + 1]; ++row) {
      check.name(row);
      map[static_cast<std::size_t>(row)] = next++;
    }
  }
  check.over();
  c.write(0, c.brought(map));
}

// y[map[r]] = x[r]; back: y[r] = x[map[r]].
template <class Call>
void Permutations<Call>::sort_rows(const Call& c) {
  const Values<Real> x = c.read(0), probs = c.read(2);
  const Values<std::int64_t> map = c.integers(1);
  const Rows rows = rows_of(c.sizes_out(0));
  RowCheck check(rows.count);
  for (const std::int64_t row : c.fetched(map)) check.name(row);
  check.over();
  const bool back = c.attributes[0] != 0;
  const Values<Real> y = c.room_for(0), sorted_probs = c.room(rows.count);
  c.each(rows.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    const std::int64_t from = back ? map[r] : r, to = back ? r : map[r];
    for (std::int64_t e = 0; e < rows.width; ++e) y[to * rows.width + e] = x[from * rows.width + e];
    if (probs.there()) sorted_probs[to] = probs[from];
  });
  c.write(0, y);
  c.write(1, sorted_probs);
}

template struct Permutations<FloatCall>;
template struct Permutations<DoubleCall>;

}  // namespace tidemark::math
