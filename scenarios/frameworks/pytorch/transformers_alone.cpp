#include "scenarios/frameworks/pytorch/transformers_alone.hpp"

#include <fmt/format.h>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {

void check_transformers_alone(const Scenario& requested, ScenarioTables& tables) {
  if (!tables.model_sound || !requested.model.transformers_alone()) return;
  const RuntimeKind& runtime = runtime_kind(requested.runtime.name);
  const std::string& family = requested.model.architecture;
  if (!runtime.eager() || runtime.id == RuntimeId::TorchTitan)
    tables.runtime.problem(
        "name",
        not_modelled(fmt::format("name = \"{}\": layers like those of {} are modelled as transformers "
                                 "builds them, and there alone",
                                 requested.runtime.name, family)),
        "\"pytorch\", \"fsdp\", \"fsdp2\" and \"deepspeed\" run transformers' models");
  if (requested.train.rollout)
    tables.top.problem("rollout",
                       not_modelled(fmt::format("an engine's layers like those of {} are not modelled", family)),
                       "leave it out");
}

}  // namespace tidemark::scenarios
