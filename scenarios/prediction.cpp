#include "scenarios/prediction.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <oneapi/tbb/parallel_for.h>

#include "kernels/price_time.hpp"
#include "scenarios/deferred_frees.hpp"
#include "scenarios/host_clock.hpp"
#include "scenarios/io/allocator_conf.hpp"
#include "scenarios/io/input_error.hpp"
#include "scenarios/io/version_text.hpp"
#include "scenarios/outliving_batches.hpp"
#include "scenarios/version_assumptions.hpp"
#include "sim/base/ensure.hpp"
#include "sim/clock/engine.hpp"
#include "sim/program/calls.hpp"
#include "sim/program/verify.hpp"
#include "topology/route/price.hpp"
#include "topology/route/traffic.hpp"

namespace tidemark::scenarios {
namespace {

// A program is unrolled, and two are in memory for each thread while frees are put in.
constexpr std::int64_t most_ops = 64'000'000;
// Forward, backward and frees, where modules are few kernels, and where they run operation by operation.
constexpr std::int64_t ops_of_a_layers_passes = 160, ops_of_an_eager_layers_passes = 1200;

void refuse_endless_programs(const Scenario& s) {
  const std::int64_t micro_batches = s.train.global_batch / (s.train.micro_batch * s.layout.data);
  const std::int64_t layers = s.model.layers / s.layout.pipeline + 1;
  const auto fits = [&](std::int64_t ops_of_a_layer) {
    return micro_batches <= most_ops / (ops_of_a_layer * layers * s.train.steps);
  };
  static_assert(ops_of_a_layers_passes < ops_of_an_eager_layers_passes, "so a runtime is made where it matters");
  if (fits(ops_of_an_eager_layers_passes)) return;
  if (!runtime_of(s).eager && fits(ops_of_a_layers_passes)) return;
  throw InputError(
      Problem{.file = s.name,
              .message = fmt::format("{} micro-batches of {} layers a stage make a program of more than {} million ops",
                                     micro_batches, layers, most_ops / 1'000'000),
              .hint = "memory repeats from micro-batch to micro-batch: a smaller global_batch has the same peak"});
}

// When the host thread of a class comes to two ops of a program of its stage.
std::pair<Instant, Instant> times_of(HostClock clock, const Program& program, std::size_t first, std::size_t second) {
  std::pair<Instant, Instant> found;
  for (std::size_t i = 0; i <= std::max(first, second); ++i) {
    const Instant now = clock.come_to(program.ops[i]);
    if (i == first) found.first = now;
    if (i == second) found.second = now;
  }
  return found;
}

// The memory of ranks that run one program at the same prices.
RankGroup replayed(const Program& program, const DriverPrices& prices, Bytes capacity,
                   const AllocatorOptions& allocator) {
  RankGroup group;
  group.prices = prices;
  group.memory = replay(program, prices, {.allocator = without_limit(allocator)});
  if (group.memory.device.bytes > capacity || allocator.memory_limit()) {
    // The allocator gives its cache back before it gives up, so a full device need not be the end.
    MemoryRecord limited = replay(program, prices, {.capacity = capacity, .allocator = allocator});
    group.failure = limited.failure;
    if (group.failure) group.failed_op = program[group.failure->at.mark.label];
    if (!group.failure) group.memory = std::move(limited);
  }
  Bytes& upper = group.memory.peak_device_upper;
  const Bytes at_once = std::exchange(upper, upper_end(upper, prices, {capacity, allocator}, program));
  group.of_deferred_frees = upper - at_once;
  group.device_peak_op = program[group.memory.device.at.mark.label];
  group.allocated_peak_op = program[group.memory.allocated.at.mark.label];
  return group;
}

// The first role of a stage runs the stage's program.
bool is_first_of_stage(const Job& job, const Role& role) {
  const auto first = std::find_if(job.roles.begin(), job.roles.end(),
                                  [&](const Role& r) { return r.first.pipeline == role.first.pipeline; });
  return &*first == &role;
}

Program lower_and_verify(const Job& job, const Role& role) {
  RepeatingProgram program = lower_repeating(job.lowering(), role);
  const std::vector<std::string> wrong = verify(program.few);
  ensure(wrong.empty(), wrong.empty() ? "" : wrong.front().c_str());
  return unrolled(std::move(program));
}

void replay_role(const Job& job, const Trace& trace, const Role& role, const PredictOptions& options,
                 std::vector<RankGroup>& groups) {
  const bool of_stage_itself = is_first_of_stage(job, role);
  const Program own = of_stage_itself ? Program{} : lower_and_verify(job, role);
  const auto of_stage = static_cast<std::size_t>(job.stages.program_of_rank[role.ranks.front().index()]);
  const Program& program = of_stage_itself ? job.stages.programs[of_stage] : own;

  std::map<std::int32_t, RankGroup> by_price;
  std::map<std::int32_t, std::vector<Rank>> by_class;  // ranks of one class pay the same
  for (const Rank rank : role.ranks) by_class[job.folding.class_of_rank[rank.index()]].push_back(rank);
  for (auto& [rank_class, ranks] : by_class) {
    const std::int32_t entry = job.prices.entry_of_rank[ranks.front().index()];
    const auto [known, added] = by_price.try_emplace(entry);
    if (added) {
      known->second = replayed(program, job.prices.entries[static_cast<std::size_t>(entry)],
                               job.scenario.cluster.device.capacity, allocator_options_of(job.scenario));
      known->second.of_outliving_batches = of_outliving_batches(job.scenario, job.runtime, role.first.pipeline);
      known->second.memory.peak_device_upper += known->second.of_outliving_batches;
    }
    RankGroup group = known->second;
    group.coordinates = coordinates(job.scenario.layout, ranks.front());
    group.ranks = std::move(ranks);
    if (options.told == Told::Whole)
      std::tie(group.device_peak_time, group.allocated_peak_time) = times_of(
          HostClock(job, trace, group.ranks.front()), program, group.memory.device.at.op, group.memory.allocated.at.op);
    groups.push_back(std::move(group));
  }
}

// Operations of one forward pass over one sequence: two per weight of a matrix and token, and causal attention.
double forward_operations(const Job& job) {
  const double sequence = static_cast<double>(job.scenario.train.sequence_length);
  double operations = 0;
  for (const Operator& op : job.graph.operators) {
    if (std::holds_alternative<SelfAttention>(op.type) || std::holds_alternative<ScoredAttention>(op.type))
      operations += 2 * sequence * sequence * static_cast<double>(job.graph.model.heads * job.graph.model.head_dim);
    if (!std::holds_alternative<Linear>(op.type) && !std::holds_alternative<Head>(op.type)) continue;
    const Parameter& weight = job.graph[op.parameters.front()];
    operations += 2 * sequence * static_cast<double>(weight.rows * weight.columns);
  }
  return operations;
}

StepPrediction step_of(const Job& job, const Trace& trace, const PredictOptions& options) {
  const Scenario& s = job.scenario;
  StepPrediction found;
  found.step = last_step(trace);
  found.tokens_per_s_per_device = tokens_per_s_per_device(s, found.step);
  if (options.told == Told::Figures) return found;
  const std::vector<StepTimes> classes = step_times(job.stages, job.folding, trace);
  found.exposed.resize(job.stages.communicators.size());
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const double weight =
        static_cast<double>(job.folding.classes[c].size) / s.gpus / static_cast<double>(found.step.count());
    const auto share = [&](Duration part) { return weight * static_cast<double>(part.count()); };
    found.kernels += share(classes[c].kernels);
    found.idle += share(classes[c].idle);
    for (std::size_t slot = 0; slot < found.exposed.size(); ++slot) {
      found.exposed[slot] += share(classes[c].transferring[slot]);
      found.bubble += share(classes[c].waiting[slot]);
    }
  }
  const double seconds = static_cast<double>(found.step.count()) / static_cast<double>(picoseconds_per_second);
  const double sequences = static_cast<double>(s.train.global_batch);
  const PeakRates& peak = s.cluster.device.peak;
  const OperationRate rate = s.train.precision == DType::BF16   ? peak.bf16
                             : s.train.precision == DType::FP16 ? peak.fp16
                                                                : peak.fp32;
  // Backward takes twice the forward pass.
  found.mfu = 3 * forward_operations(job) * sequences / seconds / s.gpus / static_cast<double>(rate.count());
  return found;
}

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

void add_eager_attention(const Scenario& s, std::vector<std::string>& list) {
  if (s.train.attention == AttentionKernel::Unfused) {
    list.push_back("attention: transformers' own (\"eager\"), which stores its scores");
    return;
  }
  const bool dispatched = s.train.attention == AttentionKernel::Fused;
  if (dispatched && s.train.precision == DType::FP32) {
    list.push_back("attention: the memory-efficient kernel, which scaled_dot_product_attention takes in fp32");
    return;
  }
  list.push_back(
      "attention: FlashAttention's kernel, called by scaled_dot_product_attention or directly; its backward pass sums "
      "query gradients in fp32");
  if (dispatched && s.model.sliding_window > 0 && s.train.sequence_length >= s.model.sliding_window)
    list.push_back("layers with a sliding window within the sequence: a mask, and the memory-efficient kernel");
  // sdp_utils.cpp check_prefer_cudnn_attention.
  const std::int32_t capability = s.cluster.device.compute_capability;
  if (dispatched && (capability == 90 || capability == 100))
    list.push_back(
        "cuDNN's attention, which recent PyTorch prefers on this device, is not known: FlashAttention's scratch space "
        "stands for its own");
}

std::vector<std::string> eager_habits(const Scenario& s, const EagerHabits& habits) {
  std::vector<std::string> list;
  list.push_back(fmt::format("habits of PyTorch {} with the modules of transformers {}, run operation by operation",
                             text(s.runtime.versions.torch), text(s.runtime.versions.transformers)));
  list.push_back(s.train.master_dtype == s.train.precision
                     ? fmt::format("parameters, gradients and optimizer state in {}", name(s.train.precision))
                     : fmt::format("autocast to {} over fp32 parameters", name(s.train.precision)));
  add_eager_attention(s, list);
  if (!habits.torch.kernel_workspaces)
    list.push_back("fake tensors: gradients are never summed in place, kernels make nothing but their outputs");
  if (s.train.precision == DType::FP16) list.push_back("fp16: no step is skipped for an overflowing loss scale");
  list.push_back("the batch is made on the device, gradients are given up after each step (zero_grad)");
  return list;
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
  if (m.sliding_window > 0 && s.train.sequence_length > m.sliding_window)
    list.push_back(fmt::format("attention is timed over the whole sequence, also where layers see a window of {} only",
                               m.sliding_window));
}

std::vector<std::string> megatron_habits(const Scenario& s) {
  std::vector<std::string> list;
  list.push_back(fmt::format("habits of Megatron-LM core {} with TransformerEngine {} on PyTorch {}",
                             text(s.runtime.versions.megatron), text(s.runtime.versions.transformer_engine),
                             text(s.runtime.versions.torch)));
  list.push_back(attention_assumption(s.train.attention));
  add_model_assumptions(s, list);
  if (s.runtime.overlap_gradients)
    list.push_back("overlap-grad-reduce: buckets as they are, but their reduction is timed after backward");
  list.push_back(
      "tensor-parallel communication overlaps weight and input gradients as in the framework, nothing else does");
  if (s.layout.schedule == ScheduleKind::GPipe)
    list.push_back("GPipe: Megatron has no such schedule; its hand-over is that of 1F1B");
  list.push_back(
      s.runtime.attention_mask
          ? "the data loader makes attention masks (off with the switch no-create-attention-mask-in-dataloader)"
          : "the data loader makes no attention masks");
  if (s.train.precision == DType::FP32 && !stores_scores(s.train.attention)) {
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

// Where the fullest device could be fuller for a reason that is no driver's.
void add_upper_ends(const Job& job, const std::vector<RankGroup>& groups, std::vector<std::string>& list) {
  const auto most = [&](Bytes RankGroup::*what) {
    Bytes found;
    for (const RankGroup& group : groups) found = std::max(found, group.*what);
    return static_cast<double>(found.count()) / (1 << 30);
  };
  if (std::any_of(job.stages.programs.begin(), job.stages.programs.end(), borrows))
    list.push_back(fmt::format(
        "what is sent beside the passes is free again as soon as it is sent; the upper ends hold up to {:.2f} "
        "GiB for what is so only when the host next waits for the device",
        most(&RankGroup::of_deferred_frees)));
  if (job.runtime.saves_batches)
    list.push_back(fmt::format(
        "the upper ends hold up to {:.2f} GiB for batches of a whole step, which Megatron-LM core {} keeps on "
        "the first of tensor-parallel ranks until the next one, unless --rerun-mode is disabled",
        most(&RankGroup::of_outliving_batches), text(job.scenario.runtime.versions.megatron)));
}

std::vector<std::string> assumptions_of(const Job& job, const std::vector<RankGroup>& groups,
                                        const PredictOptions& options) {
  const Scenario& s = job.scenario;
  std::vector<std::string> list = job.runtime.eager ? eager_habits(s, *job.runtime.eager) : megatron_habits(s);
  const std::vector<std::string> versions = version_assumptions(s.runtime);
  list.insert(list.begin() + 1, versions.begin(), versions.end());
  list.push_back("kernels: roofline of " + s.cluster.device.name +
                 "; efficiencies: " + s.cluster.device.efficiency.source);
  list.push_back("times do not compare with those of clusters whose efficiencies have another source");
  list.push_back(
      options.links == LinkModel::MaxMin
          ? "collectives: NCCL's ring, tree, NVLS by the routes; transfers share links max-min fairly"
          : "collectives: rings, a latency and bytes over their slowest link (alpha-beta); nothing shares links");
  list.push_back("MFU: three forward passes without recomputation, causal attention counted once, over dense peak");
  list.push_back(fmt::format("native caching allocator with {}, on increasing invented addresses",
                             s.runtime.allocator.empty() ? "default settings" : s.runtime.allocator));
  for (const std::string& remark : parse_allocator_conf(s.runtime.allocator).remarks) list.push_back(remark);
  add_upper_ends(job, groups, list);
  list.push_back("CUDA context, loaded code and NCCL are estimates with bounds; NCCL's are unverified on several GPUs");
  return list;
}

}  // namespace

Scenario settled(Scenario scenario) {
  refuse_endless_programs(scenario);
  scenario.train.attention =
      settled_attention(scenario.train.attention, scenario.model, target_of(scenario.cluster),
                        scenario.runtime.deterministic ? Determinism::Required : Determinism::NotRequired);
  return scenario;
}

double tokens_per_s_per_device(const Scenario& s, Duration step) {
  const double seconds = static_cast<double>(step.count()) / static_cast<double>(picoseconds_per_second);
  return static_cast<double>(s.train.global_batch) * static_cast<double>(s.train.sequence_length) / seconds / s.gpus;
}

AllocatorOptions without_limit(AllocatorOptions options) {
  options.memory_fraction = 1;
  options.device_memory = AllocatorOptions{}.device_memory;  // of which expandable segments reserve addresses
  return options;
}

AllocatorOptions allocator_options_of(const Scenario& scenario) {
  AllocatorOptions options = parse_allocator_conf(scenario.runtime.allocator).options;
  options.device_memory = scenario.cluster.device.capacity;
  return options;
}

Target target_of(const Cluster& cluster) {
  return {.compute_capability = cluster.device.compute_capability,
          .devices_per_node = cluster.node.devices,
          .capacity = cluster.device.capacity,
          .multiprocessors = cluster.device.multiprocessors};
}

namespace {

bool fused_activation(const Scenario& scenario) {
  return scenario.model.activation == Activation::SwiGlu ? scenario.runtime.bias_swiglu_fusion
                                                         : scenario.runtime.bias_gelu_fusion;
}

}  // namespace

Runtime runtime_of(const Scenario& scenario) {
  const RuntimeChoice& r = scenario.runtime;
  return runtime_named(r.name, r.versions,
                       {.cublas_workspace_config = r.cublas_workspace_config,
                        .attention_mask = r.attention_mask,
                        .local_layers = scenario.train.attention == AttentionKernel::Local,
                        .gradient_accumulation_fusion = r.gradient_accumulation_fusion,
                        .bias_dropout_fusion = r.bias_dropout_fusion,
                        .bias_activation_fusion = fused_activation(scenario),
                        .capped_scores = scenario.model.attention_softcap > 0,
                        .overlap_gradients = r.overlap_gradients,
                        .deterministic = r.deterministic,
                        .eager = r.eager},
                       target_of(scenario.cluster));
}

GraphOptions graph_options_of(const Scenario& scenario) {
  GraphOptions options = graph_options(scenario.train);
  if (!scenario.runtime.rope_fusion) options.rotary = RotaryKernel::Unfused;
  options.fused_gate = fused_activation(scenario);
  const bool in_fp32 = scenario.runtime.softmax_in_fp32 || scenario.runtime.query_key_scaling;
  if (!scenario.runtime.masked_softmax_fusion && in_fp32) options.softmax_precision = Precision::Fp32;
  return options;
}

NcclSettings nccl_settings(const RuntimeChoice& runtime) {
  NcclSettings settings = runtime.nccl;
  settings.release = runtime.versions.nccl.major * 100 + runtime.versions.nccl.minor;
  return settings;
}

JobOutline::JobOutline(const Scenario& asked)
    : scenario(settled(asked)),
      runtime(runtime_of(scenario)),
      graph(build_model(scenario.model, graph_options_of(scenario))),
      roles(parallel::roles(lowering())),
      outline(lower_stages_repeating(lowering())) {
  const std::vector<std::string> wrong = verify(shortened(outline));
  ensure(wrong.empty(), wrong.empty() ? "" : wrong.front().c_str());
  const Workload calls = calls_of(outline);
  prices = price(calls, scenario.cluster, nccl_settings(scenario.runtime));
  Router router(calls, scenario.cluster, prices.entry_of_rank);
  folding = fold(calls, prices.entry_of_rank, router.traffic());
  times = price_time(calls, folding, scenario.cluster, router);
}

const Role& JobOutline::role_of(Rank rank) const {
  const auto found = std::find_if(roles.begin(), roles.end(), [&](const Role& role) {
    return std::find(role.ranks.begin(), role.ranks.end(), rank) != role.ranks.end();
  });
  ensure(found != roles.end(), "every rank of a job has a role");
  return *found;
}

Trace simulate_ends(const JobOutline& job) {
  Trace trace = simulate(job.outline, job.folding, job.times);
  ensure(std::holds_alternative<Completed>(trace.outcome), "programs that verify() finds sound do not deadlock");
  return trace;
}

Trace simulate_time(const Job& job, const PredictOptions& options) {
  const bool shared = options.links == LinkModel::MaxMin;
  const auto run = [&](const TimePrices& times, LinkSharing sharing) {
    const Keep keep = options.told == Told::Whole ? Keep::Timeline : Keep::Ends;
    return simulate(job.stages, job.folding, times, {.sharing = sharing, .keep = keep});
  };
  Trace trace = shared ? run(job.times, LinkSharing::MaxMinFair)
                       : run(price_time(job.stages, job.folding, job.scenario.cluster,
                                        {.algorithm = {}, .model = PriceModel::AlphaBeta}),
                             LinkSharing::None);
  ensure(std::holds_alternative<Completed>(trace.outcome), "programs that verify() finds sound do not deadlock");
  return trace;
}

const RankGroup& Prediction::highest() const {
  return *std::max_element(groups.begin(), groups.end(), [](const RankGroup& a, const RankGroup& b) {
    return a.memory.peak_device_upper < b.memory.peak_device_upper;
  });
}

Prediction predict(const Scenario& scenario, const Progress& progress, const PredictOptions& options) {
  const Job job(scenario);
  return predict(job, simulate_time(job, options), progress, options);
}

Prediction predict(const Job& job, const Trace& trace, const Progress& progress, const PredictOptions& options) {
  std::vector<std::vector<RankGroup>> found(job.roles.size());
  std::mutex reporting;
  std::size_t done = 0;
  oneapi::tbb::parallel_for(std::size_t{0}, job.roles.size(), [&](std::size_t i) {
    replay_role(job, trace, job.roles[i], options, found[i]);
    const std::lock_guard lock(reporting);
    if (progress) progress(++done, job.roles.size());
  });

  Prediction prediction;
  prediction.scenario = job.scenario;
  prediction.parameters = parameter_count(job.graph);
  prediction.communicators = job.stages.communicators;
  prediction.step = step_of(job, trace, options);
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
  prediction.assumptions = assumptions_of(job, prediction.groups, options);
  prediction.not_modelled = {"host memory: the pinned and pageable buffers of the framework and of NCCL"};
  return prediction;
}

}  // namespace tidemark::scenarios
