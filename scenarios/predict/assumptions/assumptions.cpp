#include "scenarios/predict/assumptions/assumptions.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "parallel/job/host_code.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/environment/allocator_conf.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/version_text.hpp"
#include "scenarios/predict/assumptions/runtime_assumptions.hpp"
#include "scenarios/predict/assumptions/version_assumptions.hpp"
#include "scenarios/predict/measured/measured_ranges.hpp"
#include "scenarios/predict/nccl_host_memory.hpp"
#include "scenarios/predict/upper_ends/deferred_frees.hpp"
#include "scenarios/scenario/cpu_offload.hpp"
#include "scenarios/scenario/names.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {
namespace {

void add_host_assumptions(const Job& job, std::vector<std::string>& list) {
  const RuntimeChoice& runtime = job.scenario.runtime;
  const CpuOffload hosts = cpu_offload(runtime);
  if (!hosts.any()) return;
  list.push_back(
      "hosts: the peaks of a node's ranks are added up; pinned blocks can be reused as soon as they are freed, at the "
      "upper end only after the host has waited for their copies");
  const std::vector<Estimate> nccl = nccl_host_memory(job);
  const Estimate& most = *std::ranges::max_element(nccl, {}, &Estimate::high);
  if (most.high > Bytes{})
    list.push_back(
        fmt::format("hosts: NCCL {} also takes {}{} of a node's host memory, according to its source code; the upper "
                    "end includes it",
                    text(runtime.versions.nccl), most.low == most.high ? "" : gib(most.low) + " to ", gib(most.high)));
  if (hosts.optimizer)
    list.push_back(fmt::format(
        "hosts: computing there is limited by the rank's share of the node's memory bandwidth{}",
        runtime_kind(runtime.name).shards_units() ? "; NCCL sums norms where the framework uses gloo" : ""));
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
    list.push_back("routing: every expert takes as many tokens as its capacity");
    return;
  }
  const std::string capacity = routing.capacity_factor > 0
                                   ? fmt::format(", and take {:.6g} times their share at most", routing.capacity_factor)
                                   : "";
  std::string line = fmt::format("routing is not known before training: {}{}, in every micro-batch",
                                 in_words(routing.loads, s.layout.expert), capacity);
  if (s.layout.expert > 1)
    line += fmt::format(
        "; the upper ends include up to {:.2f} GiB for more uneven routing, which some rank exceeds in {:.6g} % of "
        "steps",
        most, 100 * (1 - routing.quantile));
  list.push_back(std::move(line));
  if (routing.dispatcher == TokenDispatcher::Flex)
    list.push_back(
        "DeepEP 1.2.1 dispatches: a token goes once to each rank that holds any of its experts, which are drawn at "
        "random with the stated loads; between nodes, the time counts a copy for each rank, where DeepEP sends one per "
        "node and forwards it over NVLink");
}

void add_rollout(const Scenario& s, std::vector<std::string>& list) {
  if (!s.train.rollout) return;
  const Rollout& r = *s.train.rollout;
  list.push_back(fmt::format(
      "rollout: an engine in the training process, over {} ranks{}; it answers {} prompts {} times each, all at once "
      "and at full length",
      r.tensor, r.weights == EngineWeights::Own ? ", with weights of its own" : ", on the training's weights", r.batch,
      r.samples));
  list.push_back(r.memory_fraction > 0
                     ? fmt::format("rollout: weights and cache take {:g} % of the device when the engine wakes, as "
                                   "SGLang's mem_fraction_static; vLLM subtracts its activations from that",
                                   100 * r.memory_fraction)
                     : fmt::format("rollout: the cache grows by blocks of {} tokens, prompts included", r.block_size));
  if (r.sleep != EngineSleep::Awake)
    list.push_back(r.sleep == EngineSleep::WeightsToHost
                       ? "rollout: the engine's weights are in pinned host memory during training"
                       : "rollout: the engine's weights are discarded during training");
  list.push_back(s.layout.pipeline > 1 || s.runtime.offloaded_layers > 0 || s.runtime.module_offload.any()
                     ? "rollout: passes for log-probabilities are not simulated: without gradients they need less "
                       "memory than training passes"
                     : "rollout: one pass without gradients represents the log-probability passes of policy and "
                       "reference, which run the same kernels");
  std::vector<std::string> beside;
  for (const FrozenModel& model : s.train.frozen) beside.push_back(fmt::format("a {}", model.name()));
  if (!beside.empty())
    list.push_back(fmt::format("rollout: {} model in {}, split like the trained one, always on the device",
                               fmt::join(beside, " and "), name(s.train.precision)));
}

// When blocks that other streams use (record_stream) are free again, as the reported value has it.
std::vector<std::string> lent_blocks(const Job& job, double more_gib, ReportedFrees frees) {
  std::vector<std::string> list;
  const std::string_view what =
      job.runtime.eager ? "memory that other streams use (record_stream)" : "memory of overlapped sends";
  if (job.asks_the_clock && frees == ReportedFrees::ByClock)
    list.push_back(
        fmt::format("{} is reused when those streams have finished their earlier work on the simulated clock: {:.2f} "
                    "GiB more on a device than with immediate reuse",
                    what, more_gib));
  else if (job.asks_the_clock)
    list.push_back(fmt::format("{} is reused as soon as it is freed", what));
  if (prompt_stream(job.runtime).valid())
    list.emplace_back(
        "gradients that autograd passes to DistributedDataParallel's stream (record_stream) are reused as soon as they "
        "are freed, as measured on B200");
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
    list.push_back(
        fmt::format("blocks that other streams use: the upper ends include up to {:.2f} GiB more, for reuse only after "
                    "the host thread next waits for the device or for room in its launch queue",
                    most(&RankGroup::of_deferred_frees)));
    const LaunchQueue queue = launch_queue_of(job.scenario);
    list.push_back(fmt::format(
        "host thread: at most {} launches ahead of its device, {} (published measurements: 512 to 1,024; "
        "CUDA_DEVICE_MAX_CONNECTIONS, CUDA_SCALE_LAUNCH_QUEUES)",
        queue.depth,
        queue.channels == 1 ? "of all streams together" : fmt::format("of each of {} channels", queue.channels)));
  }
  add_routing(job.scenario, most(&RankGroup::of_routing), list);
  if (job.runtime.saves_batches)
    list.push_back(
        fmt::format("the upper ends include up to {:.2f} GiB for a step's batches, which Megatron-LM core {} keeps on "
                    "the first tensor-parallel rank until the next step unless --rerun-mode is disabled",
                    most(&RankGroup::rerun_batches_bytes), text(job.scenario.runtime.versions.megatron)));
}

// What the host thread spends on an op.
std::string host_assumption(const Job& job) {
  const HostCosts& its = job.times.classes.front().host;
  const auto microseconds = [](Duration d) { return seconds(d) * 1e6; };
  const auto of = [&](Phase phase) { return microseconds(its.code[static_cast<std::size_t>(phase)]); };
  const char* const measured = job.runtime.eager ? "measured on" : "scaled from its local modules, measured on";
  return fmt::format(
      "host thread: {:.1f} us per op in the driver, and {:.1f} us forward and {:.1f} us backward in framework code, {} "
      "{} (within 40 %; [host] code_factor {})",
      microseconds(its.launch), of(Phase::Forward), of(Phase::Backward), measured, measured_on,
      as_double(job.scenario.cluster.host.code_factor));
}

void add_times(const Job& job, LinkModel links, std::vector<std::string>& list) {
  const Scenario& s = job.scenario;
  if (const Node& node = s.cluster.node; node.job_devices == node.devices && s.gpus > node.devices)
    list.push_back(
        fmt::format("a job of several nodes uses {} devices of each (the cluster's job_devices)", node.job_devices));
  list.push_back("kernels: roofline of " + s.cluster.device.name +
                 "; efficiencies: " + s.cluster.device.efficiency.source);
  if (const Calibration* its = s.cluster.calibration.get())
    list.push_back(
        fmt::format("{}: measured times, and interpolations between them, are used where they apply ({}); explain "
                    "--show kernels lists those kernels",
                    its->name, its->source));
  if (const Device& device = s.cluster.device; is_limited(device))
    list.push_back(
        fmt::format("a power limit of {}, where matrix products reach these rates at {}: rates scale with that ratio "
                    "to the power of {} ({})",
                    text(device.power->limit), text(device.power->sustained_at), text(device.power->exponent),
                    device.power->source));
  list.push_back(host_assumption(job));
  list.push_back("times are not comparable with those of clusters whose efficiencies have another source");
  const bool held_up =
      std::ranges::any_of(job.times.classes, [](const OpTimes& times) { return !times.second_waves.empty(); });
  if (held_up)
    list.push_back("matrix products that start during a collective wait for its multiprocessors; messages use none");
  list.push_back(
      links == LinkModel::MaxMin
          ? "collectives: NCCL's ring, tree and NVLS along their routes; transfers share links max-min fairly"
          : "collectives: NCCL's ring, tree and NVLS, each as if alone (alpha-beta); transfers do not share links");
  if (s.runtime.nccl.sockets && s.layout.world_size() > s.cluster.node.devices)
    list.push_back(
        "NCCL's sockets (NCCL_IB_DISABLE, NCCL_NET): through the host's memory at the rate of the cluster's NICs, "
        "which TCP does not reach: a real step takes longer");
  list.push_back(
      fmt::format("MFU: three forward passes{} without recomputation, causal attention counted once, over dense peak",
                  s.train.adapter ? ", two of frozen weights' products," : ""));
}

}  // namespace

std::vector<std::string> assumptions_of(const Job& job, const std::vector<RankGroup>& groups,
                                        const PredictOptions& options) {
  const Scenario& s = job.scenario;
  std::vector<std::string> list = job.runtime.eager ? eager_behavior(s, *job.runtime.eager) : megatron_behavior(s);
  const std::vector<std::string> versions = version_assumptions(s.runtime);
  list.insert(list.begin() + 1, versions.begin(), versions.end());
  add_times(job, options.links, list);
  const AllocatorOptions allocator = allocator_options_of(s);
  list.push_back(fmt::format("native caching allocator with {}; segments {}",
                             s.runtime.allocator.empty() ? "default settings" : s.runtime.allocator,
                             allocator.address_order == AddressOrder::Falling
                                 ? "are placed as an H100's driver placed them"
                                 : "are ordered by age"));
  for (const std::string& remark : parse_allocator_conf(s.runtime.allocator).remarks) list.push_back(remark);
  add_host_assumptions(job, list);
  add_rollout(s, list);
  add_upper_ends(job, groups, options.frees, list);
  for (std::string& line : range_assumptions(s)) list.push_back(std::move(line));
  list.push_back(
      "CUDA context, loaded code and NCCL memory are estimates with bounds; those of NCCL are unverified on several "
      "GPUs");
  return list;
}

}  // namespace tidemark::scenarios
