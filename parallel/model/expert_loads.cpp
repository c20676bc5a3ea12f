#include "parallel/model/expert_loads.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "sim/base/ensure.hpp"
#include "sim/base/hash.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::parallel {
namespace {

using sim::hash_of;

// Numbers by place: the same whoever asks, in whichever order. Of each place there are as many as are asked for.
class Draws {
 public:
  template <class... Place>
  explicit Draws(std::uint64_t seed, Place... place) : state_(hash_of(seed, place...)) {}

  /// In (0, 1): 53 bits are what a double holds.
  double uniform() {
    const std::uint64_t bits = hash_of(state_, drawn_++);
    return (static_cast<double>(bits >> 11U) + 0.5) * 0x1p-53;
  }
  /// Box and Muller 1958.
  double normal() {
    const double length = std::sqrt(-2 * std::log(uniform()));
    return length * std::cos(2 * std::numbers::pi * uniform());
  }
  /// Marsaglia and Tsang, A simple method for generating gamma variables, 2000: of scale 1.
  double gamma(double shape) {
    if (shape < 1) {
      const double larger = gamma(shape + 1);
      return larger * std::pow(uniform(), 1 / shape);
    }
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), root = 1 + c * x;
      if (root <= 0) continue;
      const double v = root * root * root;
      if (std::log(uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
    }
  }

 private:
  std::uint64_t state_, drawn_ = 0;
};

// Nobody is chosen by nobody: every expert has some share.
std::vector<std::int64_t> whole(const std::vector<double>& shares) {
  constexpr double most = 1 << 20;
  const double largest = *std::ranges::max_element(shares);
  std::vector<std::int64_t> weights;
  for (const double share : shares) weights.push_back(std::max(1LL, std::llround(most * share / largest)));
  return weights;
}

std::vector<std::int64_t> drawn(const ZipfLoads& loads, std::int64_t experts, std::int32_t layer) {
  std::vector<std::size_t> place(static_cast<std::size_t>(experts));
  std::iota(place.begin(), place.end(), std::size_t{0});
  Draws draws(loads.seed, layer);
  for (std::size_t i = place.size(); i > 1; --i)  // Fisher and Yates
    std::swap(place[i - 1], place[static_cast<std::size_t>(draws.uniform() * static_cast<double>(i))]);
  std::vector<double> shares;
  for (const std::size_t n : place) shares.push_back(std::pow(static_cast<double>(n + 1), -loads.exponent));
  return whole(shares);
}

std::vector<std::int64_t> drawn(const DirichletLoads& loads, std::int64_t experts, std::int32_t layer) {
  std::vector<double> shares;
  for (std::int64_t e = 0; e < experts; ++e) shares.push_back(Draws(loads.seed, layer, e).gamma(loads.concentration));
  return whole(shares);
}

}  // namespace

bool alike_in_all_layers(const ExpertLoads& loads) {
  return std::visit(Overloaded{
                        [](const EqualLoads&) { return true; },
                        [](const LoadOfOneRank&) { return true; },
                        [](const ListedLoads& its) { return its.of_layers.size() == 1; },
                        [](const ZipfLoads&) { return false; },
                        [](const DirichletLoads&) { return false; },
                    },
                    loads);
}

std::vector<std::int64_t> weights_of_experts(const Experts& experts, const ExpertLoads& loads, LayerWithExperts layer) {
  const std::vector<std::int64_t> equal(static_cast<std::size_t>(experts.count), 1);
  return std::visit(
      Overloaded{
          [&](const EqualLoads&) { return equal; },
          [&](const LoadOfOneRank&) { return equal; },
          [&](const ListedLoads& its) {
            ensure(!its.of_layers.empty(), "listed loads are of some layer: readers check");
            return its.of_layers[std::min(static_cast<std::size_t>(layer.place), its.of_layers.size() - 1)];
          },
          [&](const ZipfLoads& its) { return drawn(its, experts.count, layer.number); },
          [&](const DirichletLoads& its) { return drawn(its, experts.count, layer.number); },
      },
      loads);
}

}  // namespace tidemark::parallel
