#include "tests/golden/recording_errors.hpp"

#include <cmath>
#include <utility>

namespace tidemark::tests::golden {
namespace {

void take_if_farther(double& farthest, double error) {
  if (std::abs(error) > std::abs(farthest)) farthest = error;
}

}  // namespace

StepPeak with_shared_gradient(StepPeak peak, const Scenario& scenario) {
  if (scenario.model.tied_embeddings) peak[Kind::Gradient] += std::exchange(peak[Kind::Temporary], Bytes{});
  return peak;
}

RecordingErrors recording_errors(const Scenario& scenario, const std::vector<StepPeak>& predicted,
                                 const std::vector<StepPeak>& recorded) {
  RecordingErrors errors;
  for (std::size_t step = 0; step < recorded.size(); ++step) {
    const StepPeak p = with_shared_gradient(predicted[step], scenario),
                   r = with_shared_gradient(recorded[step], scenario);
    const double peak = static_cast<double>(r.total().count());
    const auto off = [&](Bytes a, Bytes b) { return static_cast<double>((a - b).count()) / peak; };
    take_if_farther(errors.peak, off(p.total(), r.total()));
    for (std::size_t k = 0; k < kind_names.size(); ++k) take_if_farther(errors.kind, off(p.bytes[k], r.bytes[k]));
    if (r.after == Bytes{}) continue;
    double after = errors.after.value_or(0);
    take_if_farther(after, off(p.after, r.after));
    errors.after = after;
  }
  return errors;
}

double worst_of_steps(const PlainRun& predicted, const PlainRun& recorded) {
  double worst = 0;
  for (std::size_t step = 0; step < recorded.allocated.size(); ++step)
    take_if_farther(worst, share(predicted.allocated[step], recorded.allocated[step]));
  return worst;
}

double share(Bytes predicted, Bytes recorded) {
  return static_cast<double>(predicted.count()) / static_cast<double>(recorded.count()) - 1;
}

}  // namespace tidemark::tests::golden
