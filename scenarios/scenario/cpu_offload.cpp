#include "scenarios/scenario/cpu_offload.hpp"

namespace tidemark::scenarios {

CpuOffload cpu_offload(const RuntimeChoice& runtime) {
  const EagerSettings& eager = runtime.eager;
  const bool shards = eager.fully_shard.offload || eager.flat.offload;
  return {
      .optimizer = shards || eager.zero.offload_optimizer || runtime.optimizer.offloaded,
      .parameters = shards || eager.zero.offload_parameters,
      .activations = eager.saved_on_host || runtime.offloaded_layers > 0 || runtime.module_offload.any(),
  };
}

}  // namespace tidemark::scenarios
