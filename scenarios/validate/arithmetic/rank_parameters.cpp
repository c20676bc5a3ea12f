#include "scenarios/validate/arithmetic/rank_parameters.hpp"

#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/deepspeed/partitioned_parameters.hpp"
#include "parallel/frameworks/pytorch/fsdp/fully_shard.hpp"
#include "parallel/job/framework.hpp"
#include "parallel/torch/session.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {

ParameterPart::ParameterPart(const Parameter& parameter, const Model& model, const Sizes& sizes,
                             std::int32_t tensor_rank, PlaceOfExperts experts)
    : name_(name_in_model(parameter, experts.first)),
      matrix_(parameter.matrix()),
      cut_(parameter.cut),
      rank_(parameter.of_expert() ? experts.tensor_rank : tensor_rank),
      ranks_(sizes.parts_of(parameter)),
      rows_(sizes.rows(parameter)),
      columns_(sizes.columns(parameter)) {
  const bool of_gate = name_.ends_with(".fc1.weight") || name_.ends_with(".fc1.bias");
  const std::int64_t halves = of_gate && gated(model.activation) ? 2 : 1;
  for (std::int64_t i = 0; i < halves && parameter.joined.empty(); ++i) joined_.push_back(rows_ / halves);
  for (const std::int64_t rows : parameter.joined) joined_.push_back(rows / ranks_);
}

std::int64_t ParameterPart::place(std::int64_t element) const {
  const std::int64_t row = element / columns_, column = element % columns_;
  switch (cut_) {
    case WeightCut::None:
      return element;
    case WeightCut::Rows: {
      std::int64_t before = 0;  // rows of this rank in the weights before
      std::size_t its = 0;
      while (row >= before + joined_[its]) before += joined_[its++];
      return (before * ranks_ + rank_ * joined_[its] + row - before) * columns_ + column;
    }
    case WeightCut::Columns:
      return (row * ranks_ + rank_) * columns_ + column;
  }
  return element;
}

namespace {

// Of a rank's share of so many experts, which is cut over those that hold the same.
std::int64_t first_of_experts(const Layout& layout, const Coordinates& place, std::int64_t experts) {
  const Mesh mesh = expert_mesh(layout);
  const Rank rank = rank_at(layout, place);
  const std::int64_t held = experts / layout.expert, shards = layout.experts_data() / layout.instances();
  return held * mesh.coordinate(rank, axis::ep) +
         pytorch::rows_of_shard(held, shards, mesh.coordinate(rank, axis::edp) % shards).begin;
}

}  // namespace

RankParameters::RankParameters(const Job& job, const Coordinates& place) {
  if (job.runtime.eager) {
    std::int64_t flat = 0;
    for (const torch::Recording::State& state : job.runtime.framework->first_forward(job.lowering()).state) {
      if (!state.trained) continue;
      const std::int64_t columns = state.sizes.size() > 1 ? state.sizes.back() : 1, rows = state.sizes.front();
      const std::int64_t elements = elements_of(state.sizes);
      std::int64_t first = 0;
      const std::string label = fmt::format("{}.{}", state.name, torch::trained_parameter);
      if (job.runtime.eager->fully_shard && job.scenario.layout.sharding != Sharding::None) {
        const Layout& layout = job.scenario.layout;
        const std::int64_t shards = std::int64_t{layout.shards()} * layout.context;
        const bool routed = layout.expert > 1 && state.name.find(".moe.experts.") != std::string::npos;
        first = (routed ? first_of_experts(layout, place, rows)
                        : pytorch::rows_of_shard(rows, shards, shard_of(layout, place)).begin) *
                (elements / rows);
      } else if (job.runtime.eager->zero && job.scenario.layout.sharding == Sharding::Zero3) {  // wherever that is
        const std::int64_t each = (elements + job.scenario.layout.data - 1) / job.scenario.layout.data;
        first = each * place.data;
        add(label, {state.name, elements / columns, columns, first});
        if (!flat_) flat_ = Flat{std::string(deepspeed::drawn_together), {}};
        flat_->begins.emplace(flat, &by_label_.at(label));
        flat += each;
        continue;
      }
      add(label, {state.name, elements / columns, columns, first});
    }
    return;
  }
  const Sizes sizes = sizes_of(job.scenario.model, job.scenario.layout, job.scenario.train, job.runtime);
  const Model& model = job.scenario.model;
  const Layout& layout = job.scenario.layout;
  const std::int64_t experts = model.experts() ? model.experts()->count / layout.expert : 0;
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

std::optional<RankParameters::Drawn> RankParameters::drawn(std::string_view label, std::int64_t element) const {
  if (flat_ && label == flat_->label) {
    const auto its = std::prev(flat_->begins.upper_bound(element));
    return Drawn{its->second, its->second->drawn_from() + element - its->first};
  }
  const auto known = by_label_.find(label);
  if (known == by_label_.end()) return std::nullopt;
  return Drawn{&known->second, known->second.drawn_from() + element};
}

const ParameterPart& RankParameters::named(const std::string& name) const { return *by_name_.at(name); }

std::int64_t routed_tokens(const Scenario& scenario) {
  const Layout& layout = scenario.layout;
  return scenario.train.tokens() / layout.context / (layout.sequence_parallel ? layout.tensor : 1);
}

std::vector<std::vector<std::int64_t>> choices_of(const Scenario& scenario) {
  const Model& model = scenario.model;
  if (!model.experts()) return {};
  std::vector<std::vector<std::int64_t>> choices;
  for (std::int32_t layer = 0; layer < model.all_layers(); ++layer) {
    choices.emplace_back();
    if (model.has_experts(layer))
      choices.back() =
          LayerRouting(model, scenario.train.routing, layer, routed_tokens(scenario), scenario.layout.expert).choices();
  }
  return choices;
}

std::optional<std::vector<std::vector<std::int64_t>>> top_k_experts_of(const Scenario& scenario) {
  std::vector<std::vector<std::int64_t>> all;
  for (const std::vector<std::int64_t>& choices : choices_of(scenario)) {
    all.emplace_back();
    if (choices.empty()) continue;
    std::optional<std::vector<std::int64_t>> its =
        top_k_experts(*scenario.model.experts(), choices, routed_tokens(scenario),
                      chosen_together(scenario.train.routing.dispatcher));
    if (!its) return std::nullopt;
    all.back() = std::move(*its);
  }
  return all;
}

}  // namespace tidemark::scenarios
