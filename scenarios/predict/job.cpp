#include "scenarios/predict/job.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "kernels/cost/cost_time.hpp"
#include "kernels/execute/process_memory.hpp"
#include "parallel/job/host_code.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/environment/allocator_conf.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/internal_error.hpp"
#include "scenarios/predict/time/timing_classes.hpp"
#include "scenarios/predict/upper_ends/deferred_frees.hpp"
#include "sim/base/ensure.hpp"
#include "sim/program/calls.hpp"
#include "sim/program/verify.hpp"
#include "topology/deep_ep_memory.hpp"
#include "topology/route/cost.hpp"
#include "topology/route/traffic.hpp"

namespace tidemark::scenarios {
namespace {

// Of the programs of all stages together. Each op is unrolled, timed and replayed: some 9 us of CPU time
// (Llama-3.1-405B over tensor 8 and pipeline 2: 23 s for 64 micro-batches, which this counts as 2.6 million ops), so
// this is ten minutes.
constexpr std::int64_t most_ops = 64'000'000;
// Forward, backward and frees, where modules are few kernels, and where they run operation by operation.
constexpr std::int64_t ops_of_a_layers_passes = 160, ops_of_an_eager_layers_passes = 1200;
// Of a program that is held, with what it points to, what takes time or waits in it, and what is made of it while it
// runs: 128 of 10 to 27 thousand ops take 130 to 150 each (examples/deepseek-v3-2048xh800.toml on 256 devices, expert
// 8, loads drawn with a seed, 2 to 6 micro-batches).
constexpr std::int64_t bytes_of_an_op = 160;

std::int64_t ops_of_a_micro_batch(const Scenario& s) {
  const std::int64_t of_a_layer = runtime_of(s).eager ? ops_of_an_eager_layers_passes : ops_of_a_layers_passes;
  const std::int64_t layers =
      s.model.layers.size() + s.layout.pipeline;  // embedding and head are one more a stage at most
  return of_a_layer * layers * s.train.steps;
}

// A program is unrolled, and a second one is made of it with its frees, on each of the threads that have one.
std::int64_t bytes_while_unrolled(const Scenario& s, std::int64_t ops) {
  const std::int64_t stages = s.layout.pipeline;
  return 2 * (ops / stages) * bytes_of_an_op *
         std::min<std::int64_t>(stages, std::max(std::thread::hardware_concurrency(), 1U));
}

// Before anything is made: by what is counted here, not by what runs out.
void refuse_endless_programs(const Scenario& s) {
  const std::int64_t in_a_batch = s.train.micro_batch * s.layout.data,
                     micro_batches = s.train.global_batch / in_a_batch;
  const std::int64_t most = std::max<std::int64_t>(most_ops / ops_of_a_micro_batch(s), 1);
  const auto takes = [&](std::int64_t batches) { return bytes_while_unrolled(s, batches * ops_of_a_micro_batch(s)); };
  const bool too_many = micro_batches > most;
  constexpr std::int64_t little = std::int64_t{256} << 20;  // what is free need not be looked at
  if (!too_many && takes(micro_batches) <= little) return;
  const std::int64_t there = execute::memory_left().count();
  if (!too_many && takes(micro_batches) <= there) return;
  const std::int64_t would_do = std::clamp<std::int64_t>(there / std::max<std::int64_t>(takes(1), 1), 1, most);
  throw InputError(Problem{
      .file = s.name,
      .message = too_many
                     ? fmt::format("{} micro-batches make programs of {} million ops and more, and {} million take ten "
                                   "minutes of CPU time",
                                   micro_batches, most_ops / 1'000'000, most_ops / 1'000'000)
                     : fmt::format("{} micro-batches make programs that take some {} GB while they run, and {} GB are "
                                   "free here",
                                   micro_batches, takes(micro_batches) / 1'000'000'000, there / 1'000'000'000),
      .hint = fmt::format(
          "memory repeats from micro-batch to micro-batch: global_batch = {} ({} micro-batches) has the same "
          "peak",
          std::min(would_do, micro_batches) * in_a_batch, std::min(would_do, micro_batches))});
}

// DeepSpeed's stage 3 pads a gradient that has no part for a rank with a tensor of that rank's own, in every reduction,
// so each rank's program is as long as all ranks are many. It makes, copies and frees each.
void refuse_endless_padding(const Scenario& s, const BuiltModel& built) {
  if (runtime_kind(s.runtime.name).id != RuntimeId::DeepSpeed || s.layout.sharding != Sharding::Zero3 ||
      s.train.adapter)
    return;
  constexpr std::int64_t ops_of_a_pad = 4;
  const std::int64_t ranks = s.layout.data;
  std::int64_t pads = 0;
  for (const Parameter& p : built.parameters) {
    const std::int64_t each = (p.elements() + ranks - 1) / ranks;
    pads += ranks - p.elements() / each;
  }
  const std::int64_t micro_batches = s.train.global_batch / (s.train.micro_batch * s.layout.data);
  const std::int64_t of_one = std::max<std::int64_t>(ops_of_a_pad * pads * s.train.steps, 1);
  if (micro_batches <= most_ops / of_one) return;
  throw InputError(Problem{
      .file = s.name,
      .message =
          fmt::format("{} ranks pad {} parts of gradients in each of {} micro-batches, each with a tensor of its own: "
                      "programs of more than {} million ops, which take ten minutes of CPU time",
                      ranks, pads, micro_batches, most_ops / 1'000'000),
      .hint =
          "fewer gpus or a smaller global_batch would do; fsdp2 ([runtime] name) shards as much and pads nothing so"});
}

// Where a token goes once to a rank, how many do is a matter of which experts are chosen together.
void settle_tokens(Scenario& scenario) {
  const Layout& layout = scenario.layout;
  const std::int64_t tokens = scenario.train.tokens() / layout.context / (layout.sequence_parallel ? layout.tensor : 1);
  auto found = parallel::tokens_of_places(scenario.model, scenario.train.routing, tokens, layout.expert,
                                          layout.expert_tensor_parallel());
  if (!found)
    throw InputError(Problem{.file = scenario.name,
                             .message = "no choice of experts by groups was found by which loads come out",
                             .hint = "dispatcher = \"alltoall\" in [moe] needs none"});
  scenario.train.routing.tokens = std::move(*found);
}

// Through DeepEP's buffers nothing of NCCL goes.
void cost_token_buffers(const PricedJob& job, Costs& costs) {
  const CommSlot slot = communicators_of(job.lowering()).token_buffers;
  if (!slot.valid()) return;
  const Layout& layout = job.scenario.layout;
  const Estimate buffers = topology::deep_ep_memory(
      {.ranks = layout.expert * layout.expert_tensor_parallel(),
       .hidden_bytes = (job.scenario.model.hidden * size_of(job.scenario.train.precision)).count(),
       .processors = job.scenario.runtime.experts.exchange_processors});
  for (DriverCosts& entry : costs.entries) entry.communicators[slot.index()] = buffers;
}

// Userbuffers' own region (transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.h, LOCALSIZE: 3.1 MiB of
// flags, for 8,192 peers in 32 regions) in pages of 2 MiB, and lists of its ranks and its flags beside it. What the
// driver keeps of a multicast group that covers 512 GiB of addresses is not known.
void cost_user_buffers(const PricedJob& job, Costs& costs) {
  const CommSlot slot = communicators_of(job.lowering()).user_buffers;
  if (!slot.valid()) return;
  const Estimate region{Bytes{6 << 20}, Bytes{4 << 20}, Bytes{32 << 20}, "regions of Userbuffers"};
  for (DriverCosts& entry : costs.entries) entry.communicators[slot.index()] = region;
}

}  // namespace

Scenario resolved_scenario(Scenario scenario) {
  refuse_endless_programs(scenario);
  scenario.train.attention =
      resolved_attention(scenario.train.attention, scenario.model, target_of(scenario.cluster),
                         scenario.runtime.deterministic ? Determinism::Required : Determinism::NotRequired);
  if (scenario.train.routing.dispatcher == TokenDispatcher::Flex) settle_tokens(scenario);
  return scenario;
}

Scenario executed(Scenario scenario) {
  if (scenario.runtime.tensor_overlap) scenario.runtime.tensor_overlap->each_place = true;
  return scenario;
}

AllocatorOptions without_limit(AllocatorOptions options) {
  options.memory_fraction = 1;
  options.device_memory = AllocatorOptions{}.device_memory;  // of which expandable segments reserve addresses
  return options;
}

AllocatorOptions allocator_options_of(const Scenario& scenario) {
  AllocatorOptions options = parse_allocator_conf(scenario.runtime.allocator).options;
  options.device_memory = scenario.cluster.device.capacity;
  // Of free blocks of one size the lowest is taken, since 2.13 that of the oldest segment (CUDACachingAllocator.cpp
  // BlockComparatorSizeCounterAddress, pytorch#183591), as if addresses rose.
  options.address_order =
      scenario.runtime.versions.torch < Version{2, 12} ? AddressOrder::Falling : AddressOrder::Rising;
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

// Megatron's arguments.py: fp16 has no such checks, since its loss scale looks for the same.
ResultChecks checks_of(const Scenario& scenario) {
  ResultChecks checks = scenario.runtime.checks;
  if (scenario.train.precision == DType::FP16) checks.nan_in_loss = checks.nan_in_grad = false;
  return checks;
}

}  // namespace

Runtime runtime_of(const Scenario& scenario) {
  const RuntimeChoice& r = scenario.runtime;
  // core/transformer/moe/experts.py asserts: not with biases of experts.
  const bool with_biases = scenario.model.experts() && scenario.model.experts()->biases;
  return runtime_named(r.name, r.versions,
                       {.cublas_workspace_config = r.cublas_workspace_config,
                        .attention_mask = r.attention_mask,
                        .local_layers = scenario.train.attention == AttentionKernel::Local,
                        .gradient_accumulation_fusion = r.gradient_accumulation_fusion,
                        .bias_dropout_fusion = r.bias_dropout_fusion && !with_biases,
                        .bias_activation_fusion = fused_activation(scenario),
                        .capped_scores = scenario.model.attention_softcap > 0,
                        .overlap = r.overlap,
                        .tensor_overlap = r.tensor_overlap,
                        .distribute_saved = r.distribute_saved,
                        .deterministic = r.deterministic,
                        .checks = checks_of(scenario),
                        .deferred_head_gradients = r.deferred_head_gradients,
                        .overlaps_flush = r.overlaps_flush,
                        .eager = r.eager,
                        .experts = r.experts,
                        .optimizer = r.optimizer,
                        .offloaded_layers = r.offloaded_layers,
                        .module_offload = r.module_offload},
                       target_of(scenario.cluster));
}

ModelOptions model_options_of(const Scenario& scenario) {
  ModelOptions options{.attention = scenario.train.attention};
  if (!scenario.runtime.rope_fusion) options.rotary = RotaryKernel::Unfused;
  options.fused_gate = fused_activation(scenario);
  options.grouped_experts = scenario.runtime.experts.grouped_linears;
  const bool in_fp32 = scenario.runtime.softmax_in_fp32 || scenario.runtime.query_key_scaling;
  if (!scenario.runtime.masked_softmax_fusion && in_fp32) options.softmax_precision = SoftmaxPrecision::Fp32;
  return options;
}

NcclSettings nccl_settings(const RuntimeChoice& runtime) {
  NcclSettings settings = runtime.nccl;
  settings.release = runtime.versions.nccl.major * 100 + runtime.versions.nccl.minor;
  return settings;
}

// Megatron-LM's arguments.py asks for one connection where tensors or contexts are parallel, before Blackwell.
LaunchQueue launch_queue_of(const Scenario& scenario) {
  const LaunchQueueSettings& requested = scenario.runtime.launch_queue;
  constexpr std::int32_t blackwell = 100;
  const bool asks_for_one = runtime_kind(scenario.runtime.name).id == RuntimeId::Megatron &&
                            (scenario.layout.tensor > 1 || scenario.layout.context > 1) &&
                            scenario.cluster.device.compute_capability < blackwell;
  LaunchQueue queue;
  queue.channels = requested.connections.value_or(asks_for_one ? 1 : queue.channels);
  queue.depth = static_cast<std::int64_t>(static_cast<double>(queue.depth) * requested.scale);
  return queue;
}

Fabric fabric_of(const Scenario& scenario, std::int32_t devices) {
  return build_fabric(scenario.cluster, devices, fabric_options(scenario.runtime.nccl));
}

namespace {

// Of others few micro-batches are held, and of each op what takes time or waits: the same of 2,048 devices has 1,024
// programs of mostly 233 thousand ops, which take 1.9 GB.
constexpr std::int64_t bytes_of_an_op_of_others = 5;

// How many programs roles have at least: those of a stage that get other numbers of tokens take other times.
std::int64_t programs_by_tokens(const std::vector<Role>& roles) {
  std::set<std::pair<std::int32_t, std::int32_t>> found;
  for (const Role& role : roles) found.emplace(role.first.pipeline, role.tokens);
  return static_cast<std::int64_t>(found.size());
}

// What is left of programs where a factor says what the fullest rank gets, and all others get the same: a share of
// them.
double left_by_a_factor(const Scenario& scenario, const LoweringInput& input, const std::vector<Role>& roles) {
  if (!scenario.model.experts() || scenario.train.routing.dispatcher == TokenDispatcher::Flex) return 1;
  Train train = scenario.train;
  train.routing.loads = LoadOfOneRank{1.2};
  return static_cast<double>(programs_by_tokens(parallel::roles({input.built, input.layout, train, input.runtime}))) /
         static_cast<double>(programs_by_tokens(roles));
}

// Loads that differ from rank to rank make a program for each rank of an expert group, in each stage.
void refuse_more_than_memory(const Scenario& scenario, const LoweringInput& input, const std::vector<Role>& roles,
                             std::size_t programs, const RepeatingProgram& first, const OtherSizes* sizes) {
  const auto long_as = [](const auto& ops) { return static_cast<std::int64_t>(ops); };
  std::int64_t ops = long_as(first.rolled.ops.size());
  for (const Repeat& repeat : first.repeats) ops += repeat.more * long_as(repeat.last - repeat.first);
  const std::int64_t of_one = sizes == nullptr
                                  ? ops * bytes_of_an_op
                                  : long_as(sizes->few().ops.size()) * bytes_of_an_op + ops * bytes_of_an_op_of_others;
  const std::int64_t needed = of_one * long_as(programs);
  constexpr std::int64_t always_there = std::int64_t{2} << 30;
  const std::int64_t there = std::max(always_there, execute::memory_left().count());
  if (needed <= there) return;
  const bool a_factor_helps =
      static_cast<double>(needed) * left_by_a_factor(scenario, input, roles) <= static_cast<double>(there);
  throw InputError(Problem{
      .file = scenario.name,
      .message = fmt::format("{} programs of {} thousand ops take some {} GB, and {} GB are free here", programs,
                             ops / 1000, needed / 1'000'000'000, execute::memory_left().count() / 1'000'000'000),
      .hint =
          a_factor_helps
              ? "loads that differ from rank to rank make a program for each: a factor for the fullest rank "
                "(imbalance = 1.2 in [moe]) makes far fewer; with fewer micro-batches (global_batch) they are shorter"
              : "fewer micro-batches (global_batch) make shorter programs"});
}

// What the framework stops at, the scenario asks for.
TimingClasses classes_of(const Scenario& scenario, const LoweringInput& input, const std::vector<Role>& roles,
                         Job::Steps whole, const Progress& lowered) {
  try {
    return timing_classes(input, roles,
                          {[&](const Role& role) {
                             return whole == Job::Steps::All ? lower_repeating(input, role)
                                                             : lower_last_step(input, role);
                           },
                           [&](const Role& role) { return lower_shortest(input, role); },
                           [&](const Role& role) { return lower_state(input, role); },
                           [&](std::size_t programs, const RepeatingProgram& first, const OtherSizes* sizes) {
                             refuse_more_than_memory(scenario, input, roles, programs, first, sizes);
                           },
                           lowered});
  } catch (const FrameworkStops& stop) {
    throw InputError(Problem{.file = scenario.name, .message = stop.what(), .hint = stop.hint});
  }
}

// What few micro-batches are made of, and how ranks meet there, is seen in all programs; what many are, in those that
// others are made of.
std::vector<std::string> findings_of(const TimingClasses& classes) {
  const RepeatingWorkload& all = classes.workload;
  if (std::ranges::any_of(classes.sizes, [](const auto& its) { return its == nullptr; })) return verify(all);
  std::vector<const Program*> few;
  for (std::size_t p = 0; p < all.programs.size(); ++p)
    few.push_back(all.programs[p].is_held() ? &classes.sizes[p]->few() : &all.programs[p].shown());
  std::vector<std::string> found = verify(few, all.program_of_rank, all.communicators);
  for (std::size_t p = 0; p < all.programs.size() && found.empty(); ++p)
    if (all.programs[p].is_held()) found = verify(all.programs[p].shown());
  return found;
}

}  // namespace

PricedJob::PricedJob(Scenario its)
    : scenario(std::move(its)),
      runtime(runtime_of(scenario)),
      built(build_model(scenario.model, model_options_of(scenario))),
      roles(parallel::roles(lowering())) {}

Job::Job(const Scenario& requested, Steps whole, const Progress& lowered) : PricedJob(resolved_scenario(requested)) {
  refuse_endless_padding(scenario, built);
  TimingClasses classes = classes_of(scenario, lowering(), roles, whole, lowered);
  std::vector<std::string> findings;
  if (whole == Steps::All) findings = findings_of(classes);
  outline = std::move(classes.workload);
  role_of_program = std::move(classes.role_of_program);
  sizes_of_program = std::move(classes.sizes);
  require_sound(scenario.name, findings);
  has_cross_stream_frees = has_cross_stream_uses(outline);
  asks_the_clock = has_cross_stream_frees && scenarios::asks_the_clock(outline, prompt_stream(runtime));
  calls = calls_of(outline);
  costs = cost(calls, scenario.cluster, nccl_settings(scenario.runtime));
  cost_token_buffers(*this, costs);
  cost_user_buffers(*this, costs);
  Router router(calls, fabric_of(scenario, calls.world_size()), costs.entry_of_rank);
  folding = fold(calls, costs.entry_of_rank, router.traffic());
  times = cost_time(calls, folding, scenario.cluster, router);
  set_host(*this, times);
}

HostCosts on_host(HostCosts measured, const Host& host) {
  const double factor = as_double(host.code_factor);
  for (auto* const by_phase : {&measured.code, &measured.hooks})
    for (Duration& its : *by_phase) its = Duration{std::llround(static_cast<double>(its.count()) * factor)};
  measured.launch = host.launch;
  return measured;
}

void set_host(const PricedJob& job, TimeCosts& times) {
  const HostCosts costs = on_host(host_code(job.lowering()), job.scenario.cluster.host);
  for (OpTimes& its : times.classes) {
    its.host = costs;
    its.queue = launch_queue_of(job.scenario);
  }
}

const Role& PricedJob::role_of(Rank rank) const {
  const auto found = std::find_if(roles.begin(), roles.end(), [&](const Role& role) {
    return std::find(role.ranks.begin(), role.ranks.end(), rank) != role.ranks.end();
  });
  ensure(found != roles.end(), "every rank of a job has a role");
  return *found;
}

}  // namespace tidemark::scenarios
