#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/detail/predict_arguments.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/shipped_names.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cluster/times_compare.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/report/run_cost.hpp"

namespace tidemark::cli {
namespace {

struct OnCluster {
  std::string name;
  std::optional<Prediction> prediction;
  std::string refused;  ///< where the job cannot be on that cluster: why

  [[nodiscard]] bool fits() const { return prediction && prediction->fits; }
  [[nodiscard]] double dollars() const {
    const auto cost = prediction ? dollars_per_billion_tokens(*prediction) : std::nullopt;
    return cost ? cost->value : std::numeric_limits<double>::infinity();
  }
  [[nodiscard]] double step() const {
    return prediction ? static_cast<double>(prediction->step.step.count()) : std::numeric_limits<double>::infinity();
  }
};

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    if (end > at) names.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  if (names.empty()) refuse("--clusters", "names no cluster", "such as --clusters h100-sxm-80g,my-h200.toml");
  return names;
}

PredictArguments on_cluster(const PredictArguments& requested, const std::string& name,
                            std::vector<std::string>& keys) {
  PredictArguments its = requested;
  std::vector<Problem> problems;
  const std::string file = named_in_scenario("--clusters", name, clusters_shipped, problems);
  if (!problems.empty()) throw InputError(std::move(problems));
  if (its.words.file.empty() || is_foreign(its.words.file))
    its.words.launch.cluster = name;
  else
    keys = {"cluster=" + file};
  return its;
}

OnCluster prediction_on(const PredictArguments& requested, const std::string& name) {
  OnCluster its{name.ends_with(".toml") ? std::filesystem::path(name).stem().string() : name, {}, {}};
  std::vector<std::string> keys;
  const PredictArguments there = on_cluster(requested, name, keys);
  try {
    const JobRequest job = predicted_job(there, keys);
    its.prediction = predict(job.scenario, progress_on_terminal(name, requested.loudness),
                             {.links = requested_link_model(requested.picked.link_model)});
    job.complete(*its.prediction);
  } catch (const InputError& error) {
    its.refused = error.problems().front().message;
  }
  return its;
}

Bytes to_spare(const Prediction& p) {
  return p.scenario.cluster.device.capacity - p.scenario.runtime.headroom - p.most_required().required.upper;
}

std::string between_words(const Between& its) {
  return fmt::format("{} ({} to {})", rounded_amount(its.value), rounded_amount(its.low), rounded_amount(its.high));
}

std::string clusters_text(const std::vector<OnCluster>& all) {
  const bool length = std::ranges::any_of(
      all, [](const OnCluster& its) { return its.prediction && run_cost(*its.prediction).has_value(); });
  std::vector<std::vector<std::string>> rows{{"cluster", "fits", "to spare", "a step", "tokens/s per device"}};
  if (length) rows.front().insert(rows.front().end(), {"days", "GPU-days"});
  rows.front().emplace_back(length ? "$ of the run" : "$ per billion tokens");
  std::string refused, unpriced;
  bool fits_unpriced = false;
  for (const OnCluster& its : all) {
    if (!its.prediction) {
      refused += fmt::format("{} cannot run it: {}\n", its.name, its.refused);
      continue;
    }
    const Prediction& p = *its.prediction;
    rows.push_back({its.name,
                    p.fits   ? "yes"
                    : p.open ? "cannot say"
                             : "no",
                    gib(to_spare(p)), fmt::format("{:.3f} s", static_cast<double>(p.step.step.count()) / 1e12),
                    fmt::format("{:.0f}", p.step.tokens_per_s_per_device)});
    const std::optional<RunCost> cost = run_cost(p);
    constexpr double day = 86'400;
    if (length)
      rows.back().insert(rows.back().end(), {cost ? rounded_amount(cost->seconds.value / day) : "",
                                             cost ? between_words(cost->gpu_days) : ""});
    const std::optional<Between> dollars = cost ? cost->dollars : dollars_per_billion_tokens(p);
    rows.back().push_back(dollars ? between_words(*dollars) : "no price");
    fits_unpriced |= !dollars && its.fits();
    if (!dollars) unpriced += fmt::format("{}{}", unpriced.empty() ? "" : ", ", its.name);
  }
  std::string out;
  if (all.front().fits() && all.front().dollars() < std::numeric_limits<double>::infinity())
    out = fmt::format("{} fits it cheapest{}\n", all.front().name, fits_unpriced ? ", of those with a price" : "");
  else if (all.front().fits())
    out = fmt::format("{} fits it with the shortest step; no cluster that fits it has a price\n", all.front().name);
  else
    out = "none of them is certain to fit it\n";
  out += table(rows) + refused;
  std::vector<Cluster> clusters;
  for (const OnCluster& its : all)
    if (its.prediction) clusters.push_back(its.prediction->scenario.cluster);
  if (why_times_do_not_compare(clusters))
    out += "times compare only roughly: the clusters' efficiencies come from different sources, which -v names\n";
  if (!unpriced.empty())
    out += fmt::format(
        "no price for {}: set price_per_gpu_hour, such as 2.5, in the cluster file; Tidemark has no built-in prices\n",
        unpriced);
  return out;
}

nlohmann::ordered_json clusters_json(const std::vector<OnCluster>& all) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  const auto figure = [](const std::optional<Between>& its) {
    return its ? Json{{"value", its->value}, {"low", its->low}, {"high", its->high}} : Json();
  };
  for (const OnCluster& its : all) {
    Json row{{"cluster", its.name}};
    if (its.prediction) {
      const Prediction& p = *its.prediction;
      const std::optional<RunCost> cost = run_cost(p);
      row["verdict"] = p.verdict();
      row["to_spare_bytes"] = to_spare(p).count();
      row["step_time_s"] = p.deadlock ? Json() : Json(static_cast<double>(p.step.step.count()) / 1e12);
      row["tokens_per_s_per_device"] = p.step.tokens_per_s_per_device;
      row["gpu_days"] = cost ? figure(cost->gpu_days) : Json();
      row["dollars"] = cost ? figure(cost->dollars) : Json();
      row["dollars_per_billion_tokens"] = figure(dollars_per_billion_tokens(p));
    } else {
      row["refused"] = its.refused;
    }
    list.push_back(std::move(row));
  }
  return {{"schema", "tidemark.clusters/1"}, {"clusters", std::move(list)}};
}

}  // namespace

int answer_clusters(const PredictArguments& requested) {
  if (!requested.words.launch.cluster.empty())
    refuse("--clusters", "names the clusters, and so does --cluster", "leave --cluster out");
  std::vector<OnCluster> all;
  std::vector<std::filesystem::path> inputs;
  for (const std::string& name : names_in(requested.clusters)) {
    if (std::filesystem::exists(name)) inputs.emplace_back(name);
    all.push_back(prediction_on(requested, name));
  }
  if (!requested.words.file.empty()) inputs.emplace_back(requested.words.file);
  check_outputs({{"--json", requested.json}}, inputs);
  if (std::ranges::all_of(all, [](const OnCluster& its) { return !its.prediction; }))
    refuse("--clusters", fmt::format("{}: {}", all.front().name, all.front().refused),
           "tidemark list clusters lists those that are shipped");
  // Those that fit first, the cheapest of them first; without prices the one that is quickest.
  std::ranges::stable_sort(all, {}, [](const OnCluster& its) {
    const int answer = its.fits() ? 0 : its.prediction && its.prediction->open ? 1 : its.prediction ? 2 : 3;
    return std::tuple(answer, its.dollars(), its.step());
  });
  answer(clusters_text(all), requested.json, [&] { return clusters_json(all).dump(1) + '\n'; });
  return all.front().fits() ? yes : all.front().prediction->open ? cannot_say : no;
}

}  // namespace tidemark::cli
