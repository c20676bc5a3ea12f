#include "scenarios/dry_run/rank_report.hpp"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/text_file.hpp"

namespace tidemark::scenarios {
namespace {

using DryJson = nlohmann::json;

constexpr std::string_view rank_schema = "tidemark.dry_run.rank/1";

bool is_given(const DryJson& json, const char* key) { return json.contains(key) && !json.at(key).is_null(); }

Bytes bytes_at(const DryJson& json, const char* key) {
  return is_given(json, key) ? Bytes{json.at(key).get<std::int64_t>()} : Bytes{};
}
std::string text_at(const DryJson& json, const char* key) {
  return is_given(json, key) ? json.at(key).get<std::string>() : std::string();
}
std::vector<std::string> texts_at(const DryJson& json, const char* key) {
  return is_given(json, key) ? json.at(key).get<std::vector<std::string>>() : std::vector<std::string>();
}
std::optional<std::int64_t> number_at(const DryJson& json, const char* key) {
  return is_given(json, key) ? std::optional(json.at(key).get<std::int64_t>()) : std::nullopt;
}

AllocatorCounters counters_of(const DryJson& json) {
  return {bytes_at(json, "allocated_bytes"), bytes_at(json, "active_bytes"), bytes_at(json, "reserved_bytes"),
          bytes_at(json, "requested_bytes")};
}

DryStep step_of(const DryJson& json) { return {counters_of(json.at("peak")), counters_of(json.at("after"))}; }

DryOutcome outcome_of(const std::string& name) {
  if (name == "completed") return DryOutcome::Completed;
  if (name == "ended") return DryOutcome::Ended;
  if (name == "out_of_memory") return DryOutcome::OutOfMemory;
  if (name == "error") return DryOutcome::Error;
  if (name == "refused") return DryOutcome::Refused;
  throw std::runtime_error(fmt::format("there is no outcome {}", name));
}

DryGroup group_of(const DryJson& json) {
  const std::vector<std::string> uses = texts_at(json, "uses");
  const auto used = [&](const char* how) { return std::ranges::find(uses, how) != uses.end(); };
  return {json.at("ranks").get<std::vector<std::int64_t>>(),
          text_at(json, "backend"),
          json.at("on_device").get<bool>(),
          used("reduces"),
          used("shards"),
          used("exchanges"),
          json.at("peers").get<std::vector<std::int64_t>>()};
}

void take_at_peak(const DryJson& json, RankReport& report) {
  report.at_peak = bytes_at(json, "bytes");
  for (const auto& [name, bytes] : json.at("by_what").items())
    report.by_what.push_back({name, Bytes{bytes.get<std::int64_t>()}});
  std::ranges::stable_sort(report.by_what, [](const NamedBytes& a, const NamedBytes& b) {
    return std::pair(a.name == "other", -a.bytes.count()) < std::pair(b.name == "other", -b.bytes.count());
  });
  for (const DryJson& row : json.at("others"))
    report.by_place.push_back({text_at(row, "where"), bytes_at(row, "bytes")});
  report.peak_stack = texts_at(json, "moment");
}

AllocatorCounters highest(const AllocatorCounters& a, const AllocatorCounters& b) {
  return {std::max(a.allocated, b.allocated), std::max(a.active, b.active), std::max(a.reserved, b.reserved),
          std::max(a.requested, b.requested)};
}

RankReport report_of(const DryJson& json) {
  if (text_at(json, "schema") != rank_schema) throw std::runtime_error("it is of another release");
  RankReport report;
  report.rank = json.at("rank").get<std::int64_t>();
  report.outcome = outcome_of(json.at("outcome").get<std::string>());
  report.torch = text_at(json, "torch");
  report.cuda = text_at(json, "cuda");
  report.python = text_at(json, "python");
  if (is_given(json, "packages")) report.packages = json.at("packages").get<std::map<std::string, std::string>>();
  report.nccl = number_at(json, "nccl");
  if (is_given(json, "set_up") && json.at("set_up").contains("peak")) report.set_up = step_of(json.at("set_up"));
  if (is_given(json, "steps"))
    for (const DryJson& step : json.at("steps")) report.steps.push_back(step_of(step));
  if (is_given(json, "rest")) report.rest = counters_of(json.at("rest"));
  if (is_given(json, "device")) {
    report.device = number_at(json.at("device"), "index");
    report.retries = number_at(json.at("device"), "retries").value_or(0);
  }
  if (is_given(json, "at_peak")) take_at_peak(json.at("at_peak"), report);
  for (const DryJson& group : json.at("groups")) report.groups.push_back(group_of(group));
  for (const DryJson& line : json.at("stood_in"))
    report.stood_in.push_back({text_at(line, "what"), text_at(line, "where"), number_at(line, "count").value_or(1)});
  if (is_given(json, "ran_out")) {
    const DryJson& its = json.at("ran_out");
    report.ran_out = {bytes_at(its, "asked_bytes"), bytes_at(its, "device_free_bytes"),
                      number_at(its, "after_steps").value_or(0), counters_of(its), texts_at(its, "stack")};
  }
  if (is_given(json, "failure")) {
    const DryJson& its = json.at("failure");
    report.failure = {text_at(its, "type"), text_at(its, "message"), texts_at(its, "stack")};
  }
  report.exit_status = number_at(json, "exit_status");
  if (is_given(json, "host") && is_given(json.at("host"), "peak_resident_bytes"))
    report.host_resident = bytes_at(json.at("host"), "peak_resident_bytes");
  report.seconds = json.at("seconds").get<double>();
  return report;
}

}  // namespace

AllocatorCounters RankReport::peak() const {
  AllocatorCounters all = rest;
  if (set_up) all = highest(all, set_up->peak);
  for (const DryStep& step : steps) all = highest(all, step.peak);
  return all;
}

RankReport parse_rank_report(const std::string& text, const std::string& file) {
  try {
    return report_of(DryJson::parse(text));
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("{}: the run's report cannot be read: {}", file, error.what()));
  }
}

RankReport read_rank_report(const std::filesystem::path& file) {
  return parse_rank_report(read_text(file), file.string());
}

}  // namespace tidemark::scenarios
