#include "scenarios/report/json/validation_json.hpp"

#include <nlohmann/json.hpp>

#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/report/math_report.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

// Prediction and measurement of one moment, for people and programs.
Json pairs_json(const std::vector<MemoryPoint>& predicted, const std::vector<MemoryPoint>& measured) {
  Json out = Json::array();
  for (std::size_t i = 0; i < std::min(predicted.size(), measured.size()); ++i) {
    const MemoryPoint &p = predicted[i], &m = measured[i];
    out.push_back({{"op", p.op},
                   {"step", p.step},
                   {"phase", name(p.phase)},
                   {"predicted_bytes", p.resident.count()},
                   {"measured_bytes", m.resident.count()},
                   {"difference_bytes", (m.resident - p.resident).count()},
                   {"predicted_allocated_bytes", p.allocated.count()},
                   {"counted_allocated_bytes", m.allocated.count()}});
  }
  return out;
}

Json steps_json(const RankAgreement& rank) {
  Json out = Json::array();
  for (std::size_t i = 0; i < rank.measured_steps.size(); ++i)
    out.push_back({{"step", i},
                   {"predicted_s", i < rank.predicted_steps.size() ? Json(seconds(rank.predicted_steps[i])) : Json()},
                   {"measured_s", seconds(rank.measured_steps[i])}});
  return out;
}

// null where no machine's file was named.
Json math_times_json(const MathTimes& times) {
  if (!times.there()) return nullptr;
  Json steps = Json::array();
  for (std::size_t i = 0; i < times.predicted.size(); ++i)
    steps.push_back({{"step", i},
                     {"predicted_s", seconds(times.predicted[i].step)},
                     {"measured_s", seconds(times.measured[i].step)},
                     {"predicted_kernels_s", seconds(times.predicted[i].kernels)},
                     {"measured_kernels_s", seconds(times.measured[i].kernels)}});
  return {{"machine", times.cluster}, {"source", times.source}, {"runs", times.repeats}, {"steps", std::move(steps)}};
}

Json place_json(const FlowPlace& place) { return {{"phase", name(place.phase)}, {"label", place.label}}; }

Json flow_json(const FlowNote& note) {
  const FlowFinding& f = note.finding;
  Json out{{"kind", name(f.kind)},
           {"tensor", f.tensor},
           {"by", f.by},
           {"at", place_json(f.at)},
           {"rank", note.rank.value},
           {"op", f.op},
           {"step", f.step},
           {"times", f.times},
           {"largest_bytes", f.largest.count()},
           {"category", name(f.category)},
           {"reason", note.reason}};
  if (f.kind == FlowKind::Unread || f.kind == FlowKind::Kept) out["until"] = place_json(f.until);
  if (!f.keeper.empty()) out["held_as"] = f.keeper;
  return out;
}

}  // namespace

std::string validation_json(const Validation& validation, const RunProvenance& provenance) {
  Json ranks = Json::array();
  for (const RankAgreement& rank : validation.ranks)
    ranks.push_back({{"rank", rank.rank.value},
                     {"host", rank.host},
                     {"agrees", rank.agrees()},
                     {"predicted_peak_bytes", rank.predicted.peak.resident.count()},
                     {"measured_peak_bytes", rank.measured.peak.resident.count()},
                     {"largest_difference_bytes", rank.difference().count()},
                     {"difference_over_peak", static_cast<double>(rank.difference().count()) /
                                                  static_cast<double>(rank.reference_benchmark().count())},
                     {"predicted_reserved_bytes", rank.predicted.reserved.count()},
                     {"counted_reserved_bytes", rank.measured.reserved.count()},
                     {"wrong_payloads", rank.findings.count},
                     {"first_wrong_payloads", rank.findings.first},
                     {"phases", pairs_json(rank.predicted.phases, rank.measured.phases)},
                     {"samples", pairs_json(rank.predicted.samples, rank.measured.samples)},
                     {"steps", steps_json(rank)}});
  Json math = Json::array();
  for (const MathCheck& check : validation.math) math.push_back(Json::parse(math_json(check)));
  Json flow = Json::array();
  for (const FlowNote& note : validation.flow) flow.push_back(flow_json(note));
  return Json{{"schema", "tidemark.validation/1"},
              {"agrees", validation.agrees()},
              {"tolerance", resident_tolerance},
              {"back_end", provenance.back_end},
              {"scale", validation.options.scale.divisor},
              {"mutation", mutation_names[static_cast<std::size_t>(validation.options.mutation)]},
              {"command", provenance.command},
              {"machine", provenance.machine},
              {"versions", {{"tidemark", provenance.tidemark}, {"mpi", provenance.mpi}}},
              {"oversubscribed", validation.oversubscribed},
              {"scenario", Json::parse(scenario_json(validation.scenario, -1))},
              {"ranks", std::move(ranks)},
              {"math", std::move(math)},
              {"math_times", math_times_json(validation.math_times)},
              {"data_flow", std::move(flow)},
              {"without_math", validation.without_math.empty() ? Json() : Json(validation.without_math)}}
             .dump(2) +
         '\n';
}

}  // namespace tidemark::scenarios
