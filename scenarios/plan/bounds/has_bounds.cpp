#include <algorithm>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/plan/bounds/bounds.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/scenario/names.hpp"
#include "sim/memory/allocator_options.hpp"

// What bounds have been thought through for. Every field of a scenario is named here, so that a new one does not
// compile before somebody has asked what it does to samples, states and schedules; every enumerator of what bounds
// restate has a line of its own, and a new one is not known. What is not known is not bounded: it runs in full.

namespace tidemark::scenarios {
namespace {

// Fields that reach bounds only through what they lower and price, as every other job is: any value will do.
template <class... Fields>
constexpr bool lowered(const Fields&...) {
  return true;
}
// Fields that make no difference to what a step takes.
template <class... Fields>
constexpr bool ignored_arguments(const Fields&...) {
  return true;
}

// The sample of a chunk is of a job without state; what state takes is lowered apart, as much of it as a rank holds.
bool known(Sharding sharding) {
  switch (sharding) {
    case Sharding::None:
    case Sharding::Zero1:
      return true;
    case Sharding::Zero2:  // passes and state are not apart
    case Sharding::Zero3:
      return false;
  }
  return false;
}

// What is in flight and when passes meet is restated (pass_schedule.hpp).
bool known(ScheduleKind schedule) {
  switch (schedule) {
    case ScheduleKind::OneFOneB:
    case ScheduleKind::GPipe:
    case ScheduleKind::Interleaved:
      return true;
    case ScheduleKind::ZeroBubbleH1:        // what waits for its weight gradients is in no sample
    case ScheduleKind::LoopedBreadthFirst:  // nor does a runtime whose bounds are known run these
    case ScheduleKind::InterleavedZeroBubble:
    case ScheduleKind::ZeroBubbleV:
    case ScheduleKind::DualPipeV:
      return false;
  }
  return false;
}

// Which layers do alike is restated (layer_runs).
bool known(Recompute kind) {
  switch (kind) {
    case Recompute::None:
    case Recompute::Full:
    case Recompute::Selective:
      return true;
  }
  return false;
}
bool known(RecomputeMethod method) {
  switch (method) {
    case RecomputeMethod::Uniform:
    case RecomputeMethod::Block:
      return true;
  }
  return false;
}
bool known(RecomputedModule module) {
  switch (module) {
    case RecomputedModule::CoreAttention:
    case RecomputedModule::Mlp:
      return true;
    case RecomputedModule::LayerNorm:  // what is given up before its last use is in no sample
    case RecomputedModule::LatentUp:
    case RecomputedModule::Experts:
    case RecomputedModule::ExpertActivation:
    case RecomputedModule::SharedExperts:
      return false;
  }
  return false;
}
bool known(const Recomputation& recomputation) {
  const auto& [kind, method, layers, modules] = recomputation;
  const auto of_no_other = [&](const Named<RecomputedModule>& m) { return !modules.has(m.value) || known(m.value); };
  return known(kind) && known(method) && std::ranges::all_of(recomputed_module_names, of_no_other) &&
         lowered(layers, modules);
}

bool known(const Layout& layout) {
  const auto& [tensor, sequence_parallel, context, context_kind, context_inner, expert, expert_tensor, pipeline, data,
               sharding, shard_group, order, count_embedding, count_loss, schedule, chunks, chunk_group, stage_layers,
               first_layers, last_layers] = layout;
  return known(sharding) && known(schedule) &&
         // Of a sample: these.
         lowered(tensor, sequence_parallel, context, context_kind, context_inner, expert, expert_tensor) &&
         // Of the mesh and its groups: these.
         lowered(pipeline, data, order, shard_group) &&
         // Of which layers a chunk has, and of a schedule: these.
         lowered(count_embedding, count_loss, chunks, chunk_group, stage_layers, first_layers, last_layers);
}

// Bounds look at the first rank of each stage, whatever comes to the others, and at a layer for all of its kind.
bool known(const ExpertLoads& loads) {
  return std::visit(Overloaded{
                        [](const EqualLoads&) { return true; },
                        [](const LoadOfOneRank&) { return true; },
                        [](const ListedLoads& o) { return o.of_layers.size() == 1; },
                        [](const ZipfLoads&) { return false; },  // layer by layer, as the next
                        [](const DirichletLoads&) { return false; },
                    },
                    loads);
}
// Upper ends of memory hold what comes beyond the loads, too, and so no less than what loads say.
bool known(const ExpertRouting& routing) {
  const auto& [dispatcher, capacity_factor, pads_to_capacity, loads, quantile, overload_probability, tokens] = routing;
  return known(loads) && lowered(dispatcher, capacity_factor, pads_to_capacity, quantile, overload_probability) &&
         tokens.empty();
}

bool known(const Train& train) {
  const auto& [sequence_length, micro_batch, global_batch, precision, gradient_dtype, master_dtype, optimizer,
               attention, cross_entropy, recompute, routing, hidden_dropout, attention_dropout, steps, rollout, frozen,
               adapter, quantization, packed] = train;
  return known(recompute) && known(routing) && !rollout &&
         frozen.empty() &&  // what is there before the passes is in no sample
         lowered(sequence_length, micro_batch, global_batch, precision, gradient_dtype, master_dtype, optimizer,
                 attention, cross_entropy, hidden_dropout, attention_dropout, steps) &&
         ignored_arguments(adapter, quantization, packed);  // Megatron's jobs have none
}

// Modules that predict tokens after the next one stand between the last layer and the loss, and bounds take them for a
// part of the latter.
bool known(const Model& model) {
  const auto& [name, architecture, hidden, heads, kv_heads, head_dim, ffn, vocabulary, max_positions, tied_embeddings,
               qkv_bias, output_bias, mlp_bias, qk_norm, normalization, norms, zero_centered_norms, parallel_residual,
               scaled_embedding, activation, gelu, positions, rotary_fraction, window_rotary, attention_softcap,
               logit_softcap, attention_sinks, own_hidden_dropout, own_attention_dropout, qkv_clip, layers, further,
               vocabulary_extra, vocabulary_multiple] = model;
  // A layer is sampled for all of its kind.
  const auto all_known = [](const LayerList& list) {
    return std::ranges::all_of(list.kinds(), [](const Layer& layer) { return layer.bounded(); });
  };
  return ignored_arguments(name, architecture, own_hidden_dropout, own_attention_dropout) && qkv_clip == 0 &&
         !model.transformers_alone() && all_known(layers) && all_known(further) &&
         !attention_sinks &&  // not thought about
         lowered(hidden, heads, kv_heads, head_dim, ffn, vocabulary, max_positions, tied_embeddings, qkv_bias,
                 output_bias, mlp_bias, qk_norm, normalization, norms, zero_centered_norms, parallel_residual,
                 scaled_embedding, activation, gelu, positions, rotary_fraction, window_rotary, attention_softcap,
                 logit_softcap, vocabulary_extra, vocabulary_multiple);
}

bool known(const Cluster& cluster) {
  const auto& [name, device, node, host, fabric, nccl, calibration, dollars_per_gpu_hour] = cluster;
  return ignored_arguments(name, dollars_per_gpu_hour) && lowered(device, node, host, fabric, nccl, calibration);
}

bool known(const RuntimeChoice& runtime) {
  const auto& [name, versions, allocator, cublas_workspace_config, nccl, nccl_environment, launch_queue, attention_mask,
               gradient_accumulation_fusion, bias_dropout_fusion, bias_gelu_fusion, bias_swiglu_fusion, rope_fusion,
               masked_softmax_fusion, softmax_in_fp32, query_key_scaling, overlap, tensor_overlap, distribute_saved,
               deterministic, checks, deferred_head_gradients, overlaps_flush, experts, optimizer, offloaded_layers,
               module_offload, eager, headroom] = runtime;
  // Where modules run operation by operation, passes and state are not apart.
  return runtime_kind(name).id == RuntimeId::Megatron &&
         // What the optimizer does is taken to come once gradients are summed, and to leave nothing behind.
         optimizer == OptimizerBehavior{} && offloaded_layers == 0 && !module_offload.any() &&
         // Of a layer's first tensor, where bounds take it to be whole; of what outlives passes.
         !distribute_saved && deferred_head_gradients == 0 &&
         // Of hand-overs beside the first and last passes; of passes that talk to data-parallel ranks.
         !overlaps_flush && !experts.balances_by(LoadBalancing::GlobalLoss) &&
         ignored_arguments(nccl_environment, launch_queue, eager, headroom) &&
         lowered(experts, versions, allocator, cublas_workspace_config, nccl, attention_mask,
                 gradient_accumulation_fusion, bias_dropout_fusion, bias_gelu_fusion, bias_swiglu_fusion, rope_fusion,
                 masked_softmax_fusion, softmax_in_fp32, query_key_scaling, overlap, tensor_overlap, deterministic,
                 checks);
}

}  // namespace

bool Bounder::has_bounds(const Scenario& scenario) {
  const auto& [name, model, cluster, gpus, layout, train, runtime, run] = scenario;
  return ignored_arguments(name, gpus, run) && known(model) && known(cluster) && known(layout) && known(train) &&
         known(runtime) && !allocator_options_of(scenario).memory_limit();
}

}  // namespace tidemark::scenarios
