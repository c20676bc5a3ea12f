#include "kernels/cost/memory_time.hpp"

#include "kernels/cost/rates.hpp"

namespace tidemark::kernels {

// Transformer Engine's kernels on a B200, as SimuMax measured them (configs/system/b200_bf16_ceperm.json of
// MooreThreads/SimuMax@4dcaae5, by simu_tools/efficency_test/test_ce_permute_efficiency.py); of other devices nothing
// was found. That file has shares of 8000 GiB/s, 0.666 of which ordinary kernels reach, of bytes that it counts its own
// way:
//  - moe_permute_with_probs and moe_unpermute, 0.5008 of six reads or writes of all chosen rows and two of all tokens,
//    where two each are done: 38 and 14 of rows as long as tokens with six experts each, 50 and 18 with eight;
//  - fused cross entropy, 0.2795 of eight bytes for each logit. It reads logits for their statistics, and reads and
//    writes them for their gradient, six bytes of bf16, before an ordinary kernel scales that in four: 3.332 ps a
//    logit, of which an ordinary four take 0.699.
Ratio share_of_ordinary(Operation operation, const Device& device) {
  if (device.compute_capability < 100 || device.compute_capability >= 120) return one;
  switch (operation) {
    case Operation::PermuteRows:
    case Operation::UnpermuteRows:
    case Operation::UnpermuteRowsBackward:
      return Ratio{274'000};
    case Operation::CrossEntropyStatistics:
    case Operation::CrossEntropyFromStatistics:
      return Ratio{398'000};
    default:
      return one;
  }
}

Duration memory_time(const Program& program, const Kernel& kernel, const Device& device) {
  const Bandwidth ordinary = scaled(device.memory_bandwidth, device.efficiency.memory);
  return device.kernel_latency +
         traffic_of(program, kernel) / scaled(ordinary, share_of_ordinary(kernel.operation, device));
}

}  // namespace tidemark::kernels
