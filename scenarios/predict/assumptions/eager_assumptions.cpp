#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parallel/frameworks/deepspeed/chosen_optimizer.hpp"
#include "scenarios/formats/version_text.hpp"
#include "scenarios/predict/assumptions/runtime_assumptions.hpp"
#include "scenarios/reader/adapter_reader.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

// transformers, which does so in training too unless layers are checkpointed.
bool caches_keys(const Scenario& s, const EagerBehavior& behavior) {
  return behavior.caches_keys && s.train.recompute.kind == Recompute::None;
}

void add_eager_attention(const Scenario& s, const EagerBehavior& behavior, std::vector<std::string>& list) {
  if (s.train.attention == AttentionKernel::Unfused) {
    list.push_back("attention: transformers' own (\"eager\"), which stores its scores");
    return;
  }
  const bool dispatched = s.train.attention == AttentionKernel::Fused;
  if (behavior.titan && dispatched && s.layout.context > 1) {
    list.push_back(
        "attention: cuDNN's, which torchtitan asks for first; its workspace under context parallelism is not known, so "
        "FlashAttention's size and its longer times are used");
    return;
  }
  if (behavior.titan && s.layout.sharding == Sharding::None && s.layout.tensor * s.layout.pipeline > 1)
    list.push_back(
        "passes compute in the parameters' type: torchtitan applies mixed precision to a tensor- or pipeline-parallel "
        "model only with FSDP (maybe_enable_amp)");
  const bool half = s.train.precision != DType::FP32;
  const bool cudnn =
      dispatched && half && behavior.torch.cudnn_attention && s.model.head_dim <= behavior.torch.widest_cudnn_head;
  const std::string kernel = cudnn ? "cuDNN's kernel" : "the memory-efficient kernel";
  if (dispatched && s.train.packed > 0 && !caches_keys(s, behavior)) {
    list.push_back("attention: " + kernel +
                   ", with a bias of tokens x tokens in each layer, because scaled_dot_product_attention gets packed "
                   "sequences as a mask");
    return;
  }
  if (cudnn) {
    list.push_back(fmt::format(
        "attention: cuDNN's kernel, which {} first{}; its workspace was measured on an H100 with cuDNN 9.19",
        behavior.titan ? "torchtitan asks for" : "scaled_dot_product_attention asks for on this device",
        behavior.titan ? "" : " (torch.backends.cuda.enable_cudnn_sdp)"));
    return;
  }
  if (!half && !behavior.torch.efficient_attention) {
    list.push_back(
        "attention: the math kernel (matrix products, all scores stored), the only one that torchtitan has in fp32");
    return;
  }
  if (dispatched && !half) {
    const bool shared =
        s.model.heads != s.model.kv_heads && !behavior.repeats_keys && !behavior.torch.efficient_shares_keys;
    list.push_back(shared ? "attention: the math kernel (matrix products, all scores stored), the only one of "
                            "scaled_dot_product_attention in fp32 where heads share keys (PyTorch before 2.14)"
                          : "attention: the memory-efficient kernel, which scaled_dot_product_attention takes in fp32");
    return;
  }
  list.push_back(
      "attention: FlashAttention's kernel, called by scaled_dot_product_attention or directly; its backward pass sums "
      "query gradients in fp32");
  if (dispatched && s.model.window() > 0 && s.train.sequence_length >= s.model.window())
    list.push_back("layers with a sliding window within the sequence: a mask, and the memory-efficient kernel");
}

// Whose an optimizer is, where it is not torch.optim's AdamW or SGD, and what it keeps.
std::string optimizer_rule(const Scenario& s, const EagerBehavior& behavior) {
  const SmallOptimizerSettings& settings = behavior.small_optimizer;
  const auto of_bitsandbytes = [&](std::string_view what, bool quantized, bool paged) {
    return fmt::format(
        "optimizer: {} of bitsandbytes {}, state {}{}", what, text(s.runtime.versions.bitsandbytes),
        quantized ? fmt::format("in 8 bits by blocks of {}, of tensors below 4096 elements{} in fp32",
                                behavior.quantized_block, settings.narrow_embeddings ? "" : " and of embeddings")
                  : "in fp32",
        paged ? "; of 100,000 elements and more in managed memory, which PyTorch does not count" : "");
  };
  switch (s.train.optimizer) {
    case Optimizer::AdamW:
    case Optimizer::Sgd:
    case Optimizer::SgdMomentum:
      return {};
    case Optimizer::Adafactor:
      return settings.torch_adafactor
                 ? "optimizer: torch.optim's Adafactor, state in the gradients' type"
                 : fmt::format(
                       "optimizer: transformers' Adafactor without scale_parameter and relative_step, state in "
                       "fp32{}",
                       settings.first_moment ? ", means of gradients (beta1) too" : "");
    case Optimizer::Muon:
      return "optimizer: torch.optim's Muon of matrices, torch.optim's AdamW of embeddings, head and vectors";
    case Optimizer::AdamW8Bit:
      return of_bitsandbytes("AdamW", true, false);
    case Optimizer::Lion:
      return of_bitsandbytes("Lion", false, false);
    case Optimizer::Lion8Bit:
      return of_bitsandbytes("Lion", true, false);
    case Optimizer::PagedAdamW:
      return of_bitsandbytes("AdamW", false, true);
    case Optimizer::PagedAdamW8Bit:
      return of_bitsandbytes("AdamW", true, true);
    case Optimizer::PagedLion:
      return of_bitsandbytes("Lion", false, true);
    case Optimizer::PagedLion8Bit:
      return of_bitsandbytes("Lion", true, true);
    case Optimizer::ApolloAdamW:
      return fmt::format(
          "optimizer: apollo_torch's APOLLOAdamW of layers' linears (rank {}, scaled by channel), AdamW of "
          "the others",
          settings.rank > 0 ? settings.rank : 128);
    case Optimizer::GaloreAdamW:
    case Optimizer::GaloreAdamWLayerwise:
      return fmt::format(
          "optimizer: galore_torch's GaLoreAdamW of layers' linears (rank {}), AdamW of the others{}; it computes "
          "projections by singular value decomposition in the first step and every 200 steps, whose time and cuSOLVER "
          "workspace are not counted",
          settings.rank > 0 ? settings.rank : 128,
          s.train.optimizer == Optimizer::GaloreAdamWLayerwise ? ", each as soon as its gradient is there" : "");
  }
  return {};
}

void add_modules(const Scenario& s, const EagerBehavior& behavior, std::vector<std::string>& list) {
  const Versions& versions = s.runtime.versions;
  list.push_back(
      behavior.titan
          ? fmt::format("torchtitan {}: its modules and its training loop, on PyTorch {}, run operation by operation",
                        text(versions.torchtitan), text(versions.torch))
      : behavior.modules == ModuleLibrary::LitGpt
          ? fmt::format("PyTorch {} with the modules of LitGPT {}, run operation by operation; the loop computes the "
                        "loss without casting the logits, and keeps them until the next ones exist",
                        text(versions.torch), text(versions.litgpt))
          : fmt::format("PyTorch {} with the modules of transformers {}, run operation by operation",
                        text(versions.torch), text(versions.transformers)));
}

void add_precision(const Scenario& s, const EagerBehavior& behavior, std::vector<std::string>& list) {
  if (behavior.zero)
    list.push_back(
        fmt::format("DeepSpeed {} around them: it computes, reduces and gathers in {} and updates in {}; it flattens "
                    "parameters on the device, and skips no step because of infinite gradients",
                    text(s.runtime.versions.deepspeed), name(s.train.precision), name(DType::FP32)));
  else
    list.push_back(
        s.train.master_dtype == s.train.precision
            ? fmt::format("parameters, gradients and optimizer state in {}", name(s.train.precision))
        : behavior.flat ? fmt::format("shards in {}, gathered in {}, computed with in {}, gradients reduced in {}",
                                      name(s.train.master_dtype), name(behavior.flat->param_dtype),
                                      name(s.train.precision), name(behavior.flat->reduce_dtype))
        : behavior.fully_shard && s.layout.sharding != Sharding::None
            ? fmt::format("shards in {}, gathered and computed with in {}, gradients reduced in {}",
                          name(s.train.master_dtype), name(s.train.precision), name(behavior.fully_shard->reduce_dtype))
            : fmt::format("autocast to {} over fp32 parameters", name(s.train.precision)));
  if (behavior.autocast && *behavior.autocast && s.train.master_dtype == s.train.precision)
    list.back() += ", and also autocast to it";
}

void add_quantization(const Scenario& s, const EagerBehavior& behavior, std::vector<std::string>& list) {
  if (!s.train.quantization) return;
  const Quantization& its = *s.train.quantization;
  const bool bytes = its.format == QuantizedFormat::Int8;
  list.push_back(fmt::format(
      "bitsandbytes {}: linears in {}{}; {}", text(s.runtime.versions.bitsandbytes),
      word(quantized_format_names, its.format),
      bytes ? fmt::format(", which are dequantized for backward passes; inputs are {}; products of 8 bits take "
                          "the time of 16-bit ones",
                          its.threshold > 0
                              ? fmt::format("searched for outliers from {} on, and none is found", its.threshold)
                              : "not searched for outliers")
            : fmt::format("{}, which are dequantized for each pass, however few its tokens are",
                          its.nested ? ", scales quantized too" : ""),
      behavior.zero ? fmt::format("the rest of the model in {}, to which DeepSpeed casts it{}", name(s.train.precision),
                                  s.layout.sharding == Sharding::Zero3
                                      ? "; every rank first makes all of it, and then partitions it"
                                      : "")
      : its.prepared == Prepared::All   ? "the rest of the model in fp32 (prepare_model_for_kbit_training)"
      : its.prepared == Prepared::Norms ? "norms in fp32"
                                        : "the rest as it was loaded"));
}

void add_fused_kernels(const Scenario& s, const EagerBehavior& behavior, std::vector<std::string>& list) {
  if (behavior.neftune > 0)
    list.push_back(fmt::format("NEFTune: noise of alpha {} is added to the embedding's output", behavior.neftune));
  if (behavior.liger != FusedModules{})
    list.push_back(fmt::format("fused kernels of Liger-Kernel {}: {}", text(s.runtime.versions.liger),
                               fmt::join(words(fused_module_names, behavior.liger), ", ")));
  if (behavior.foak != FusedModules{})
    list.push_back(fmt::format(
        "fused kernels of fms-acceleration: {}{}", fmt::join(words(fused_module_names, behavior.foak), ", "),
        behavior.foak.has(FusedModule::RmsNorm) ? "; norms' weights get no gradients, and so no optimizer state" : ""));
}

void add_zero(const Scenario& s, const ZeroBehavior& zero, std::vector<std::string>& list) {
  if ((zero.offload_optimizer || zero.offload_parameters) && s.layout.sharding != Sharding::Zero3)
    list.push_back("hosts: every rank makes the model there in fp32, casts it and moves it to its device");
  if ((zero.nvme.optimizer || zero.nvme.parameters))
    list.push_back(
        "NVMe: each rank has an equal share of its node's read and write bandwidth; file buffers are locked by mlock, "
        "and copied at the rate of pageable memory");
  if (deepspeed::takes_bf16_optimizer(s.layout, s.train, zero))
    list.push_back(
        "BF16_Optimizer: every rank adds up all gradients in fp32, which are cast to bf16 to be summed over ranks");
  if (zero.secondary_ranks > 1)
    list.push_back(
        fmt::format("each {} neighbouring ranks together hold a second copy of the parameters until the update (hpZ)",
                    zero.secondary_ranks));
  if (zero.idle_checkpointing)
    list.push_back(
        "activation_checkpointing changes nothing: transformers' models are checkpointed by torch.utils.checkpoint, "
        "and only deepspeed.checkpointing.configure would read it");
}

void add_compilation(const EagerBehavior& behavior, std::vector<std::string>& list) {
  const bool compiles_titan =
      behavior.titan && (behavior.titan->requested.compile_layers || behavior.titan->requested.compile_loss);
  if (compiles_titan || behavior.compiled != CompiledParts::None) {
    const std::string_view parts = compiles_titan ? "layers and loss"
                                   : behavior.compiled == CompiledParts::Layers || behavior.fully_shard || behavior.flat
                                       ? "each layer"
                                       : "the model";
    list.push_back(
        fmt::format("torch.compile: {} by a model of PyTorch 2.15's partitioner and Inductor, which keeps the order of "
                    "operations",
                    parts));
    list.push_back("torch.compile: a fused kernel takes as long as the operations that it is made of");
  }
}

}  // namespace

std::vector<std::string> eager_behavior(const Scenario& s, const EagerBehavior& behavior) {
  std::vector<std::string> list;
  add_modules(s, behavior, list);
  add_precision(s, behavior, list);
  if (s.train.adapter) {
    const Adapter& adapter = *s.train.adapter;
    list.push_back(fmt::format("PEFT's {}, as of 0.21: adapters of rank {} in {}, {}",
                               adapter.method == AdapterMethod::Dora ? "DoRA" : "LoRA", adapter.rank,
                               name(adapter.dtype.value_or(base_dtype(s))), "no other parameter is trained"));
  }
  if (s.train.packed > 0)
    list.push_back(fmt::format(
        "a pass: {} sequences of {} tokens in one row{}", s.train.sequences(), s.train.tokens_of_sequence(),
        s.train.attention == AttentionKernel::Flash ? ", which FlashAttention separates by their first tokens"
        : caches_keys(s, behavior)
            ? ", which are not separated: transformers detects them only if keys are not cached (use_cache)"
            : ", separated by a mask"));
  add_quantization(s, behavior, list);
  if (const std::string rule = optimizer_rule(s, behavior); !rule.empty()) list.push_back(rule);
  add_fused_kernels(s, behavior, list);
  if (behavior.zero) add_zero(s, *behavior.zero, list);
  add_compilation(behavior, list);
  add_eager_attention(s, behavior, list);
  if (!behavior.torch.kernel_workspaces)
    list.push_back("fake tensors: gradients are never summed in place, and kernels allocate only their outputs");
  if (s.train.precision == DType::FP16) list.push_back("fp16: no step is skipped for an overflowing loss scale");
  list.push_back(behavior.titan
                     ? "batches come from the host; gradients are freed when the next step begins; nothing is logged"
                     : "the batch is created on the device; gradients are freed after each step (zero_grad)");
  return list;
}

}  // namespace tidemark::scenarios
