#include <algorithm>
#include <string>
#include <vector>

#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"

// What is chosen of a row's elements, or of a tensor's.

namespace tidemark::math {
namespace {

// Whether an element of a row is chosen before another: the larger one, of equal ones the first. torch.topk and
// torch.sort take what is not a number for the largest.
template <class Real>
TIDEMARK_EVERYWHERE bool comes_before(const Real* row, std::int64_t a, std::int64_t b) {
  const Real x = row[a], y = row[b];
  if (x > y || (x != x && y == y)) return true;
  return !(y > x || (y != y && x == x)) && a < b;
}

// Experts that somebody else says, token by token.
template <class Call>
Values<std::int64_t> reported(const Call& c, Rows chosen, std::int64_t experts) {
  std::vector<std::int64_t> ids;
  for (std::int64_t token = 0; token < chosen.count; ++token)
    for (std::int64_t choice = 0; choice < chosen.width; ++choice) {
      ids.push_back(c.setting.route(token, choice));
      if (ids.back() < 0 || ids.back() >= experts) report_index(ids.back(), experts, "choice");
    }
  return c.brought(ids);
}

// The groups that those are of, in the order in which they come, and then the first others.
template <class Call>
Values<std::int64_t> reported_groups(const Call& c, Rows chosen, std::int64_t groups) {
  const auto choices = static_cast<std::int64_t>(c.attributes[1]),
             of_group = static_cast<std::int64_t>(c.attributes[2]);
  std::vector<std::int64_t> ids;
  for (std::int64_t token = 0; token < chosen.count; ++token) {
    std::vector<std::int64_t> its;
    const auto add = [&](std::int64_t group) {
      if (group < 0 || group >= groups) report_index(group, groups, "choice of a group");
      if (std::find(its.begin(), its.end(), group) == its.end()) its.push_back(group);
    };
    for (std::int64_t choice = 0; choice < choices; ++choice) add(c.setting.route(token, choice) / of_group);
    const auto reported = static_cast<std::int64_t>(its.size());
    if (reported > chosen.width) report_index(reported - 1, chosen.width, "group of choices");
    for (std::int64_t group = 0; static_cast<std::int64_t>(its.size()) < chosen.width; ++group) add(group);
    ids.insert(ids.end(), its.begin(), its.end());
  }
  return c.brought(ids);
}

}  // namespace

// torch.topk along the last dimension, largest first. Experts that are told come in the order in which they are, with
// the scores that the router gives them (Megatron-LM core/transformer/moe/router_replay.py).
template <class Call>
void Choices<Call>::top_k(const Call& c) {
  const Values<Real> x = c.read(0), values = c.room_for(0);
  const Rows from = rows_of(c.sizes_in(0)), to = rows_of(c.sizes_out(0));
  ensure(to.width == static_cast<std::int64_t>(c.attributes[0]) && to.width <= from.width,
         "as many are written as are chosen, and no more than there are");
  const bool replayed = c.attributes[1] != 0 && c.setting.route;
  const Values<std::int64_t> ids = !replayed             ? c.template room_of<std::int64_t>(to.count * to.width)
                                   : c.attributes[2] > 0 ? reported_groups(c, to, from.width)
                                                         : reported(c, to, from.width);
  c.each(to.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    const Real* const row = x.first + r * from.width;
    for (std::int64_t place = r * to.width; place < (r + 1) * to.width; ++place) {
      if (!replayed) {
        std::int64_t best = -1;
        for (std::int64_t i = 0; i < from.width; ++i) {
          const bool left = place == r * to.width || comes_before(row, ids[place - 1], i);
          if (left && (best < 0 || comes_before(row, i, best))) best = i;
        }
        ids[place] = best;
      }
      values[place] = row[ids[place]];
    }
  });
  c.write(0, values);
  c.write(1, ids);
}

// torch.scatter along the last dimension.
template <class Call>
void Choices<Call>::scatter(const Call& c) {
  const Values<Real> y = c.read(0, c.sizes_out(0)), values = c.read(2);
  const Values<std::int64_t> ids = c.integers(1);
  const Rows to = rows_of(c.sizes_out(0)), written = rows_of(c.sizes_in(1));
  const Real number = static_cast<Real>(c.attributes[0]);
  check_indices(c, ids, to.width, "element of a row");
  c.each(written.count, [=] TIDEMARK_EVERYWHERE(std::int64_t r) {
    for (std::int64_t i = r * written.width; i < (r + 1) * written.width; ++i)
      y[r * to.width + ids[i]] = values.there() ? values[i] : number;
  });
  c.write(0, y);
}

namespace {

// Which elements a mask selects, of which there are so many.
template <class Call>
Values<std::int64_t> selected(const Call& c, std::size_t mask, const Shape& sizes, std::int64_t count) {
  const std::vector<std::int64_t> all = c.fetched(c.integers(mask, sizes));
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] != 0) places.push_back(static_cast<std::int64_t>(i));
  if (static_cast<std::int64_t>(places.size()) != count)
    throw WrongIndex("a mask selects " + std::to_string(places.size()) + ", where there is room for " +
                     std::to_string(count));
  return c.brought(places);
}

}  // namespace

template <class Call>
void Choices<Call>::masked_select(const Call& c) {
  const Values<Real> x = c.read(0), y = c.room_for(0);
  const Values<std::int64_t> places = selected(c, 1, c.sizes_in(0), y.count);
  c.each(y.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { y[i] = x[places[i]]; });
  c.write(0, y);
}

// torch.masked_scatter of zeros: zero where nothing was selected.
template <class Call>
void Choices<Call>::masked_select_backward(const Call& c) {
  const Values<Real> dy = c.read(0), dx = c.room_for(0);
  const Values<std::int64_t> places = selected(c, 1, c.sizes_out(0), dy.count);
  c.each(dx.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { dx[i] = 0; });
  c.each(dy.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { dx[places[i]] = dy[i]; });
  c.write(0, dx);
}

template struct Choices<FloatCall>;
template struct Choices<DoubleCall>;

}  // namespace tidemark::math
