#include "scenarios/predict/prediction.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "kernels/cost/cost_time.hpp"
#include "parallel/frameworks/transformers/adapters.hpp"
#include "parallel/lowering/flops.hpp"
#include "scenarios/predict/assumptions/assumptions.hpp"
#include "scenarios/predict/memory_program.hpp"
#include "scenarios/predict/nccl_host_memory.hpp"
#include "scenarios/predict/rank_memory.hpp"
#include "scenarios/predict/role_program.hpp"
#include "scenarios/predict/time/on_clock.hpp"
#include "scenarios/predict/time/same_passes.hpp"
#include "scenarios/predict/upper_ends/deferred_frees.hpp"
#include "scenarios/predict/upper_ends/rerun_batches.hpp"
#include "scenarios/scenario/cpu_offload.hpp"
#include "sim/base/in_parallel.hpp"
#include "sim/clock/engine.hpp"

namespace tidemark::scenarios {
namespace {

// A timeline says when things happen, and what frees hold by the clock.
bool has_a_timeline(const Job& job, const PredictOptions& options) {
  return options.reported != PredictionDetail::Figures || job.asks_the_clock;
}

void replay_roles(const Job& job, const OnClock& clock, const SameMemory& same, const RoleProgram& its,
                  const MemoryProgram& memory, const std::optional<MemoryProgram>& worst_case_memory,
                  const PredictOptions& options, std::optional<Bytes> beyond_live, std::vector<RankGroup>& groups) {
  const Role& role = *same.replayed;
  const Program& program = its.program();
  const bool has_times = !clock.classes.empty();
  const bool has_cross_stream_frees = job.has_cross_stream_frees && has_cross_stream_uses(program),
             asks_the_clock =
                 has_times && job.asks_the_clock && scenarios::asks_the_clock(program, prompt_stream(job.runtime));
  const Bytes batches = rerun_batches_bytes(job.scenario, job.runtime, role.first.pipeline);
  RankRoom by{judged_device(job.scenario),
              job.scenario.cluster.device.capacity - job.scenario.runtime.headroom - batches,
              options.reported == PredictionDetail::Whole ? Require::Least : Require::Room,
              options.frees,
              prompt_stream(job.runtime),
              beyond_live};

  std::map<std::int32_t, RankGroup> by_cost;
  std::map<std::int32_t, std::vector<Rank>> by_class;  // ranks of one class pay the same
  for (const Rank rank : same.ranks) by_class[job.folding.class_of_rank[rank.index()]].push_back(rank);
  for (auto& [rank_class, ranks] : by_class) {
    const std::int32_t entry = job.costs.entry_of_rank[ranks.front().index()];
    const auto [known, added] = by_cost.try_emplace(entry);
    if (added) {
      const DriverCosts& costs = job.costs.entries[static_cast<std::size_t>(entry)];
      known->second = at_once(memory, has_cross_stream_frees, costs, by);
      by.beyond_live = by.beyond_live.value_or(known->second.beyond_live);
      if (worst_case_memory) add_routing(at_once(*worst_case_memory, has_cross_stream_frees, costs, by), known->second);
    }
    RankGroup group = known->second;
    group.coordinates = coordinates(job.scenario.layout, ranks.front());
    group.ranks = std::move(ranks);
    if (asks_the_clock) return_by_clock(its.times(clock.classes.at(rank_class)), memory, by, group);
    group.rerun_batches_bytes = batches;
    group.memory.peak_device_upper += group.rerun_batches_bytes;
    group.required.upper += group.rerun_batches_bytes;
    group.unlimited_upper = std::max(group.unlimited_upper + group.rerun_batches_bytes, group.memory.peak_device_upper);
    if (has_times) {
      const ClassTimeline& timeline = clock.classes.at(rank_class);
      group.device_peak_time = its.host_time(timeline, group.memory.device.at.op);
      group.allocated_peak_time = its.host_time(timeline, group.memory.allocated.at.op);
      group.host_peak_time = its.host_time(timeline, group.memory.host.at.op);
    }
    groups.push_back(std::move(group));
  }
}

/// Of one sequence. Backward takes twice the forward pass, and once where weights are frozen: those have no gradients.
double training_operations(const Scenario& s) {
  parallel::ForwardOperations forward = forward_operations(s.model, s.train.tokens_of_sequence());
  const double packed = static_cast<double>(s.train.sequence_length / s.train.tokens_of_sequence());
  forward.linears *= packed, forward.attention *= packed;
  if (!s.train.adapter) return 3 * forward.all();
  using parallel::transformers::has_fused_experts;
  const auto trained =
      parallel::transformers::counts_of_adapted(s.model, *s.train.adapter, has_fused_experts(s.runtime.versions))
          .trained;
  return 2 * forward.linears + 3 * forward.attention +
         2 * static_cast<double>(trained) * static_cast<double>(s.train.sequence_length);
}

/// What all devices could do in a step of that length.
double peak_operations(const Scenario& s, Duration step) {
  const PeakRates& peak = s.cluster.device.peak;
  const OperationRate rate = s.train.precision == DType::BF16   ? peak.bf16
                             : s.train.precision == DType::FP16 ? peak.fp16
                                                                : peak.fp32;
  const double seconds = static_cast<double>(step.count()) / static_cast<double>(picoseconds_per_second);
  return seconds * s.gpus * static_cast<double>(rate.count());
}

StepPrediction step_of(const Job& job, const Trace& trace, const StepAccount& account, const PredictOptions& options) {
  const Scenario& s = job.scenario;
  StepPrediction found;
  found.step = last_step(trace);
  found.tokens_per_s_per_device = tokens_per_s_per_device(s, found.step);
  if (options.reported == PredictionDetail::Figures) return found;
  found.exposed.resize(job.communicators().size());
  for (std::size_t c = 0; c < account.classes.size(); ++c) {
    const double weight =
        static_cast<double>(job.folding.classes[c].size) / s.gpus / static_cast<double>(found.step.count());
    for (std::size_t slot = 0; slot < found.exposed.size(); ++slot)
      found.exposed[slot] += weight * static_cast<double>(account.classes[c].transferring[slot].count());
  }
  found.causes = cause_times(job.communicators(), job.folding, account.classes);
  found.mfu = training_operations(s) * static_cast<double>(s.train.global_batch) / peak_operations(s, found.step);
  found.hfu = hardware_utilization(job, account, found.step);
  return found;
}

// The classes that run each program.
std::vector<std::vector<std::int32_t>> classes_by_program(const Job& job) {
  std::vector<std::vector<std::int32_t>> found(job.outline.programs.size());
  for (std::size_t c = 0; c < job.folding.classes.size(); ++c)
    found[static_cast<std::size_t>(job.folding.classes[c].program)].push_back(static_cast<std::int32_t>(c));
  return found;
}

StepAccount empty_account(const Job& job) {
  return {std::vector<StepTimes>(job.folding.classes.size()), std::vector<double>(job.outline.programs.size())};
}

Bytes resident_of(const Scenario& s, const MemoryRecord& memory, Bytes taken) {
  return std::min(memory.managed, std::max(s.cluster.device.capacity - taken, Bytes{}));
}

// What NCCL takes besides is within the upper end.
NodeMemory fullest_node(const Job& job, const std::vector<RankGroup>& groups) {
  const std::int32_t devices = job.scenario.cluster.node.devices;
  std::map<std::int32_t, NodeMemory> nodes;
  for (const RankGroup& group : groups)
    for (const Rank rank : group.ranks) {
      NodeMemory& its = nodes[rank.value / devices];
      its.node = rank.value / devices;
      // What of managed memory finds no room on the device is on the host.
      const auto paged_out = [&](Bytes taken) {
        return group.memory.managed - resident_of(job.scenario, group.memory, taken);
      };
      its.bytes += group.memory.host.bytes + paged_out(group.memory.device.bytes);
      its.upper += group.host_upper + paged_out(group.memory.peak_device_upper);
      its.nvme += group.memory.nvme;
    }
  const std::vector<Estimate> nccl = nccl_host_memory(job);
  for (auto& [number, node] : nodes)
    if (!nccl.empty()) node.upper += nccl[static_cast<std::size_t>(number)].high;
  NodeMemory most = nodes.begin()->second;
  for (const auto& [number, node] : nodes) {
    const Bytes upper = std::max(most.upper, node.upper), nvme = std::max(most.nvme, node.nvme);
    if (node.bytes > most.bytes) most = node;
    most.upper = upper, most.nvme = nvme;
  }
  return most;
}

void count_parameters(const Job& job, Prediction& prediction) {
  prediction.parameters = prediction.trained = parameter_count(job.built);
  if (const auto& adapter = job.scenario.train.adapter) {
    const auto counts = parallel::transformers::counts_of_adapted(
        job.scenario.model, *adapter, parallel::transformers::has_fused_experts(job.scenario.runtime.versions));
    prediction.parameters = counts.all, prediction.trained = counts.trained;
  }
}

// Whether the job completes and fits, for what was found of its ranks and nodes.
void judge(const Job& job, Prediction& prediction) {
  const Bytes room = job.scenario.cluster.device.capacity - job.scenario.runtime.headroom;
  bool fits_at_best = !prediction.deadlock;
  for (const RankGroup& group : prediction.groups) {
    prediction.completed &= !group.failure;
    prediction.fits &= group.required.upper <= room;
    fits_at_best &= group.fits_at_best;
  }
  prediction.fullest_node = fullest_node(job, prediction.groups);
  prediction.completed &= !prediction.exceeds_host();
  prediction.fits &= prediction.completed && !prediction.may_exceed_host();
  prediction.open = !prediction.fits && fits_at_best && !prediction.exceeds_host();
}

std::vector<std::string> not_modelled(const Scenario& scenario) {
  std::vector<std::string> list{
      fmt::format("host memory outside the simulated programs: the process and its libraries, data loaders{}",
                  cpu_offload(scenario.runtime).any() ? "" : ", NCCL"),
      "work outside training steps: saving checkpoints (gathered copies on devices or hosts), evaluation (its batches "
      "and logits), compilation and autotuning of kernels (their trial runs)"};
  if (scenario.train.rollout)
    list.emplace_back(
        "generation beyond weights and cache: its activations, graphs and time; the CUDA context of an engine in its "
        "own process, and its scheduler's memory");
  return list;
}

}  // namespace

Bytes Prediction::resident(const MemoryRecord& memory, Bytes rest) const { return resident_of(scenario, memory, rest); }

double tokens_per_s_per_device(const Scenario& s, Duration step) {
  const double seconds = static_cast<double>(step.count()) / static_cast<double>(picoseconds_per_second);
  return static_cast<double>(s.train.global_batch) * static_cast<double>(s.train.sequence_length) / seconds / s.gpus;
}

StepAccount account_of(const Job& job, const Trace& trace) {
  const std::vector<std::vector<std::int32_t>> classes = classes_by_program(job);
  StepAccount account = empty_account(job);
  in_parallel(0, classes.size(), [&](std::size_t p) {
    account_for(job, trace, p, on_clock(job, trace, p, classes[p], Bodies::Few), account);
  });
  return account;
}

double hardware_utilization(const Job& job, const StepAccount& account, Duration step) {
  double executed = 0;
  for (const RankClass& its : job.folding.classes)
    executed += static_cast<double>(its.size) * account.operations[static_cast<std::size_t>(its.program)];
  return executed / peak_operations(job.scenario, step);
}

void add_bounds(Prediction& prediction, std::vector<MemoryBound> bounds) {
  prediction.bounds = std::move(bounds);
  if (prediction.bounds.empty()) return;
  const Bytes room = prediction.scenario.cluster.device.capacity - prediction.scenario.runtime.headroom;
  bool fits = true;
  for (RankGroup& group : prediction.groups) {
    Bytes more;
    for (const MemoryBound& its : prediction.bounds) more += its.on(group.coordinates.pipeline);
    group.required.upper += more;
    group.memory.peak_device_upper += more;
    group.unlimited_upper += more;
    fits &= group.required.upper <= room;
  }
  if (prediction.fits && !fits) prediction.fits = false, prediction.open = true;
  const bool less = std::ranges::any_of(prediction.bounds, &MemoryBound::may_be_less);
  if (prediction.fits || prediction.open || prediction.deadlock || !less) return;
  prediction.open = prediction.open_below = true;
}

void leave_open(Prediction& prediction, std::vector<NotJudged> not_judged) {
  prediction.not_judged = std::move(not_judged);
  if (prediction.not_judged.empty()) return;
  prediction.fits = false;
  prediction.open = true;
}

Trace simulate_time(const Job& job, LinkModel links) {
  if (links == LinkModel::MaxMin) return simulate(job.outline, job.folding, job.times);
  TimeCosts times = cost_time(job.calls, job.folding, job.scenario.cluster,
                              {.algorithm = {}, .model = CollectiveCostModel::AlphaBeta});
  set_host(job, times);
  return simulate(job.outline, job.folding, times, LinkSharing::None);
}

const RankGroup& Prediction::highest() const {
  return *std::max_element(groups.begin(), groups.end(), [](const RankGroup& a, const RankGroup& b) {
    return a.memory.peak_device_upper < b.memory.peak_device_upper;
  });
}

const RankGroup& Prediction::most_required() const {
  return *std::ranges::max_element(groups, {}, [](const RankGroup& group) { return group.required.upper; });
}

Bytes Prediction::filled(const RankGroup& group) const {
  return std::min(group.memory.peak_device_upper, scenario.cluster.device.capacity);
}

std::int64_t Prediction::retries_per_step() const {
  std::int64_t most = 0;
  for (const RankGroup& group : groups) most = std::max(most, group.memory.retries_of_last_step);
  return most;
}

// Where the cluster's file says how much there is.
bool Prediction::exceeds_host() const {
  const Bytes memory = scenario.cluster.host.memory;
  return memory > Bytes{} && fullest_node.bytes > memory;
}

bool Prediction::may_exceed_host() const {
  const Bytes memory = scenario.cluster.host.memory;
  return memory > Bytes{} && fullest_node.upper > memory;
}

const RankGroup& Prediction::highest_on_host() const {
  return *std::ranges::max_element(groups, {}, [](const RankGroup& group) { return group.memory.host.bytes; });
}

Prediction predict(const Scenario& scenario, const Progress& progress, const PredictOptions& options) {
  const Job job(scenario);
  return predict(job, simulate_time(job, options.links), progress, options);
}

Prediction predict(const Job& job, const Trace& trace, const Progress& progress, const PredictOptions& options) {
  const std::vector<SameMemory> roles = roles_of_same_memory(job);
  std::vector<std::vector<RankGroup>> found(roles.size());
  std::mutex reporting;
  std::size_t done = 0;
  std::vector<std::vector<SamePasses>> by_program(job.outline.programs.size());
  for (SamePasses& its : roles_of_same_passes(job, roles))
    by_program[job.program_of(*roles[its.roles.front()].replayed)].push_back(std::move(its));
  const std::vector<std::vector<std::int32_t>> classes = classes_by_program(job);
  const bool completed = std::holds_alternative<Completed>(trace.outcome);
  const bool has_times = completed && has_a_timeline(job, options);
  StepAccount account = empty_account(job);
  const auto predict_program = [&](std::size_t program, Bodies bodies) {
    OnClock clock = on_clock(job, trace, program, has_times ? classes[program] : std::vector<std::int32_t>{}, bodies);
    if (has_times && options.reported != PredictionDetail::Figures) account_for(job, trace, program, clock, account);
    if (!job.asks_the_clock)
      for (auto& [c, timeline] : clock.classes) timeline.spans = {};
    in_parallel(0, by_program[program].size(), [&](std::size_t p) {
      const std::vector<std::size_t>& its = by_program[program][p].roles;
      const PassesOfRoles passes(job, *roles[its.front()].replayed, its.size(), clock);
      std::optional<Bytes> beyond_live;  // of the first
      const auto predict_role = [&](std::size_t i) {
        const SameMemory& same = roles[its[i]];
        std::vector<RankGroup>& groups = found[its[i]];
        const bool is_new = std::exchange(groups, {}).empty();
        if (i == 0) {
          replay_roles(job, clock, same, passes.shown(), passes.memory(), passes.worst_case_memory(), options, {},
                       groups);
          beyond_live = groups.front().beyond_live;
        } else {
          const PassesOfRoles::Programs programs = passes.of(*same.replayed);
          replay_roles(job, clock, same, *programs.own, programs.memory(), programs.worst_case_memory(), options,
                       beyond_live, groups);
        }
        const std::lock_guard lock(reporting);
        if (progress && is_new) progress(++done, roles.size());
      };
      predict_role(0);
      in_parallel(1, its.size(), predict_role);
    });
  };
  in_parallel(0, by_program.size(), [&](std::size_t program) {
    try {
      predict_program(program, Bodies::Few);
    } catch (const NotKnownFromFew&) {
      predict_program(program, Bodies::All);
    }
  });

  Prediction prediction;
  prediction.scenario = job.scenario;
  count_parameters(job, prediction);
  prediction.communicators = job.communicators();
  prediction.deadlock = deadlock_of(job, trace);
  prediction.completed = !prediction.deadlock;
  if (prediction.completed) prediction.step = step_of(job, trace, account, options);
  for (std::vector<RankGroup>& groups : found)
    for (RankGroup& group : groups) prediction.groups.push_back(std::move(group));
  std::sort(prediction.groups.begin(), prediction.groups.end(),
            [](const RankGroup& a, const RankGroup& b) { return a.ranks.front() < b.ranks.front(); });
  judge(job, prediction);
  prediction.assumptions = assumptions_of(job, prediction.groups, options);
  prediction.not_modelled = not_modelled(job.scenario);
  return prediction;
}

}  // namespace tidemark::scenarios
