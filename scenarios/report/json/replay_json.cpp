#include <nlohmann/json.hpp>

#include "scenarios/report/text/replay_text.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

Json optional_bytes(const std::optional<Bytes>& bytes) { return bytes ? Json(bytes->count()) : Json(); }
Json optional_bytes(Bytes bytes) { return bytes == AllocatorOptions::unlimited ? Json() : Json(bytes.count()); }

Json options_json(const AllocatorOptions& options) {
  return {{"max_split_size_bytes", optional_bytes(options.max_split_size)},
          {"max_non_split_rounding_bytes", options.max_non_split_rounding.count()},
          {"garbage_collection_threshold", options.garbage_collection_threshold},
          {"roundup_power2_divisions", options.roundup_divisions},
          {"expandable_segments", options.expandable_segments},
          {"large_segment_bytes", options.large_segment.count()},
          {"memory_fraction", options.memory_fraction}};
}

Json report_json(const ReplayReport& r) {
  return {{"events", r.events},
          {"allocs", r.allocs},
          {"frees", r.frees},
          {"segment_allocs", r.segment_allocs},
          {"segment_frees", r.segment_frees},
          {"segment_maps", r.segment_maps},
          {"segment_unmaps", r.segment_unmaps},
          {"snapshots", r.snapshots},
          {"ooms", r.ooms},
          {"mismatched_addresses", r.mismatched_addresses},
          {"mismatched_segment_events", r.mismatched_segment_events},
          {"mismatched_frees", r.mismatched_frees},
          {"mismatched_snapshots", r.mismatched_snapshots},
          {"same_end", r.same_end},
          {"segments", r.segments},
          {"blocks", r.blocks},
          {"reserved_bytes", r.reserved.count()},
          {"peak_reserved_bytes", r.peak_reserved.count()},
          {"peak_allocated_bytes", r.peak_allocated.count()},
          {"capacity_bytes", optional_bytes(r.capacity)}};
}

Json steps_json(const SnapshotReplay& answer) {
  static constexpr const char* evidence[] = {"none", "annotations", "repetition"};
  Json allocated = Json::array();
  for (const Bytes bytes : answer.allocated_at_steps) allocated.push_back(bytes.count());
  Json groups = Json::array();
  for (const Survivors& group : answer.survivors)
    groups.push_back({{"size_bytes", group.size.count()},
                      {"growth_bytes_per_step", group.growth().count()},
                      {"left_by_step", group.left_by_step},
                      {"live", group.live},
                      {"place", place_text(answer.snapshot, group.stack, 16)}});
  return {{"evidence", evidence[static_cast<std::size_t>(answer.steps.evidence)]},
          {"bounds", answer.steps.bounds},
          {"allocated_bytes_at_bounds", std::move(allocated)},
          {"survivors", std::move(groups)}};
}

Json outcome_json(const RerunOutcome& outcome) {
  Json ran_out;
  if (outcome.ran_out)
    ran_out = {{"event", outcome.ran_out->event},
               {"requested_bytes", outcome.ran_out->requested.count()},
               {"segment_bytes", outcome.ran_out->segment.count()},
               {"available_bytes", outcome.ran_out->available.count()},
               {"reserved_bytes", outcome.ran_out->reserved.count()},
               {"allocated_bytes", outcome.ran_out->allocated.count()},
               {"limit_bytes", optional_bytes(outcome.ran_out->limit)}};
  const HeldAtPeak& peak = outcome.reserved_peak;
  return {{"ran_out", std::move(ran_out)},
          {"peak_reserved_bytes", peak.reserved.count()},
          {"at_reserved_peak",
           {{"event", peak.event},
            {"allocated_bytes", peak.allocated.count()},
            {"requested_bytes", peak.requested.count()},
            {"fragmentation_bytes", peak.fragmentation().count()}}},
          {"peak_allocated_bytes", outcome.peak_allocated.count()},
          {"final_reserved_bytes", outcome.final_reserved.count()},
          {"final_allocated_bytes", outcome.final_allocated.count()},
          {"alloc_retries", outcome.alloc_retries},
          {"device_allocs", outcome.device_allocs},
          {"device_frees", outcome.device_frees},
          {"served_ooms", outcome.served_ooms}};
}

Json range_json(const RerunRange& range) {
  Json out = outcome_json(range.likeliest);
  out["peak_reserved_range_bytes"] = {range.lowest_peak.count(), range.highest_peak.count()};
  out["may_fit"] = range.may_fit;
  out["may_run_out"] = range.may_run_out;
  out["open"] = range.open;
  return out;
}

}  // namespace

std::string replay_json(const SnapshotReplay& answer) {
  const std::optional<Divergence>& first = answer.report.first_divergence;
  Json what_if;
  if (answer.what_if)
    what_if = {{"allocator", answer.what_if->allocator_conf},
               {"options", options_json(answer.what_if->conditions.options)},
               {"capacity_bytes", optional_bytes(answer.what_if->conditions.capacity)},
               {"capacity_from_recording", answer.what_if->capacity_from_recording},
               {"fits", !answer.what_if->requested.likeliest.ran_out},
               {"remarks", answer.what_if->remarks},
               {"recorded", range_json(answer.what_if->recorded)},
               {"asked", range_json(answer.what_if->requested)}};
  return Json{{"schema", "tidemark.replay/1"},
              {"snapshot", answer.path},
              {"device", answer.device},
              {"exact", answer.report.exact()},
              {"first_divergence", first ? Json{{"event", first->event}, {"text", first->text}} : Json()},
              {"ties", answer.report.ties == ReplayReport::Ties::ByAge ? "oldest segment" : "lowest address"},
              {"replay", report_json(answer.report)},
              {"options", options_json(answer.trace.options)},
              {"remarks", answer.trace.remarks},
              {"ambiguous_gaps", answer.trace.ambiguous_gaps},
              {"decided_gaps", answer.trace.decided_gaps},
              {"steps", steps_json(answer)},
              {"what_if", std::move(what_if)}}
             .dump(2, ' ', false, Json::error_handler_t::replace) +
         '\n';
}

}  // namespace tidemark::scenarios
