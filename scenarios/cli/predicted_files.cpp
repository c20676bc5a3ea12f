#include "scenarios/cli/predicted_files.hpp"

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/recordings/memory_snapshot_writer.hpp"
#include "scenarios/report/simulated_snapshot.hpp"

namespace tidemark::cli {
namespace {

constexpr std::string_view placeholder = "{rank}";

bool for_each_rank(const std::string& name) { return name.find(placeholder) != std::string::npos; }

std::string with_rank(std::string name, Rank rank) {
  for (std::size_t at = name.find(placeholder); at != std::string::npos; at = name.find(placeholder))
    name.replace(at, placeholder.size(), std::to_string(rank.value));
  return name;
}

// "job.jsonl is of ranks 0, 8, 16, the lowest of each group of ranks alike".
std::string picked(const std::string& name, const std::vector<Rank>& ranks, std::string_view which) {
  constexpr std::size_t most_named = 8;
  const std::vector<Rank> named(ranks.begin(),
                                ranks.begin() + static_cast<std::ptrdiff_t>(std::min(ranks.size(), most_named)));
  const std::string others = ranks.size() > most_named ? fmt::format(" and {} others", ranks.size() - most_named) : "";
  return fmt::format("{} is of rank{} {}{}, {}; --rank picks others", name, ranks.size() == 1 ? "" : "s",
                     scenarios::rank_list(named), others, which);
}

}  // namespace

void check_files(const PredictedFiles& files, const std::string& json) {
  const std::pair<const char*, const std::string&> all[] = {
      {"--json", json}, {"--timeline", files.timeline}, {"--trace", files.trace}, {"--snapshot", files.snapshot}};
  for (const auto& [option, name] : all) {
    if (name.empty()) continue;
    if (name == "-" && &name == &files.timeline)
      refuse(option, "goes to a file", "explain --show timeline --json - prints one");
    if (name == "-" && &name != &json) refuse(option, "goes to a file", "give it a name");
  }
}

std::vector<Output> outputs(const PredictedFiles& files, const std::vector<Rank>& ranks, const Scenario& scenario) {
  std::vector<Output> all{{"--timeline", files.timeline}, {"--trace", files.trace}};
  if (!for_each_rank(files.snapshot)) {
    all.push_back({"--snapshot", files.snapshot});
    return all;
  }
  // Which ranks stand for others is not known yet.
  constexpr std::int32_t most_tried = 1024;
  std::vector<Rank> tried = ranks;
  for (std::int32_t r = 0; ranks.empty() && r < std::min(scenario.gpus, most_tried); ++r) tried.push_back({r});
  for (const Rank rank : tried) all.push_back({"--snapshot", with_rank(files.snapshot, rank)});
  return all;
}

void check_snapshot_ranks(const PredictedFiles& files, const std::vector<Rank>& requested) {
  if (files.snapshot.empty() || requested.size() <= 1 || for_each_rank(files.snapshot)) return;
  refuse("--snapshot", fmt::format("{} ranks do not go into one file", requested.size()),
         fmt::format("put {} into its name", placeholder));
}

std::vector<std::string> write_files(const PredictedFiles& files, const Job& job, const Trace& trace,
                                     const Prediction& prediction, TimelineQuery query) {
  std::vector<std::string> reported;
  std::vector<Rank> snapshots = query.ranks;
  TimelineQuery viewed = query;
  if (query.ranks.empty()) {
    query.ranks = first_ranks(prediction);
    // A viewer takes a million events or so: one rank of each stage is enough, unless more are asked for.
    std::set<std::int32_t> stages;
    for (const RankGroup& group : prediction.groups)
      if (stages.insert(group.coordinates.pipeline).second) viewed.ranks.push_back(group.ranks.front());
    snapshots = for_each_rank(files.snapshot) ? query.ranks : std::vector{prediction.highest().ranks.front()};
    if (!files.timeline.empty())
      reported.push_back(picked(files.timeline, query.ranks, "the lowest of each group of ranks alike"));
    if (!files.trace.empty())
      reported.push_back(picked(files.trace, viewed.ranks, "the lowest of each pipeline stage"));
    if (!files.snapshot.empty() && !for_each_rank(files.snapshot))
      reported.push_back(picked(files.snapshot, snapshots, "the fullest"));
  }
  const auto write = [&](const std::string& name, const TimelineQuery& what, TimelineFormat format) {
    if (name.empty()) return;
    write_file(name, [&](std::ostream& file) { write_timeline(file, job, trace, what, format); });
  };
  write(files.timeline, query, TimelineFormat::JsonLines);
  write(files.trace, viewed, TimelineFormat::ChromeTrace);
  if (files.snapshot.empty()) return reported;
  for (const Rank rank : snapshots) {
    write_file(with_rank(files.snapshot, rank),
               [&](std::ostream& file) { write_memory_snapshot(file, simulated_snapshot(job, trace, rank)); });
  }
  return reported;
}

}  // namespace tidemark::cli
