#include "sim/program/byte_sets.hpp"

#include <algorithm>
#include <numeric>

#include "sim/base/hash.hpp"

namespace tidemark::sim {
namespace {

std::uint64_t both(ByteSets::Id a, ByteSets::Id b) {
  return static_cast<std::uint64_t>(a) << 32U | static_cast<std::uint64_t>(b);
}

// Puts stretches in order and joins those that touch.
std::vector<Stretch> joined(std::vector<Stretch> all) {
  const auto before = [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; };
  if (!std::ranges::is_sorted(all, before)) std::ranges::sort(all, before);
  std::vector<Stretch> found;
  for (const Stretch& s : all) {
    if (s.begin >= s.end) continue;
    if (!found.empty() && s.begin <= found.back().end)
      found.back().end = std::max(found.back().end, s.end);
    else
      found.push_back(s);
  }
  return found;
}

// Places of a view, the outermost dimension first, without those that add nothing to the next.
struct Dimension {
  std::int64_t size, stride;
};
std::vector<Dimension> dimensions_of(const View& view) {
  std::vector<Dimension> all;
  for (std::size_t d = 0; d < view.sizes.size(); ++d)
    if (view.sizes[d] != 1 && view.strides[d] != 0) all.push_back({view.sizes[d], view.strides[d]});
  std::ranges::stable_sort(all, [](const Dimension& a, const Dimension& b) { return a.stride > b.stride; });
  std::vector<Dimension> merged;
  for (const Dimension& d : all) {
    if (!merged.empty() && merged.back().stride == d.size * d.stride)
      merged.back() = {merged.back().size * d.size, d.stride};
    else
      merged.push_back(d);
  }
  return merged;
}

}  // namespace

ByteSets::ByteSets() { (void)known({}); }

ByteSets::Id ByteSets::known(std::vector<Stretch> set) {
  std::uint64_t hash = mixed(set.size());
  Bytes size;
  for (const Stretch& s : set) {
    const Bytes length = s.end - s.begin;
    // Both ends in one number; sets that it takes for one are compared.
    hash =
        mixed(hash ^ static_cast<std::uint64_t>(s.begin.count()) ^ static_cast<std::uint64_t>(length.count()) << 32U);
    size += length;
  }
  const auto [from, to] = by_hash_.equal_range(hash);
  for (auto at = from; at != to; ++at)
    if (sets_[static_cast<std::size_t>(at->second)].stretches == set) return at->second;
  const auto id = static_cast<Id>(sets_.size());
  sets_.push_back({std::move(set), size});
  by_hash_.emplace(hash, id);
  return id;
}

ByteSets::Id ByteSets::stretch(Bytes begin, Bytes end) {
  if (begin >= end) return empty;
  return known({{begin, end}});
}

ByteSets::Id ByteSets::seen(const View& view, Bytes from) {
  if (std::ranges::count(view.sizes, 0) > 0) return empty;
  std::vector<Dimension> dimensions = dimensions_of(view);
  Bytes run = size_of(view.dtype);
  if (!dimensions.empty() && dimensions.back().stride == 1) {
    run = dimensions.back().size * run;
    dimensions.pop_back();
  }
  std::vector<Stretch> all{{from, from + run}};
  for (auto d = dimensions.rbegin(); d != dimensions.rend(); ++d) {
    const std::size_t inner = all.size();
    all.reserve(inner * static_cast<std::size_t>(d->size));
    for (std::int64_t i = 1; i < d->size; ++i)
      for (std::size_t k = 0; k < inner; ++k) {
        const Bytes step = i * d->stride * size_of(view.dtype);
        all.push_back({all[k].begin + step, all[k].end + step});
      }
  }
  return known(joined(std::move(all)));
}

ByteSets::Id ByteSets::united(Id a, Id b) {
  if (a == b || b == empty) return a;
  if (a == empty) return b;
  const auto [found, added] = unions_.try_emplace(both(std::min(a, b), std::max(a, b)));
  if (!added) return found->second;
  std::vector<Stretch> all;
  std::ranges::merge((*this)[a], (*this)[b], std::back_inserter(all), {}, &Stretch::begin, &Stretch::begin);
  return found->second = known(joined(std::move(all)));
}

ByteSets::Id ByteSets::without(Id a, Id b) {
  if (a == b || a == empty) return empty;
  if (b == empty) return a;
  const auto [found, added] = differences_.try_emplace(both(a, b));
  if (!added) return found->second;
  std::vector<Stretch> rest;
  const std::span<const Stretch> taken = (*this)[b];
  auto next = taken.begin();
  for (Stretch s : (*this)[a]) {
    while (next != taken.end() && next->end <= s.begin) ++next;
    for (auto at = next; at != taken.end() && at->begin < s.end; ++at) {
      if (at->begin > s.begin) rest.push_back({s.begin, at->begin});
      s.begin = std::max(s.begin, at->end);
    }
    if (s.begin < s.end) rest.push_back(s);
  }
  return found->second = known(std::move(rest));
}

}  // namespace tidemark::sim
