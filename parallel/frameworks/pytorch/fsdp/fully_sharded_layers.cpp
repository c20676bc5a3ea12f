#include "parallel/frameworks/pytorch/fsdp/fully_sharded_layers.hpp"

#include <cstddef>
#include <span>
#include <utility>

namespace tidemark::parallel::pytorch {

void FullyShardedLayers::shard(CausalLM& model) {
  const AfterForward resharding =
      behavior_.ranks_after_forward > 0 ? AfterForward::ReshardsToFewer : AfterForward::Reshards;
  const AfterForward after = behavior_.reshards_after_forward ? resharding : AfterForward::Keeps;
  shards_.number_as(model.parameters());
  std::vector<ShardUnit> units{{"root", behavior_.keeps_root ? AfterForward::Keeps : after, {}}};
  std::size_t next = 0;
  const auto take = [&](ShardUnit& unit, std::size_t end) {
    while (next < end) unit.parameters.push_back(next++);
  };
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    const CausalLM::Range range = model.parameters_of_layer(layer);
    take(units.front(), range.begin);
    units.push_back({model.name_of_layer(layer), after, {}});
    take(units.back(), range.end);
  }
  take(units.front(), model.parameters().size());
  const std::vector<UnitParameters*> made = shards_.shard(units);
  prefetch(std::span(made).subspan(1));
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    UnitParameters* const its = made[layer + 1];
    model.hook_layer(layer, {[its](const Tensor& input) { return its->pre_forward(input); },
                             [its](const Tensor& output) { return its->post_forward(output); }, its->computed()});
  }
}

// As PyTorch's own example of explicit prefetching does it (examples/distributed/FSDP2/example.py): only layers before,
// or behind, which there are so many get a list.
void FullyShardedLayers::prefetch(std::span<UnitParameters* const> layers) const {
  const auto forward = static_cast<std::size_t>(behavior_.forward_prefetch),
             backward = static_cast<std::size_t>(behavior_.backward_prefetch);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    std::vector<UnitParameters*> next, before;
    if (layer + forward < layers.size())
      for (std::size_t ahead = 1; ahead <= forward; ++ahead) next.push_back(layers[layer + ahead]);
    if (layer >= backward)
      for (std::size_t ahead = 1; ahead <= backward; ++ahead) before.push_back(layers[layer - ahead]);
    layers[layer]->prefetch(std::move(next), std::move(before));
  }
}

std::vector<ShardPiece> FullyShardedLayers::pieces() const {
  std::vector<ShardPiece> all;
  for (const ShardedParameter* p : shards_.shards())
    all.push_back({s_.parameter_name(p->padded), p->sharded->value, p->sharded->gradient, p->begin});
  return all;
}

}  // namespace tidemark::parallel::pytorch
