#include "scenarios/prediction.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <oneapi/tbb/parallel_for.h>

#include "kernels/price.hpp"
#include "scenarios/io/input_error.hpp"
#include "sim/ensure.hpp"
#include "sim/verify.hpp"

namespace tidemark {
namespace {

// A program is unrolled, and two are in memory for each thread while frees are put in.
constexpr std::int64_t most_ops = 64'000'000;
constexpr std::int64_t ops_of_a_layers_passes = 160;  // forward, backward and frees

void refuse_endless_programs(const Scenario& s) {
  const std::int64_t micro_batches = s.train.global_batch / (s.train.micro_batch * s.layout.data);
  const std::int64_t layers = s.model.layers / s.layout.pipeline + 1;
  if (micro_batches <= most_ops / (ops_of_a_layers_passes * layers * s.train.steps)) return;
  throw InputError(
      Problem{.file = s.name,
              .message = fmt::format("{} micro-batches of {} layers a stage make a program of more than {} million ops",
                                     micro_batches, layers, most_ops / 1'000'000),
              .hint = "memory repeats from micro-batch to micro-batch: a smaller global_batch has the same peak"});
}

Scenario settled(Scenario scenario) {
  refuse_endless_programs(scenario);
  scenario.train.attention = settled_attention(scenario.train.attention, target_of(scenario.cluster));
  return scenario;
}

void replay_role(const Job& job, const Role& role, std::vector<RankGroup>& groups) {
  const Program program = lower_role(job.lowering(), role);
  const std::vector<std::string> wrong = verify(program);
  ensure(wrong.empty(), wrong.empty() ? "" : wrong.front().c_str());

  std::map<std::int32_t, std::vector<Rank>> by_price;
  for (const Rank rank : role.ranks) by_price[job.prices.entry_of_rank[rank.index()]].push_back(rank);
  for (auto& [entry, ranks] : by_price) {
    RankGroup group;
    group.coordinates = coordinates(job.scenario.layout, ranks.front());
    group.ranks = std::move(ranks);
    group.prices = job.prices.entries[static_cast<std::size_t>(entry)];
    group.memory = replay(program, group.prices, {});
    const Bytes capacity = job.scenario.cluster.device.capacity;
    if (group.memory.device.bytes > capacity) {
      // The allocator gives its cache back before it gives up, so a full device need not be the end.
      MemoryRecord limited = replay(program, group.prices, {.capacity = capacity});
      group.failure = limited.failure;
      if (group.failure) group.failed_op = program[group.failure->at.mark.label];
      if (!group.failure) group.memory = std::move(limited);
    }
    group.device_peak_op = program[group.memory.device.at.mark.label];
    group.allocated_peak_op = program[group.memory.allocated.at.mark.label];
    groups.push_back(std::move(group));
  }
}

std::vector<std::string> assumptions_of(const Job& job) {
  const Scenario& s = job.scenario;
  const auto version = [](Version v) { return fmt::format("{}.{}", v.major, v.minor); };
  std::vector<std::string> list;
  list.push_back(fmt::format("habits of Megatron-LM core {} with TransformerEngine {} on PyTorch {}",
                             version(s.runtime.versions.megatron), version(s.runtime.versions.transformer_engine),
                             version(s.runtime.versions.torch)));
  list.push_back(fmt::format("attention: {} kernel; its backward pass sums query gradients in fp32 (size unverified)",
                             s.train.attention == AttentionKernel::Fused ? "cuDNN's fused" : "FlashAttention-2's"));
  list.push_back("communication does not overlap computation");
  list.push_back(
      s.runtime.attention_mask
          ? "the data loader makes attention masks (off with the switch no-create-attention-mask-in-dataloader)"
          : "the data loader makes no attention masks");
  list.push_back("native caching allocator with default settings, on increasing invented addresses");
  list.push_back("CUDA context, loaded code and NCCL are estimates with bounds; NCCL's are unverified on several GPUs");
  if (s.train.precision == DType::FP32) {
    const std::int64_t scores =
        s.train.micro_batch * s.model.heads / s.layout.tensor * s.train.sequence_length * s.train.sequence_length * 4;
    list.push_back(
        fmt::format("fp32: attention counts as fused, though Transformer Engine's fused kernels take 16 bits only; "
                    "unfused, its scores would add {:.2f} GiB a layer and micro-batch in flight",
                    static_cast<double>(scores) / (1 << 30)));
  }
  if (s.train.optimizer != Optimizer::AdamW && s.layout.sharding == Sharding::Zero1)
    list.push_back("Megatron's distributed optimizer takes Adam only: this shows what it would need with SGD");
  if (s.train.precision == DType::FP16)
    list.push_back("fp16: the first step is not skipped for an overflowing loss scale");
  return list;
}

}  // namespace

Target target_of(const Cluster& cluster) {
  return {.compute_capability = cluster.device.compute_capability,
          .devices_per_node = cluster.node.devices,
          .capacity = cluster.device.capacity};
}

Job::Job(const Scenario& asked)
    : scenario(settled(asked)),
      runtime(runtime_named(scenario.runtime.name, scenario.runtime.versions,
                            {.cublas_workspace_config = scenario.runtime.cublas_workspace_config,
                             .attention_mask = scenario.runtime.attention_mask},
                            target_of(scenario.cluster))),
      graph(build_model(scenario.model,
                        {.attention = scenario.train.attention, .cross_entropy = scenario.train.cross_entropy})),
      roles(tidemark::roles(lowering())) {
  const Workload stages = lower_stages(lowering());
  const std::vector<std::string> wrong = verify(stages);
  ensure(wrong.empty(), wrong.empty() ? "" : wrong.front().c_str());
  prices = price(stages, scenario.cluster);
  communicators = stages.communicators;
}

const RankGroup& Prediction::highest() const {
  return *std::max_element(groups.begin(), groups.end(), [](const RankGroup& a, const RankGroup& b) {
    return a.memory.peak_device_upper < b.memory.peak_device_upper;
  });
}

Prediction predict(const Scenario& scenario, const Progress& progress) {
  const Job job(scenario);
  std::vector<std::vector<RankGroup>> found(job.roles.size());
  std::mutex reporting;
  std::size_t done = 0;
  oneapi::tbb::parallel_for(std::size_t{0}, job.roles.size(), [&](std::size_t i) {
    replay_role(job, job.roles[i], found[i]);
    const std::lock_guard lock(reporting);
    if (progress) progress(++done, job.roles.size());
  });

  Prediction prediction;
  prediction.scenario = job.scenario;
  prediction.parameters = parameter_count(job.graph);
  prediction.communicators = job.communicators;
  for (std::vector<RankGroup>& groups : found)
    for (RankGroup& group : groups) prediction.groups.push_back(std::move(group));
  std::sort(prediction.groups.begin(), prediction.groups.end(),
            [](const RankGroup& a, const RankGroup& b) { return a.ranks.front() < b.ranks.front(); });
  for (const RankGroup& group : prediction.groups) {
    prediction.completed &= !group.failure;
    prediction.fits &=
        group.memory.peak_device_upper + job.scenario.runtime.headroom <= job.scenario.cluster.device.capacity;
  }
  prediction.fits &= prediction.completed;
  prediction.assumptions = assumptions_of(job);
  prediction.not_modelled = {"time: step time, tokens per second, MFU and all instants' times are null",
                             "host memory: the pinned and pageable buffers of the framework and of NCCL count as 0"};
  return prediction;
}

}  // namespace tidemark
