#include "scenarios/cli/detail/timeline_options.hpp"

#include "scenarios/cli/arguments.hpp"

namespace tidemark::cli {

void TimelineOptions::refuse_filters(const std::string& hint) const {
  if (steps) refuse("--step", "picks from a timeline, and none is asked for", hint);
  if (categories) refuse("--category", "picks from a timeline, and none is asked for", hint);
}

TimelineQuery TimelineOptions::query(const Scenario& scenario) const {
  TimelineQuery query{.links = requested_link_model(link_model)};
  query.steps = {static_cast<std::int32_t>(scenario.train.steps)};
  if (steps) query.steps = requested_steps(*steps, scenario);
  if (categories) query.categories = requested_categories(*categories);
  return query;
}

void add_timeline_options(CLI::App& verb, TimelineOptions& options, const std::string& what_ranks_are) {
  verb.add_option("--rank", options.ranks, what_ranks_are)->type_name("R[,R...]");
  verb.add_option("--step", options.steps, "steps to write (default: the last)")->type_name("N[,N...]");
  verb.add_option("--category", options.categories, "memory categories to write (default: all)")
      ->type_name("NAME[,NAME...]");
  verb.add_option("--link-model", options.link_model,
                  "max-min (transfers share links; default) or alpha-beta (they do not)")
      ->type_name("MODEL");
}

}  // namespace tidemark::cli
