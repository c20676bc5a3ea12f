#include "parallel/frameworks/pytorch/fully_sharded_layers.hpp"

#include <cstddef>

namespace tidemark::parallel::pytorch {

void FullyShardedLayers::shard(CausalLM& model) {
  const AfterForward after = habits_.reshards_after_forward ? AfterForward::Reshards : AfterForward::Keeps;
  shards_.number_as(model.parameters());
  std::vector<ShardUnit> units{{"root", after, {}}};
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
  for (std::size_t layer = 0; layer < model.layers(); ++layer) {
    UnitParameters* const its = made[layer + 1];
    model.hook_layer(layer, {[its](const Tensor& input) { return its->pre_forward(input); },
                             [its](const Tensor& output) { return its->post_forward(output); }, its->computed()});
  }
}

std::vector<ShardPiece> FullyShardedLayers::pieces() const {
  std::vector<ShardPiece> all;
  for (const ShardedParameter* p : shards_.shards())
    all.push_back({s_.parameter_name(p->padded), p->sharded->value, p->sharded->gradient, p->begin});
  return all;
}

}  // namespace tidemark::parallel::pytorch
