#include "scenarios/report/remedies.hpp"

#include <array>
#include <string_view>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/plan/changes/changes.hpp"
#include "scenarios/plan/changes/fine_tuning_changes.hpp"
#include "scenarios/scenario/cpu_offload.hpp"

// The two seed guides' lists: "Common fixes" (oom_in_forward, oom_in_backward, oom_in_optimizer) and "OOM Emergency
// Playbook" (docs/seed-guides.md).

namespace tidemark::scenarios {
namespace {

enum class RemedyKind : std::uint8_t {
  SmallerMicroBatch,
  ShorterSequence,
  Checkpointing,
  FlashAttention,
  OffloadActivations,
  FusedLoss,
  SmallOptimizer,
  Adapters,
  QuantizedBase,
  OffloadOptimizer,
  ShardOptimizer,
  ShardParameters,
  CutModel,
  SpreadExperts,
  NoLoaderMask,
  Sleep,
  ShorterResponses,
  FewerSamples,
  SmallerPool,
  ExpandableSegments,
};

bool helps(RemedyKind remedy, const Scenario& s) {
  const RuntimeKind& kind = runtime_kind(s.runtime.name);
  const CpuOffload hosts = cpu_offload(s.runtime);
  const std::optional<Rollout>& rollout = s.train.rollout;
  switch (remedy) {
    case RemedyKind::SmallerMicroBatch:
      return s.train.micro_batch > 1;
    case RemedyKind::ShorterSequence:
      return true;
    case RemedyKind::Checkpointing:
      return s.train.recompute.kind != Recompute::Full;
    case RemedyKind::FlashAttention:
      return stores_scores(s.train.attention);
    case RemedyKind::OffloadActivations:
      return (kind.id == RuntimeId::Megatron || kind.id == RuntimeId::PyTorch) && !hosts.activations;
    case RemedyKind::FusedLoss:
      return takes_liger(s);
    case RemedyKind::SmallOptimizer:
      return s.train.optimizer == Optimizer::AdamW;
    case RemedyKind::Adapters:
      return takes_adapters(s) && !s.train.adapter;
    case RemedyKind::QuantizedBase:
      return takes_quantized_bases(s) && s.train.adapter && !s.train.quantization;
    case RemedyKind::OffloadOptimizer:
      return !hosts.optimizer;
    case RemedyKind::ShardOptimizer:
      return s.layout.data > 1 && s.layout.sharding == Sharding::None;
    case RemedyKind::ShardParameters:
      return kind.eager() && s.layout.data > 1 && s.layout.sharding != Sharding::Zero3;
    case RemedyKind::CutModel:
      return kind.id == RuntimeId::Megatron && s.gpus > s.layout.tensor * s.layout.pipeline;
    case RemedyKind::SpreadExperts:
      return s.model.experts() && (!kind.eager() || kind.id == RuntimeId::TorchTitan) &&
             s.layout.expert < s.model.experts()->count;
    case RemedyKind::NoLoaderMask:
      return loads_large_mask(s);
    case RemedyKind::Sleep:
      return rollout && rollout->sleep == EngineSleep::Awake;
    case RemedyKind::ShorterResponses:
    case RemedyKind::FewerSamples:
      return rollout && rollout->memory_fraction == 0;
    case RemedyKind::SmallerPool:
      return rollout && rollout->memory_fraction > 0;
    case RemedyKind::ExpandableSegments:
      return s.runtime.allocator.empty();
  }
  return false;
}

// Whether `advise` has such a change, and it gives a scenario.
bool is_accepted(RemedyKind remedy, const AcceptedChanges& changes) {
  switch (remedy) {
    case RemedyKind::SmallerMicroBatch:
      return changes.any("train.micro_batch");
    case RemedyKind::ShorterSequence:
      return changes.any("train.sequence_length");
    case RemedyKind::Checkpointing:
      return changes.any("recompute") || changes.any("train.recompute");
    case RemedyKind::FlashAttention:
      return changes.any("train.attention");
    case RemedyKind::OffloadActivations:
      return changes.any("offload", "activations");
    case RemedyKind::FusedLoss:
      return changes.any("runtime.switches.use_liger_kernel");
    case RemedyKind::SmallOptimizer:
      return changes.any("train.optimizer");
    case RemedyKind::Adapters:
      return changes.any("trained");
    case RemedyKind::QuantizedBase:
      return changes.any("quantization");
    case RemedyKind::OffloadOptimizer:
      return changes.any("offload", "optimizer") || changes.any("offload", "parameters");
    case RemedyKind::ShardOptimizer:
      return changes.any("layout.sharding");
    case RemedyKind::ShardParameters:
      return changes.any("layout.sharding", "zero3");
    case RemedyKind::CutModel:
      return changes.any("layout.tensor") || changes.any("layout.pipeline");
    case RemedyKind::SpreadExperts:
      return changes.any("layout.expert");
    case RemedyKind::NoLoaderMask:
      return changes.any("runtime.switches.no-create-attention-mask-in-dataloader");
    case RemedyKind::Sleep:
      return changes.any("rollout.sleep");
    case RemedyKind::ShorterResponses:
      return changes.any("rollout.response_length");
    case RemedyKind::FewerSamples:
      return changes.any("rollout.samples") || changes.any("rollout.batch");
    case RemedyKind::SmallerPool:
      return changes.any("rollout.memory_fraction");
    case RemedyKind::ExpandableSegments:
      return changes.any("runtime.allocator");
  }
  return false;
}

std::string_view text(RemedyKind remedy, const Scenario& s) {
  switch (remedy) {
    case RemedyKind::SmallerMicroBatch:
      return "a smaller micro_batch, with more of them for the same global_batch";
    case RemedyKind::ShorterSequence:
      return "a shorter sequence_length";
    case RemedyKind::Checkpointing:
      return "recompute = \"full\", or of some modules or layers";
    case RemedyKind::FlashAttention:
      return "attention = \"auto\", which stores no scores";
    case RemedyKind::OffloadActivations:
      return "[offload] activations = \"cpu\"";
    case RemedyKind::FusedLoss:
      return "use_liger_kernel = true, which never has all logits at once";
    case RemedyKind::SmallOptimizer:
      return "an optimizer with less state: \"adamw_8bit\", \"adafactor\"";
    case RemedyKind::Adapters:
      return "[adapter], LoRA, which trains little of the model; with [quantization] too it is QLoRA";
    case RemedyKind::QuantizedBase:
      return "[quantization] format = \"nf4\", for the base under adapters";
    case RemedyKind::OffloadOptimizer:
      return runtime_kind(s.runtime.name).shards_units() ? "[offload] parameters = \"cpu\", and the optimizer with them"
                                                         : "[offload] optimizer = \"cpu\"";
    case RemedyKind::ShardOptimizer:
      return "sharding of the optimizer's state over data-parallel ranks";
    case RemedyKind::ShardParameters:
      return "sharding = \"zero3\", or fsdp2";
    case RemedyKind::CutModel:
      return "more tensor or pipeline ranks";
    case RemedyKind::SpreadExperts:
      return "more expert ranks";
    case RemedyKind::NoLoaderMask:
      return "the switch no-create-attention-mask-in-dataloader: fused attention needs no mask";
    case RemedyKind::Sleep:
      return "sleep = 1 or 2 in [rollout]: the engine frees its memory during training";
    case RemedyKind::ShorterResponses:
      return "a shorter response_length in [rollout]";
    case RemedyKind::FewerSamples:
      return "fewer samples, or a smaller batch, in [rollout]";
    case RemedyKind::SmallerPool:
      return "a smaller memory_fraction in [rollout]";
    case RemedyKind::ExpandableSegments:
      return "allocator = \"expandable_segments:True\", where free memory is fragmented";
  }
  return "";
}

std::vector<RemedyKind> listed(Phase phase) {
  switch (phase) {
    case Phase::Construction:
      return {RemedyKind::ShardOptimizer, RemedyKind::ShardParameters,  RemedyKind::CutModel, RemedyKind::SpreadExperts,
              RemedyKind::QuantizedBase,  RemedyKind::OffloadOptimizer, RemedyKind::Sleep,    RemedyKind::Adapters};
    case Phase::Forward:
      return {RemedyKind::SmallerMicroBatch,
              RemedyKind::ShorterSequence,
              RemedyKind::Checkpointing,
              RemedyKind::FlashAttention,
              RemedyKind::NoLoaderMask,
              RemedyKind::FusedLoss,
              RemedyKind::Sleep,
              RemedyKind::QuantizedBase,
              RemedyKind::OffloadActivations,
              RemedyKind::ExpandableSegments,
              RemedyKind::Adapters};
    case Phase::Backward:
      return {RemedyKind::Checkpointing,
              RemedyKind::SmallerMicroBatch,
              RemedyKind::ShorterSequence,
              RemedyKind::FusedLoss,
              RemedyKind::Sleep,
              RemedyKind::QuantizedBase,
              RemedyKind::OffloadActivations,
              RemedyKind::ExpandableSegments,
              RemedyKind::Adapters};
    case Phase::OptimizerStep:
    case Phase::Communication:
      return {RemedyKind::SmallOptimizer,  RemedyKind::OffloadOptimizer, RemedyKind::ShardOptimizer,
              RemedyKind::ShardParameters, RemedyKind::CutModel,         RemedyKind::SpreadExperts,
              RemedyKind::Sleep,           RemedyKind::QuantizedBase,    RemedyKind::ExpandableSegments,
              RemedyKind::Adapters};
    case Phase::Rollout:
      return {RemedyKind::ShorterResponses, RemedyKind::FewerSamples, RemedyKind::SmallerPool,
              RemedyKind::OffloadOptimizer, RemedyKind::CutModel};
  }
  return {};
}

}  // namespace

std::vector<std::string> remedies_of(Phase phase, const Scenario& scenario, const AcceptedChanges* accepted) {
  std::vector<std::string> found;
  for (const RemedyKind remedy : listed(phase))
    if (helps(remedy, scenario) && (accepted == nullptr || is_accepted(remedy, *accepted)))
      found.emplace_back(text(remedy, scenario));
  return found;
}

}  // namespace tidemark::scenarios
