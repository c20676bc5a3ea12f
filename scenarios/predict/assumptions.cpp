#include "scenarios/predict/assumptions.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "parallel/frameworks/deepspeed/chosen_optimizer.hpp"
#include "parallel/frameworks/megatron/release_behavior.hpp"
#include "parallel/job/host_code.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/environment/allocator_conf.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/version_text.hpp"
#include "scenarios/predict/measured_ranges.hpp"
#include "scenarios/predict/nccl_host_memory.hpp"
#include "scenarios/predict/upper_ends/deferred_frees.hpp"
#include "scenarios/predict/version_assumptions.hpp"
#include "scenarios/reader/adapter_reader.hpp"
#include "scenarios/scenario/cpu_offload.hpp"
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
        "attention: cuDNN's, which torchtitan asks for first; what it works in between context-parallel ranks is not "
        "known: FlashAttention's stands for it, and its times, which are longer");
    return;
  }
  if (behavior.titan && s.layout.sharding == Sharding::None && s.layout.tensor * s.layout.pipeline > 1)
    list.push_back(
        "computed in the type of parameters: torchtitan's mixed precision of a model in parts comes with FSDP "
        "(maybe_enable_amp)");
  const bool half = s.train.precision != DType::FP32;
  const bool cudnn =
      dispatched && half && behavior.torch.cudnn_attention && s.model.head_dim <= behavior.torch.widest_cudnn_head;
  const std::string kernel = cudnn ? "cuDNN's kernel" : "the memory-efficient kernel";
  if (dispatched && s.train.packed > 0 && !caches_keys(s, behavior)) {
    list.push_back("attention: " + kernel +
                   ", with a bias of all tokens by all tokens in each layer: scaled_dot_product_attention is told of "
                   "packed sequences by a mask");
    return;
  }
  if (cudnn) {
    list.push_back(fmt::format(
        "attention: cuDNN's kernel, which {} first{}; what it works in was measured on an H100 with cuDNN 9.19",
        behavior.titan ? "torchtitan asks for" : "scaled_dot_product_attention asks for on this device",
        behavior.titan ? "" : " (torch.backends.cuda.enable_cudnn_sdp)"));
    return;
  }
  if (!half && !behavior.torch.efficient_attention) {
    list.push_back("attention: the math kernel (products, and all scores), which torchtitan is left with in fp32");
    return;
  }
  if (dispatched && !half) {
    const bool shared =
        s.model.heads != s.model.kv_heads && !behavior.repeats_keys && !behavior.torch.efficient_shares_keys;
    list.push_back(shared ? "attention: the math kernel (products, and all scores), which scaled_dot_product_attention "
                            "is left with in "
                            "fp32 where heads share keys (PyTorch before 2.14)"
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
          "optimizer: galore_torch's GaLoreAdamW of layers' linears (rank {}), AdamW of the others{}; of a singular "
          "value decomposition, whose time and cuSOLVER's work space are not counted, projections come in the first "
          "step, and every 200 steps",
          settings.rank > 0 ? settings.rank : 128,
          s.train.optimizer == Optimizer::GaloreAdamWLayerwise ? ", each as soon as its gradient is there" : "");
  }
  return {};
}

std::vector<std::string> eager_behavior(const Scenario& s, const EagerBehavior& behavior) {
  std::vector<std::string> list;
  const Versions& versions = s.runtime.versions;
  list.push_back(
      behavior.titan ? fmt::format("habits of torchtitan {}, its modules and its loop, on PyTorch {}, run operation by "
                                   "operation",
                                   text(versions.torchtitan), text(versions.torch))
      : behavior.modules == ModuleLibrary::LitGpt
          ? fmt::format("habits of PyTorch {} with the modules of LitGPT {}, run operation by operation; the loop "
                        "computes the loss of logits as they are, and holds them until it has the next ones",
                        text(versions.torch), text(versions.litgpt))
          : fmt::format("habits of PyTorch {} with the modules of transformers {}, run operation by operation",
                        text(versions.torch), text(versions.transformers)));
  if (behavior.zero)
    list.push_back(
        fmt::format("DeepSpeed {} around them: {} computed with, reduced and gathered, {} updated; parameters "
                    "are flattened on the device, and no step is skipped for a gradient that is infinite",
                    text(versions.deepspeed), name(s.train.precision), name(DType::FP32)));
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
    list.back() += ", and autocast to it besides";
  if (s.train.adapter) {
    const Adapter& adapter = *s.train.adapter;
    list.push_back(fmt::format("PEFT's LoRA, as of 0.21: adapters of rank {} in {}, {}", adapter.rank,
                               name(adapter.dtype.value_or(base_dtype(s))), "nothing else of the model is trained"));
  }
  if (s.train.packed > 0)
    list.push_back(fmt::format(
        "a pass: {} sequences of {} tokens in one row{}", s.train.sequences(), s.train.tokens_of_sequence(),
        s.train.attention == AttentionKernel::Flash ? ", which FlashAttention tells apart by where they begin"
        : caches_keys(s, behavior)
            ? ", which are not told apart: transformers looks for them where keys are not cached (use_cache)"
            : ", told apart by a mask"));
  if (s.train.quantization) {
    const Quantization& its = *s.train.quantization;
    const bool bytes = its.format == QuantizedFormat::Int8;
    list.push_back(fmt::format(
        "bitsandbytes {}: linears in {}{}; {}", text(versions.bitsandbytes), word(quantized_format_names, its.format),
        bytes ? fmt::format(", which are dequantized for backward passes; inputs are {}; products of 8 bits take "
                            "the time of 16-bit ones",
                            its.threshold > 0
                                ? fmt::format("searched for outliers from {} on, and none is found", its.threshold)
                                : "not searched for outliers")
              : fmt::format("{}, which are dequantized for each pass, however few its tokens are",
                            its.nested ? ", scales quantized too" : ""),
        behavior.zero
            ? fmt::format("all else of the model in {}, to which DeepSpeed casts it{}", name(s.train.precision),
                          s.layout.sharding == Sharding::Zero3 ? "; it is made whole on every rank, and cut then" : "")
        : its.prepared == Prepared::All   ? "all else of the model in fp32 (prepare_model_for_kbit_training)"
        : its.prepared == Prepared::Norms ? "norms in fp32"
                                          : "all else as it was loaded"));
  }
  if (const std::string rule = optimizer_rule(s, behavior); !rule.empty()) list.push_back(rule);
  if (behavior.neftune > 0)
    list.push_back(fmt::format("NEFTune: noise of alpha {} is added to what the embedding gives", behavior.neftune));
  if (behavior.liger != FusedModules{})
    list.push_back(fmt::format("fused kernels of Liger-Kernel {}: {}", text(versions.liger),
                               fmt::join(words(fused_module_names, behavior.liger), ", ")));
  if (behavior.foak != FusedModules{})
    list.push_back(fmt::format(
        "fused kernels as fms-acceleration has them: {}{}", fmt::join(words(fused_module_names, behavior.foak), ", "),
        behavior.foak.has(FusedModule::RmsNorm) ? "; norms' weights get no gradients, and so no optimizer state" : ""));
  if (behavior.zero && (behavior.zero->offload_optimizer || behavior.zero->offload_parameters) &&
      s.layout.sharding != Sharding::Zero3)
    list.push_back("hosts: every rank makes the model there in fp32, casts it and moves it to its device");
  if (behavior.zero && (behavior.zero->nvme.optimizer || behavior.zero->nvme.parameters))
    list.push_back(
        "NVMe: each rank has an equal share of the bandwidths of its node's drives, of reads and of writes by "
        "themselves; buffers for files are locked by mlock, and copied as pageable memory is");
  if (behavior.zero && deepspeed::takes_bf16_optimizer(s.layout, s.train, *behavior.zero))
    list.push_back(
        "BF16_Optimizer: every rank adds up all gradients in fp32, which are cast to bf16 to be summed over ranks");
  if (behavior.zero && behavior.zero->secondary_ranks > 1)
    list.push_back(
        fmt::format("each {} neighbouring ranks hold parameters a second time between them, until they are "
                    "updated (hpZ)",
                    behavior.zero->secondary_ranks));
  if (behavior.zero && behavior.zero->idle_checkpointing)
    list.push_back(
        "activation_checkpointing changes nothing: transformers' models are checkpointed by torch.utils.checkpoint, "
        "and only deepspeed.checkpointing.configure would read it");
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
  add_eager_attention(s, behavior, list);
  if (!behavior.torch.kernel_workspaces)
    list.push_back("fake tensors: gradients are never summed in place, kernels make nothing but their outputs");
  if (s.train.precision == DType::FP16) list.push_back("fp16: no step is skipped for an overflowing loss scale");
  list.push_back(behavior.titan
                     ? "batches come from the host; gradients are given up when the next step begins; nothing is logged"
                     : "the batch is made on the device, gradients are given up after each step (zero_grad)");
  return list;
}

void add_host_assumptions(const Job& job, std::vector<std::string>& list) {
  const RuntimeChoice& runtime = job.scenario.runtime;
  const CpuOffload hosts = cpu_offload(runtime);
  if (!hosts.any()) return;
  list.push_back(
      "hosts: what ranks of a node hold is added up, each at its own peak; blocks of pinned memory come back when they "
      "are freed; at the upper end they wait until the host has waited for their copies");
  const std::vector<Estimate> nccl = nccl_host_memory(job);
  const Estimate& most = *std::ranges::max_element(nccl, {}, &Estimate::high);
  if (most.high > Bytes{})
    list.push_back(
        fmt::format("hosts: NCCL {} takes {}{} of a node's host besides, by its sources; the upper end holds it",
                    text(runtime.versions.nccl), most.low == most.high ? "" : gib(most.low) + " to ", gib(most.high)));
  if (hosts.optimizer)
    list.push_back(
        fmt::format("hosts: what they compute is bound by the rank's share of the node's memory bandwidth{}",
                    runtime_kind(runtime.name).shards_units() ? "; norms are summed by NCCL where gloo does it" : ""));
}

std::string_view assumption_of(const parallel::Mixer& mixer) {
  return std::visit(
      Overloaded{
          [](const parallel::Attention&) -> std::string_view { return ""; },
          [](const MultiLatentAttention&) -> std::string_view {
            return "latent attention: YaRN's tables of positions in every layer, of 4,096 original positions, as "
                   "Megatron-Core has them where no flag says otherwise";
          },
          [](const Mamba2&) -> std::string_view {
            return "layers of Mamba: kernels of mamba_ssm 2.2.6 and causal_conv1d 1.5.3, read and not measured; a scan "
                   "is timed as its kernels' products at attention's rates, or as their bytes";
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
        "norms after attention and MLP only: Megatron-Core has no such layers; as Megatron-Bridge's for EXAONE 4.0");
  if (m.qk_norm == QkNorm::AllHeads)
    list.push_back(s.layout.tensor == 1
                       ? "norms of queries and keys over all heads: as Megatron-Bridge's attention for OLMoE"
                       : "norms of queries and keys over all heads: no Megatron layer cuts them; each rank normalizes "
                         "its heads by sums that all share");
  if (m.parallel_residual)
    list.push_back("parallel residual: Megatron-Core has none; its layers, with both branches on the same input");
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
    list.push_back(fmt::format("expert_tensor = {} makes groups of ranks and cuts nothing: the model has no experts",
                               s.layout.expert_tensor));
  std::set<std::string_view> of_mixers;
  for (const Layer& layer : m.layers.kinds()) of_mixers.insert(assumption_of(layer.mixer));
  for (const std::string_view its : of_mixers)
    if (!its.empty()) list.emplace_back(its);
  if (m.heterogeneous())
    list.push_back(
        "layers that lack attention or an MLP, or have MLPs of other widths: as Megatron-Core makes them of "
        "--heterogeneous-layers-config-path");
  if (m.window() > 0 && s.train.sequence_length > m.window())
    list.push_back(fmt::format("attention is timed over the whole sequence, also where layers see a window of {} only",
                               m.window()));
}

// core/distributed/ and core/pipeline_parallel/schedules.py.
void add_overlap(const Scenario& s, std::vector<std::string>& list) {
  const DataOverlap& overlap = s.runtime.overlap;
  if (!overlap.gradients) return;
  const bool together = overlap.gradients_aligned && s.layout.pipeline > 1;
  list.push_back(fmt::format("overlap-grad-reduce: buckets are reduced beside the last backward pass{}",
                             !together ? ", each once it is complete"
                             : s.layout.chunks == 1
                                 ? ", each once it is complete; stages after the first reduce theirs when they are done"
                                 : ", those of a chunk together when the first stage is done with it"));
  if (!overlap.parameters) return;
  const std::optional<MuonBehavior>& muon = s.runtime.optimizer.muon;
  list.push_back(muon && !muon->layer_wise_layout
                     ? "overlap-param-gather: parameters that are dealt out whole are gathered after the step"
                 : s.layout.pipeline == 1 || (s.layout.chunks > 1 && overlap.parameters_aligned)
                     ? "overlap-param-gather: buckets are gathered beside the next step's first forward pass"
                     : "overlap-param-gather: buckets are gathered beside the next step's first forward pass; a stage "
                       "asks for its own when its first input has come, so stages gather one after another");
}

std::vector<std::string> megatron_behavior(const Scenario& s) {
  std::vector<std::string> list;
  list.push_back(fmt::format("habits of Megatron-LM core {} with TransformerEngine {} on PyTorch {}",
                             text(s.runtime.versions.megatron), text(s.runtime.versions.transformer_engine),
                             text(s.runtime.versions.torch)));
  list.push_back(attention_assumption(s.train.attention));
  add_model_assumptions(s, list);
  if (s.runtime.offloaded_layers > 0)
    list.push_back(
        fmt::format("activations: what {} layers save goes to pinned memory of the host and comes back, on one stream "
                    "beside the passes",
                    s.runtime.offloaded_layers));
  if (const ModuleOffloadBehavior& offload = s.runtime.module_offload; offload.any())
    list.push_back(
        fmt::format("activations: what {} save goes to pinned memory of the host and comes back, on two streams beside "
                    "the passes, from {} elements on; the first step waits where Megatron-LM does not",
                    fmt::join(words(offloaded_module_names, offload.modules), ", "), offload.smallest));
  if (s.runtime.optimizer.offloaded)
    list.push_back(fmt::format(
        "optimizer: HybridDeviceOptimizer updates {:g} % of a rank's elements on the host; its first copies, "
        "of whole parameters, are gone when the first step begins",
        100 * *s.runtime.optimizer.offloaded));
  if (s.runtime.optimizer.precision_aware && !s.runtime.optimizer.offloaded)
    list.push_back("optimizer: precision-aware, TransformerEngine's Adam keeps parameters and moments");
  if (s.runtime.tensor_overlap)
    list.push_back(
        "tp-comm-overlap: activations of tensor-parallel ranks go through Userbuffers beside products, as "
        "TransformerEngine does by itself; what goes round moves by copy engines, the others as long as NCCL's "
        "(assumed)");
  else
    list.push_back(
        "tensor-parallel communication overlaps weight and input gradients as in the framework, nothing else of it "
        "does");
  add_overlap(s, list);
  if (s.runtime.overlaps_flush)
    list.push_back(
        "overlap-p2p-communication-warmup-flush: hand-overs go beside passes while the pipeline fills and empties, "
        "too");
  if (s.model.experts() && s.runtime.experts.balances_by(LoadBalancing::GlobalLoss))
    list.push_back("global_aux_loss: routers add up what all ranks of a stage chose, in every pass");
  if (const std::string_view assumed = traits_of(s.layout.schedule).assumed; !assumed.empty())
    list.emplace_back(assumed);
  list.push_back(
      s.runtime.attention_mask
          ? "the data loader makes attention masks (off with the switch no-create-attention-mask-in-dataloader)"
          : "the data loader makes no attention masks");
  if (s.layout.context > 1)
    list.push_back(
        fmt::format("context parallelism: Transformer Engine 2.11's {}, each rank with two chunks of every "
                    "sequence; its small tables of chunk numbers are left out",
                    word(context_kind_names, s.layout.context_kind)));
  if (s.train.precision == DType::FP32 && !stores_scores(s.train.attention) && s.layout.context == 1) {
    const std::int64_t scores =
        s.train.micro_batch * s.model.heads / s.layout.tensor * s.train.sequence_length * s.train.sequence_length * 4;
    list.push_back(
        fmt::format("fp32: attention counts as fused, though Transformer Engine's fused kernels take 16 bits only; "
                    "unfused, its scores would add {:.2f} GiB a layer and micro-batch in flight",
                    static_cast<double>(scores) / (1 << 30)));
  }
  const bool sgd = s.train.optimizer == Optimizer::Sgd || s.train.optimizer == Optimizer::SgdMomentum;
  if (sgd && s.layout.sharding == Sharding::Zero1)
    list.push_back("Megatron's distributed optimizer takes Adam only: this shows what it would need with SGD");
  if (const std::optional<MuonBehavior>& muon = s.runtime.optimizer.muon)
    list.push_back(fmt::format(
        "Muon of Megatron-LM core 0.20 and Emerging-Optimizers 0.4 for matrices, Adam for vectors, embeddings and "
        "heads; {}",
        s.layout.sharding == Sharding::None ? "every rank updates all that it holds"
        : muon->layer_wise_layout           ? "matrices stay whole within a rank's share of their buffers"
                                            : "whole parameters are dealt out, and gathered one tensor at a time"));
  if (s.train.precision == DType::FP16)
    list.push_back("fp16: the first step is not skipped for an overflowing loss scale");
  return list;
}

// One rank with all experts gets all choices.
std::string in_words(const ExpertLoads& loads, std::int32_t ranks) {
  return std::visit(
      Overloaded{
          [](const EqualLoads&) -> std::string { return "all experts are chosen equally often"; },
          [&](const LoadOfOneRank& its) -> std::string {
            if (ranks == 1) return "all experts are chosen equally often";
            return fmt::format("the first rank of experts gets {:.6g} times its equal share", its.factor);
          },
          [](const ListedLoads& its) { return fmt::format("experts are chosen as often as {} says", its.file); },
          [](const ZipfLoads& its) {
            return fmt::format("the n-th most chosen expert in proportion to n^-{:.6g} (Zipf's law, seed {})",
                               its.exponent, its.seed);
          },
          [](const DirichletLoads& its) {
            return fmt::format("experts' shares drawn from a Dirichlet distribution of concentration {:.6g}, seed {}",
                               its.concentration, its.seed);
          },
      },
      loads);
}

void add_routing(const Scenario& s, double most, std::vector<std::string>& list) {
  const ExpertRouting& routing = s.train.routing;
  if (!s.model.experts()) return;
  if (!left_to_tokens(routing)) {
    list.push_back("routing: experts take as many tokens as their capacity, whichever choose them");
    return;
  }
  const std::string capacity = routing.capacity_factor > 0
                                   ? fmt::format(", and take {:.6g} times their share at most", routing.capacity_factor)
                                   : "";
  std::string line = fmt::format("routing is not known before training: {}{}, in every micro-batch",
                                 in_words(routing.loads, s.layout.expert), capacity);
  if (s.layout.expert > 1)
    line += fmt::format(
        "; the upper ends hold up to {:.2f} GiB for what comes beyond that where each token chooses for "
        "itself: more on any rank in {:.6g} % of steps",
        most, 100 * (1 - routing.quantile));
  list.push_back(std::move(line));
  if (routing.dispatcher == TokenDispatcher::Flex)
    list.push_back(
        "DeepEP 1.2.1 dispatches: a token goes once to each rank that holds any of its experts, which it chooses by "
        "chance, as often as is said; between nodes time is that of a copy for each rank, where its kernels send one "
        "to "
        "a node and hand it on over NVLink");
}

void add_rollout(const Scenario& s, std::vector<std::string>& list) {
  if (!s.train.rollout) return;
  const Rollout& r = *s.train.rollout;
  list.push_back(fmt::format(
      "rollout: an engine in the training's process, over {} ranks{}; {} prompts answered {} times each, all at "
      "once and to the longest",
      r.tensor, r.weights == EngineWeights::Own ? ", with weights of its own" : ", on the training's weights", r.batch,
      r.samples));
  list.push_back(
      r.memory_fraction > 0
          ? fmt::format("rollout: weights and cache take {:g} % of the device when the engine wakes, as "
                        "SGLang's mem_fraction_static; vLLM takes its activations off that",
                        100 * r.memory_fraction)
          : fmt::format("rollout: the cache takes blocks of {} tokens as they fill, each answer's prompt too",
                        r.block_size));
  if (r.sleep != EngineSleep::Awake)
    list.push_back(r.sleep == EngineSleep::WeightsToHost
                       ? "rollout: the engine's weights are on the host, pinned, while the devices train"
                       : "rollout: the engine's weights are thrown away while the devices train");
  list.push_back(
      s.layout.pipeline > 1 || s.runtime.offloaded_layers > 0 || s.runtime.module_offload.any()
          ? "rollout: passes for log-probabilities are left out: without gradients they hold less than those "
            "that are trained"
          : "rollout: one pass without gradients stands for those for log-probabilities, of the policy and of "
            "a reference, which run the same kernels");
  std::vector<std::string> beside;
  for (const FrozenModel& model : s.train.frozen) beside.push_back(fmt::format("a {}", model.name()));
  if (!beside.empty())
    list.push_back(fmt::format("rollout: {} model in {}, cut as the trained one, and on the device all the time",
                               fmt::join(beside, " and "), name(s.train.precision)));
}

// When blocks that other streams use (record_stream) are free again, as the reported value has it.
std::vector<std::string> lent_blocks(const Job& job, double more_gib, ReportedFrees frees) {
  std::vector<std::string> list;
  const std::string_view what =
      job.runtime.eager ? "what streams use for others (record_stream)" : "what is sent beside the passes";
  if (job.asks_the_clock && frees == ReportedFrees::ByClock)
    list.push_back(fmt::format(
        "{} is free again once those streams have done what they were given before, by the simulated clock: {:.2f} GiB "
        "more on a device than if it were free at once",
        what, more_gib));
  else if (job.asks_the_clock)
    list.push_back(fmt::format("{} is free again as soon as it is given up", what));
  if (prompt_stream(job.runtime).valid())
    list.emplace_back(
        "gradients that autograd hands to DistributedDataParallel's stream (record_stream) are free again as soon as "
        "they are given up, as in steps that were measured on B200");
  return list;
}

// Where the fullest device could be fuller for a reason that is no driver's.
void add_upper_ends(const Job& job, const std::vector<RankGroup>& groups, ReportedFrees frees,
                    std::vector<std::string>& list) {
  const auto most = [&](Bytes RankGroup::*what) {
    Bytes found;
    for (const RankGroup& group : groups) found = std::max(found, group.*what);
    return static_cast<double>(found.count()) / (1 << 30);
  };
  if (job.has_cross_stream_frees) {
    std::ranges::copy(lent_blocks(job, most(&RankGroup::of_frees_by_clock), frees), std::back_inserter(list));
    list.push_back(fmt::format(
        "blocks that other streams use: the upper ends hold up to {:.2f} GiB more, as if those streams were done only "
        "when the host thread next waits for the device, or for room in its launch queue",
        most(&RankGroup::of_deferred_frees)));
    const LaunchQueue queue = launch_queue_of(job.scenario);
    list.push_back(fmt::format(
        "host thread: ahead of its device by {} launches at most, {} (measured by others: 512 to 1,024; "
        "CUDA_DEVICE_MAX_CONNECTIONS, CUDA_SCALE_LAUNCH_QUEUES)",
        queue.depth,
        queue.channels == 1 ? "of all streams together" : fmt::format("of each of {} channels", queue.channels)));
  }
  add_routing(job.scenario, most(&RankGroup::of_routing), list);
  if (job.runtime.saves_batches)
    list.push_back(fmt::format(
        "the upper ends hold up to {:.2f} GiB for batches of a whole step, which Megatron-LM core {} keeps on "
        "the first of tensor-parallel ranks until the next one, unless --rerun-mode is disabled",
        most(&RankGroup::rerun_batches_bytes), text(job.scenario.runtime.versions.megatron)));
}

// What the host thread spends on an op.
std::string host_assumption(const Job& job) {
  const HostCosts& its = job.times.classes.front().host;
  const auto microseconds = [](Duration d) { return seconds(d) * 1e6; };
  const auto of = [&](Phase phase) { return microseconds(its.code[static_cast<std::size_t>(phase)]); };
  const char* const measured = job.runtime.eager ? "measured on" : "measured of its local modules, in proportion to";
  return fmt::format(
      "host thread: {:.1f} us for each op in the driver, and {:.1f} forward and {:.1f} backward in framework code, {} "
      "{} (good to 40 %; [host] code_factor {})",
      microseconds(its.launch), of(Phase::Forward), of(Phase::Backward), measured, measured_on,
      as_double(job.scenario.cluster.host.code_factor));
}

}  // namespace

std::vector<std::string> assumptions_of(const Job& job, const std::vector<RankGroup>& groups,
                                        const PredictOptions& options) {
  const Scenario& s = job.scenario;
  std::vector<std::string> list = job.runtime.eager ? eager_behavior(s, *job.runtime.eager) : megatron_behavior(s);
  const std::vector<std::string> versions = version_assumptions(s.runtime);
  list.insert(list.begin() + 1, versions.begin(), versions.end());
  if (const Node& node = s.cluster.node; node.job_devices == node.devices && s.gpus > node.devices)
    list.push_back(
        fmt::format("a job of several nodes takes {} devices of each (the cluster's job_devices)", node.job_devices));
  list.push_back("kernels: roofline of " + s.cluster.device.name +
                 "; efficiencies: " + s.cluster.device.efficiency.source);
  if (const Calibration* its = s.cluster.calibration.get())
    list.push_back(
        fmt::format("{}: times measured there, and what lies between them, are taken where they apply ({}); "
                    "explain --show kernels says of which kernels",
                    its->name, its->source));
  if (const Device& device = s.cluster.device; is_limited(device))
    list.push_back(
        fmt::format("devices may take {} of the {} under which products are that fast in a step: rates of cores as "
                    "the {} power of that ratio ({})",
                    text(device.power->limit), text(device.power->sustained_at), text(device.power->exponent),
                    device.power->source));
  list.push_back(host_assumption(job));
  list.push_back("times do not compare with those of clusters whose efficiencies have another source");
  const bool held_up =
      std::ranges::any_of(job.times.classes, [](const OpTimes& times) { return !times.second_waves.empty(); });
  if (held_up)
    list.push_back("products that begin beside a collective wait for its multiprocessors; messages take none");
  list.push_back(
      options.links == LinkModel::MaxMin
          ? "collectives: NCCL's ring, tree, NVLS by the routes; transfers share links max-min fairly"
          : "collectives: NCCL's ring, tree, NVLS, each as if it were alone (alpha-beta); nothing shares links");
  if (s.runtime.nccl.sockets && s.layout.world_size() > s.cluster.node.devices)
    list.push_back(
        "NCCL's sockets (NCCL_IB_DISABLE, NCCL_NET): through the host's memory at the rate of the cluster's NICs, "
        "which "
        "TCP does not reach: a step takes longer than told");
  list.push_back(
      fmt::format("MFU: three forward passes{} without recomputation, causal attention counted once, over dense peak",
                  s.train.adapter ? ", two of frozen weights' products," : ""));
  const AllocatorOptions allocator = allocator_options_of(s);
  list.push_back(fmt::format(
      "native caching allocator with {}; segments {}",
      s.runtime.allocator.empty() ? "default settings" : s.runtime.allocator,
      allocator.address_order == AddressOrder::Falling ? "lie where an H100's driver put them" : "go by age"));
  for (const std::string& remark : parse_allocator_conf(s.runtime.allocator).remarks) list.push_back(remark);
  add_host_assumptions(job, list);
  add_rollout(s, list);
  add_upper_ends(job, groups, options.frees, list);
  for (std::string& line : range_assumptions(s)) list.push_back(std::move(line));
  list.push_back("CUDA context, loaded code and NCCL are estimates with bounds; NCCL's are unverified on several GPUs");
  return list;
}

}  // namespace tidemark::scenarios
