#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/math/families.hpp"

// Tokens, a row for each expert that they chose, and back (TransformerEngine pytorch/permutation.py).

namespace tidemark::math {
namespace {

void check_rows(std::int64_t said, std::int64_t there) {
  if (said != there) throw WrongIndex(fmt::format("a map of {} rows, where there are {}", said, there));
}

// TransformerEngine's map (pytorch/triton/permutation.py make_row_id_map), [tokens, 2 * experts + 1]: of a token, the
// rows that it goes to, the last one first; from place `experts` on, the experts that these are for; and in the last
// place how many they are. What lies between, TransformerEngine leaves as it was; here it is -1.
class TokenMap {
 public:
  TokenMap(const Call& c, std::size_t input) : TokenMap(c.sizes_in(input), c.read<std::int64_t>(input)) {}

  /// Calls `visit(row, token, expert)` for all of them; each row of so many is there once.
  template <class Visit>
  void each(std::int64_t rows, Visit&& visit) const {
    std::vector<bool> seen(index(rows));
    std::int64_t said = 0;
    for (std::int64_t token = 0; token < tokens_; ++token) {
      const std::int64_t* const its = values_.data() + token * (2 * experts_ + 1);
      check_index(its[2 * experts_], experts_ + 1, "number of experts");
      for (std::int64_t i = 0; i < its[2 * experts_]; ++i, ++said) {
        check_index(its[i], rows, "row of a token");
        check_index(its[experts_ + i], experts_, "expert");
        if (seen[index(its[i])]) throw WrongIndex(fmt::format("row {} is of two tokens", its[i]));
        seen[index(its[i])] = true;
        visit(its[i], token, its[experts_ + i]);
      }
    }
    check_rows(said, rows);
  }
  [[nodiscard]] std::size_t place(std::int64_t token, std::int64_t expert) const {
    return index(token * experts_ + expert);
  }
  /// Of what there is for each token and expert.
  [[nodiscard]] std::size_t places() const { return index(tokens_ * experts_); }

 private:
  TokenMap(const Shape& sizes, std::vector<std::int64_t> values)
      : tokens_(sizes[0]), experts_((sizes[1] - 1) / 2), values_(std::move(values)) {}

  std::int64_t tokens_, experts_;
  std::vector<std::int64_t> values_;
};

}  // namespace

// Rows are those of the first expert first, and of each expert in the order of tokens.
template <class Real>
void Permutations<Real>::token_map(const Call& c) {
  const std::vector<std::int64_t> chosen = c.read<std::int64_t>(0);
  const Rows rows = rows_of(c.sizes_in(0));
  const std::int64_t experts = rows.width, width = 2 * experts + 1;
  ensure(rows_of(c.sizes_out(0)).width == width, "a map has room for each expert twice, and for a number");
  std::vector<std::int64_t> map(index(rows.count * width), -1);
  for (std::int64_t token = 0; token < rows.count; ++token) map[index((token + 1) * width - 1)] = 0;
  std::int64_t row = 0;
  for (std::int64_t expert = 0; expert < experts; ++expert)
    for (std::int64_t token = 0; token < rows.count; ++token) {
      if (chosen[index(token * experts + expert)] == 0) continue;
      std::int64_t* const its = map.data() + token * width;
      const std::int64_t number = its[2 * experts]++;
      std::copy_backward(its, its + number, its + number + 1);
      std::copy_backward(its + experts, its + experts + number, its + experts + number + 1);
      its[0] = row++;
      its[experts] = expert;
    }
  c.write(0, map);
}

// A row whose probability is zero pads its expert's (Megatron-LM core/transformer/moe/moe_utils.py pad_routing_map).
template <class Real>
void Permutations<Real>::permute_rows(const Call& c) {
  const std::vector<Real> x = c.read<Real>(0), probs = c.read<Real>(2);
  const TokenMap map(c, 1);
  const Rows rows = rows_of(c.sizes_out(0));
  std::vector<Real> y(index(rows.count * rows.width)), permuted_probs(index(rows.count));
  map.each(rows.count, [&](std::int64_t row, std::int64_t token, std::int64_t expert) {
    if (!probs.empty()) {
      permuted_probs[index(row)] = probs[map.place(token, expert)];
      if (permuted_probs[index(row)] == 0) return;
    }
    std::copy_n(x.begin() + token * rows.width, rows.width, y.begin() + row * rows.width);
  });
  c.write(0, y);
  c.write(1, permuted_probs);
}

// A token is the sum of its rows, weighted where there are weights.
template <class Real>
void Permutations<Real>::unpermute_rows(const Call& c) {
  const std::vector<Real> x = c.read<Real>(0), weights = c.read<Real>(2), permuted_probs = c.read<Real>(3);
  const TokenMap map(c, 1);
  const Rows rows = rows_of(c.sizes_in(0)), tokens = rows_of(c.sizes_out(0));
  std::vector<Real> y(index(tokens.count * tokens.width)), probs(map.places());
  map.each(rows.count, [&](std::int64_t row, std::int64_t token, std::int64_t expert) {
    const Real weight = weights.empty() ? Real(1) : weights[map.place(token, expert)];
    for (std::int64_t i = 0; i < rows.width; ++i)
      y[index(token * rows.width + i)] += weight * x[index(row * rows.width + i)];
    if (!permuted_probs.empty()) probs[map.place(token, expert)] = permuted_probs[index(row)];
  });
  c.write(0, y);
  c.write(1, probs);
}

// Of weighted rows.
template <class Real>
void Permutations<Real>::unpermute_rows_backward(const Call& c) {
  const std::vector<Real> dy = c.read<Real>(0), x = c.read<Real>(2), weights = c.read<Real>(3);
  const TokenMap map(c, 1);
  const Rows rows = rows_of(c.sizes_out(0));
  std::vector<Real> dx(x.size());
  std::vector<double> dweights(map.places());
  map.each(rows.count, [&](std::int64_t row, std::int64_t token, std::int64_t expert) {
    const Real weight = weights[map.place(token, expert)];
    double products = 0;
    for (std::int64_t i = 0; i < rows.width; ++i) {
      const Real g = dy[index(token * rows.width + i)];
      dx[index(row * rows.width + i)] = weight * g;
      products += static_cast<double>(g) * static_cast<double>(x[index(row * rows.width + i)]);
    }
    dweights[map.place(token, expert)] = products;
  });
  c.write(0, dx);
  c.write(1, dweights);
}

// Where each row goes when chunks of rows come in another order: the n-th then is chunk order[n] now.
template <class Real>
void Permutations<Real>::chunk_map(const Call& c) {
  const std::vector<std::int64_t> sizes = c.read<std::int64_t>(0), order = c.read<std::int64_t>(1);
  const std::int64_t rows = elements_of(c.sizes_out(0));
  std::vector<std::int64_t> begins{0}, map(index(rows), -1);
  for (const std::int64_t size : sizes) {
    check_index(size, rows + 1, "rows of a chunk");
    begins.push_back(begins.back() + size);
  }
  check_rows(begins.back(), rows);
  std::int64_t next = 0;
  for (const std::int64_t chunk : order) {
    check_index(chunk, std::ssize(sizes), "chunk");
    for (std::int64_t row = begins[index(chunk)]; row < begins[index(chunk) + 1]; ++row) map[index(row)] = next++;
  }
  check_rows(next, rows);
  c.write(0, map);
}

// y[map[r]] = x[r]; back: y[r] = x[map[r]].
template <class Real>
void Permutations<Real>::sort_rows(const Call& c) {
  const std::vector<Real> x = c.read<Real>(0), probs = c.read<Real>(2);
  const std::vector<std::int64_t> map = c.read<std::int64_t>(1);
  const Rows rows = rows_of(c.sizes_out(0));
  const bool back = c.attributes[0] != 0;
  check_rows(std::ssize(map), rows.count);
  std::vector<Real> y(x.size()), sorted_probs(probs.size());
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t other = map[index(r)];
    check_index(other, rows.count, "row");
    const std::int64_t from = back ? other : r, to = back ? r : other;
    std::copy_n(x.begin() + from * rows.width, rows.width, y.begin() + to * rows.width);
    if (!probs.empty()) sorted_probs[index(to)] = probs[index(from)];
  }
  c.write(0, y);
  c.write(1, sorted_probs);
}

template struct Permutations<float>;
template struct Permutations<double>;

}  // namespace tidemark::math
