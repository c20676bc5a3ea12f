#pragma once

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/frameworks/pytorch/offload_reader.hpp"
#include "scenarios/scenario/scenario_tables.hpp"

namespace tidemark::scenarios {

/// Reads `[runtime.switches]` of plain PyTorch: arguments of torch.optim, torch.utils.checkpoint,
/// DistributedDataParallel, or fully_shard and its callers, and of transformers, under their own names.
[[nodiscard]] EagerSettings read_pytorch_switches(TomlReader& switches, const RuntimeKind& runtime,
                                                  const OffloadRequest& offloaded);

/// What of a scenario plain PyTorch cannot do, or is not modelled in it, is a problem; what it leaves open gets
/// PyTorch's default. `asked` has been read and not settled.
void settle_pytorch(Scenario& requested, ScenarioTables& tables);

}  // namespace tidemark::scenarios
