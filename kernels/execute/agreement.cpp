#include "kernels/execute/agreement.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace tidemark::execute {
namespace {

using Json = nlohmann::ordered_json;

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

}  // namespace

Bytes RankAgreement::difference() const {
  Bytes largest;
  const auto look = [&](const std::vector<MemoryPoint>& a, const std::vector<MemoryPoint>& b) {
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      largest = std::max({largest, a[i].resident - b[i].resident, b[i].resident - a[i].resident});
  };
  look(predicted.phases, measured.phases);
  look(predicted.samples, measured.samples);
  return largest;
}

Bytes RankAgreement::reference_benchmark() const { return std::max(measured.peak.resident, least_reference_benchmark); }

bool RankAgreement::agrees() const {
  const auto alike = [](const std::vector<MemoryPoint>& a, const std::vector<MemoryPoint>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const MemoryPoint& x, const MemoryPoint& y) {
      return x.op == y.op && x.step == y.step && x.phase == y.phase && x.allocated == y.allocated;
    });
  };
  return alike(predicted.phases, measured.phases) && alike(predicted.samples, measured.samples) &&
         predicted.reserved == measured.reserved && findings.count == 0 &&
         static_cast<double>(difference().count()) <=
             resident_tolerance * static_cast<double>(reference_benchmark().count());
}

std::string text(const RankAgreement& rank) {
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

RankAgreement parse_agreement(const std::string& text) {
  const Json j = Json::parse(text);
  return {.rank = {j["rank"].get<std::int32_t>()},
          .predicted = memory_of(j["predicted"]),
          .measured = memory_of(j["measured"]),
          .predicted_steps = durations_of(j["predicted_steps"]),
          .measured_steps = durations_of(j["measured_steps"]),
          .findings = {j["wrong"].get<std::int64_t>(), j["findings"].get<std::vector<std::string>>()},
          .host = j["host"].get<std::string>()};
}

}  // namespace tidemark::execute
