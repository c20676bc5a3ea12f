#include "topology/calibration.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace tidemark::topology {
namespace {

__extension__ using Wide = __int128;

// In octaves: how far a point may lie for its neighbours to be told by it, and for it to have a say at all.
constexpr double near = 1, in_sight = 3;
constexpr double as_near_as_counts = 0.25;  // a point nearer than that counts no more
// Of the exponents of the power law, in squares of octaves: where points say little of them, the ratio stays what it
// is on average.
constexpr double ridge = 0.05;

// Solves a x = b, a symmetric and positive definite, by Gaussian elimination.
std::vector<double> solved(std::vector<std::vector<double>> a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t row = i + 1; row < n; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (std::size_t k = i; k < n; ++k) a[row][k] -= factor * a[i][k];
      b[row] -= factor * b[i];
    }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

}  // namespace

std::optional<TimeByPoints> time_by_points(std::span<const MeasuredPoint> points, std::span<const std::int64_t> sizes,
                                           double modelled) {
  const std::size_t n = sizes.size();
  // Normal equations of log(ratio) = x0 + sum x_d log2(size_d / its size), at the point asked for.
  std::vector<std::vector<double>> a(n + 1, std::vector<double>(n + 1));
  std::vector<double> b(n + 1), away(n + 1);
  bool reported = false;
  for (const MeasuredPoint& point : points) {
    if (point.sizes.size() != n) continue;
    if (point.modelled <= 0 || point.time <= Duration{} || modelled <= 0) continue;
    if (std::equal(sizes.begin(), sizes.end(), point.sizes.begin())) {
      const double same = static_cast<double>(point.time.count()) * (modelled / point.modelled);
      return {{modelled == point.modelled ? point.time : Duration{std::llround(same)}, TimeSource::Measured}};
    }
    away[0] = 1;
    double farthest = 0, square = 0;
    for (std::size_t d = 0; d < n; ++d) {
      const bool both = sizes[d] > 0 && point.sizes[d] > 0;
      away[d + 1] = both ? std::log2(static_cast<double>(point.sizes[d]) / static_cast<double>(sizes[d]))
                         : (sizes[d] == point.sizes[d] ? 0 : 2 * in_sight);
      farthest = std::max(farthest, std::abs(away[d + 1]));
      square += away[d + 1] * away[d + 1];
    }
    if (farthest > in_sight) continue;
    reported |= farthest <= near;
    const double weight = 1 / std::pow(std::max(square, as_near_as_counts * as_near_as_counts), 1.5);
    const double ratio = std::log(static_cast<double>(point.time.count()) / point.modelled);
    for (std::size_t i = 0; i <= n; ++i) {
      for (std::size_t k = 0; k <= n; ++k) a[i][k] += weight * away[i] * away[k];
      b[i] += weight * away[i] * ratio;
    }
  }
  if (!reported) return std::nullopt;
  for (std::size_t i = 1; i <= n; ++i) a[i][i] += ridge * a[0][0];
  const double ratio = std::exp(solved(std::move(a), std::move(b)).front());
  return {{Duration{std::max<std::int64_t>(std::llround(modelled * ratio), 1)}, TimeSource::Interpolated}};
}

namespace {

// Of what has one size: in proportion to it, and something to begin with. The power law takes care of where either
// ends.
template <class Points, class Is>
std::optional<TimeByPoints> by_size(const Points& all, Bytes size, Is&& is) {
  std::vector<MeasuredPoint> points;
  for (const auto& point : all)
    if (is(point)) points.push_back({{point.size.count()}, point.time, 1});
  return time_by_points(points, std::array{size.count()}, 1);
}

}  // namespace

std::optional<TimeByPoints> measured_time(const Calibration& calibration, CollectiveKind kind, std::int32_t ranks,
                                          std::int32_t nodes, Bytes size) {
  return by_size(calibration.collectives, size, [&](const Calibration::Collective& c) {
    return c.kind == kind && c.ranks == ranks && c.nodes == nodes;
  });
}

std::optional<TimeByPoints> measured_message(const Calibration& calibration, bool between_nodes, Bytes size) {
  return by_size(calibration.messages, size,
                 [&](const Calibration::Message& m) { return m.between_nodes == between_nodes; });
}

std::optional<TimeByPoints> measured_copy(const Calibration& calibration, bool to_device, Bytes size) {
  return by_size(calibration.copies, size, [&](const Calibration::Copy& c) { return c.to_device == to_device; });
}

TransferCost stretched(TransferCost cost, Duration modelled, Duration time) {
  if (modelled <= Duration{} || cost.loads.empty()) return {time, {}};
  const auto scale = [&](std::int64_t count) {
    return static_cast<std::int64_t>(Wide{count} * time.count() / modelled.count());
  };
  cost.latency = Duration{scale(cost.latency.count())};
  for (LinkLoad& load : cost.loads) load.bytes = Bytes{std::max<std::int64_t>(scale(load.bytes.count()), 1)};
  return cost;
}

Duration lone(const TransferCost& cost, std::span<const Bandwidth> capacities) {
  Duration longest;
  for (const LinkLoad& load : cost.loads) longest = std::max(longest, load.bytes / capacities[load.link.index()]);
  return cost.latency + longest;
}

}  // namespace tidemark::topology
