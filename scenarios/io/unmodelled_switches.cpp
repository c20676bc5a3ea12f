#include "scenarios/io/unmodelled_switches.hpp"

#include <array>

// Flags of megatron/training/arguments.py, and of the configurations that it takes flags from since core 0.16
// (core/transformer/transformer_config.py, core/model_parallel_config.py). Of experts, latent attention, contexts and
// further tokens: all that there are in core 0.12 to 0.19.

namespace tidemark::scenarios {

std::span<const Unmodelled> unmodelled_flags() {
  static const std::vector<Unmodelled> flags{
      {"pipeline-model-parallel-layout", "stages of one's own choosing are", {}},
      {"delta-offload-bytes-across-pp-ranks", "offloading less on later pipeline ranks is", {"0"}},
      {"delay-offload-until-cuda-graph", "a CUDA graph is", {"false"}},
      {"fp8-format", "FP8 is", {}},
      {"fp8-recipe", "FP8 is", {}},
      {"fp8-param-gather", "FP8 is", {"false"}},
      {"reuse-grad-buf-for-mxfp8-param-ag", "FP8 is", {"false"}},
      {"keep-fp8-transpose-cache", "FP8 is", {"false"}},
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
      {"use-legacy-models", "the legacy model is", {"false"}},
      {"moe-input-jitter-eps", "noise on the router's input is", {"0"}},
      {"moe-router-fusion", "a router of fused kernels is", {"false"}},
      {"moe-router-force-load-balancing", "a router of random logits is", {"false"}},
      {"moe-router-padding-for-fp8", "padding of each expert's tokens is", {"false"}},
      {"moe-token-drop-policy", "dropping tokens by their position is", {"\"probs\""}},
      {"moe-layer-recompute", "running whole layers of experts again is", {"false"}},
      {"moe-extended-tp", "cutting experts over more than their own ranks is", {"false"}},
      {"moe-use-legacy-grouped-gemm", "a grouped GEMM other than Transformer Engine's is", {"false"}},
      {"moe-flex-dispatcher-backend", "HybridEP is", {"\"deepep\""}},
      {"moe-shared-expert-overlap", "running shared experts beside the exchange of tokens is", {"false"}},
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
      {"empty-unused-memory-level", "handing back what is cached between steps is", {"0"}},
      {"rampup-batch-size", "a batch that grows is", {}},
      {"step-batch-size-schedule", "a batch that grows is", {}},
      {"fp32-residual-connection", "a residual stream in fp32 is", {"false"}},
      {"calculate-per-token-loss", "a loss of each token is", {"false"}},
      {"overlap-param-gather-with-optimizer-step", "gathering parameters beside the optimizer's step is", {"false"}},
      {"reset-position-ids", "positions that begin anew in a sequence are", {"false"}},
      {"reset-attention-mask", "masks of documents in a sequence are", {"false"}},
      {"use-checkpoint-args", "arguments that a checkpoint holds are", {"false"}},
      {"spec", "layers of one's own choosing are", {}},
  };
  return flags;
}

// HybridDeviceOptimizer takes neither of its two into account.
std::span<const std::string_view> harmless_flags() {
  static constexpr auto flags = std::to_array<std::string_view>(
      {"use-mcore-models", "muon-momentum", "muon-scale-mode", "muon-extra-scale-factor", "muon-coefficient-type",
       "use-flash-attn", "mock-data", "data-path", "data-cache-path", "split", "num-workers", "no-mmap-bin-files",
       "tokenizer-model", "vocab-file", "merge-file", "seed", "lr", "min-lr", "lr-decay-style", "lr-decay-iters",
       "lr-decay-samples", "lr-warmup-iters", "lr-warmup-samples", "lr-warmup-fraction", "weight-decay", "clip-grad",
       "adam-beta1", "adam-beta2", "adam-eps", "init-method-std", "norm-epsilon", "train-iters", "train-samples",
       "exit-interval", "exit-duration-in-mins", "eval-iters", "eval-interval", "log-interval", "log-throughput",
       "log-params-norm", "log-num-zeros-in-grad", "timing-log-level", "log-timers-to-tensorboard",
       "log-memory-to-tensorboard", "tensorboard-dir", "wandb-project", "wandb-exp-name", "save", "load",
       "save-interval", "ckpt-format", "no-save-optim", "no-save-rng", "no-load-optim", "no-load-rng",
       "no-position-embedding", "use-rotary-position-embeddings", "max-position-embeddings", "rotary-base",
       "rotary-interleaved", "use-torch-optimizer-for-cpu-offload", "cpu-offloading-weights",
       "cpu-offloading-double-buffering", "no-pin-cpu-params", "no-persist-layer-norm", "ddp-average-in-collective",
       "distributed-timeout-minutes", "manual-gc", "moe-router-bias-update-rate", "moe-per-layer-logging",
       "moe-upcycling-granularity", "mtp-loss-scaling-factor",
       "cache-mla-latents",  // by inference
       "rotary-scaling-factor", "mscale", "mscale-all-dim", "manual-gc-interval",
       // What is logged, saved, read and looked at.
       "adlr-autoresume", "adlr-autoresume-interval", "async-save", "auto-detect-ckpt-format",
       "ckpt-assume-constant-structure", "ckpt-fully-parallel-load", "ckpt-fully-parallel-save", "ckpt-step",
       "data-args-path", "dataloader-type", "dist-ckpt-format", "dist-ckpt-strictness", "eod-mask-loss",
       "exit-signal-handler", "finetune", "log-energy", "log-progress", "log-straggler",
       "log-validation-ppl-to-tensorboard", "log-world-size-to-tensorboard", "logging-level",
       "no-ckpt-fully-parallel-save", "no-one-logger", "num-dataset-builder-threads", "override-opt-param-scheduler",
       "override-opt_param-scheduler", "use-checkpoint-opt_param-scheduler", "per-split-data-args-path", "profile",
       "profile-ranks", "profile-step-end", "profile-step-start", "rerun-mode", "tensorboard-log-interval",
       "tensorboard-queue-size", "test-data-path", "tiktoken-num-special-tokens", "tiktoken-pattern",
       "timing-log-option", "train-data-path", "use-dist-ckpt", "use-persistent-ckpt-worker", "use-pytorch-profiler",
       "valid-data-path", "wandb-save-dir",
       // How weights begin, and how fast they change.
       "data-parallel-random-init", "decoupled-lr", "decoupled-min-lr", "embedding-init-method-std", "end-weight-decay",
       "init-method-xavier-uniform", "initial-loss-scale", "loss-scale-window", "lr-warmup-init", "lr-wsd-decay-iters",
       "lr-wsd-decay-samples", "lr-wsd-decay-style", "min-loss-scale", "start-weight-decay", "weight-decay-incr-style",
       // By inference, or beside a switch that is told above: by themselves they say nothing.
       "moe-pad-experts-for-cuda-graph-inference", "moe-paged-stash-buffer-size-factor-cpu",
       "moe-paged-stash-buffer-size-factor-cuda", "moe-paged-stash-page-size", "qk-clip-alpha", "qk-clip-threshold",
       "cuda-graph-warmup-steps",
       // Which streams of NCCL go first, and which layers see all keys: kernels save as much either way.
       "high-priority-stream-groups", "window-attn-skip-freq",
       // How FP8 scales and where it stops: beside fp8-format, which is told above. By themselves they say nothing
       // (core/fp8_utils.py get_fp8_context, core/extensions/transformer_engine.py TEDelayedScaling).
       "fp8-margin", "fp8-interval", "fp8-amax-history-len", "fp8-amax-compute-algo", "no-fp8-wgrad",
       "first-last-layers-bf16", "num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16",
       "fp8-dot-product-attention", "fp8-multi-head-attention", "tp-only-amax-red",
       // Transformer Engine's kernels add the one to a norm's scale as they read it. Of the local layers' norms, which
       // make a tensor of it: megatron_switches.cpp.
       "apply-layernorm-1p",
       // The angles of rotary positions.
       "rope-scaling-factor", "use-rope-scaling"});
  return flags;
}

}  // namespace tidemark::scenarios
