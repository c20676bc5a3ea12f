#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "scenarios/formats/format.hpp"
#include "scenarios/report/fabric_loads.hpp"
#include "scenarios/report/page/memory_curve.hpp"
#include "scenarios/report/page/report_page.hpp"
#include "scenarios/report/page/schedule_lane.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "sim/base/in_parallel.hpp"
#include "sim/clock/summary.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t all_stretches = 9000;   // of all curves together
constexpr std::size_t most_stretches = 2000;  // of one
constexpr std::size_t heat_columns = 240;
constexpr std::size_t most_heat_rows = 48;       // groups of ranks that are played once more
constexpr std::int64_t finest_of_lanes = 12000;  // gaps in all lanes together that a step may show

std::int64_t nanoseconds(Duration d) { return d.count() / 1000; }
std::int64_t kib(Bytes bytes) { return bytes.count() / 1024; }

// What a column of numbers goes up by: short, as most stay as they were.
class StepLine {
 public:
  void add(std::int64_t value) {
    steps_.push_back(value - last_);
    last_ = value;
  }
  [[nodiscard]] Json json() && { return std::move(steps_); }

 private:
  Json steps_ = Json::array();
  std::int64_t last_ = 0;
};

// Rounded by itself, so that a sum of steps is off by no more than one.
Json curve_json(const MemoryCurve& curve, Instant start) {
  Json kinds = Json::array(), phases = Json::array(), micro_batches = Json::array(), places = Json::array(),
       changes = Json::array();
  for (const MemoryCurve::Kind& kind : curve.kinds)
    kinds.push_back({kind.name, static_cast<std::size_t>(kind.category)});
  StepLine time, reserved, driver, pinned, pageable;
  std::vector<Bytes> held(curve.kinds.size());
  for (const MemoryCurve::Point& point : curve.points) {
    time.add(nanoseconds(point.time - start));
    reserved.add(kib(point.reserved));
    driver.add(kib(point.driver));
    pinned.add(kib(point.pinned));
    pageable.add(kib(point.pageable));
    phases.push_back(static_cast<int>(point.phase));
    micro_batches.push_back(point.micro_batch);
    places.push_back(point.place);
    Json its = Json::array();
    for (const MemoryCurve::Change& change : point.changes) {
      Bytes& of_kind = held[static_cast<std::size_t>(change.kind)];
      const std::int64_t before = kib(of_kind);
      of_kind += change.bytes;
      its.push_back(change.kind);
      its.push_back(kib(of_kind) - before);
      its.push_back(change.tensors);
    }
    changes.push_back(std::move(its));
  }
  return {{"rank", curve.rank.value},
          {"kinds", std::move(kinds)},
          {"places", curve.places},
          {"time_ns", std::move(time).json()},
          {"phase", std::move(phases)},
          {"micro_batch", std::move(micro_batches)},
          {"place", std::move(places)},
          {"reserved_kib", std::move(reserved).json()},
          {"driver_kib", std::move(driver).json()},
          {"pinned_kib", std::move(pinned).json()},
          {"pageable_kib", std::move(pageable).json()},
          {"changes", std::move(changes)}};
}

Json lane_json(const ScheduleLane& lane, Instant start) {
  Json passes = Json::array(), traffic = Json::array();
  for (const ScheduleLane::Pass& p : lane.passes)
    passes.push_back({nanoseconds(p.begin - start), nanoseconds(p.end - start), nanoseconds(p.busy),
                      static_cast<int>(p.phase), p.micro_batch});
  for (const ScheduleLane::Traffic& t : lane.traffic)
    traffic.push_back({nanoseconds(t.begin - start), nanoseconds(t.end - start), nanoseconds(t.busy), t.communicator,
                       kib(t.bytes), t.transfers});
  return {{"rank", lane.rank.value}, {"passes", std::move(passes)}, {"traffic", std::move(traffic)}};
}

// Where the rank's compute stream spends the last step, in shares of it.
Json shares_json(const StepTimes& times, const std::vector<Communicator>& communicators) {
  const auto share = [&](Duration part) {
    return std::round(1e5 * static_cast<double>(part.count()) / static_cast<double>(times.step.count())) / 1e5;
  };
  Duration waiting;
  Json exposed = Json::object();
  for (std::size_t slot = 0; slot < communicators.size(); ++slot) {
    waiting += times.waiting[slot];
    if (times.transferring[slot] > Duration{}) exposed[communicators[slot].name] = share(times.transferring[slot]);
  }
  return {{"kernels", share(times.kernels)},
          {"waiting", share(waiting)},
          {"idle", share(times.idle)},
          {"copies", share(times.copies)},
          {"exposed", std::move(exposed)}};
}

// The fullest group of each pipeline stage.
std::vector<const RankGroup*> fullest_of_stages(const Prediction& p) {
  std::map<std::int32_t, const RankGroup*> by_stage;
  for (const RankGroup& group : p.groups) {
    const RankGroup*& fullest = by_stage[group.coordinates.pipeline];
    if (fullest == nullptr || group.memory.peak_device_upper > fullest->memory.peak_device_upper) fullest = &group;
  }
  std::vector<const RankGroup*> found;
  for (const auto& [stage, group] : by_stage) found.push_back(group);
  return found;
}

// Groups that the heat map plays: all, or the fullest ones, of each stage as many.
std::vector<std::size_t> heat_groups(const Prediction& p) {
  std::map<std::int32_t, std::vector<std::size_t>> by_stage;
  for (std::size_t g = 0; g < p.groups.size(); ++g) by_stage[p.groups[g].coordinates.pipeline].push_back(g);
  const std::size_t of_stage = std::max<std::size_t>(1, most_heat_rows / by_stage.size());
  std::vector<std::size_t> found;
  for (auto& [stage, groups] : by_stage) {
    std::stable_sort(groups.begin(), groups.end(), [&](std::size_t a, std::size_t b) {
      return p.groups[a].memory.peak_device_upper > p.groups[b].memory.peak_device_upper;
    });
    if (p.groups.size() > most_heat_rows) groups.resize(std::min(groups.size(), of_stage));
    found.insert(found.end(), groups.begin(), groups.end());
  }
  return found;
}

Json heat_json(const Job& job, const Trace& trace, const Prediction& p, Instant begin, Instant end) {
  const std::vector<std::size_t> groups = heat_groups(p);
  std::vector<std::vector<Bytes>> rows(groups.size());
  in_parallel(0, groups.size(), [&](std::size_t i) {
    rows[i] = highest_by_time(job, trace, p.groups[groups[i]], begin, end, heat_columns);
  });
  // Of a group that is not played, the fullest of its stage.
  std::vector<std::int32_t> row_of(p.groups.size(), -1);
  std::map<std::int32_t, std::int32_t> fullest;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    row_of[groups[i]] = static_cast<std::int32_t>(i);
    fullest.try_emplace(p.groups[groups[i]].coordinates.pipeline, static_cast<std::int32_t>(i));
  }
  std::vector<std::int32_t> row_of_rank(static_cast<std::size_t>(p.scenario.layout.world_size()));
  for (std::size_t g = 0; g < p.groups.size(); ++g)
    for (const Rank rank : p.groups[g].ranks)
      row_of_rank[rank.index()] = row_of[g] >= 0 ? row_of[g] : fullest.at(p.groups[g].coordinates.pipeline);
  // Ranks one after the other that do the same: a row, and how many.
  Json runs = Json::array();
  for (std::size_t r = 0; r < row_of_rank.size();) {
    std::size_t next = r;
    while (next < row_of_rank.size() && row_of_rank[next] == row_of_rank[r]) ++next;
    runs.push_back(row_of_rank[r]);
    runs.push_back(next - r);
    r = next;
  }
  Json values = Json::array();
  for (const std::vector<Bytes>& row : rows) {
    Json mib = Json::array();
    for (const Bytes bytes : row) mib.push_back(bytes.count() >> 20);
    values.push_back(std::move(mib));
  }
  return {
      {"mib", std::move(values)}, {"runs", std::move(runs)}, {"groups", p.groups.size()}, {"played", groups.size()}};
}

Json fabric_json(const Job& job, Duration step) {
  const Fabric fabric = fabric_of(job.scenario, job.world_size());
  const std::vector<LinkUse> uses = loads_of_step(job, fabric);
  const auto share = [&](Duration busy) {
    return std::round(1e5 * static_cast<double>(busy.count()) / static_cast<double>(step.count())) / 1e5;
  };
  // Of each type and node (or leaf) the busiest link.
  std::map<std::pair<std::size_t, std::int32_t>, std::pair<double, Bytes>> cells;
  for (const LinkUse& use : uses) {
    const Link& link = fabric[use.link];
    std::int32_t at = link.at;
    switch (link.type) {
      case LinkType::NvLinkUp:
      case LinkType::NvLinkDown:
      case LinkType::NvLinkPair:
      case LinkType::HostUp:
      case LinkType::HostDown:
        at = fabric.node_of(link.at);
        break;
      case LinkType::NicUp:
      case LinkType::NicDown:
        at = link.at / fabric.nic_slots;
        break;
      case LinkType::HostBridge:
      case LinkType::LeafUp:
      case LinkType::LeafDown:
        break;
    }
    auto& [busy, bytes] = cells[{static_cast<std::size_t>(link.type), at}];
    busy = std::max(busy, share(use.busy));
    bytes += use.bytes;
  }
  Json types = Json::array();
  for (std::size_t t = 0; t < link_types; ++t) {
    const auto first = static_cast<std::size_t>(fabric.first[t]), last = static_cast<std::size_t>(fabric.first[t + 1]);
    if (first == last) continue;
    Json places = Json::array();
    for (const auto& [key, cell] : cells)
      if (key.first == t) places.push_back({key.second, cell.first, cell.second.count() >> 20});
    types.push_back({{"name", link_type_name(static_cast<LinkType>(t))},
                     {"links", last - first},
                     {"bytes_per_s", fabric.links[first].capacity.count()},
                     {"places", std::move(places)}});
  }
  Json busiest = Json::array();
  for (std::size_t i = 0; i < uses.size() && i < 20; ++i)
    busiest.push_back(
        {{"link", link_name(fabric, uses[i].link)}, {"bytes", uses[i].bytes.count()}, {"share", share(uses[i].busy)}});
  return {{"cluster", job.scenario.cluster.name},
          {"nodes", fabric.nodes},
          {"devices_per_node", fabric.node.devices},
          {"leaves", fabric.leaves},
          {"types", std::move(types)},
          {"busiest", std::move(busiest)}};
}

// Times of a step: from where the first of the ranks begins to where the last ends.
struct StepOfRanks {
  std::int32_t number = 0;
  Instant begin, end;
};

StepOfRanks step_of(const Trace& trace, const Prediction& p) {
  const std::int32_t peak = p.highest().memory.device.at.mark.step;
  StepOfRanks step{peak > 0 ? peak : static_cast<std::int32_t>(p.scenario.train.steps), {}, trace.end};
  const auto at = static_cast<std::size_t>(step.number);
  Instant begin = trace.end, end;
  for (const ClassTrace& its : trace.classes) {
    begin = std::min(begin, its.step_ends[at - 1]);
    end = std::max(end, its.step_ends[at]);
  }
  return {step.number, begin, end};
}

// Everything that has a place in time.
void add_timelines(Json& out, const Job& job, const Trace& trace, const Prediction& p, ReportDetail detail) {
  const StepOfRanks step = step_of(trace, p);
  const std::vector<const RankGroup*> stages =
      detail == ReportDetail::Whole ? fullest_of_stages(p) : std::vector{&p.highest()};
  const std::size_t stretches = std::clamp<std::size_t>(
      (detail == ReportDetail::Whole ? all_stretches : all_stretches / 6) / stages.size(), 150, most_stretches);
  const Duration finest{(step.end - step.begin).count() * static_cast<std::int64_t>(stages.size()) / finest_of_lanes};
  const std::vector<StepTimes> times = account_of(job, trace).classes;
  std::vector<MemoryCurve> curves(stages.size());
  std::vector<ScheduleLane> lanes(stages.size());
  in_parallel(0, stages.size(), [&](std::size_t s) {
    const Rank rank = stages[s]->ranks.front();
    curves[s] = memory_curve(job, trace, *stages[s], step.number, stretches);
    lanes[s] = schedule_lane(job, trace, rank, step.number, finest);
  });
  Json stages_json = Json::array();
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Rank rank = stages[s]->ranks.front();
    const auto rank_class = static_cast<std::size_t>(job.folding.class_of_rank[rank.index()]);
    stages_json.push_back({{"stage", stages[s]->coordinates.pipeline},
                           {"memory", curve_json(curves[s], step.begin)},
                           {"lane", lane_json(lanes[s], step.begin)},
                           {"shares", shares_json(times[rank_class], p.communicators)}});
  }
  out["step"] = {{"number", step.number}, {"length_ns", nanoseconds(step.end - step.begin)}};
  out["stages"] = std::move(stages_json);
  if (detail == ReportDetail::Fullest) return;
  out["heat"] = heat_json(job, trace, p, step.begin, step.end);
  out["fabric"] = fabric_json(job, p.step.step);
}

}  // namespace

std::string report_json(const Job& job, const Trace& trace, const Prediction& p, const ReportOrigin& origin,
                        ReportDetail detail) {
  Json communicators = Json::array(), phases = Json::array();
  for (const Communicator& communicator : p.communicators) communicators.push_back(communicator.name);
  for (std::size_t phase = 0; phase < phase_count; ++phase) phases.push_back(name(static_cast<Phase>(phase)));
  Json prediction = Json::parse(prediction_json(p));
  // For people: thousands of numbers in a row are one range.
  for (std::size_t g = 0; g < p.groups.size(); ++g) {
    prediction["groups"][g]["rank_list"] = rank_list(p.groups[g].ranks);
    prediction["groups"][g]["rank_count"] = p.groups[g].ranks.size();
  }
  Json out = {
      {"schema", "tidemark.report/1"},
      {"kind", "prediction"},
      {"title", p.scenario.name},
      {"answer", p.open ? Json(nullptr) : Json(p.fits)},
      {"verdict", verdict_text(p)},
      {"question", question_text(p)},
      {"origin",
       {{"version", origin.version}, {"command", origin.command}, {"file", origin.file}, {"text", origin.text}}},
      {"categories", category_names},
      {"phases", std::move(phases)},
      {"communicators", std::move(communicators)},
      {"prediction", std::move(prediction)}};
  if (!p.deadlock) add_timelines(out, job, trace, p, detail);
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tidemark::scenarios
