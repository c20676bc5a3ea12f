#include "scenarios/nccl_on_hosts.hpp"

#include "scenarios/on_hosts.hpp"
#include "topology/route/price.hpp"

namespace tidemark::scenarios {

std::vector<Estimate> nccl_on_hosts(const Job& job) {
  const Scenario& s = job.scenario;
  if (!on_hosts(s.runtime).any()) return {};
  return topology::nccl_on_hosts(job.calls, s.cluster, nccl_settings(s.runtime));
}

}  // namespace tidemark::scenarios
