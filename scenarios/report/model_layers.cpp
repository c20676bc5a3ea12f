#include "scenarios/report/model_layers.hpp"

#include <algorithm>
#include <span>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "parallel/job/built_model.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {
namespace {

using parallel::Attention;
using parallel::DenseMlp;
using parallel::Layer;
using parallel::LayerKind;
using parallel::LayerList;
using parallel::MultiLatentAttention;

std::string mixer_text(const Model& m, const Layer& layer) {
  return std::visit(sim::Overloaded{
                        [&](const Attention& its) {
                          std::string text = fmt::format("attention of {} heads of {}", m.heads, m.head_dim);
                          if (m.kv_heads < m.heads) text += fmt::format(", {} of keys and values", m.kv_heads);
                          if (its.window > 0) text += fmt::format(", which see {} keys", its.window);
                          return text;
                        },
                        [&](const MultiLatentAttention& its) {
                          const std::string queries = its.query_rank > 0 ? fmt::format("{} and ", its.query_rank) : "";
                          return fmt::format("latent attention of {} heads of {}, latents of {}{}", m.heads,
                                             its.query_head(), queries, its.kv_rank);
                        },
                    },
                    layer.mixer);
}

std::string mlp_text(const Model& m, const Layer& layer) {
  return std::visit(sim::Overloaded{
                        [&](const DenseMlp&) { return fmt::format("MLP of {}", m.ffn); },
                        [&](const Experts& its) {
                          const std::string shared =
                              its.shared_ffn > 0 ? fmt::format(", shared ones of {}", its.shared_ffn) : "";
                          return fmt::format("{} of {} experts of {}{}", its.chosen, its.count, its.ffn, shared);
                        },
                    },
                    layer.mlp);
}

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
    text += fmt::format("  layer{} {}: {}; {}: {} parameters{}\n", several ? "s" : "", places, mixer_text(model, layer),
                        mlp_text(model, layer), by_layer[first], several ? " each" : "");
  }
  std::int64_t further = after;
  Model shorter = model;
  shorter.further = {};
  std::int64_t known = parallel::parameter_count(parallel::build_model(shorter, {}));
  for (std::int64_t i = 0; i < model.further.size(); ++i) {
    shorter.further.append(1, model.further[i]);
    const std::int64_t with = parallel::parameter_count(parallel::build_model(shorter, {}));
    text += fmt::format("  next token {}: {}; {}: {} parameters with what joins two vectors of a token\n", i + 1,
                        mixer_text(model, model.further[i]), mlp_text(model, model.further[i]), with - known);
    further -= with - known;
    known = with;
  }
  return text + fmt::format("  norm and head: {} parameters{}\n", further,
                            model.tied_embeddings ? ", the head's weight being the embedding's" : "");
}

}  // namespace tidemark::scenarios
