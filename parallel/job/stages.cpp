#include "parallel/job/stages.hpp"

#include <numeric>

#include <fmt/format.h>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel {
namespace {

std::int32_t places_of(std::int32_t layers, const Layout& layout) {
  return layers + (layout.count_embedding ? 1 : 0) + (layout.count_loss ? 1 : 0);
}

// What a rank's chunks hold together, the embedding's and the loss's places included; negative where it cannot be.
// Megatron-LM core 0.14, transformer_block.py: get_num_layers_to_build.
std::int32_t places_of_rank(std::int32_t layers, const Layout& layout, std::int32_t pipeline) {
  if (layout.first_layers == 0 && layout.last_layers == 0) return places_of(layers, layout) / layout.pipeline;
  if (pipeline == 0 && layout.first_layers > 0) return layout.first_layers;
  if (pipeline == layout.pipeline - 1 && layout.last_layers > 0) return layout.last_layers;
  const std::int32_t others = layout.pipeline - (layout.first_layers > 0 ? 1 : 0) - (layout.last_layers > 0 ? 1 : 0);
  return (layers - layout.first_layers - layout.last_layers) / others;
}

}  // namespace

std::string wrong_with_stages(std::int32_t layers, const Layout& layout) {
  const bool own_ends = layout.first_layers > 0 || layout.last_layers > 0;
  if (!layout.stage_layers.empty()) {
    if (own_ends || layout.count_embedding || layout.count_loss)
      return "stage_layers says it all: leave first_stage_layers, last_stage_layers, count_embedding and count_loss "
             "out";
    if (static_cast<std::int32_t>(layout.stage_layers.size()) != layout.stages())
      return fmt::format("stage_layers names {} stages, and there are {}", layout.stage_layers.size(), layout.stages());
    const std::int32_t sum = std::accumulate(layout.stage_layers.begin(), layout.stage_layers.end(), 0);
    if (sum != layers) return fmt::format("stage_layers sums to {} layers, and the model has {}", sum, layers);
    for (std::size_t s = 1; s + 1 < layout.stage_layers.size(); ++s)
      if (layout.stage_layers[s] == 0)
        return fmt::format(
            "stage {} would hold nothing: only the first, with the embedding, and the last, with the loss, "
            "can do without layers",
            s);
    return {};
  }
  if (own_ends && (layout.count_embedding || layout.count_loss))
    return "count_embedding and count_loss do not go with first_stage_layers or last_stage_layers";
  if (own_ends && layout.pipeline == 1) return "one stage holds all layers";
  if (!own_ends && places_of(layers, layout) % layout.pipeline != 0)
    return fmt::format("{} layers{}{} do not divide into {} stages", layers,
                       layout.count_embedding ? " + 1 for the embedding" : "",
                       layout.count_loss ? " + 1 for the loss" : "", layout.pipeline);
  std::int32_t sum = 0;
  for (std::int32_t p = 0; p < layout.pipeline; ++p) {
    const std::int32_t its = places_of_rank(layers, layout, p);
    if (its < 0) return "the first and last stage hold more layers than there are";
    if (its % layout.chunks != 0)
      return fmt::format("{} layers of pipeline rank {} do not divide into {} chunks", its, p, layout.chunks);
    sum += its;
  }
  if (own_ends && sum != layers)
    return fmt::format("{} layers are left for {} stages", layers - layout.first_layers - layout.last_layers,
                       layout.pipeline - (layout.first_layers > 0 ? 1 : 0) - (layout.last_layers > 0 ? 1 : 0));
  if (layout.count_embedding && places_of_rank(layers, layout, 0) / layout.chunks < 1)
    return "the first stage has no place for the embedding";
  if (layout.count_loss && places_of_rank(layers, layout, layout.pipeline - 1) / layout.chunks < 1)
    return "the last stage has no place for the loss";
  return {};
}

std::vector<Stage> split_into_stages(std::int32_t layers, const Layout& layout) {
  ensure(wrong_with_stages(layers, layout).empty(), "layers divide into stages");
  const StagePlacement placement = layout.placement();
  std::vector<Stage> stages;
  std::int32_t next = 0;
  for (std::int32_t s = 0; s < layout.stages(); ++s) {
    Stage stage;
    stage.embedding = s == 0;
    stage.head = s == layout.stages() - 1;
    stage.first = next;
    if (!layout.stage_layers.empty())
      next += layout.stage_layers[static_cast<std::size_t>(s)];
    else
      next += places_of_rank(layers, layout, placement.place_of(s).rank) / (layout.stages() / layout.pipeline) -
              (stage.embedding && layout.count_embedding ? 1 : 0) - (stage.head && layout.count_loss ? 1 : 0);
    stage.last = next;
    stages.push_back(stage);
  }
  return stages;
}

std::vector<Stage> chunks_of_rank(std::int32_t layers, const Layout& layout, std::int32_t pipeline) {
  const std::vector<Stage> all = split_into_stages(layers, layout);
  std::vector<Stage> found;
  for (std::int32_t c = 0; c < layout.chunks; ++c)
    found.push_back(all[static_cast<std::size_t>(layout.placement().stage_of({pipeline, c}))]);
  return found;
}

}  // namespace tidemark::parallel
