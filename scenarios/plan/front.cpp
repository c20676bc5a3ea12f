#include "scenarios/plan/front.hpp"

#include <algorithm>

namespace tidemark::scenarios {

bool better(const Found& a, const Found& b) {
  if (a.figures.throughput != b.figures.throughput) return a.figures.throughput > b.figures.throughput;
  if (a.figures.device_upper != b.figures.device_upper) return a.figures.device_upper < b.figures.device_upper;
  return a.candidate < b.candidate;
}

std::vector<Found> pareto_front(std::vector<Found> found) {
  std::sort(found.begin(), found.end(), better);
  std::vector<Found> front;
  for (const Found& f : found)
    if (front.empty() || f.figures.device_upper < front.back().figures.device_upper) front.push_back(f);
  return front;
}

}  // namespace tidemark::scenarios
