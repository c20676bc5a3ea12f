#include "scenarios/frameworks/megatron/unmodelled_switches.hpp"

#include <vector>

#include "scenarios/frameworks/megatron/megatron_flags.hpp"
#include "scenarios/scenario/memory_bounds.hpp"

// Flags of megatron/training/arguments.py, and of the configurations that it takes flags from since core 0.16
// (core/transformer/transformer_config.py, core/model_parallel_config.py). Of experts, latent attention, contexts and
// further tokens: all that there are in core 0.12 to 0.19.

namespace tidemark::scenarios {

std::span<const Unmodelled> unmodelled_flags() {
  static const std::vector<Unmodelled> flags{
      {"pipeline-model-parallel-layout", "stages of one's own choosing are", {}},
      {"delta-offload-bytes-across-pp-ranks", "offloading less on later pipeline ranks is", {"0"}},
      {"delay-offload-until-cuda-graph", "a CUDA graph is", {"false"}},
      {"fp4-format", "FP4 is", {}},
      {"ddp-num-buckets", "buckets of a number of their own are (ddp-bucket-size says how large they are)", {}},
      {"ddp-pad-buckets-for-high-nccl-busbw", "wider padding of buckets is", {"false"}},
      {"tp-comm-overlap-cfg", "overlapping products in other ways than TransformerEngine does by itself is", {}},
      {"tp-comm-overlap-rs-dgrad", "reducing parts of an input's gradient while the next is made is", {"false"}},
      {"tp-comm-bootstrap-backend", "setting up Userbuffers by other means than NCCL is", {"\"nccl\""}},
      {"nccl-ub", "registering buffers with NCCL is", {"false"}},
      {"use-nccl-ub", "registering buffers with NCCL is", {"false"}},
      {"nccl-communicator-config-path", "communicators of one's own configuration are", {}},
      {"use-sharp", "SHARP is", {"false"}},
      {"use-torch-fsdp2", "FSDP is", {"false"}},
      {"use-megatron-fsdp", "FSDP is", {"false"}},
      {"use-custom-fsdp", "FSDP is", {"false"}},
      {"fsdp-double-buffer", "FSDP is", {"false"}},
      {"fsdp-manual-registration", "FSDP is", {"false"}},
      {"megatron-fsdp-main-params-dtype", "FSDP is", {}},
      {"megatron-fsdp-main-grads-dtype", "FSDP is", {}},
      {"megatron-fsdp-grad-comm-dtype", "FSDP is", {}},
      {"data-parallel-sharding-strategy", "FSDP is", {"\"no_shard\""}},
      {"enable-cuda-graph", "a CUDA graph is", {"false"}},
      {"external-cuda-graph", "a CUDA graph is", {"false"}},
      {"use-cpu-initialization", "building the model on the host is", {"false"}},
      {"init-model-with-meta-device", "building the model on the meta device is", {"false"}},
      {"delay-wgrad-compute", "deferred weight gradients are", {"false"}},
      {"moe-input-jitter-eps", "noise on the router's input is", {"0"}},
      {"moe-router-fusion", "a router of fused kernels is", {"false"}},
      {"moe-router-force-load-balancing", "a router of random logits is", {"false"}},
      {"moe-router-padding-for-fp8", "padding of each expert's tokens is", {"false"}},
      {"moe-token-drop-policy", "dropping tokens by their position is", {"\"probs\""}},
      {"moe-layer-recompute", "running whole layers of experts again is", {"false"}},
      {"moe-extended-tp", "cutting experts over more than their own ranks is", {"false"}},
      {"moe-use-legacy-grouped-gemm", "a grouped GEMM other than Transformer Engine's is", {"false"}},
      {"moe-flex-dispatcher-backend", "HybridEP is", {"\"deepep\""}},
      {"moe-apply-probs-on-input", "multiplying tokens before the experts is", {"false"}},
      {"overlap-moe-expert-parallel-comm", "exchanging tokens beside another micro-batch's passes is", {"false"}},
      {"moe-router-padding-for-quantization", "padding of each expert's tokens is", {"false"}},
      {"moe-router-force-biased", "a router of random logits is", {}},
      {"moe-router-topk-limited-devices", "choosing experts of few devices is", {}},
      {"moe-router-quantile-balancing-ema", "balancing by quantiles is", {}},
      {"moe-enable-routing-replay", "choosing again what a router has chosen is", {"false"}},
      {"moe-token-dropping", "dropping tokens without a capacity is", {"false"}},
      {"moe-expert-rank-capacity-factor", "a capacity of all experts of a rank is", {}},
      {"moe-latent-size", "experts of tokens in fewer dimensions are", {}},
      {"moe-mlp-glu-interleave-size", "experts' weights with gates in between are", {}},
      {"moe-shared-expert-glu-interleave-size", "experts' weights with gates in between are", {}},
      {"moe-single-grouped-weight", "weights of all experts in one tensor are", {"false"}},
      {"moe-single-grouped-bias", "biases of all experts in one tensor are", {"false"}},
      {"use-grouped-gemm-for-dense-mlp", "a dense MLP by a grouped GEMM is", {"false"}},
      {"use-grouped-gemm-for-shared-expert", "shared experts by a grouped GEMM are", {"false"}},
      {"moe-hybridep-num-sms", "HybridEP is", {}},
      {"moe-hybridep-num-sms-preprocessing", "HybridEP is", {}},
      {"moe-hybridep-num-blocks-permute", "HybridEP is", {}},
      {"moe-hybridep-num-blocks-unpermute", "HybridEP is", {}},
      {"moe-hybridep-pad-uneven-dispatch-inputs", "HybridEP is", {"false"}},
      {"moe-permute-fusion-into-hybridep", "HybridEP is", {"false"}},
      {"moe-flex-dispatcher-num-sms", "the flex dispatcher of core 0.19 is", {}},
      {"moe-ncclep-static-shape", "NCCL's dispatcher of tokens is", {"false"}},
      {"moe-ncclep-zero-copy", "NCCL's dispatcher of tokens is", {"false"}},
      {"moe-paged-stash", "keeping experts' activations in pages is", {"false"}},
      {"expert-gtp-weight-remat-size", "experts' weights that more ranks share out are", {"1"}},
      {"expert-tensor-parallel-num-weight-shards", "experts' weights that more ranks share out are", {"1"}},
      {"ep-overlap-early-attn-memory-release", "exchanging tokens beside another micro-batch's passes is", {"false"}},
      {"overlap-dispatch-backward-with-experts-wgrad", "exchanging tokens beside weight gradients is", {"false"}},
      {"enable-experimental", "what Megatron calls experimental is", {"false"}},
      {"hybrid-context-parallel", "context parallelism that goes by each sequence's length is", {"false"}},
      {"max-seqlen-per-dp-cp-rank", "context parallelism that goes by each sequence's length is", {}},
      {"mla-down-proj-fusion", "one projection to both latents is", {"false"}},
      {"qk-clip", "clipping queries and keys by their scores is", {"false"}},
      {"qk-l2-norm", "norms of queries and keys without weights are", {"false"}},
      {"no-rope-freq", "layers without rotary positions are", {}},
      {"mtp-use-repeated-layer", "one layer for all further tokens is", {"false"}},
      {"mtp-hybrid-override-pattern", "further tokens by layers of other kinds are", {}},
      {"mtp-detach-heads", "modules of further tokens that train by themselves are", {"false"}},
      {"mtp-standalone", "stages of further tokens alone are", {"false"}},
      {"use-te-activation-func", "Transformer Engine's activations are", {"false"}},
      {"use-fused-weighted-squared-relu", "squared ReLU and probabilities in one kernel are", {"false"}},
      {"cuda-graph-impl", "a CUDA graph is", {"\"none\""}},
      {"cuda-graph-scope", "a CUDA graph is", {}},
      {"moe-use-upcycling", "making experts of a dense model is", {"false"}},
      {"distributed-backend", "a backend other than NCCL is", {"\"nccl\""}},
      {"rampup-batch-size", "a batch that grows is", {}},
      {"step-batch-size-schedule", "a batch that grows is", {}},
      {"fp32-residual-connection", "a residual stream in fp32 is", {"false"}},
      {"overlap-param-gather-with-optimizer-step", "gathering parameters beside the optimizer's step is", {"false"}},
      {"use-checkpoint-args", "arguments that a checkpoint holds are", {"false"}},
      {"spec", "layers of one's own choosing are", {}},
  };
  return flags;
}

std::span<const std::string_view> harmless_flags() {
  static const std::vector<std::string_view> flags = [] {
    // Of Megatron-Bridge's and NeMo's configurations, which Megatron-LM has no flag for. HybridDeviceOptimizer takes
    // neither of the first two into account; the others say how FP8 scales, beside fp8-format.
    std::vector<std::string_view> made{"cpu-offloading-double-buffering", "cpu-offloading-weights",
                                       "fp8-dot-product-attention", "fp8-multi-head-attention", "tp-only-amax-red"};
    for (const MegatronArgument& its : megatron_arguments_known())
      if (its.kind == MegatronArgument::Kind::Nothing ||
          (its.kind == MegatronArgument::Kind::Bound && !has_memory_bound(its.flag)))
        made.push_back(its.flag);
    return made;
  }();
  return flags;
}

}  // namespace tidemark::scenarios
