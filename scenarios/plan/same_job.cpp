#include "scenarios/plan/same_job.hpp"

#include <algorithm>

#include "parallel/job/stages.hpp"
#include "parallel/runtime/runtimes.hpp"

namespace tidemark::scenarios {

Scenario same_job(const Scenario& scenario) {
  Scenario job = scenario;
  job.name.clear();
  job.runtime.headroom = Bytes{};
  job.run = {};
  if (runtime_kind(job.runtime.name).eager()) return job;

  Layout& layout = job.layout;
  layout.stage_layers.clear();
  for (const Stage& stage : split_into_stages(static_cast<std::int32_t>(job.model.layers.size()), scenario.layout))
    layout.stage_layers.push_back(stage.layers());
  layout.count_embedding = layout.count_loss = false;
  layout.first_layers = layout.last_layers = 0;

  Recomputation& recompute = job.train.recompute;
  const std::int32_t most = *std::max_element(layout.stage_layers.begin(), layout.stage_layers.end());
  // The modules that predict further tokens run again by the uniform method only (core, MultiTokenPredictionLayer).
  if (recompute.kind == Recompute::Full && recompute.method == RecomputeMethod::Block && recompute.layers >= most &&
      job.model.further.empty()) {
    recompute.method = RecomputeMethod::Uniform;
    recompute.layers = 1;
  }
  return job;
}

}  // namespace tidemark::scenarios
