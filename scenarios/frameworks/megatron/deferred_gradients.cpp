#include "scenarios/frameworks/megatron/deferred_gradients.hpp"

#include <cstdint>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "parallel/job/job.hpp"

namespace tidemark::scenarios {
namespace {

constexpr std::string_view deferral_switch = deferral_switches[0], limit_switch = deferral_switches[1];
constexpr IntegerRange limits{0, std::numeric_limits<std::int32_t>::max()};

}  // namespace

std::int64_t read_deferral(TomlReader& switches) {
  const bool defers = switches.boolean(deferral_switch).value_or(false);
  const std::int64_t limit = switches.integer(limit_switch, limits).value_or(0);
  if (!defers && limit > 0)
    switches.problem(limit_switch, fmt::format("{} = {}: nothing is deferred", limit_switch, limit),
                     fmt::format("leave it out, or set {} = true", deferral_switch));
  if (!defers) return 0;
  return limit == 0 ? every_micro_batch : limit;
}

void check_deferral(TomlReader& switches, const Scenario& requested, const ScenarioTables& tables) {
  const std::int64_t deferred = requested.runtime.deferred_head_gradients;
  if (deferred == 0) return;
  const auto wrong = [&](std::string_view key, const std::string& why, const char* hint) {
    switches.problem(key, fmt::format("{}: {}", key, why), hint);
  };
  // core/model_parallel_config.py.
  if (tables.layout.sound("pipeline") && requested.layout.pipeline == 1)
    return wrong(deferral_switch, "weight gradients of the head wait for the end of a pipeline", "leave it out");
  if (!requested.runtime.gradient_accumulation_fusion)
    return wrong(deferral_switch, "deferred gradients need products that add into the gradient buffer",
                 "leave no-gradient-accumulation-fusion out");
  // core/pipeline_parallel/schedules.py: grad_sync_func comes before finish_embedding_wgrad_compute.
  if (requested.runtime.overlap.gradients)
    return wrong(deferral_switch, "Megatron-LM would reduce the head's gradients before they are complete",
                 "leave overlap-grad-reduce out");
  // core/tensor_parallel/layers.py: inputs come in the order of forward passes, gradients in that of backward ones.
  if (tables.model_sound && !requested.model.further.empty())
    return wrong(deferral_switch, "Megatron-LM would take one prediction's input for another's",
                 "leave it out, or set num_nextn_predict_layers = 0 in [model_override]");
  // core/utils.py drain_embedding_wgrad_compute: drain_idx is set by the second product.
  constexpr const char* from_two_on = "Megatron-LM drains two products or more";
  if (deferred == 1) return wrong(limit_switch, from_two_on, "2 would do");
  const bool known = tables.layout.sound("data") && tables.train.sound("micro_batch") &&
                     tables.train.sound("global_batch") && tables.top.sound("gpus");
  if (known && micro_batches_of(requested.train, requested.layout) == 1)
    wrong(deferral_switch, fmt::format("{}, and a step has one micro-batch", from_two_on), "leave it out");
}

}  // namespace tidemark::scenarios
