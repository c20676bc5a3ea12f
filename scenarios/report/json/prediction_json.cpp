#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "scenarios/formats/format.hpp"
#include "scenarios/predict/device_rows.hpp"
#include "scenarios/predict/measured/measured_ranges.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/report/memory_range.hpp"
#include "scenarios/report/remedies.hpp"
#include "scenarios/report/run_cost.hpp"
#include "scenarios/report/step_range.hpp"
#include "scenarios/report/text/prediction_text.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

// No instant where the job deadlocks: what comes after has none.
Json instant(const Moment& moment, const std::string& op, std::optional<Instant> time) {
  const Mark& mark = moment.mark;
  return {{"step", mark.step},
          {"phase", name(mark.phase)},
          {"micro_batch", mark.micro_batch < 0 ? Json(nullptr) : Json(mark.micro_batch)},
          {"op", op},
          {"time_s", time ? Json(seconds(time->since_start())) : Json(nullptr)}};
}

Json composition(const Composition& parts) {
  Json out = Json::object();
  for (std::size_t c = 0; c < category_count; ++c) out[std::string(category_names[c])] = parts.bytes[c].count();
  return out;
}

// What a process holds beside its program's own buffers is not modelled, as `not_modelled` says: where no program of
// the job asks for any, nothing is no figure.
Json host_peak(const HostRecord& host, const Prediction& p) {
  return p.fullest_node.bytes > Bytes{} ? Json(host.peak.count()) : Json(nullptr);
}

Json by_phase(const MemoryRecord& memory) {
  Json out = Json::object();
  for (std::size_t phase = 0; phase < phase_count; ++phase)
    out[std::string(name(static_cast<Phase>(phase)))] = memory.allocated_by_phase[phase].bytes.count();
  return out;
}

Json range(const MemoryRange& its) { return Json::array({its.low.count(), its.high.count()}); }

Json group_json(const RankGroup& group, const Prediction& p) {
  const Layout& layout = p.scenario.layout;
  const MemoryRecord& m = group.memory;
  Json ranks = Json::array();
  for (const Rank rank : group.ranks) ranks.push_back(rank.value);
  Json by_step = Json::array();
  for (const Bytes bytes : m.peak_allocated_by_step) by_step.push_back(bytes.count());
  Json rows = Json::array();
  for (const DeviceRow& row : device_rows(group, p.communicators))
    rows.push_back({{"name", row.name},
                    {"bytes", row.cost.bytes.count()},
                    {"low", row.cost.low.count()},
                    {"high", row.cost.high.count()},
                    {"source", row.cost.source}});
  Json out{{"ranks", std::move(ranks)},
           {"coordinates",
            {{"tp", group.coordinates.tensor},
             {"cp", group.coordinates.context},
             {"ep", expert_mesh(layout).coordinate(group.ranks.front(), axis::ep)},
             {"dp", group.coordinates.data},
             {"pp", group.coordinates.pipeline}}},
           {"peak_allocated_bytes", m.allocated.bytes.count()},
           {"peak_reserved_bytes", m.peak_reserved.count()},
           {"peak_allocated_range_bytes", range(allocated_range(group, p.scenario))},
           {"peak_reserved_range_bytes", range(reserved_range(group, p.scenario))},
           {"peak_device_bytes", m.device.bytes.count()},
           {"peak_device_upper_bytes", m.peak_device_upper.count()},
           {"required_device_bytes", group.required.bytes.count()},
           {"required_device_upper_bytes", group.required.upper.count()},
           {"filled_device_bytes", p.filled(group).count()},
           {"retries_per_step", m.retries_of_last_step},
           {"peak_host_pinned_bytes", host_peak(m.pinned, p)},
           {"peak_host_pageable_bytes", host_peak(m.pageable, p)},
           {"static_allocated_bytes", m.final_allocated.count()},
           {"peak_allocated_by_step", std::move(by_step)},
           {"peak_at", instant(m.device.at, group.device_peak_op, group.device_peak_time)},
           {"at_peak", composition(m.device.composition)},
           {"allocated_peak_at", instant(m.allocated.at, group.allocated_peak_op, group.allocated_peak_time)},
           {"at_allocated_peak", composition(m.allocated.composition)},
           {"device_rows", std::move(rows)}};
  if (m.host.bytes > Bytes{}) {
    out["host_peak_at"] = instant(m.host.at, group.host_peak_op, group.host_peak_time);
    out["at_host_peak"] = composition(m.host.composition);
    out["peak_host_upper_bytes"] = group.host_upper.count();
  }
  if (m.managed > Bytes{})
    out["managed_memory"] = {{"peak_bytes", m.managed.count()},
                             {"resident_bytes", p.resident(m, m.device.bytes).count()},
                             {"resident_bytes_at_upper", p.resident(m, m.peak_device_upper).count()}};
  if (m.nvme > Bytes{}) out["peak_nvme_bytes"] = m.nvme.count();
  if (p.scenario.train.rollout) out["peak_allocated_by_phase"] = by_phase(m);
  if (group.worst_case)
    out["with_more_tokens"] = {{"peak_allocated_bytes", group.worst_case->allocated.count()},
                               {"peak_reserved_bytes", group.worst_case->reserved.count()},
                               {"peak_device_bytes", group.worst_case->device.count()}};
  return out;
}

Json shares(const Prediction& p) {
  Json exposed = Json::object();
  for (std::size_t slot = 0; slot < p.communicators.size(); ++slot)
    exposed[p.communicators[slot].name] = p.step.exposed[slot];
  return {{"kernels", p.step.share(StepCause::Compute)},
          {"bubble", p.step.waiting()},
          {"copies", p.step.share(StepCause::Copies)},
          {"idle", p.step.share(StepCause::Host)},
          {"exposed_communication", std::move(exposed)}};
}

Json deadlock_json(const DeadlockReport& report) {
  Json stalls = Json::array(), cycle = Json::array();
  for (const StalledRank& stall : report.stalls)
    stalls.push_back({{"rank", stall.rank.value},
                      {"ranks_alike", stall.alike},
                      {"op", stall.op},
                      {"phase", stall.phase},
                      {"waiting_for", stall.waiting_for},
                      {"waits_for_rank", stall.waits_for ? Json(stall.waits_for->value) : Json(nullptr)}});
  for (const Rank rank : report.cycle) cycle.push_back(rank.value);
  return {{"stalls", std::move(stalls)}, {"cycle", std::move(cycle)}};
}

Json causes(const Prediction& p) {
  Json out = Json::object();
  for (std::size_t cause = 0; cause < step_cause_count; ++cause)
    out[std::string(name(static_cast<StepCause>(cause)))] = seconds(p.step.causes[cause]);
  return out;
}

std::string_view outcome(const Prediction& p) {
  if (p.deadlock) return "deadlock";
  return p.completed ? "completed" : "out_of_memory";
}

Json failure_json(const Prediction& p) {
  if (p.deadlock) return deadlock_json(*p.deadlock);
  for (const RankGroup& group : p.groups) {
    if (!group.failure) continue;
    return {{"rank", group.ranks.front().value},
            {"op", group.failed_op},
            {"phase", name(group.failure->at.mark.phase)},
            {"requested_bytes", group.failure->requested.count()},
            {"free_bytes", group.failure->free.count()}};
  }
  if (p.exceeds_host()) {
    const RankGroup& top = p.highest_on_host();
    return {{"rank", top.ranks.front().value},
            {"op", top.host_peak_op},
            {"phase", name(top.memory.host.at.mark.phase)},
            {"host_of_node", p.fullest_node.node},
            {"requested_bytes", p.fullest_node.bytes.count()},
            {"free_bytes", p.scenario.cluster.host.memory.count()}};
  }
  return nullptr;
}

// Of the node whose ranks hold most of its memory.
Json host_json(const Prediction& p) {
  const Bytes memory = p.scenario.cluster.host.memory;
  Json out = {{"memory_bytes", memory > Bytes{} ? Json(memory.count()) : Json(nullptr)},
              {"fullest_node", p.fullest_node.node},
              {"fullest_node_bytes", p.fullest_node.bytes.count()},
              {"upper_bytes", p.fullest_node.upper.count()}};
  if (p.fullest_node.nvme > Bytes{}) out["nvme_bytes"] = p.fullest_node.nvme.count();
  return out;
}

// By how much measured runs are off, and what of the answer nobody's runs were held to.
Json calibration(const Scenario& s) {
  Json out = Json::object();
  for (const auto& [figure, name] :
       {std::pair(MeasuredFigure::Allocated, "allocated"), {MeasuredFigure::Reserved, "reserved"}}) {
    const MeasuredRange range = range_of(figure, s.runtime.name);
    const RowsOfRuntime own = own_rows(figure, s.runtime.name, s.cluster.device.name);
    out[name] = {{"share", range.share}, {"coverage", range.coverage},          {"rows_of_other_runtimes", range.rows},
                 {"own_rows", own.rows}, {"own_rows_on_device", own.on_device}, {"own_rows_within", own.within}};
  }
  const std::string missing = not_calibrated(s);
  out["not_calibrated_for"] = missing.empty() ? Json(nullptr) : Json(missing);
  return out;
}

Json between_json(const Between& its) { return {{"value", its.value}, {"low", its.low}, {"high", its.high}}; }

// Of the whole training, as far as its length and a price are known.
Json run_json(const Prediction& p) {
  Json out = Json::object();
  if (const std::optional<RunCost> cost = run_cost(p)) {
    out["steps"] = cost->steps;
    out["tokens"] = cost->tokens;
    out["seconds"] = between_json(cost->seconds);
    out["gpu_days"] = between_json(cost->gpu_days);
    if (cost->dollars) out["dollars"] = between_json(*cost->dollars);
  }
  if (const std::optional<Between> dollars = dollars_per_billion_tokens(p)) {
    out["price_per_gpu_hour"] = as_double(*p.scenario.cluster.dollars_per_gpu_hour);
    out["dollars_per_billion_tokens"] = between_json(*dollars);
  }
  return out;
}

Json not_judged(const Prediction& p) {
  Json list = Json::array();
  for (const NotJudged& its : p.not_judged)
    list.push_back({{"what", its.what}, {"why", its.why}, {"file", its.file}, {"line", its.line}});
  return list;
}

Json bounds(const Prediction& p) {
  Json list = Json::array();
  for (const MemoryBound& its : p.bounds)
    list.push_back({{"what", its.what},
                    {"why", its.why},
                    {"file", its.file},
                    {"line", its.line},
                    {"upper_bytes", its.more.count()},
                    {"may_be_less", its.may_be_less}});
  return list;
}

}  // namespace

std::string prediction_json(const Prediction& p, const AcceptedChanges* accepted) {
  Json groups = Json::array();
  for (const RankGroup& group : p.groups) groups.push_back(group_json(group, p));
  const auto of_step = [&](const Json& figure) { return p.deadlock ? Json(nullptr) : figure; };
  const StepRange range = step_range(p.step, p.scenario.cluster.device.efficiency);
  Json out = {{"schema", "tidemark.prediction/1"},
              {"scenario", Json::parse(scenario_json(p.scenario, -1))},
              {"world_size", p.scenario.layout.world_size()},
              {"outcome", outcome(p)},
              {"fits", p.fits},
              {"verdict", p.verdict()},
              {"capacity_bytes", p.scenario.cluster.device.capacity.count()},
              {"headroom_bytes", p.scenario.runtime.headroom.count()},
              {"failure", failure_json(p)},
              {"step_time_s", of_step(seconds(p.step.step))},
              {"step_time_low_s", of_step(seconds(range.low))},
              {"step_time_high_s", of_step(seconds(range.high))},
              {"tokens_per_s_per_device", of_step(p.step.tokens_per_s_per_device)},
              {"mfu", of_step(p.step.mfu)},
              {"hfu", of_step(p.step.hfu)},
              {"step_shares", p.deadlock ? Json(nullptr) : shares(p)},
              {"step_causes_s", of_step(causes(p))},
              {"calibration", calibration(p.scenario)},
              {"assumptions", p.assumptions},
              {"not_modelled", p.not_modelled},
              {"not_judged", not_judged(p)},
              {"bounds", bounds(p)},
              {"groups", std::move(groups)}};
  if (p.fullest_node.bytes > Bytes{}) out["host"] = host_json(p);
  if (const Json run = run_json(p); !run.empty()) out["run"] = run;
  for (const RankGroup& group : p.groups)
    if (group.failure && !out.contains("remedies"))
      out["remedies"] = remedies_of(group.failure->at.mark.phase, p.scenario, accepted);
  return out.dump(1) + '\n';
}

}  // namespace tidemark::scenarios
