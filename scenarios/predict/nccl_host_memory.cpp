#include "scenarios/predict/nccl_host_memory.hpp"

#include "scenarios/scenario/cpu_offload.hpp"
#include "topology/route/cost.hpp"

namespace tidemark::scenarios {

std::vector<Estimate> nccl_host_memory(const Job& job) {
  const Scenario& s = job.scenario;
  if (!cpu_offload(s.runtime).any()) return {};
  return topology::nccl_host_memory(job.calls, s.cluster, nccl_settings(s.runtime));
}

}  // namespace tidemark::scenarios
