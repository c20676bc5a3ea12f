#include "parallel/built_model.hpp"

#include "parallel/frameworks/megatron/training.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel {

BuiltModel build_model(const Model& model, const ModelOptions& options) {
  ensure(options.attention != AttentionKernel::Auto, "the attention kernel is settled before modules are built");
  return {model, options, megatron::registered_parameters(model, options)};
}

std::int64_t parameter_count(const BuiltModel& built) {
  std::int64_t count = 0;
  for (const Parameter& p : built.parameters) count += p.rows * p.columns;
  return count;
}

std::int64_t active_parameter_count(const BuiltModel& built) {
  const std::int64_t chosen = built.model.experts ? built.model.experts->chosen : 0;  // any will do: all are alike
  std::int64_t count = 0;
  for (const Parameter& p : built.parameters)
    if (p.expert < chosen) count += p.rows * p.columns;
  return count;
}

}  // namespace tidemark::parallel
