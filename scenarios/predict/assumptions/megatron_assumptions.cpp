#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/formats/version_text.hpp"
#include "scenarios/predict/assumptions/runtime_assumptions.hpp"
#include "scenarios/scenario/names.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {
namespace {

std::string attention_assumption(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::Auto:
    case AttentionKernel::Fused:
      return "attention: cuDNN's fused kernel; its backward pass sums query gradients in fp32 (size unverified)";
    case AttentionKernel::Flash:
      return "attention: FlashAttention-2's kernel; its backward pass sums query gradients in fp32 (size unverified)";
    case AttentionKernel::Unfused:
      return "attention: TransformerEngine's unfused one, which stores its scores";
    case AttentionKernel::Local:
      return "layers: Megatron's own, whose attention stores its scores";
  }
  return {};
}

std::string_view assumption_of(const parallel::Mixer& mixer) {
  return std::visit(
      Overloaded{
          [](const parallel::Attention&) -> std::string_view { return ""; },
          [](const MultiLatentAttention&) -> std::string_view {
            return "latent attention: every layer has YaRN's tables for 4,096 original positions, Megatron-Core's "
                   "default";
          },
          [](const Mamba2&) -> std::string_view {
            return "Mamba layers: kernels of mamba_ssm 2.2.6 and causal_conv1d 1.5.3, from their source code, not "
                   "measured; a scan takes as long as its matrix products at attention's rates, or as its bytes";
          },
          [](const parallel::NoMixer&) -> std::string_view { return ""; },
      },
      mixer);
}

// What Megatron-Core has no layers for, and how it is run instead.
void add_model_assumptions(const Scenario& s, std::vector<std::string>& list) {
  const Model& m = s.model;
  if (m.norms == NormPlacement::Around)
    list.push_back("norms after attention and MLP: Megatron-Bridge's layers for Gemma, on the projections' outputs");
  if (m.norms == NormPlacement::After)
    list.push_back(
        "norms after attention and MLP only: Megatron-Core has no such layers; modelled as Megatron-Bridge's for "
        "EXAONE 4.0");
  if (m.qk_norm == QkNorm::AllHeads)
    list.push_back(s.layout.tensor == 1
                       ? "norms of queries and keys over all heads: as Megatron-Bridge's attention for OLMoE"
                       : "norms of queries and keys over all heads: no Megatron layer splits them; each rank "
                         "normalizes its heads with sums over all ranks");
  if (m.parallel_residual)
    list.push_back(
        "parallel residual: Megatron-Core has none; modelled as its layers with both branches on the same input");
  if (m.activation == Activation::GeGlu && s.runtime.bias_gelu_fusion)
    list.push_back(
        "GeGLU: Megatron-Core's fused kernel; Megatron-Bridge's Gemma runs without (switch no-bias-gelu-fusion)");
  if (m.attention_softcap > 0)
    list.push_back(
        "soft-capped scores: Megatron-Bridge's unfused attention for Gemma 2, without the masks of sliding windows");
  if (m.attention_sinks)
    list.push_back(
        "attention sinks: within cuDNN's kernels, which Megatron-Core takes from 0.15 on; their time is that of "
        "kernels "
        "beside them");
  if (m.experts() && m.experts()->biases)
    list.push_back(
        "experts with biases: as in Megatron-Core 0.15, which then adds branches without its fused kernel "
        "(no-bias-dropout-fusion)");
  if (!m.experts() && s.layout.expert_tensor > 0)
    list.push_back(
        fmt::format("expert_tensor = {} creates groups of ranks and splits nothing: the model has no experts",
                    s.layout.expert_tensor));
  std::set<std::string_view> of_mixers;
  for (const Layer& layer : m.layers.kinds()) of_mixers.insert(assumption_of(layer.mixer));
  for (const std::string_view its : of_mixers)
    if (!its.empty()) list.emplace_back(its);
  if (m.heterogeneous())
    list.push_back(
        "layers that lack attention or an MLP, or have MLPs of other widths: as Megatron-Core builds them from "
        "--heterogeneous-layers-config-path");
  if (m.window() > 0 && s.train.sequence_length > m.window())
    list.push_back(
        fmt::format("attention is timed over the whole sequence, even in layers with a window of {}", m.window()));
}

// core/distributed/ and core/pipeline_parallel/schedules.py.
void add_overlap(const Scenario& s, std::vector<std::string>& list) {
  const DataOverlap& overlap = s.runtime.overlap;
  if (!overlap.gradients) return;
  const bool together = overlap.gradients_aligned && s.layout.pipeline > 1;
  list.push_back(fmt::format("overlap-grad-reduce: buckets are reduced during the last backward pass{}",
                             !together ? ", each once it is complete"
                             : s.layout.chunks == 1
                                 ? ", each once it is complete; later stages reduce theirs when their passes are over"
                                 : ", those of a chunk together when the first stage is done with it"));
  if (!overlap.parameters) return;
  const std::optional<MuonBehavior>& muon = s.runtime.optimizer.muon;
  list.push_back(muon && !muon->layer_wise_layout
                     ? "overlap-param-gather: parameters that ranks hold whole are gathered after the step"
                 : s.layout.pipeline == 1 || (s.layout.chunks > 1 && overlap.parameters_aligned)
                     ? "overlap-param-gather: buckets are gathered during the next step's first forward pass"
                     : "overlap-param-gather: buckets are gathered during the next step's first forward pass; a stage "
                       "starts when its first input has arrived, so stages gather one after another");
}

void add_offload(const Scenario& s, std::vector<std::string>& list) {
  if (s.runtime.offloaded_layers > 0)
    list.push_back(
        fmt::format("activations: saved tensors of {} layers are copied to pinned host memory and back, on one stream, "
                    "during the passes",
                    s.runtime.offloaded_layers));
  if (const ModuleOffloadBehavior& offload = s.runtime.module_offload; offload.any())
    list.push_back(
        fmt::format("activations: saved tensors of {} with at least {} elements are copied to pinned host memory and "
                    "back, on two streams, during the passes; the first step waits where Megatron-LM does not",
                    fmt::join(words(offloaded_module_names, offload.modules), ", "), offload.smallest));
  if (s.runtime.optimizer.offloaded)
    list.push_back(
        fmt::format("optimizer: HybridDeviceOptimizer updates {:g} % of a rank's elements on the host; its first "
                    "copies of whole parameters are freed before the first step",
                    100 * *s.runtime.optimizer.offloaded));
  if (s.runtime.optimizer.precision_aware && !s.runtime.optimizer.offloaded)
    list.push_back("optimizer: precision-aware, TransformerEngine's Adam keeps parameters and moments");
}

void add_communication(const Scenario& s, std::vector<std::string>& list) {
  if (s.runtime.tensor_overlap)
    list.push_back(
        "tp-comm-overlap: TransformerEngine's defaults; activations of tensor-parallel ranks go through Userbuffers "
        "during matrix products; rings use copy engines, and other transfers are assumed to take as long as NCCL's");
  else
    list.push_back(
        "tensor-parallel communication overlaps the products of weight and input gradients as in the framework, and "
        "nothing else");
  add_overlap(s, list);
  if (s.runtime.overlaps_flush)
    list.push_back(
        "overlap-p2p-communication-warmup-flush: sends and receives also overlap passes while the pipeline fills and "
        "drains");
}

void add_optimizer(const Scenario& s, std::vector<std::string>& list) {
  const bool sgd = s.train.optimizer == Optimizer::Sgd || s.train.optimizer == Optimizer::SgdMomentum;
  if (sgd && s.layout.sharding == Sharding::Zero1)
    list.push_back("Megatron's distributed optimizer takes Adam only: this shows what it would need with SGD");
  if (const std::optional<MuonBehavior>& muon = s.runtime.optimizer.muon)
    list.push_back(fmt::format(
        "Muon of Megatron-LM core 0.20 and Emerging-Optimizers 0.4 for matrices, Adam for vectors, embeddings and "
        "heads; {}",
        s.layout.sharding == Sharding::None ? "every rank updates all its parameters"
        : muon->layer_wise_layout           ? "matrices stay whole within a rank's share of their buffers"
                                  : "whole parameters are assigned to ranks, and gathered one tensor at a time"));
}

}  // namespace

std::vector<std::string> megatron_behavior(const Scenario& s) {
  std::vector<std::string> list;
  list.push_back(fmt::format("Megatron-LM core {} with TransformerEngine {} on PyTorch {}",
                             text(s.runtime.versions.megatron), text(s.runtime.versions.transformer_engine),
                             text(s.runtime.versions.torch)));
  list.push_back(attention_assumption(s.train.attention));
  add_model_assumptions(s, list);
  add_offload(s, list);
  add_communication(s, list);
  if (s.model.experts() && s.runtime.experts.balances_by(LoadBalancing::GlobalLoss))
    list.push_back("global_aux_loss: routers sum the token counts of all ranks of a stage in every pass");
  if (const std::string_view assumed = traits_of(s.layout.schedule).assumed; !assumed.empty())
    list.emplace_back(assumed);
  list.push_back(
      s.runtime.attention_mask
          ? "the data loader makes attention masks (off with the switch no-create-attention-mask-in-dataloader)"
          : "the data loader makes no attention masks");
  if (s.layout.context > 1)
    list.push_back(
        fmt::format("context parallelism: Transformer Engine 2.11's {}, each rank with two chunks of every "
                    "sequence; its small tables of chunk numbers are not counted",
                    word(context_kind_names, s.layout.context_kind)));
  if (s.train.precision == DType::FP32 && !stores_scores(s.train.attention) && s.layout.context == 1) {
    const std::int64_t scores =
        s.train.micro_batch * s.model.heads / s.layout.tensor * s.train.sequence_length * s.train.sequence_length * 4;
    list.push_back(
        fmt::format("fp32: attention is modelled as fused, although Transformer Engine's fused kernels take 16-bit "
                    "types only; unfused, the scores would add {:.2f} GiB per layer and micro-batch in flight",
                    static_cast<double>(scores) / (1 << 30)));
  }
  add_optimizer(s, list);
  if (s.train.precision == DType::FP16)
    list.push_back("fp16: the first step is not skipped for an overflowing loss scale");
  return list;
}

}  // namespace tidemark::scenarios
