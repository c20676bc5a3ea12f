#include <cmath>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/estimate/envelope.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/predict/assumptions/assumed.hpp"
#include "scenarios/report/text/prediction_text.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

std::string in_gb(double bytes) { return fmt::format("{:.2f}", bytes / 1e9); }
double bytes_of(Bytes bytes) { return static_cast<double>(bytes.count()); }

std::string in_gb(const rules::Range& range) {
  return range.low == range.high ? in_gb(range.low) : fmt::format("{} to {}", in_gb(range.low), in_gb(range.high));
}

std::string off_text(const RuleRow& row) {
  if (row.simulated <= Bytes{}) return "";
  const double off = row.off();
  if (off == 0) return "within";
  constexpr double rounded_away = 0.0005;
  return std::abs(off) < rounded_away ? "nothing" : fmt::format("{:+.1f} %", 100 * off);
}

}  // namespace

std::string envelope_text(const Envelope& e) {
  const Prediction& p = e.prediction;
  const std::string verdict = verdict_text(p);
  std::string out = verdict.substr(0, verdict.find('\n') + 1);
  out += fmt::format("{}: {} ({:.2f} B parameters) on {} x {}\n\nrules of thumb beside rank {}, in GB of 1e9 bytes\n",
                     p.scenario.name, p.scenario.model.name, static_cast<double>(p.parameters) / 1e9, p.scenario.gpus,
                     p.scenario.cluster.device.name, p.highest().ranks.front().value);
  std::vector<std::vector<std::string>> rows{{"rule", "it says", "simulated", "off by"}};
  for (const RuleRow& row : e.rows)
    rows.push_back(
        {fmt::format("{}: {}", row.bucket, row.rule), in_gb(row.guide), in_gb(bytes_of(row.simulated)), off_text(row)});
  out += table(rows) + "\nwhy\n";
  for (const RuleRow& row : e.rows)
    out += fmt::format("  {}: {}\n    {} ({}, \"{}\")\n", row.bucket, row.rule, row.why, name(row.source.guide),
                       row.source.section);
  return out + assumed(p.assumptions);
}

std::string envelope_json(const Envelope& e) {
  const Prediction& p = e.prediction;
  Json rows = Json::array();
  for (const RuleRow& row : e.rows)
    rows.push_back({{"bucket", row.bucket},
                    {"rule", row.rule},
                    {"guide", name(row.source.guide)},
                    {"section", row.source.section},
                    {"guide_low_bytes", row.guide.low},
                    {"guide_high_bytes", row.guide.high},
                    {"simulated_bytes", row.simulated.count()},
                    {"why", row.why}});
  const Json json = {{"schema", "tidemark.estimate/1"},
                     {"scenario", p.scenario.name},
                     {"fits", p.fits},
                     {"verdict", p.verdict()},
                     {"capacity_bytes", p.scenario.cluster.device.capacity.count()},
                     {"rank", p.highest().ranks.front().value},
                     {"parameters", p.parameters},
                     {"buckets",
                      {{"parameters", e.buckets.parameters.count()},
                       {"gradients", e.buckets.gradients.count()},
                       {"optimizer", e.buckets.optimizer.count()},
                       {"activations", e.buckets.activations.count()},
                       {"kv_cache", e.buckets.kv_cache.count()},
                       {"overhead", e.buckets.overhead.count()}}},
                     {"k", e.k},
                     {"rules", std::move(rows)},
                     {"assumptions", p.assumptions}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace tidemark::scenarios
