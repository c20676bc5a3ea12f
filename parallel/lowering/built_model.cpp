#include "parallel/job/built_model.hpp"

#include <algorithm>

#include "parallel/frameworks/megatron/training.hpp"
#include "parallel/frameworks/transformers/adapters.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel {

BuiltModel build_model(const Model& model, const ModelOptions& options) {
  ensure(options.attention != AttentionKernel::Auto, "the attention kernel is settled before modules are built");
  BuiltModel built{model, options,
                   model.transformers_alone() ? transformers::registered_parameters(model)
                                              : megatron::registered_parameters(model, options)};
  const auto last = static_cast<std::int32_t>(model.layers.size());
  ensure(std::ranges::is_sorted(built.parameters, {}, [&](const Parameter& p) { return std::min(p.layer, last); }),
         "parameters are registered layer by layer");
  return built;
}

std::int64_t parameter_count(const BuiltModel& built) {
  std::int64_t count = 0;
  for (const Parameter& p : built.parameters)
    if (!p.spare) count += p.elements();
  return count;
}

std::int64_t active_parameter_count(const BuiltModel& built) {
  const Model& model = built.model;
  std::int64_t count = 0;
  for (const Parameter& p : built.parameters) {
    if (p.spare) continue;
    // Any experts will do: a layer's are alike.
    const bool active = !p.of_expert() || p.expert < model.layer(p.layer).experts()->chosen;
    if (active) count += p.elements();
  }
  return count;
}

}  // namespace tidemark::parallel
