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

enum class Remedy : std::uint8_t {
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

bool helps(Remedy remedy, const Scenario& s) {
  const RuntimeKind& kind = runtime_kind(s.runtime.name);
  const CpuOffload hosts = cpu_offload(s.runtime);
  const std::optional<Rollout>& rollout = s.train.rollout;
  switch (remedy) {
    case Remedy::SmallerMicroBatch:
      return s.train.micro_batch > 1;
    case Remedy::ShorterSequence:
      return true;
    case Remedy::Checkpointing:
      return s.train.recompute.kind != Recompute::Full;
    case Remedy::FlashAttention:
      return stores_scores(s.train.attention);
    case Remedy::OffloadActivations:
      return (kind.id == RuntimeId::Megatron || kind.id == RuntimeId::PyTorch) && !hosts.activations;
    case Remedy::FusedLoss:
      return takes_liger(s);
    case Remedy::SmallOptimizer:
      return s.train.optimizer == Optimizer::AdamW;
    case Remedy::Adapters:
      return takes_adapters(s) && !s.train.adapter;
    case Remedy::QuantizedBase:
      return takes_quantized_bases(s) && s.train.adapter && !s.train.quantization;
    case Remedy::OffloadOptimizer:
      return !hosts.optimizer;
    case Remedy::ShardOptimizer:
      return s.layout.data > 1 && s.layout.sharding == Sharding::None;
    case Remedy::ShardParameters:
      return kind.eager() && s.layout.data > 1 && s.layout.sharding != Sharding::Zero3;
    case Remedy::CutModel:
      return kind.id == RuntimeId::Megatron && s.gpus > s.layout.tensor * s.layout.pipeline;
    case Remedy::SpreadExperts:
      return s.model.experts && s.layout.expert < s.model.experts->count;
    case Remedy::NoLoaderMask:
      return loads_large_mask(s);
    case Remedy::Sleep:
      return rollout && rollout->sleep == EngineSleep::Awake;
    case Remedy::ShorterResponses:
    case Remedy::FewerSamples:
      return rollout && rollout->memory_fraction == 0;
    case Remedy::SmallerPool:
      return rollout && rollout->memory_fraction > 0;
    case Remedy::ExpandableSegments:
      return s.runtime.allocator.empty();
  }
  return false;
}

// Whether `advise` has such a change, and it gives a scenario.
bool is_accepted(Remedy remedy, const AcceptedChanges& changes) {
  switch (remedy) {
    case Remedy::SmallerMicroBatch:
      return changes.any("train.micro_batch");
    case Remedy::ShorterSequence:
      return changes.any("train.sequence_length");
    case Remedy::Checkpointing:
      return changes.any("recompute") || changes.any("train.recompute");
    case Remedy::FlashAttention:
      return changes.any("train.attention");
    case Remedy::OffloadActivations:
      return changes.any("offload", "activations");
    case Remedy::FusedLoss:
      return changes.any("runtime.switches.use_liger_kernel");
    case Remedy::SmallOptimizer:
      return changes.any("train.optimizer");
    case Remedy::Adapters:
      return changes.any("trained");
    case Remedy::QuantizedBase:
      return changes.any("quantization");
    case Remedy::OffloadOptimizer:
      return changes.any("offload", "optimizer") || changes.any("offload", "parameters");
    case Remedy::ShardOptimizer:
      return changes.any("layout.sharding");
    case Remedy::ShardParameters:
      return changes.any("layout.sharding", "zero3");
    case Remedy::CutModel:
      return changes.any("layout.tensor") || changes.any("layout.pipeline");
    case Remedy::SpreadExperts:
      return changes.any("layout.expert");
    case Remedy::NoLoaderMask:
      return changes.any("runtime.switches.no-create-attention-mask-in-dataloader");
    case Remedy::Sleep:
      return changes.any("rollout.sleep");
    case Remedy::ShorterResponses:
      return changes.any("rollout.response_length");
    case Remedy::FewerSamples:
      return changes.any("rollout.samples") || changes.any("rollout.batch");
    case Remedy::SmallerPool:
      return changes.any("rollout.memory_fraction");
    case Remedy::ExpandableSegments:
      return changes.any("runtime.allocator");
  }
  return false;
}

std::string_view text(Remedy remedy, const Scenario& s) {
  switch (remedy) {
    case Remedy::SmallerMicroBatch:
      return "a smaller micro_batch, with more of them for the same global_batch";
    case Remedy::ShorterSequence:
      return "a shorter sequence_length";
    case Remedy::Checkpointing:
      return "recompute = \"full\", or of some modules or layers";
    case Remedy::FlashAttention:
      return "attention = \"auto\", which stores no scores";
    case Remedy::OffloadActivations:
      return "[offload] activations = \"cpu\"";
    case Remedy::FusedLoss:
      return "use_liger_kernel = true, which never has all logits at once";
    case Remedy::SmallOptimizer:
      return "an optimizer with less state: \"adamw_8bit\", \"adafactor\"";
    case Remedy::Adapters:
      return "[adapter], LoRA, which trains little of the model; with [quantization] too it is QLoRA";
    case Remedy::QuantizedBase:
      return "[quantization] format = \"nf4\", for what adapters stand beside";
    case Remedy::OffloadOptimizer:
      return runtime_kind(s.runtime.name).shards_units() ? "[offload] parameters = \"cpu\", and the optimizer with them"
                                                         : "[offload] optimizer = \"cpu\"";
    case Remedy::ShardOptimizer:
      return "sharding of the optimizer's state over data-parallel ranks";
    case Remedy::ShardParameters:
      return "sharding = \"zero3\", or fsdp2";
    case Remedy::CutModel:
      return "more tensor or pipeline ranks";
    case Remedy::SpreadExperts:
      return "more expert ranks";
    case Remedy::NoLoaderMask:
      return "the switch no-create-attention-mask-in-dataloader: fused attention needs no mask";
    case Remedy::Sleep:
      return "sleep = 1 or 2 in [rollout]: the engine leaves while the devices train";
    case Remedy::ShorterResponses:
      return "a shorter response_length in [rollout]";
    case Remedy::FewerSamples:
      return "fewer samples, or a smaller batch, in [rollout]";
    case Remedy::SmallerPool:
      return "a smaller memory_fraction in [rollout]";
    case Remedy::ExpandableSegments:
      return "allocator = \"expandable_segments:True\", where memory is in pieces";
  }
  return "";
}

std::vector<Remedy> listed(Phase phase) {
  switch (phase) {
    case Phase::Construction:
      return {Remedy::ShardOptimizer, Remedy::ShardParameters,  Remedy::CutModel, Remedy::SpreadExperts,
              Remedy::QuantizedBase,  Remedy::OffloadOptimizer, Remedy::Sleep,    Remedy::Adapters};
    case Phase::Forward:
      return {Remedy::SmallerMicroBatch,  Remedy::ShorterSequence,    Remedy::Checkpointing, Remedy::FlashAttention,
              Remedy::NoLoaderMask,       Remedy::FusedLoss,          Remedy::Sleep,         Remedy::QuantizedBase,
              Remedy::OffloadActivations, Remedy::ExpandableSegments, Remedy::Adapters};
    case Phase::Backward:
      return {Remedy::Checkpointing, Remedy::SmallerMicroBatch, Remedy::ShorterSequence,    Remedy::FusedLoss,
              Remedy::Sleep,         Remedy::QuantizedBase,     Remedy::OffloadActivations, Remedy::ExpandableSegments,
              Remedy::Adapters};
    case Phase::OptimizerStep:
    case Phase::Communication:
      return {Remedy::SmallOptimizer,     Remedy::OffloadOptimizer, Remedy::ShardOptimizer, Remedy::ShardParameters,
              Remedy::CutModel,           Remedy::SpreadExperts,    Remedy::Sleep,          Remedy::QuantizedBase,
              Remedy::ExpandableSegments, Remedy::Adapters};
    case Phase::Rollout:
      return {Remedy::ShorterResponses, Remedy::FewerSamples, Remedy::SmallerPool, Remedy::OffloadOptimizer,
              Remedy::CutModel};
  }
  return {};
}

}  // namespace

std::vector<std::string> remedies_of(Phase phase, const Scenario& scenario, const AcceptedChanges* accepted) {
  std::vector<std::string> found;
  for (const Remedy remedy : listed(phase))
    if (helps(remedy, scenario) && (accepted == nullptr || is_accepted(remedy, *accepted)))
      found.emplace_back(text(remedy, scenario));
  return found;
}

}  // namespace tidemark::scenarios
