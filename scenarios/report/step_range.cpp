#include "scenarios/report/step_range.hpp"

#include <cmath>
#include <numeric>

namespace tidemark::scenarios {
namespace {

// Of what the host thread makes the device wait for: a launch takes 3 to 8 us by who measured it (docs/times.md), and
// runs of one framework's code differ by 10 to 50 % (tests/ground_truth/host_code.toml).
constexpr double host_error = 0.5;

Duration scaled_by(Duration duration, double factor) {
  return Duration{std::llround(static_cast<double>(duration.count()) * factor)};
}

}  // namespace

StepRange step_range(const StepPrediction& step, const Efficiency& efficiency) {
  const double exposed = std::accumulate(step.exposed.begin(), step.exposed.end(), 0.0);
  const double kernels = step.share(StepCause::Compute), own = kernels + exposed;
  const double error =
      kernels * as_double(efficiency.kernel_error) + exposed * as_double(efficiency.communication_error);
  const double all = error + step.share(StepCause::Host) * host_error + (own > 0 ? step.waiting() * error / own : 0);
  return {scaled_by(step.step, 1 / (1 + all)), scaled_by(step.step, 1 + all)};
}

}  // namespace tidemark::scenarios
