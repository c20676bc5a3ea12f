#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "kernels/math/families.hpp"

// What is chosen of a row's elements, or of a tensor's.

namespace tidemark::math {
namespace {

// torch.topk and torch.sort take what is not a number for the largest.
template <class Real>
bool larger_first(Real a, Real b) {
  return a > b || (a != a && b == b);
}

}  // namespace

// torch.topk along the last dimension, largest first; of equal ones the first. Experts that are told come in the order
// in which they are, with the scores that the router gives them (Megatron-LM core/transformer/moe/router_replay.py).
template <class Real>
void Choices<Real>::top_k(const Call& c) {
  const std::vector<Real> x = c.read<Real>(0);
  const Rows from = rows_of(c.sizes_in(0)), to = rows_of(c.sizes_out(0));
  const auto count = static_cast<std::int64_t>(c.attributes[0]);
  ensure(to.width == count && count <= from.width, "as many are written as are chosen, and no more than there are");
  const bool told = c.attributes[1] != 0 && c.setting.route;
  std::vector<Real> values;
  std::vector<std::int64_t> ids, order(index(from.width));
  for (std::int64_t r = 0; r < from.count; ++r) {
    const Real* const row = x.data() + r * from.width;
    std::iota(order.begin(), order.end(), 0);
    if (told) {
      for (std::int64_t i = 0; i < count; ++i) order[index(i)] = c.setting.route(r, i);
    } else {
      std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](std::int64_t a, std::int64_t b) {
        return larger_first(row[a], row[b]) || (!larger_first(row[b], row[a]) && a < b);
      });
    }
    for (std::int64_t i = 0; i < count; ++i) {
      check_index(order[index(i)], from.width, "choice");
      ids.push_back(order[index(i)]);
      values.push_back(row[order[index(i)]]);
    }
  }
  c.write(0, values);
  c.write(1, ids);
}

// torch.scatter along the last dimension.
template <class Real>
void Choices<Real>::scatter(const Call& c) {
  std::vector<Real> y = c.read<Real>(0, c.sizes_out(0));
  const std::vector<std::int64_t> ids = c.read<std::int64_t>(1);
  const std::vector<Real> values = c.read<Real>(2);
  const Rows to = rows_of(c.sizes_out(0)), written = rows_of(c.sizes_in(1));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    check_index(ids[i], to.width, "element of a row");
    y[i / index(written.width) * index(to.width) + index(ids[i])] =
        values.empty() ? static_cast<Real>(c.attributes[0]) : values[i];
  }
  c.write(0, y);
}

namespace {

void check_selected(std::size_t selected, std::int64_t room) {
  if (static_cast<std::int64_t>(selected) != room)
    throw WrongIndex(fmt::format("a mask selects {}, where there is room for {}", selected, room));
}

}  // namespace

template <class Real>
void Choices<Real>::masked_select(const Call& c) {
  const std::vector<Real> x = c.read<Real>(0);
  const std::vector<std::int64_t> mask = c.read<std::int64_t>(1, c.sizes_in(0));
  std::vector<Real> y;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (mask[i] != 0) y.push_back(x[i]);
  check_selected(y.size(), elements_of(c.sizes_out(0)));
  c.write(0, y);
}

// torch.masked_scatter of zeros: zero where nothing was selected.
template <class Real>
void Choices<Real>::masked_select_backward(const Call& c) {
  const std::vector<Real> dy = c.read<Real>(0);
  const std::vector<std::int64_t> mask = c.read<std::int64_t>(1, c.sizes_out(0));
  check_selected(index(std::ranges::count_if(mask, [](std::int64_t m) { return m != 0; })), std::ssize(dy));
  std::vector<Real> dx(mask.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < mask.size(); ++i)
    if (mask[i] != 0) dx[i] = dy[next++];
  c.write(0, dx);
}

template struct Choices<float>;
template struct Choices<double>;

}  // namespace tidemark::math
