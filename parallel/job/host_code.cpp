#include "parallel/job/host_code.hpp"

#include <cmath>
#include <cstddef>

namespace tidemark::parallel {
namespace {

// Microseconds for each op that is handed over.
struct PerOp {
  double forward = 0, backward = 0, optimizer = 0;
};
PerOp operator+(const PerOp& a, const PerOp& b) {
  return {a.forward + b.forward, a.backward + b.backward, a.optimizer + b.optimizer};
}

// tests/ground_truth/host_code.toml: the least of all runs of a layer of Llama, over its kernels, products, copies and
// sets. What a job has more than `plain_fused` is added to that.
constexpr PerOp plain{9.7, 6.4, 3.4};  // the optimizer's is plain_forloop's; the others hand over a few kernels in all
constexpr PerOp autocast{1.5, 1.3, 0};
constexpr PerOp adapters{0.7, 0.8, 0};
constexpr PerOp reentrant{2.2, 3.9, 0}, non_reentrant{11.7, 8.2, 0};  // checkpoints; backward is forward again, too
constexpr PerOp zero1{2.8, 4.0, 5.1}, zero2{4.7, 8.0, 7.6}, zero3{76.5, 34.4, 8.8};
// Microseconds for each collective of a unit: fsdp2 and fsdp1, a layer's time less its ops as plain ones, over one
// all-gather forward, and one and a reduce-scatter backward.
constexpr PerOp fsdp2_hooks{800, 550, 0}, fsdp1_hooks{870, 600, 0};
// Of a kernel that Inductor has made, with its launch: 6.8 to 9.1 us (meta-pytorch/tritonbench, pull requests 1016 and
// 1017, on GB200's Grace), of which a launch is 1.3 to 3.3.
constexpr PerOp compiled{5, 5, 3.4};
// Megatron-core's local modules; Transformer Engine's have not been measured, and are taken to be like them.
constexpr PerOp of_megatron{15.1, 12.0, 13.4};

bool autocasts(const LoweringInput& input) {
  const EagerBehavior& eager = *input.runtime.eager;
  if (eager.flat) return eager.flat->autocast;
  if (eager.fully_shard || eager.zero) return false;
  return eager.autocast.value_or(input.train.precision != input.train.master_dtype);
}

bool compiles(const EagerBehavior& eager) {
  return eager.compiled != CompiledParts::None || (eager.titan && eager.titan->requested.compile_layers);
}

PerOp per_op(const LoweringInput& input) {
  const EagerBehavior& eager = *input.runtime.eager;
  if (compiles(eager)) return compiled;
  PerOp its = plain;
  if (autocasts(input)) its = its + autocast;
  if (input.train.adapter) its = its + adapters;
  if (input.train.recompute.kind != Recompute::None)
    its = its + (eager.reentrant_checkpoint ? reentrant : non_reentrant);
  if (eager.zero) {
    if (input.layout.sharding == Sharding::Zero1) its = its + zero1;
    if (input.layout.sharding == Sharding::Zero2) its = its + zero2;
    if (input.layout.sharding == Sharding::Zero3) its = its + zero3;
  }
  return its;
}

PerOp per_collective(const EagerBehavior& eager) {
  if (eager.fully_shard) return fsdp2_hooks;
  return eager.flat ? fsdp1_hooks : PerOp{};
}

void set(std::array<Duration, phases>& by_phase, const PerOp& its) {
  const auto put = [&](Phase phase, double microseconds) {
    by_phase[static_cast<std::size_t>(phase)] = Duration{std::llround(microseconds * 1e6)};
  };
  put(Phase::Forward, its.forward);
  put(Phase::Backward, its.backward);
  put(Phase::OptimizerStep, its.optimizer);
}

}  // namespace

HostCosts megatron_host_code() {
  HostCosts costs;
  set(costs.code, of_megatron);
  return costs;
}

HostCosts host_code(const LoweringInput& input) {
  if (!input.runtime.eager) return megatron_host_code();
  HostCosts costs;
  set(costs.code, per_op(input));
  set(costs.hooks, per_collective(*input.runtime.eager));
  const Communicators groups = communicators_of(input);
  costs.hooked = groups.shard.valid() ? groups.shard : groups.data;
  return costs;
}

}  // namespace tidemark::parallel
