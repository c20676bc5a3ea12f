#include "parallel/mesh.hpp"

namespace tidemark {

Coordinates coordinates(const Layout& layout, Rank rank) {
  return {.tensor = rank.value % layout.tensor,
          .data = rank.value / layout.tensor % layout.data,
          .pipeline = rank.value / (layout.tensor * layout.data)};
}

Rank rank_at(const Layout& layout, const Coordinates& at) {
  return {at.tensor + layout.tensor * (at.data + layout.data * at.pipeline)};
}

Communicators communicators(const Layout& layout, bool tied_embeddings) {
  const GroupAxis tensor{layout.tensor, 1, 1};
  const GroupAxis data{layout.data, layout.tensor, 1};
  const GroupAxis pipeline{layout.pipeline, layout.tensor * layout.data, 1};
  const GroupAxis ends{2, pipeline.stride, layout.pipeline - 1};

  Communicators made;
  const auto add = [&](CommSlot& slot, const char* name, std::vector<GroupAxis> axes) {
    Communicator communicator{name, std::move(axes)};
    if (group_size(communicator) == 1) return;
    slot = {static_cast<std::int32_t>(made.table.size())};
    made.table.push_back(std::move(communicator));
  };
  add(made.world, "world", {GroupAxis{layout.world_size(), 1, 1}});
  add(made.tensor, "tensor", {tensor});
  add(made.data, "data", {data});
  // Megatron makes a group of its own for the sharded optimizer's statistics, though it holds the same ranks as world.
  if (layout.sharding == Sharding::None)
    add(made.norm, "model_parallel", {tensor, pipeline});
  else
    add(made.norm, "optimizer_instance", {GroupAxis{layout.world_size(), 1, 1}});
  add(made.pipeline, "pipeline", {pipeline});
  if (tied_embeddings && layout.pipeline > 1) add(made.embedding, "embedding", {ends});
  return made;
}

}  // namespace tidemark
