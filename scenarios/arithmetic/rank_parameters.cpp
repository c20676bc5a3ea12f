#include "scenarios/arithmetic/rank_parameters.hpp"

#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/pytorch/fully_shard.hpp"
#include "parallel/frameworks/pytorch/training.hpp"
#include "parallel/torch/session.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {

ParameterPart::ParameterPart(const Parameter& parameter, const Model& model, const Sizes& sizes,
                             std::int32_t tensor_rank, PlaceOfExperts experts)
    : name_(name_in_model(parameter, experts.first)),
      cut_(parameter.cut),
      rank_(parameter.of_expert() ? experts.tensor_rank : tensor_rank),
      ranks_(sizes.parts_of(parameter)),
      rows_(sizes.rows(parameter)),
      columns_(sizes.columns(parameter)) {
  const bool of_gate = name_.ends_with(".fc1.weight") || name_.ends_with(".fc1.bias");
  halves_ = of_gate && gated(model.activation) ? 2 : 1;
}

std::int64_t ParameterPart::place(std::int64_t element) const {
  const std::int64_t row = element / columns_, column = element % columns_;
  switch (cut_) {
    case WeightCut::None:
      return element;
    case WeightCut::Rows: {
      const std::int64_t part = rows_ / halves_, half = row / part;
      return ((half * ranks_ + rank_) * part + row % part) * columns_ + column;
    }
    case WeightCut::Columns:
      return (row * ranks_ + rank_) * columns_ + column;
  }
  return element;
}

RankParameters::RankParameters(const JobOutline& job, const Coordinates& place) {
  if (job.runtime.eager) {
    for (const torch::Recording::State& state : job.runtime.framework->first_forward(job.lowering()).state) {
      if (!state.trained) continue;
      const std::int64_t columns = state.sizes.size() > 1 ? state.sizes.back() : 1, rows = state.sizes.front();
      const std::int64_t shards = job.runtime.eager->fully_shard ? job.scenario.layout.shards() : 1;
      const std::int64_t first = pytorch::rows_of_shard(rows, shards, place.data % shards).begin;
      add(fmt::format("{}.{}", state.name, torch::trained_parameter),
          {state.name, elements_of(state.sizes) / columns, columns, first * (elements_of(state.sizes) / rows)});
    }
    return;
  }
  const Sizes sizes = sizes_of(job.scenario.model, job.scenario.layout, job.scenario.train, job.runtime);
  const Model& model = job.scenario.model;
  const Layout& layout = job.scenario.layout;
  const std::int64_t experts = model.experts ? model.experts->count / layout.expert : 0;
  const PlaceOfExperts of_experts{first_expert(model, layout, place),
                                  expert_mesh(layout).coordinate(rank_at(layout, place), axis::etp)};
  for (const Parameter& parameter : job.built.parameters)
    if (parameter.expert < experts) add(parameter.name, {parameter, model, sizes, place.tensor, of_experts});
}

void RankParameters::add(std::string label, ParameterPart part) {
  const auto [added, is_new] = by_label_.emplace(std::move(label), std::move(part));
  ensure(is_new, "no two parameters have one name");
  by_name_.emplace(added->second.name(), &added->second);
}

const ParameterPart* RankParameters::labelled(std::string_view label) const {
  const auto known = by_label_.find(label);
  return known == by_label_.end() ? nullptr : &known->second;
}

const ParameterPart& RankParameters::named(const std::string& name) const { return *by_name_.at(name); }

std::int64_t routed_tokens(const Scenario& scenario) {
  const Layout& layout = scenario.layout;
  return scenario.train.tokens() / layout.context / (layout.sequence_parallel ? layout.tensor : 1);
}

std::vector<std::vector<std::int64_t>> choices_of(const Scenario& scenario) {
  const Model& model = scenario.model;
  if (!model.experts) return {};
  std::vector<std::vector<std::int64_t>> choices(static_cast<std::size_t>(model.layers + model.next_tokens));
  for (std::size_t layer = 0; layer < choices.size(); ++layer)
    if (model.has_experts(layer))
      choices[layer] = LayerRouting(*model.experts, scenario.train.routing, static_cast<std::int32_t>(layer),
                                    routed_tokens(scenario), scenario.layout.expert)
                           .choices();
  return choices;
}

}  // namespace tidemark::scenarios
