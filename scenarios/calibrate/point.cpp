#include "scenarios/calibrate/point.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

// Between the two that it lies between, in whole nanoseconds: clocks tell no more.
Duration quantile(const std::vector<Duration>& sorted, std::size_t quarters) {
  const std::size_t place = (sorted.size() - 1) * quarters, below = place / 4, rest = place % 4;
  const Duration low = sorted[below], high = sorted[std::min(below + 1, sorted.size() - 1)];
  const Duration exact = low + (high - low) * static_cast<std::int64_t>(rest) / 4;
  constexpr std::int64_t nanosecond = 1000;
  return Duration{std::max<std::int64_t>((exact.count() + nanosecond / 2) / nanosecond, 1) * nanosecond};
}

}  // namespace

Point point_of(std::string what, std::vector<Duration> times) {
  ensure(!times.empty(), "what was measured took a time");
  std::sort(times.begin(), times.end());
  return {std::move(what), quantile(times, 2), quantile(times, 1), quantile(times, 3),
          static_cast<std::int64_t>(times.size())};
}

std::vector<Point> merged(const std::vector<std::vector<Point>>& ranks) {
  struct All {
    std::vector<Duration> medians, lows, highs;
    std::int64_t repeats = 0;
  };
  std::map<std::string, All> by_what;
  for (const std::vector<Point>& points : ranks)
    for (const Point& point : points) {
      All& all = by_what[point.what];
      all.medians.push_back(point.median);
      all.lows.push_back(point.low);
      all.highs.push_back(point.high);
      all.repeats += point.repeats;
    }
  std::vector<Point> made;
  for (auto& [what, all] : by_what)
    made.push_back({what, point_of(what, all.medians).median, point_of(what, all.lows).median,
                    point_of(what, all.highs).median, all.repeats});
  return made;
}

std::string text(const std::vector<Point>& points) {
  std::string all;
  for (const Point& p : points)
    all += fmt::format("{} {} {} {} {}\n", p.median.count(), p.low.count(), p.high.count(), p.repeats, p.what);
  return all;
}

std::vector<Point> parse_points(std::string_view lines) {
  std::vector<Point> points;
  std::istringstream in{std::string(lines)};
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::int64_t median = 0, low = 0, high = 0, repeats = 0;
    std::string what;
    if (!(words >> median >> low >> high >> repeats) || !std::getline(words >> std::ws, what))
      throw std::runtime_error("a measured point is four numbers and what they are of: " + line);
    points.push_back({what, Duration{median}, Duration{low}, Duration{high}, repeats});
  }
  return points;
}

std::vector<std::string> words_of(const std::string& what) {
  std::istringstream in(what);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(std::move(word));
  return words;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[(values.size() - 1) / 2];
}

}  // namespace tidemark::scenarios
