#include "scenarios/report/validation_json.hpp"

#include <nlohmann/json.hpp>

#include "scenarios/io/scenario_json.hpp"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

double seconds(Duration duration) {
  return static_cast<double>(duration.count()) / static_cast<double>(picoseconds_per_second);
}

Json points_json(const std::vector<MemoryPoint>& points) {
  Json out = Json::array();
  for (const MemoryPoint& p : points)
    out.push_back({p.op, p.step, static_cast<int>(p.phase), p.resident.count(), p.allocated.count()});
  return out;
}

MemoryPoint point_of(const Json& j) {
  return {j[0].get<std::size_t>(), j[1].get<std::int32_t>(), static_cast<Phase>(j[2].get<int>()),
          Bytes{j[3].get<std::int64_t>()}, Bytes{j[4].get<std::int64_t>()}};
}

std::vector<MemoryPoint> points_of(const Json& j) {
  std::vector<MemoryPoint> points;
  for (const Json& point : j) points.push_back(point_of(point));
  return points;
}

Json memory_json(const MemoryPoints& memory) {
  return {{"phases", points_json(memory.phases)},
          {"samples", points_json(memory.samples)},
          {"peak", points_json({memory.peak})},
          {"reserved", memory.reserved.count()}};
}

MemoryPoints memory_of(const Json& j) {
  return {points_of(j["phases"]), points_of(j["samples"]), point_of(j["peak"][0]),
          Bytes{j["reserved"].get<std::int64_t>()}};
}

Json counts(const std::vector<Duration>& durations) {
  Json out = Json::array();
  for (const Duration d : durations) out.push_back(d.count());
  return out;
}

std::vector<Duration> durations_of(const Json& j) {
  std::vector<Duration> all;
  for (const Json& d : j) all.push_back(Duration{d.get<std::int64_t>()});
  return all;
}

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

}  // namespace

std::string rank_json(const RankAgreement& rank) {
  return Json{{"rank", rank.rank.value},
              {"predicted", memory_json(rank.predicted)},
              {"measured", memory_json(rank.measured)},
              {"predicted_steps", counts(rank.predicted_steps)},
              {"measured_steps", counts(rank.measured_steps)},
              {"wrong", rank.findings.count},
              {"findings", rank.findings.first},
              {"host", rank.host}}
      .dump();
}

RankAgreement rank_of_json(const std::string& text) {
  const Json j = Json::parse(text);
  return {.rank = {j["rank"].get<std::int32_t>()},
          .predicted = memory_of(j["predicted"]),
          .measured = memory_of(j["measured"]),
          .predicted_steps = durations_of(j["predicted_steps"]),
          .measured_steps = durations_of(j["measured_steps"]),
          .findings = {j["wrong"].get<std::int64_t>(), j["findings"].get<std::vector<std::string>>()},
          .host = j["host"].get<std::string>()};
}

std::string validation_json(const Validation& validation, const RunProvenance& provenance) {
  Json ranks = Json::array();
  for (const RankAgreement& rank : validation.ranks)
    ranks.push_back({{"rank", rank.rank.value},
                     {"host", rank.host},
                     {"agrees", rank.agrees()},
                     {"predicted_peak_bytes", rank.predicted.peak.resident.count()},
                     {"measured_peak_bytes", rank.measured.peak.resident.count()},
                     {"largest_difference_bytes", rank.difference().count()},
                     {"difference_over_peak",
                      static_cast<double>(rank.difference().count()) / static_cast<double>(rank.yardstick().count())},
                     {"predicted_reserved_bytes", rank.predicted.reserved.count()},
                     {"counted_reserved_bytes", rank.measured.reserved.count()},
                     {"wrong_payloads", rank.findings.count},
                     {"first_wrong_payloads", rank.findings.first},
                     {"phases", pairs_json(rank.predicted.phases, rank.measured.phases)},
                     {"samples", pairs_json(rank.predicted.samples, rank.measured.samples)},
                     {"steps", steps_json(rank)}});
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
              {"ranks", std::move(ranks)}}
             .dump(2) +
         '\n';
}

}  // namespace tidemark
