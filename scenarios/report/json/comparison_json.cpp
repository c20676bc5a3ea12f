#include <cmath>

#include <nlohmann/json.hpp>

#include "scenarios/report/text/comparison_text.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

Json pair_json(const BytePair& pair) {
  const double error = pair.error();
  return {{"predicted_bytes", pair.predicted.count()},
          {"measured_bytes", pair.measured.count()},
          {"error", std::isfinite(error) ? Json(error) : Json()}};
}

Json step_json(const StepSummary& step) {
  const auto evidence = [&] {
    switch (step.evidence) {
      case StepEvidence::Annotations:
        return "annotations";
      case StepEvidence::Repetition:
        return "repetition";
      case StepEvidence::None:
        break;
    }
    return "none";
  };
  return {{"events", step.events}, {"found_by", evidence()}};
}

Json unmatched_json(const std::vector<Unmatched>& list) {
  Json out = Json::array();
  for (const Unmatched& u : list)
    out.push_back({{"what", u.what},
                   {"count", u.count},
                   {"requested_bytes", u.requested.count()},
                   {"block_bytes", u.blocks.count()}});
  return out;
}

Json head(const char* kind, const ComparisonSubject& subject, bool agrees) {
  return {{"schema", "tidemark.comparison/1"},
          {"scenario", subject.scenario},
          {"job", subject.job.empty() ? Json() : Json::parse(subject.job)},
          {"file", subject.file},
          {"kind", kind},
          {"tolerance", subject.tolerance},
          {"agrees", agrees}};
}

// Frames and file names are somebody else's bytes.
std::string dumped(const Json& json) { return json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n'; }

Json difference_json(const DifferingRequest& d) {
  return {{"number", d.number},
          {"predicted_bytes", d.size.predicted.count()},
          {"measured_bytes", d.size.measured.count()},
          {"predicted", d.predicted},
          {"measured", d.measured},
          {"stack", d.stack}};
}

}  // namespace

std::string comparison_json(const SnapshotComparison& c, const ComparisonSubject& subject, Rank rank) {
  Json out = head("snapshot", subject, c.agrees(subject.tolerance));
  out["rank"] = rank.value;
  out["allocated"] = pair_json(c.allocated);
  out["allocated_at_begin"] = pair_json(c.at_begin);
  out["reserved"] = pair_json(c.reserved);
  out["step"] = {{"predicted", step_json(c.predicted_step)}, {"measured", step_json(c.measured_step)}};
  Json curve = Json::array();
  for (const BytePair& point : c.curve) curve.push_back({point.predicted.count(), point.measured.count()});
  out["curve"] = std::move(curve);
  Json matched = Json::array();
  for (const TensorMatch& m : c.matched)
    matched.push_back({{"predicted", m.predicted},
                       {"measured", m.measured},
                       {"count", m.count},
                       {"requested_bytes", m.requested.count()},
                       {"predicted_block_bytes", m.blocks.predicted.count()},
                       {"measured_block_bytes", m.blocks.measured.count()}});
  out["matched"] = std::move(matched);
  out["only_predicted"] = unmatched_json(c.only_predicted);
  out["only_measured"] = unmatched_json(c.only_measured);
  out["block_rounding_bytes"] = c.block_rounding.count();
  out["first_difference"] = c.first_difference ? difference_json(*c.first_difference) : Json();
  return dumped(out);
}

std::string comparison_json(const LogComparison& c, const ComparisonSubject& subject) {
  Json out = head("log", subject, c.agrees(subject.tolerance));
  Json ranks = Json::array();
  for (const RankPeaks& rank : c.ranks) {
    ranks.push_back({{"rank", rank.logged.rank.value},
                     {"framework", name(rank.logged.framework)},
                     {"step", rank.logged.step < 0 ? Json() : Json(rank.logged.step)},
                     {"line", rank.logged.line},
                     {"allocated", rank.allocated ? pair_json(*rank.allocated) : Json()},
                     {"reserved", rank.reserved ? pair_json(*rank.reserved) : Json()},
                     {"predicted_end", rank.predicted_end.empty() ? Json() : Json(rank.predicted_end)}});
    if (rank.device) ranks.back()["device"] = pair_json(*rank.device);
  }
  out["ranks"] = std::move(ranks);
  if (c.step)
    out["step_time"] = {{"predicted_s", seconds(c.step->predicted)},
                        {"range_s", {seconds(c.step->low), seconds(c.step->high)}},
                        {"measured_s", seconds(c.step->measured.median)},
                        {"steps", c.step->measured.steps},
                        {"error", seconds(c.step->predicted) / seconds(c.step->measured.median) - 1},
                        {"within_range", c.step->within(subject.tolerance)}};
  return dumped(out);
}

}  // namespace tidemark::scenarios
