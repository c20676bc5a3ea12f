#include "scenarios/report/model_layers.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "parallel/job/built_model.hpp"

namespace tidemark::scenarios {
namespace {

using parallel::Layer;
using parallel::LayerKind;
using parallel::LayerList;

// "0-2, 5": the layers of a kind.
std::string places_of(LayerKind kind, const LayerList& layers) {
  std::string places;
  for (std::int64_t i = 0; i < layers.size(); ++i) {
    if (layers.kind(i) != kind) continue;
    const std::int64_t first = i;
    while (i + 1 < layers.size() && layers.kind(i + 1) == kind) ++i;
    places += fmt::format("{}{}", places.empty() ? "" : ", ", first);
    if (i > first) places += fmt::format("-{}", i);
  }
  return places;
}

}  // namespace

std::string layers_text(const Model& model) {
  const parallel::BuiltModel built = parallel::build_model(model, {});
  std::int64_t before = 0, after = 0;
  std::vector<std::int64_t> by_layer(static_cast<std::size_t>(model.layers.size()));
  for (const parallel::Parameter& p : built.parameters) {
    if (p.spare) continue;
    (p.layer < 0                     ? before
     : p.layer < model.layers.size() ? by_layer[static_cast<std::size_t>(p.layer)]
                                     : after) += p.elements();
  }
  std::string text = fmt::format("  embedding: {} parameters\n", before);
  const std::span<const LayerKind> order = model.layers.order();
  for (LayerKind kind = 0; kind < std::ssize(model.layers.kinds()); ++kind) {
    const Layer& layer = model.layers.kinds()[static_cast<std::size_t>(kind)];
    const auto first = static_cast<std::size_t>(std::ranges::find(order, kind) - order.begin());
    const std::string places = places_of(kind, model.layers);
    const bool several = std::ranges::count(order, kind) > 1;
    text +=
        fmt::format("  layer{} {}: {}; {}: {} parameters{}\n", several ? "s" : "", places, text_of(layer.mixer, model),
                    text_of(layer.mlp, model), by_layer[first], several ? " each" : "");
  }
  std::int64_t further = after;
  Model shorter = model;
  shorter.further = {};
  std::int64_t known = parallel::parameter_count(parallel::build_model(shorter, {}));
  for (std::int64_t i = 0; i < model.further.size(); ++i) {
    shorter.further.append(1, model.further[i]);
    const std::int64_t with = parallel::parameter_count(parallel::build_model(shorter, {}));
    text += fmt::format(
        "  next token {}: {}; {}: {} parameters including the projection that joins two vectors per token\n", i + 1,
        text_of(model.further[i].mixer, model), text_of(model.further[i].mlp, model), with - known);
    further -= with - known;
    known = with;
  }
  return text + fmt::format("  norm and head: {} parameters{}\n", further,
                            model.tied_embeddings ? ", the head's weight being the embedding's" : "");
}

}  // namespace tidemark::scenarios
