#pragma once

#include "parallel/model/model.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {

/// Gives each layer this mixer or MLP.
inline void set_mixer(Model& model, const parallel::Mixer& mixer) {
  const auto set = [&](parallel::Layer& layer) { layer.mixer = mixer; };
  model.layers.change_each(set);
  model.further.change_each(set);
}
inline void set_mlp(Model& model, const parallel::FeedForward& mlp) {
  const auto set = [&](parallel::Layer& layer) { layer.mlp = mlp; };
  model.layers.change_each(set);
  model.further.change_each(set);
}

}  // namespace tidemark::tests
