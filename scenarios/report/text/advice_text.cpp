#include "scenarios/report/text/advice_text.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/format.hpp"
#include "scenarios/plan/space/space_remarks.hpp"
#include "scenarios/predict/assumptions/assumed.hpp"
#include "scenarios/report/json/detail/space_json.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

std::string cost(const Advice& advice, const Found& found) {
  return fmt::format("{:+.1f} %", 100 * (found.figures.throughput / advice.now.throughput - 1));
}

std::string value_text(const Study& study, std::size_t axis, std::size_t value) {
  return study.space.axes[axis].values[value].text;
}

// The values of the axes that are neither of the frontier's own.
std::string layout_text(const Study& study, std::int64_t candidate) {
  std::string out;
  const std::vector<std::size_t> values = study.space.values_of(candidate);
  for (std::size_t a = 0; a < values.size(); ++a)
    if (a != study.grows && a != study.by && study.space.axes[a].values.size() > 1)
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", study.space.axes[a].name, value_text(study, a, values[a]));
  return out;
}

// Whether the list of values ended before anything did not fit: no limit is known then.
bool list_ended(const Study& study, const Limit& limit) {
  return limit.largest && *limit.largest + 1 == study.space.axes[study.grows].values.size();
}

std::string next_text(const Study& study, const Limit& limit) {
  if (list_ended(study, limit)) return "the list ends";
  if (limit.next) return fmt::format("{}{}", limit.next->exact ? "" : "at least ", gib(limit.next->lacks));
  return limit.largest ? "refused" : "";
}

std::string remedies_text(const Advice& advice, bool changes_training, std::string_view heading) {
  const bool hosts = advice.now.host_upper > Bytes{} || std::ranges::any_of(advice.remedies, [](const Remedy& r) {
                       return r.found.figures.host_upper > Bytes{};
                     });
  std::vector<std::vector<std::string>> rows{{"changes", "tokens/s", "against now", "fills up to", "frees"}};
  if (hosts) rows.front().emplace_back("host up to");
  for (const Remedy& r : advice.remedies) {
    if (r.changes_training != changes_training) continue;
    rows.push_back({fmt::format("{}", fmt::join(r.changes, "; ")), fmt::format("{:.0f}", r.found.figures.throughput),
                    cost(advice, r.found), gib(r.found.figures.device_upper),
                    gib(advice.required - r.found.figures.device_upper)});
    if (hosts) rows.back().push_back(gib(r.found.figures.host_upper));
  }
  return rows.size() == 1 ? "" : fmt::format("{}\n{}", heading, table(rows));
}

// What devices have room for.
std::string for_hosts_text(const Advice& advice) {
  if (advice.for_hosts.empty()) return "";
  std::vector<std::vector<std::string>> rows{{"changes", "host lacks"}};
  for (const TooMuchForHosts& its : advice.for_hosts)
    rows.push_back({fmt::format("{}", fmt::join(its.changes, "; ")), gib(its.lacks)});
  return "\nenough for devices, but too much for the fullest host:\n" + table(rows);
}

// As it is.
std::string now_text(const Advice& advice) {
  const auto room = [](Bytes lacks, const char* of) {
    return lacks > Bytes{} ? fmt::format("lacks {}{}", gib(lacks), of)
                           : fmt::format("has {} to spare{}", gib(-lacks), of);
  };
  const bool host_is_full = advice.host_lacks > Bytes{};
  std::string out = fmt::format("as it is, {} {}", advice.space.name,
                                room(advice.lacks, host_is_full ? " on its fullest device" : ""));
  if (host_is_full) out += fmt::format(", {}", room(advice.host_lacks, " on its fullest host"));
  return out + fmt::format(" and {} {:.0f} tokens/s per device\n",
                           advice.lacks > Bytes{} || host_is_full ? "would make" : "makes", advice.now.throughput);
}

}  // namespace

std::string advice_text(const Advice& advice) {
  if (advice.fits) return fmt::format("it fits as it is: {} to spare on the fullest device\n", gib(-advice.lacks));
  std::string out;
  if (advice.remedies.empty())
    out += fmt::format("no: none of {} sets of changes is enough\n", advice.tried);
  else
    out +=
        fmt::format("yes: {} smallest sets of changes are enough, of {} tried\n", advice.remedies.size(), advice.tried);
  out += now_text(advice);
  out += remedies_text(advice, false, "");
  out += remedies_text(advice, true, "\nand changing what is trained:\n");
  out += for_hosts_text(advice);
  if (advice.remedies.empty())
    out += "\nnext: tidemark plan with the same file searches every layout of these GPUs; or more gpus in the file\n";
  else if (advice.not_tried > 0)
    out += fmt::format("\nnext: --changes {} tries that many together, too\n", advice.not_tried);
  return out;
}

std::string advice_json(const Advice& advice) {
  Json remedies = Json::array();
  for (const Remedy& r : advice.remedies)
    remedies.push_back({{"changes", r.changes},
                        {"changes_training", r.changes_training},
                        {"tokens_per_s_per_device", r.found.figures.throughput},
                        {"step_time_s", seconds(r.found.figures.step)},
                        {"peak_device_upper_bytes", r.found.figures.device_upper.count()},
                        {"peak_allocated_bytes", r.found.figures.allocated.count()},
                        {"host_upper_bytes", r.found.figures.host_upper.count()}});
  Json for_hosts = Json::array();
  for (const TooMuchForHosts& its : advice.for_hosts)
    for_hosts.push_back({{"changes", its.changes}, {"host_lacks_bytes", its.lacks.count()}});
  const Json json = {{"schema", "tidemark.advice/1"},
                     {"scenario", advice.space.name},
                     {"fits", advice.fits},
                     {"lacks_bytes", advice.lacks.count()},
                     {"host_lacks_bytes", advice.host_lacks.count()},
                     {"tokens_per_s_per_device", advice.now.throughput},
                     {"peak_device_upper_bytes", advice.now.device_upper.count()},
                     {"tried", advice.tried},
                     {"remedies", std::move(remedies)},
                     {"too_much_for_hosts", std::move(for_hosts)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string capacity_text(const Study& study, const std::vector<Limit>& limits) {
  const std::string& grows = study.space.axes[study.grows].name;
  const auto any = std::any_of(limits.begin(), limits.end(), [](const Limit& l) { return l.largest.has_value(); });
  std::string out = any ? fmt::format("yes: the largest {} that fits\n\n", grows)
                        : fmt::format("no: not even the smallest {} fits\n\n", grows);
  std::vector<std::vector<std::string>> rows{
      {study.by ? study.space.axes[*study.by].name : "", grows, "tokens/s", "fills up to", "the next lacks", "with"}};
  for (const Limit& l : limits) {
    std::vector<std::string> row{study.by ? value_text(study, *study.by, l.by) : ""};
    row.push_back(l.largest ? value_text(study, study.grows, *l.largest) : l.refused.empty() ? "none" : "refused");
    row.push_back(l.best ? fmt::format("{:.0f}", l.best->figures.throughput) : "");
    row.push_back(l.best ? gib(l.best->figures.device_upper) : "");
    row.push_back(next_text(study, l));
    row.push_back(l.best ? layout_text(study, l.best->candidate) : "");
    rows.push_back(std::move(row));
  }
  out += table(rows);
  if (std::ranges::any_of(limits, [&](const Limit& l) { return list_ended(study, l); }))
    out += fmt::format("\nthe list ends: {} fits and is the last value of {} in [space]; larger ones were not tried\n",
                       study.space.axes[study.grows].values.back().text, grows);
  for (const Limit& l : limits)
    if (!l.refused.empty())
      out += fmt::format("\nrefused{}: {}\n", study.by ? ", " + value_text(study, *study.by, l.by) : "", l.refused);
  out += assumed(space_remarks(study.space));
  if (!any)
    out += fmt::format("\nnext: smaller values of {} in [space], or more axes there: tidemark list keys\n", grows);
  return out;
}

std::string capacity_json(const Study& study, const std::vector<Limit>& limits) {
  Json rows = Json::array();
  for (const Limit& l : limits) {
    Json row = Json::object();
    if (study.by) row[study.space.axes[*study.by].name] = value_text(study, *study.by, l.by);
    row["largest"] = l.largest ? Json(value_text(study, study.grows, *l.largest)) : Json(nullptr);
    row["candidate"] = l.best ? Json(l.best->candidate) : Json(nullptr);
    row["tokens_per_s_per_device"] = l.best ? Json(l.best->figures.throughput) : Json(nullptr);
    row["peak_device_upper_bytes"] = l.best ? Json(l.best->figures.device_upper.count()) : Json(nullptr);
    row["with"] = l.best ? Json(layout_text(study, l.best->candidate)) : Json(nullptr);
    row["next_lacks_bytes"] = l.next ? Json(l.next->lacks.count()) : Json(nullptr);
    row["list_ended"] = list_ended(study, l);
    row["refused"] = l.refused.empty() ? Json(nullptr) : Json(l.refused);
    rows.push_back(std::move(row));
  }
  const Json json = {{"schema", "tidemark.capacity/1"},
                     {"study", study.space.name},
                     {"base", document_json(study.space.base)},
                     {"axes", axes_json(study.space)},
                     {"largest", study.space.axes[study.grows].name},
                     {"by", study.by ? Json(study.space.axes[*study.by].name) : Json(nullptr)},
                     {"limits", std::move(rows)},
                     {"assumptions", space_remarks(study.space)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string capacity_csv(const Study& study, const std::vector<Limit>& limits) {
  std::string out =
      "by,largest,candidate,tokens_per_s_per_device,peak_device_upper_bytes,next_lacks_bytes,list_ended\n";
  for (const Limit& l : limits) {
    out += study.by ? csv_field(value_text(study, *study.by, l.by)) : "";
    out += ',' + (l.largest ? csv_field(value_text(study, study.grows, *l.largest)) : "") + ',';
    if (l.best)
      out +=
          fmt::format("{},{},{},", l.best->candidate, l.best->figures.throughput, l.best->figures.device_upper.count());
    else
      out += ",,,";
    if (l.next) out += std::to_string(l.next->lacks.count());
    out += list_ended(study, l) ? ",true\n" : ",false\n";
  }
  return out;
}

}  // namespace tidemark::scenarios
