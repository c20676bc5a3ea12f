#include "scenarios/calibrate/calibration_report.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/format.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

std::string microseconds(Duration d) { return fmt::format("{:.2f} us", 1e6 * seconds(d)); }

}  // namespace

std::string calibration_report(const MachineRun& run, const MachineFiles& files, const std::string& written) {
  std::string out = fmt::format("yes: {} points of {} measured on {} {}, {}\n", run.points.size(), run.machine,
                                run.ranks, run.ranks == 1 ? "rank" : "ranks", written);
  // Kinds, and of each the fastest and the slowest thing, and how far quarters of repeats lie apart.
  struct Kind {
    std::int64_t points = 0;
    Duration shortest, longest;
    std::vector<double> spreads;
  };
  std::map<std::string, Kind> kinds;
  for (const Point& p : run.points) {
    const std::vector<std::string> words = words_of(p.what);
    std::string name = words[0] == "kernel" || words[0] == "collective" ? words[0] + " " + words[1] : words[0];
    if ((words[0] == "collective" && words[3] != "1") || (words[0] == "message" && words[1] != "0"))
      name += " between nodes";
    Kind& kind = kinds[name];
    kind.shortest = kind.points == 0 ? p.median : std::min(kind.shortest, p.median);
    kind.longest = std::max(kind.longest, p.median);
    kind.spreads.push_back(seconds(p.high - p.low) / std::max(seconds(p.median), 1e-12));
    ++kind.points;
  }
  std::vector<std::vector<std::string>> rows{{"measured", "points", "from", "to", "half of repeats within"}};
  for (auto& [name, kind] : kinds) {
    std::sort(kind.spreads.begin(), kind.spreads.end());
    rows.push_back({name, fmt::format("{}", kind.points), microseconds(kind.shortest), microseconds(kind.longest),
                    fmt::format("{:.1f} %", 100 * kind.spreads[kind.spreads.size() / 2])});
  }
  out += '\n' + table(rows);
  if (run.ranks_per_host > run.cores)
    out +=
        fmt::format("{} ranks share {} cores, which makes the measured times longer\n", run.ranks_per_host, run.cores);
  out += "\nnot measured\n";
  std::vector<std::vector<std::string>> left{{"key", "value", "from"}};
  for (const NotMeasured& n : files.not_measured) left.push_back({n.key, n.value, n.from});
  return out + table(left);
}

std::string calibration_json(const MachineRun& run, const MachineFiles& files) {
  Json points = Json::array();
  for (const Point& p : run.points)
    points.push_back({{"what", p.what},
                      {"median_s", seconds(p.median)},
                      {"quarter_s", seconds(p.low)},
                      {"three_quarters_s", seconds(p.high)},
                      {"repeats", p.repeats}});
  Json left = Json::array();
  for (const NotMeasured& n : files.not_measured)
    left.push_back({{"key", n.key}, {"value", n.value}, {"from", n.from}});
  return Json{{"schema", "tidemark.calibration/1"},
              {"machine", run.machine},
              {"hosts", run.hosts},
              {"ranks", run.ranks},
              {"ranks_per_host", run.ranks_per_host},
              {"ranks_per_node", run.ranks_per_node},
              {"cores", run.cores},
              {"oversubscribed", run.ranks_per_host > run.cores},
              {"repeats", run.repeats},
              {"date", run.date.empty() ? Json() : Json(run.date)},
              {"versions", {{"tidemark", run.tidemark}, {"mpi", run.mpi}}},
              {"points", std::move(points)},
              {"not_measured", std::move(left)},
              {"cluster", files.cluster},
              {"calibration", files.calibration}}
             .dump(2) +
         '\n';
}

}  // namespace tidemark::scenarios
