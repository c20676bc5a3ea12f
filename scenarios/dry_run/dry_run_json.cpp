#include <nlohmann/json.hpp>

#include "scenarios/dry_run/dry_run.hpp"

namespace tidemark::scenarios {
namespace {

using DryOut = nlohmann::ordered_json;

DryOut counters_json(const AllocatorCounters& counters) {
  return {{"allocated_bytes", counters.allocated.count()},
          {"active_bytes", counters.active.count()},
          {"reserved_bytes", counters.reserved.count()},
          {"requested_bytes", counters.requested.count()}};
}
DryOut step_json(const DryStep& step) {
  return {{"peak", counters_json(step.peak)}, {"after", counters_json(step.after)}};
}

const char* outcome_name(DryOutcome outcome) {
  switch (outcome) {
    case DryOutcome::Completed:
      return "completed";
    case DryOutcome::Ended:
      return "ended";
    case DryOutcome::OutOfMemory:
      return "out_of_memory";
    case DryOutcome::Error:
      return "error";
    case DryOutcome::Refused:
      return "refused";
  }
  return "";
}

DryOut named_json(const std::vector<NamedBytes>& parts, const char* name) {
  DryOut out = DryOut::array();
  for (const NamedBytes& part : parts) out.push_back({{name, part.name}, {"bytes", part.bytes.count()}});
  return out;
}

DryOut rank_json(const DryRank& rank) {
  const RankReport& held = rank.held();
  const AllocatorCounters peak = held.peak();
  DryOut out{{"rank", rank.report.rank},
             {"outcome", outcome_name(rank.report.outcome)},
             {"limited", !rank.need},
             {"allocator_limit_bytes", rank.limit.count()},
             {"peak_allocated_bytes", peak.allocated.count()},
             {"peak_reserved_bytes", peak.reserved.count()},
             {"peak_device_bytes", rank.device().count()},
             {"peak_device_upper_bytes", rank.device_upper().count()},
             {"retries", held.retries},
             {"host_resident_bytes", held.host_resident ? DryOut(held.host_resident->count()) : DryOut()},
             {"set_up", held.set_up ? step_json(*held.set_up) : DryOut()},
             {"steps", DryOut::array()},
             {"at_allocated_peak",
              {{"bytes", held.at_peak.count()},
               {"by_what", named_json(held.by_what, "what")},
               {"others", named_json(held.by_place, "where")},
               {"stack", held.peak_stack}}},
             {"device_rows", DryOut::array()},
             {"groups", DryOut::array()},
             {"stood_in", DryOut::array()},
             {"failure", DryOut()},
             {"seconds", held.seconds}};
  for (const DryStep& step : held.steps) out["steps"].push_back(step_json(step));
  for (const DryRow& row : rank.rows)
    out["device_rows"].push_back({{"name", row.name},
                                  {"bytes", row.cost.bytes.count()},
                                  {"low", row.cost.low.count()},
                                  {"high", row.cost.high.count()},
                                  {"source", row.cost.source}});
  for (const DryGroup& group : held.groups)
    out["groups"].push_back({{"ranks", group.ranks},
                             {"backend", group.backend},
                             {"reduces", group.reduces},
                             {"shards", group.shards},
                             {"exchanges", group.exchanges},
                             {"peers", group.peers}});
  for (const StoodIn& line : held.stood_in)
    out["stood_in"].push_back({{"what", line.what}, {"where", line.where}, {"count", line.count}});
  if (rank.ran_out() && rank.report.ran_out)
    out["failure"] = {{"kind", "out_of_memory"},
                      {"after_steps", rank.report.ran_out->after_steps},
                      {"requested_bytes", rank.report.ran_out->wanted.count()},
                      {"free_bytes", rank.report.ran_out->device_free.count()},
                      {"stack", rank.report.ran_out->stack}};
  else if (rank.report.failure)
    out["failure"] = {{"kind", outcome_name(rank.report.outcome)},
                      {"type", rank.report.failure->type},
                      {"message", rank.report.failure->message},
                      {"stack", rank.report.failure->stack}};
  return out;
}

}  // namespace

std::string dry_run_json(const DryRunAnswer& answer) {
  const DryVerdict verdict = answer.verdict();
  const bool is_known = verdict == DryVerdict::Fits || verdict == DryVerdict::DoesNotFit;
  const RankReport& first = answer.ranks.front().report;
  DryOut out{{"schema", "tidemark.dry_run/1"},
             {"command", answer.command},
             {"launcher", launcher_text(answer.launch.launcher)},
             {"world_size", answer.world.ranks},
             {"ranks_per_node", answer.world.per_node},
             {"cluster", answer.cluster.name},
             {"device", answer.cluster.device.name},
             {"capacity_bytes", answer.cluster.device.capacity.count()},
             {"fits", is_known ? DryOut(verdict == DryVerdict::Fits) : DryOut()},
             {"agrees", answer.agrees ? DryOut(*answer.agrees) : DryOut()},
             {"versions", {{"torch", first.torch}, {"cuda", first.cuda}, {"python", first.python}}},
             {"packages", first.packages},
             {"not_modelled", answer.not_modelled},
             {"ranks", DryOut::array()}};
  for (const DryRank& rank : answer.ranks) out["ranks"].push_back(rank_json(rank));
  // Texts are the script's: of bytes that are no UTF-8, others stand there.
  return out.dump(2, ' ', false, DryOut::error_handler_t::replace) + '\n';
}

}  // namespace tidemark::scenarios
