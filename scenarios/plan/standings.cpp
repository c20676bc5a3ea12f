#include "scenarios/plan/detail/standings.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "scenarios/plan/front.hpp"

namespace tidemark::scenarios {

void Standings::clear() {
  best_.clear();
  front_.clear();
}

void Standings::keep(const Found& found) {
  keep_best(found);
  front_.push_back(found);
  front_ = pareto_front(std::move(front_));
}

void Standings::correct(const std::function<bool(Found&)>& change) {
  for (std::vector<Found>* list : {&best_, &front_}) std::erase_if(*list, [&](Found& f) { return !change(f); });
  std::ranges::sort(best_, better);
  front_ = pareto_front(std::move(front_));
}

Bar Standings::bar() const {
  Bar bar;
  if (best_.size() < options_.top) return bar;
  for (const Found& f : front_) bar.front.push_back({f.figures.device_upper, f.figures.throughput});
  bar.throughput = best_[options_.top - 1].figures.throughput;
  return bar;
}

std::vector<Found> Standings::recommended(std::size_t best) const {
  std::vector<Found> all = front_;
  for (std::size_t i = 0; i < std::min(best, best_.size()); ++i)
    if (std::ranges::find(front_, best_[i].candidate, &Found::candidate) == front_.end()) all.push_back(best_[i]);
  return all;
}

// Whether a list of the best needs one of them only: the same figures, or the same bytes of the same ranks in another
// order.
bool Standings::are_twins(const Found& a, const Found& b) const {
  const auto bytes = [](const Figures& f) { return std::tuple(f.allocated, f.device, f.device_upper, f.host_upper); };
  if (bytes(a.figures) != bytes(b.figures)) return false;
  if (a.figures.step == b.figures.step && a.figures.throughput == b.figures.throughput) return true;
  const std::vector<std::size_t> x = space_.values_of(a.candidate), y = space_.values_of(b.candidate);
  for (std::size_t axis = 0; axis < x.size(); ++axis)
    if (x[axis] != y[axis] && space_.axes[axis].name != "layout.order") return false;
  return true;
}

void Standings::keep_best(const Found& found) {
  const auto twin = std::ranges::find_if(best_, [&](const Found& f) { return are_twins(f, found); });
  if (twin != best_.end()) {
    if (better(*twin, found)) return;
    best_.erase(twin);
  }
  best_.insert(std::upper_bound(best_.begin(), best_.end(), found, better), found);
  best_.resize(std::min(best_.size(), options_.top));
  if (options_.found) options_.found(best_);
}

}  // namespace tidemark::scenarios
