#include "scenarios/report/text/plan_text.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/format.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/plan/space/space_remarks.hpp"
#include "scenarios/predict/assumptions/assumed.hpp"
#include "scenarios/report/json/detail/space_json.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

// Axes with one value say nothing about which candidate it is.
std::vector<std::size_t> telling_axes(const Space& space) {
  std::vector<std::size_t> found;
  for (std::size_t a = 0; a < space.axes.size(); ++a)
    if (space.axes[a].values.size() > 1) found.push_back(a);
  return found;
}

std::string short_name(const Axis& axis) {
  const std::size_t dot = axis.name.rfind('.');
  return dot == std::string::npos ? axis.name : axis.name.substr(dot + 1);
}

std::vector<std::string> header(const Space& space, std::vector<std::string> figures) {
  std::vector<std::string> row{"layout"};
  for (std::string& f : figures) row.push_back(std::move(f));
  for (const std::size_t a : telling_axes(space)) row.push_back(short_name(space.axes[a]));
  return row;
}

void add_values(const Space& space, std::int64_t candidate, std::vector<std::string>& row) {
  const std::vector<std::size_t> values = space.values_of(candidate);
  for (const std::size_t a : telling_axes(space)) row.push_back(space.axes[a].values[values[a]].text);
}

// What every candidate has to leave free; nothing where that is searched, too.
std::optional<Bytes> headroom_of(const Space& space) {
  const KeyPath key{"runtime", "headroom"};
  for (const Axis& axis : space.axes)
    if (std::ranges::count(axis.keys(), key) > 0) return std::nullopt;
  const TomlValue* given = value_at(space.base, key);
  const auto* text = given == nullptr ? nullptr : std::get_if<std::string>(&given->value);
  return text == nullptr ? Bytes{} : parse_bytes(*text).bytes.value_or(Bytes{});
}

// Of a device, where the space has only such.
std::optional<Bytes> capacity_of(const Space& space) {
  std::optional<Bytes> found;
  for (const auto& [name, cluster] : space.files.clusters) {
    if (found && *found != cluster.device.capacity) return std::nullopt;
    found = cluster.device.capacity;
  }
  return found;
}

// What the fullest device has left beyond its headroom; nothing where candidates differ in either.
std::optional<std::string> to_spare(const Space& space, const Found& found) {
  const std::optional<Bytes> capacity = capacity_of(space), headroom = headroom_of(space);
  if (!capacity || !headroom) return std::nullopt;
  return gib(*capacity - *headroom - found.figures.device_upper);
}

// "tensor 2, no sequence_parallel, recompute none": the values of these axes.
std::string words(const Space& space, const std::vector<std::size_t>& axes, std::int64_t candidate) {
  const std::vector<std::size_t> values = space.values_of(candidate);
  std::string out;
  for (const std::size_t a : axes) {
    const std::string name = short_name(space.axes[a]), value = space.axes[a].values[values[a]].text;
    const bool says_itself = value.find('=') != std::string::npos;
    out += out.empty() ? "" : ", ";
    out += value == "true" ? name : value == "false" ? "no " + name : says_itself ? value : name + ' ' + value;
  }
  return out;
}

// What candidates have in common, and in what they differ.
struct Differences {
  std::vector<std::size_t> common, differing;
};
template <class Candidates>
Differences differences(const Space& space, const Candidates& listed) {
  Differences made;
  for (const std::size_t a : telling_axes(space)) {
    const auto value = [&](const auto& f) { return space.values_of(f.candidate)[a]; };
    const bool same = std::ranges::all_of(listed, [&](const auto& f) { return value(f) == value(listed.front()); });
    (same ? made.common : made.differing).push_back(a);
  }
  return made;
}

// A table, and beside each of its rows what its candidate is, on as many lines as that takes.
template <class Candidates>
std::string brief_table(const Space& space, const std::string& title, const Candidates& listed,
                        const std::vector<std::vector<std::string>>& rows, std::size_t columns) {
  const Differences axes = differences(space, listed);
  const std::string common = words(space, axes.common, listed.front().candidate);
  std::string out = folded(fmt::format("\n{}{}{}\n", title, common.empty() ? "" : ", all with ", common), columns);
  std::istringstream left(table(rows));
  std::size_t width = 0;
  std::vector<std::string> lines;
  for (std::string line; std::getline(left, line); width = std::max(width, line.size())) lines.push_back(line);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    out += lines[i];
    std::size_t used = lines[i].size();
    if (i > 0)
      for (const std::string& part :
           wrapped(words(space, axes.differing, listed[i - 1].candidate), columns - std::min(columns, width + 2))) {
        if (part.empty()) continue;
        out += std::string(width + 2 - used, ' ') + part + '\n';
        used = 0;
      }
    if (used != 0) out += '\n';
  }
  return out;
}

const TieAnalysis* tie_analysis_of(const Plan& plan, const Found& found) {
  const auto its = std::ranges::find(plan.tie_analyses, found.candidate, &TieAnalysis::candidate);
  return its == plan.tie_analyses.end() ? nullptr : &*its;
}

bool any_open(const Plan& plan) { return std::ranges::any_of(plan.tie_analyses, &TieAnalysis::open); }

// What "?" says of a layout, beside the best.
constexpr const char* order_open = "?";
std::string order_mark(const Plan& plan, const Found& found) {
  const TieAnalysis* its = tie_analysis_of(plan, found);
  return its != nullptr && its->open() ? order_open : "";
}

// Which measurement would settle it, cause by cause, those that settle most first.
std::string open_orders_text(const Plan& plan, std::size_t columns) {
  if (!any_open(plan)) return {};
  std::vector<std::pair<std::string, std::vector<const TieAnalysis*>>> by_cause;
  for (const TieAnalysis& c : plan.tie_analyses) {
    if (!c.open()) continue;
    const auto its = std::ranges::find(by_cause, c.settles, [](const auto& entry) { return entry.first; });
    if (its == by_cause.end())
      by_cause.push_back({c.settles, {&c}});
    else
      its->second.push_back(&c);
  }
  std::stable_sort(by_cause.begin(), by_cause.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string out =
      fmt::format("\n{}: given the error of kernel and transfer times, it may be as fast as the best\n", order_open);
  for (const auto& [cause, tie_analyses] : by_cause) {
    std::string which;
    for (const TieAnalysis* c : tie_analyses)
      which += fmt::format("{}#{} ({:.3g} % slower, {:.3g} % open)", which.empty() ? "" : ", ", c->candidate,
                           100 * seconds(c->apart) / seconds(plan.best.front().figures.step),
                           100 * seconds(c->error) / seconds(plan.best.front().figures.step));
    out += cause.empty() ? fmt::format("  takes as long by the model: {}\n", which)
                         : fmt::format("  measuring {} would settle {}\n", cause, which);
  }
  return folded(out, columns);
}

std::string found_table(const Space& space, const Plan& plan, const std::vector<Found>& found) {
  // Of the fullest node, where any candidate has something there.
  const bool hosts = std::ranges::any_of(found, [](const Found& f) { return f.figures.host_upper > Bytes{}; });
  std::vector<std::string> figures{"tokens/s", "step", "fills up to"};
  const bool spare = !found.empty() && to_spare(space, found.front());
  if (spare) figures.emplace_back("unfilled");
  if (hosts) figures.emplace_back("host up to");
  const bool open = std::ranges::any_of(found, [&](const Found& f) { return !order_mark(plan, f).empty(); });
  if (open) figures.emplace_back("order");
  std::vector<std::vector<std::string>> rows{header(space, figures)};
  for (const Found& f : found) {
    std::vector<std::string> row{fmt::format("#{}", f.candidate), fmt::format("{:.0f}", f.figures.throughput),
                                 fmt::format("{:.3f} s", seconds(f.figures.step)), gib(f.figures.device_upper)};
    if (spare) row.push_back(*to_spare(space, f));
    if (hosts) row.push_back(gib(f.figures.host_upper));
    if (open) row.push_back(order_mark(plan, f));
    add_values(space, f.candidate, row);
    rows.push_back(std::move(row));
  }
  return table(rows);
}

std::string miss_table(const Space& space, const std::vector<Miss>& misses) {
  const bool hosts = std::ranges::any_of(misses, [](const Miss& m) { return m.host_lacks > Bytes{}; });
  std::vector<std::string> figures{"lacks", "tokens/s"};
  if (hosts) figures.insert(figures.begin() + 1, "host lacks");
  std::vector<std::vector<std::string>> rows{header(space, figures)};
  for (const Miss& m : misses) {
    const auto lacks = [&](Bytes its) {
      if (hosts && its <= Bytes{}) return std::string("nothing");
      return fmt::format("{}{}", m.exact ? "" : "at least ", gib(its));
    };
    std::vector<std::string> row{fmt::format("#{}", m.candidate), lacks(m.lacks)};
    if (hosts) row.push_back(lacks(m.host_lacks));
    row.push_back(std::isinf(m.throughput) ? "not bounded"
                                           : fmt::format("{}{:.0f}", m.exact ? "" : "at most ", m.throughput));
    add_values(space, m.candidate, row);
    rows.push_back(std::move(row));
  }
  return table(rows);
}

std::string failed_text(const Plan& plan) {
  std::string out = fmt::format("  {:>8}  cannot be judged\n", plan.tiers.failed);
  for (const Failed& failed : plan.failed) out += fmt::format("            #{}: {}\n", failed.candidate, failed.why);
  return out;
}

std::vector<std::pair<std::string, std::int64_t>> by_count(const std::map<std::string, std::int64_t>& counts) {
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

Json layout_json(const Space& space, std::int64_t candidate) {
  Json json = Json::object();
  const std::vector<std::size_t> values = space.values_of(candidate);
  for (std::size_t a = 0; a < space.axes.size(); ++a) json[space.axes[a].name] = space.axes[a].values[values[a]].text;
  return json;
}

// Against the best; null of the best itself, and where none was compared.
Json tie_analysis_json(const TieAnalysis* its) {
  if (its == nullptr) return nullptr;
  return {{"open", its->open()},
          {"slower_by_s", seconds(its->apart)},
          {"may_be_off_by_s", seconds(its->error)},
          {"settled_by", its->settles.empty() ? Json() : Json(its->settles)},
          {"of_that_s", seconds(its->of_that)}};
}

Json found_json(const Space& space, const Plan& plan, const std::vector<Found>& found) {
  Json list = Json::array();
  for (const Found& f : found)
    list.push_back({{"candidate", f.candidate},
                    {"layout", layout_json(space, f.candidate)},
                    {"tokens_per_s_per_device", f.figures.throughput},
                    {"step_time_s", seconds(f.figures.step)},
                    {"step_time_low_s", seconds(f.step_low)},
                    {"step_time_high_s", f.step_high == for_ever ? Json() : Json(seconds(f.step_high))},
                    {"peak_device_upper_bytes", f.figures.device_upper.count()},
                    {"peak_device_bytes", f.figures.device.count()},
                    {"peak_allocated_bytes", f.figures.allocated.count()},
                    {"host_upper_bytes", f.figures.host_upper.count()},
                    {"order", tie_analysis_json(tie_analysis_of(plan, f))}});
  return list;
}

Json capacity_json(const Space& space) {
  const std::optional<Bytes> capacity = capacity_of(space);
  return capacity ? Json(capacity->count()) : Json(nullptr);
}

std::string verdict(const Space& space, const Plan& plan) {
  std::string out = plan.best.empty() ? fmt::format("no, none of {} candidates fits\n", plan.candidates)
                                      : fmt::format("yes: the best of {} candidates makes {:.0f} tokens/s per device\n",
                                                    plan.candidates, plan.best.front().figures.throughput);
  if (const std::optional<Bytes> headroom = headroom_of(space))
    out +=
        fmt::format("  {} must stay free on every device{} ([runtime] headroom, or --headroom)\n",
                    *headroom == Bytes{} ? "nothing" : gib(*headroom), space.headroom_by_default ? " by default" : "");
  return out;
}

}  // namespace

std::string space_text(const Space& space) {
  std::vector<std::vector<std::string>> rows{{"axis", "values"}};
  std::string out = fmt::format("{} combinations of\n", space.size());
  for (const Axis& axis : space.axes) {
    out += fmt::format("  {:<26}", axis.name);
    for (std::size_t v = 0; v < axis.values.size(); ++v)
      out += fmt::format("{}{}", v == 0 ? "" : ", ", axis.values[v].text);
    out += '\n';
  }
  return out;
}

// Of a search that was free to choose: gradients that are summed in 16 bits train otherwise than those in fp32.
std::string narrow_gradients_text(const Space& space, const Plan& plan, std::size_t columns) {
  const auto axis = std::ranges::find(space.axes, "train.gradient_dtype", &Axis::name);
  if (axis == space.axes.end() || axis->values.size() < 2) return {};
  const auto at = static_cast<std::size_t>(axis - space.axes.begin());
  std::map<std::string, std::vector<std::string>> by_type;
  for (const Found& f : plan.best) {
    const std::string& type = axis->values[space.values_of(f.candidate)[at]].text;
    if (type != "fp32") by_type[type].push_back(fmt::format("#{}", f.candidate));
  }
  std::string out;
  for (const auto& [type, which] : by_type)
    out += fmt::format("\nchanges what is trained: {} {} gradients in {}, not in fp32 (train.gradient_dtype)\n",
                       which.size() == plan.best.size() ? "all of these" : fmt::format("{}", fmt::join(which, ", ")),
                       which.size() == 1 ? "sums" : "sum", type);
  return folded(out, columns);
}

std::string interrupted_text(const Space& space, const std::vector<Found>& best, std::size_t columns) {
  if (best.empty()) return "interrupted, before any layout was found to fit\n";
  std::vector<std::vector<std::string>> rows{{"layout", "tokens/s", "fills up to"}};
  for (const Found& f : best)
    rows.push_back(
        {fmt::format("#{}", f.candidate), fmt::format("{:.0f}", f.figures.throughput), gib(f.figures.device_upper)});
  return brief_table(space, "interrupted: the best layouts so far", best, rows, columns);
}

std::string brief_text(const Space& space, const Plan& plan, std::size_t columns) {
  std::string out = verdict(space, plan);
  if (plan.best.empty()) {
    constexpr std::size_t shown = 3;
    const std::vector<Miss> nearest(
        plan.near_misses.begin(),
        plan.near_misses.begin() + static_cast<std::ptrdiff_t>(std::min(plan.near_misses.size(), shown)));
    std::vector<std::vector<std::string>> rows{{"layout", "lacks"}};
    for (const Miss& m : nearest)
      rows.push_back({fmt::format("#{}", m.candidate),
                      fmt::format("{}{}", m.exact ? "" : "at least ", gib(std::max(m.lacks, m.host_lacks)))});
    if (!nearest.empty()) out += brief_table(space, "near misses", nearest, rows, columns);
    return out + "\nnext: more --gpus, or --show-space: what else can be searched (--with AXIS)\ndetails: -v\n";
  }
  std::vector<std::vector<std::string>> rows{{"layout", "tokens/s", "fills up to"}};
  const bool spare = to_spare(space, plan.best.front()).has_value(), open = any_open(plan);
  if (spare) rows.front().emplace_back("unfilled");
  if (open) rows.front().emplace_back("order");
  for (const Found& f : plan.best) {
    rows.push_back(
        {fmt::format("#{}", f.candidate), fmt::format("{:.0f}", f.figures.throughput), gib(f.figures.device_upper)});
    if (spare) rows.back().push_back(*to_spare(space, f));
    if (open) rows.back().push_back(order_mark(plan, f));
  }
  out += brief_table(space, "best", plan.best, rows, columns) + open_orders_text(plan, columns) +
         narrow_gradients_text(space, plan, columns);
  const Found& lowest =
      *std::ranges::min_element(plan.front, {}, [](const Found& f) { return f.figures.device_upper; });
  if (plan.front.size() > 1)
    out +=
        fmt::format("\nless memory for less throughput: {} layouts, down to {} at {:.0f} tokens/s (#{})\n",
                    plan.front.size(), gib(lowest.figures.device_upper), lowest.figures.throughput, lowest.candidate);
  return out +
         "\nnext: the same with --write-scenarios DIR writes these as files that predict takes\n"
         "details, near misses and why the others lose: -v\n";
}

std::string plan_text(const Space& space, const Plan& plan) {
  std::string out = verdict(space, plan);
  if (!plan.best.empty()) {
    out += "\nbest\n" + found_table(space, plan, plan.best) + open_orders_text(plan, usual_columns) +
           narrow_gradients_text(space, plan, usual_columns);
    out += "\nfront: less memory only for less throughput\n" + found_table(space, plan, plan.front);
  }
  if (!plan.near_misses.empty()) out += "\nnear misses\n" + miss_table(space, plan.near_misses);
  out += "\nhow it was found\n";
  out += fmt::format("  {:>8}  do not fit, by bounds on their memory\n", plan.tiers.bounded_rejected);
  out += fmt::format("  {:>8}  do not fit, by the emulated allocator\n", plan.tiers.allocator_rejected);
  out += fmt::format("  {:>8}  are worse in memory and throughput, even at the good ends of their bounds\n",
                     plan.tiers.beaten);
  out += fmt::format("  {:>8}  fit, and ran on the simulated clock\n", plan.tiers.timed);
  if (plan.tiers.unbounded > 0)
    out += fmt::format("  {:>8}  use features that bounds do not cover, and were simulated\n", plan.tiers.unbounded);
  if (plan.tiers.failed > 0) out += failed_text(plan);
  out += fmt::format("  {:>8}  of those above were simulated again in full: {}\n", plan.in_full,
                     plan.disagreements.empty()
                         ? "memory to the byte, time to the picosecond"
                         : fmt::format("{} came out otherwise, {}", plan.disagreements.size(),
                                       plan.all_in_full ? "and all candidates were run in full"
                                                        : "which is a bug in Tidemark; they are listed with their "
                                                          "simulated figures, and others may be off by as much"));
  out += fmt::format("\n{} of {} combinations are not candidates\n", plan.combinations - plan.candidates,
                     plan.combinations);
  for (const auto& [reason, count] : by_count(plan.dropped)) out += fmt::format("  {:>8}  {}\n", count, reason);
  return out + assumed(space_remarks(space));
}

std::string plan_json(const Space& space, const Plan& plan) {
  Json misses = Json::array();
  for (const Miss& m : plan.near_misses)
    misses.push_back({{"candidate", m.candidate},
                      {"layout", layout_json(space, m.candidate)},
                      {"lacks_bytes", m.lacks.count()},
                      {"host_lacks_bytes", m.host_lacks.count()},
                      {"exact", m.exact},
                      {"straddles", m.straddles},
                      {"tokens_per_s_per_device", m.throughput}});
  Json failed = Json::array();
  for (const Failed& f : plan.failed)
    failed.push_back({{"candidate", f.candidate}, {"layout", layout_json(space, f.candidate)}, {"why", f.why}});
  Json dropped = Json::array();
  for (const auto& [reason, count] : by_count(plan.dropped))
    dropped.push_back({{"reason", reason}, {"combinations", count}});
  const Json json = {{"schema", "tidemark.plan/1"},
                     {"space", space.name},
                     {"base", document_json(space.base)},
                     {"axes", axes_json(space)},
                     {"capacity_bytes", capacity_json(space)},
                     {"combinations", plan.combinations},
                     {"candidates", plan.candidates},
                     {"tiers",
                      {{"bounded_rejected", plan.tiers.bounded_rejected},
                       {"allocator_rejected", plan.tiers.allocator_rejected},
                       {"beaten", plan.tiers.beaten},
                       {"timed", plan.tiers.timed},
                       {"unbounded", plan.tiers.unbounded},
                       {"failed", plan.tiers.failed},
                       {"in_full", plan.in_full}}},
                     {"disagreements", plan.disagreements},
                     {"best", found_json(space, plan, plan.best)},
                     {"front", found_json(space, plan, plan.front)},
                     {"near_misses", std::move(misses)},
                     {"failed", std::move(failed)},
                     {"dropped", std::move(dropped)},
                     {"assumptions", space_remarks(space)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string plan_csv(const Space& space, const Plan& plan) {
  std::string out =
      "list,candidate,tokens_per_s_per_device,step_time_s,peak_device_upper_bytes,peak_allocated_bytes,lacks_bytes,"
      "host_upper_bytes,host_lacks_bytes,order_open,order_settled_by";
  for (const Axis& axis : space.axes) out += ',' + csv_field(axis.name);
  out += '\n';
  const auto values = [&](std::int64_t candidate) {
    std::string text;
    const std::vector<std::size_t> chosen = space.values_of(candidate);
    for (std::size_t a = 0; a < space.axes.size(); ++a) text += ',' + csv_field(space.axes[a].values[chosen[a]].text);
    return text + '\n';
  };
  const auto order_fields = [](const TieAnalysis* its) {
    return its == nullptr ? std::string(",")
                          : fmt::format("{},{}", its->open(), its->open() ? csv_field(its->settles) : "");
  };
  const auto add = [&](const char* list, const std::vector<Found>& found) {
    for (const Found& f : found)
      out += fmt::format("{},{},{},{},{},{},,{},,{}", list, f.candidate, f.figures.throughput, seconds(f.figures.step),
                         f.figures.device_upper.count(), f.figures.allocated.count(), f.figures.host_upper.count(),
                         order_fields(tie_analysis_of(plan, f))) +
             values(f.candidate);
  };
  add("best", plan.best);
  add("front", plan.front);
  for (const Miss& m : plan.near_misses)
    out += fmt::format("{},{},{},,,,{},,{},,", m.exact ? "near_miss" : "near_miss_bounds", m.candidate, m.throughput,
                       m.lacks.count(), m.host_lacks.count()) +
           values(m.candidate);
  return out;
}

}  // namespace tidemark::scenarios
