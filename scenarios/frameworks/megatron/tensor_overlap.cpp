#include "scenarios/frameworks/megatron/tensor_overlap.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "parallel/job/mesh.hpp"

namespace tidemark::scenarios {

std::optional<TensorOverlap> read_tensor_overlap(TomlReader& switches) {
  const auto on = [&](std::size_t which) {
    return switches.boolean(tensor_overlap_switches.at(which)).value_or(false);
  };
  const TensorOverlap requested{.gathers = !on(1), .scatters = !on(2), .bulk_gathers = !on(3), .bulk_scatters = !on(4)};
  return on(0) ? std::optional(requested) : std::nullopt;
}

// training/arguments.py validate_args, training/initialize.py; transformer_engine/pytorch/module/base.py initialize_ub,
// common/comm_gemm_overlap/.
void check_tensor_overlap(TomlReader& switches, const Scenario& requested, const ScenarioTables& tables) {
  if (!requested.runtime.tensor_overlap) return;
  const auto wrong = [&](const ProblemText& why, std::string_view hint) {
    switches.problem(tensor_overlap_switches.front(),
                     ProblemText(fmt::format("{} = true: {}", tensor_overlap_switches.front(), why.text), why.kind),
                     std::string(hint));
  };
  const Layout& layout = requested.layout;
  if (tables.layout.sound("tensor") && (layout.tensor == 1 || !layout.sequence_parallel))
    return wrong("Megatron-LM takes it with sequence parallelism only",
                 "sequence_parallel = true in [layout], with tensor = 2 or more");
  if (tables.layout.sound("order") && dense_mesh(layout).along(axis::tp).stride != 1)
    wrong("TransformerEngine assumes that tensor-parallel ranks are consecutive", "an order that begins with tp");
  if (tables.cluster_sound && layout.tensor > requested.cluster.node.devices)
    wrong("tensor-parallel ranks reach each other's memory, on one node",
          fmt::format("tensor = {} or less", requested.cluster.node.devices));
  if (tables.cluster_sound && requested.cluster.device.compute_capability < 90)
    wrong(not_modelled("TransformerEngine stops on devices without multicast (UB_SKIPMC = 1 is not modelled)"),
          "leave it out");
  if (requested.runtime.versions.transformer_engine < Version{2, 4})
    wrong(not_modelled("before TransformerEngine 2.4 it is not modelled"),
          "transformer_engine = \"2.11\" in [runtime.versions]");
  if (tables.train.sound("attention") && requested.train.attention == AttentionKernel::Local)
    wrong("Megatron-LM's own layers have none", "leave attention out");
  if (tables.model_sound && (requested.model.latent() || !requested.model.further.empty()))
    wrong(not_modelled("Megatron-LM turns it off in models with latent attention or further tokens' layers, at the "
                       "first such linear: "
                       "not modelled"),
          "leave it out");
  if (requested.layout.schedule == ScheduleKind::ZeroBubbleH1)
    wrong("TransformerEngine computes no weight gradients later beside it", "schedule = \"1f1b\"");
  const std::int64_t tokens = requested.train.micro_batch * requested.train.sequence_length;
  constexpr std::int64_t pieces = 4;  // of a rank's rows, which are features in the library
  if (tables.train.sound("sequence_length") && tables.train.sound("micro_batch") && tables.layout.sound("context") &&
      tokens % (std::int64_t{layout.tensor} * layout.context * pieces) != 0)
    wrong("a rank's tokens are cut into four parts here", "a longer sequence_length, or a multiple of more");
}

}  // namespace tidemark::scenarios
