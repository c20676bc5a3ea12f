#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/report/timeline.hpp"
#include "scenarios/scenario/scenario.hpp"

namespace tidemark::cli {

/// What picks from a timeline, as it was given.
struct TimelineOptions {
  std::optional<std::string> ranks, steps, categories;
  std::string link_model = "max-min";

  /// Throws InputError where steps or categories are given: no timeline is asked for.
  void refuse_filters(const std::string& hint) const;
  /// All but the ranks.
  [[nodiscard]] TimelineQuery query(const Scenario& scenario) const;
};

void add_timeline_options(CLI::App& verb, TimelineOptions& options, const std::string& what_ranks_are);

}  // namespace tidemark::cli
