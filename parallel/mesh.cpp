#include "parallel/mesh.hpp"

#include <utility>
#include <vector>

namespace tidemark::parallel {

namespace {

GroupAxis group_axis(const Layout& layout, MeshAxis axis) {
  std::int32_t stride = 1;
  for (const MeshAxis inner : layout.order) {
    if (inner == axis) break;
    stride *= layout.degree(inner);
  }
  return {layout.degree(axis), stride, 1};
}

}  // namespace

Coordinates coordinates(const Layout& layout, Rank rank) {
  return {.tensor = group_axis(layout, MeshAxis::Tensor).coordinate(rank),
          .data = group_axis(layout, MeshAxis::Data).coordinate(rank),
          .pipeline = group_axis(layout, MeshAxis::Pipeline).coordinate(rank)};
}

Rank rank_at(const Layout& layout, const Coordinates& at) {
  return {at.tensor * group_axis(layout, MeshAxis::Tensor).stride +
          at.data * group_axis(layout, MeshAxis::Data).stride +
          at.pipeline * group_axis(layout, MeshAxis::Pipeline).stride};
}

Communicators communicators(const Layout& layout, bool tied_embeddings, Alone alone) {
  const GroupAxis tensor = group_axis(layout, MeshAxis::Tensor);
  const GroupAxis data = group_axis(layout, MeshAxis::Data);
  const GroupAxis pipeline = group_axis(layout, MeshAxis::Pipeline);
  const GroupAxis ends{2, pipeline.stride, layout.pipeline - 1};

  Communicators made;
  std::vector<std::pair<CommSlot*, Communicator>> of_one;
  const auto append = [&](CommSlot& slot, Communicator communicator) {
    slot = {static_cast<std::int32_t>(made.table.size())};
    made.table.push_back(std::move(communicator));
  };
  const auto add = [&](CommSlot& slot, const char* name, std::vector<GroupAxis> axes) {
    Communicator communicator{name, std::move(axes), MessageRoute::Group};
    if (group_size(communicator) > 1)
      append(slot, std::move(communicator));
    else if (alone == Alone::Calls && &slot != &made.pipeline)  // nobody sends to itself
      of_one.emplace_back(&slot, std::move(communicator));
  };
  add(made.world, "world", {GroupAxis{layout.world_size(), 1, 1}});
  add(made.tensor, "tensor", {tensor});
  add(made.data, "data", {data});
  // Megatron makes a group of its own for the sharded optimizer's statistics, though it holds the same ranks as world.
  if (layout.sharding != Sharding::None) add(made.norm, "optimizer_instance", {GroupAxis{layout.world_size(), 1, 1}});
  add(made.model, "model_parallel",
      tensor.stride < pipeline.stride ? std::vector{tensor, pipeline} : std::vector{pipeline, tensor});
  add(made.pipeline, "pipeline", {pipeline});
  // Interleaved stages hand over by single sends and receives, which overlap with passes (overlap_p2p_comm).
  if (made.pipeline.valid() && layout.schedule == ScheduleKind::Interleaved)
    made.table[made.pipeline.index()].messages = MessageRoute::Pairs;
  if (tied_embeddings && layout.pipeline > 1) add(made.embedding, "embedding", {ends});
  for (auto& [slot, communicator] : of_one) append(*slot, std::move(communicator));
  if (layout.sharding == Sharding::None) made.norm = made.model;
  return made;
}

}  // namespace tidemark::parallel
