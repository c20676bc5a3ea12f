#include "parallel/job/mesh.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel {

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {
  for (std::size_t i = 0; i < axes_.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) ensure(axes_[i].name != axes_[j].name, "the axes of a mesh differ in name");
}

std::int32_t Mesh::size() const {
  std::int32_t size = 1;
  for (const Axis& axis : axes_) size *= axis.size;
  return size;
}

GroupAxis Mesh::along(std::string_view name) const {
  std::int32_t stride = 1;
  for (const Axis& axis : axes_) {
    if (axis.name == name) return {axis.size, stride, 1};
    stride *= axis.size;
  }
  ensure(false, "an axis that is asked for is one of the mesh");
  return {};
}

std::vector<GroupAxis> Mesh::along(std::initializer_list<std::string_view> names) const {
  std::vector<GroupAxis> group;
  for (const Axis& axis : axes_)
    if (std::ranges::find(names, axis.name) != names.end()) group.push_back(along(axis.name));
  ensure(group.size() == names.size(), "each axis of a group is one of the mesh, and named once");
  return group;
}

Rank Mesh::rank_at(std::initializer_list<Place> places) const {
  Rank rank{0};
  for (const auto& [name, coordinate] : places) rank.value += coordinate * along(name).stride;
  return rank;
}

Mesh dense_mesh(const Layout& layout) {
  std::vector<Mesh::Axis> axes;
  for (const MeshAxis named : layout.order) {
    switch (named) {
      case MeshAxis::Tensor:
        axes.push_back({axis::tp, layout.tensor});
        break;
      case MeshAxis::Context:
        axes.push_back({axis::cp, layout.context});
        break;
      case MeshAxis::Expert:
        break;
      case MeshAxis::Data:
        axes.push_back({axis::dp, layout.data});
        break;
      case MeshAxis::Pipeline:
        axes.push_back({axis::pp, layout.pipeline});
        break;
    }
  }
  return Mesh(std::move(axes));
}

Mesh expert_mesh(const Layout& layout) {
  std::vector<Mesh::Axis> axes;
  for (const MeshAxis named : layout.order) {
    switch (named) {
      case MeshAxis::Tensor:
        axes.push_back({axis::etp, layout.expert_tensor_parallel()});
        break;
      case MeshAxis::Context:
        break;
      case MeshAxis::Expert:
        axes.push_back({axis::ep, layout.expert});
        break;
      case MeshAxis::Data:
        axes.push_back({axis::edp, layout.experts_data()});
        break;
      case MeshAxis::Pipeline:
        axes.push_back({axis::pp, layout.pipeline});
        break;
    }
  }
  return Mesh(std::move(axes));
}

Coordinates coordinates(const Layout& layout, Rank rank) {
  const Mesh mesh = dense_mesh(layout);
  return {.tensor = mesh.coordinate(rank, axis::tp),
          .context = mesh.coordinate(rank, axis::cp),
          .data = mesh.coordinate(rank, axis::dp),
          .pipeline = mesh.coordinate(rank, axis::pp)};
}

Rank rank_at(const Layout& layout, const Coordinates& at) {
  return dense_mesh(layout).rank_at(
      {{axis::tp, at.tensor}, {axis::cp, at.context}, {axis::dp, at.data}, {axis::pp, at.pipeline}});
}

std::int32_t replica(const Layout& layout, const Coordinates& at) {
  const Mesh mesh = dense_mesh(layout);
  const bool context_first = mesh.along({axis::cp, axis::dp}).front() == mesh.along(axis::cp);
  return context_first ? at.context + layout.context * at.data : at.data + layout.data * at.context;
}

std::int32_t shard_of(const Layout& layout, const Coordinates& at) {
  return replica(layout, {.context = at.context, .data = at.data % layout.shards()});
}

std::int32_t attention_place(const Layout& layout, std::int32_t context) { return context / layout.ulysses(); }

Communicators communicators(const Layout& layout, SharedParts model, Alone alone, MessageRoute ring) {
  const Mesh mesh = dense_mesh(layout), expert = expert_mesh(layout);
  const GroupAxis pipeline = mesh.along(axis::pp);
  ensure(pipeline.size == 1 || pipeline == expert.along(axis::pp), "experts cut the ranks of a stage, and of no other");
  const GroupAxis all{mesh.size(), 1, 1};
  const StagePlacement placement = layout.placement();
  const std::int32_t first = placement.place_of(0).rank, last = placement.place_of(placement.stages() - 1).rank;
  const GroupAxis ends{2, pipeline.stride, last - first};

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
  add(made.world, "world", {all});
  add(made.tensor, "tensor", mesh.along({axis::tp}));
  if (model.user_buffers && layout.tensor > 1) {
    // transformer_engine/pytorch/module/base.py initialize_ub
    add(made.user_buffers_world, "user_buffers_world", {all});
    if (layout.tensor < mesh.size()) add(made.user_buffers_domain, "user_buffers_domain", mesh.along({axis::tp}));
    add(made.user_buffers, "user_buffers", mesh.along({axis::tp}));
    made.table[made.user_buffers.index()].messages = MessageRoute::CopyEngines;
  }
  const bool context_parallel = layout.context > 1;
  add(made.data, "data", context_parallel ? mesh.along({axis::cp, axis::dp}) : mesh.along({axis::dp}));
  const std::int32_t instances = layout.instances();
  // Of the ranks along those axes, those of one instance.
  const auto within = [&](std::vector<GroupAxis> axes, const GroupAxis& data) {
    for (GroupAxis& its : axes)
      if (its == data) its.size /= instances;
    return axes;
  };
  const GroupAxis data = mesh.along(axis::dp);
  // Megatron makes a group of its own for the sharded optimizer's statistics, even if it holds the same ranks as world.
  if (layout.sharding == Sharding::Zero1) {
    const bool one = instances == 1;
    add(made.norm, "optimizer_instance",
        one ? std::vector{all} : within(mesh.along({axis::tp, axis::cp, axis::dp, axis::pp}), data));
    if (!one) add(made.shard, "shard", within(mesh.along({axis::cp, axis::dp}), data));
  }
  if (layout.sharding == Sharding::Zero2 || layout.sharding == Sharding::Zero3) {
    add(made.shard, "shard", within(context_parallel ? mesh.along({axis::cp, axis::dp}) : std::vector{data}, data));
    if (context_parallel) add(made.batch, "batch", {data});
  }
  if (model.secondary_ranks > 1) add(made.secondary, "secondary", {{model.secondary_ranks, data.stride, 1}});
  if (instances > 1) add(made.replicate, "replicate", {{instances, data.stride * layout.shards(), 1}});
  add(made.model, "model_parallel", mesh.along({axis::tp, axis::pp}));
  add(made.pipeline, "pipeline", {pipeline});
  // Interleaved stages hand over by single sends and receives, which overlap with passes (overlap_p2p_comm); and so do
  // all schedules of several stages that are PyTorch's own.
  if (made.pipeline.valid() && traits_of(layout.schedule).p2p != P2pMode::Batched)
    made.table[made.pipeline.index()].messages = MessageRoute::Pairs;
  // Next to each other along the axis are the ranks that each have a part of the heads (core/parallel_state.py
  // create_hierarchical_groups).
  const GroupAxis context = mesh.along(axis::cp);
  const std::int32_t inner = layout.ulysses();
  if (inner > 1) add(made.heads, "context_heads", {{inner, context.stride, 1}});
  if (layout.context > inner) add(made.context, "context", {{layout.context / inner, context.stride * inner, 1}});
  if (made.context.valid() && layout.context_kind != ContextKind::AllGather)
    made.table[made.context.index()].messages = ring;
  // By single sends and receives, for which PyTorch makes communicators of two: those of the ring, where that is all of
  // the group's and hands over so.
  if (model.further_tokens && layout.context > 1) {
    if (inner == 1 && made.table[made.context.index()].messages == MessageRoute::Pairs) {
      made.neighbours = made.context;
    } else {
      add(made.neighbours, "context_neighbours", {context});
      made.table[made.neighbours.index()].messages = MessageRoute::Pairs;
    }
  }
  if (model.embedding_at_both_ends && first != last) add(made.embedding, "embedding", {ends});
  if (model.experts) {
    add(made.tensor_context, "tensor_context", mesh.along({axis::tp, axis::cp}));
    add(made.expert, "expert", expert.along({axis::ep}));
    add(made.expert_tensor, "expert_tensor", expert.along({axis::etp}));
    add(made.expert_model, "expert_model", expert.along({axis::etp, axis::ep}));
    if (model.token_buffers) add(made.token_buffers, "deep_ep", expert.along({axis::etp, axis::ep}));
    add(made.expert_data, "expert_data", expert.along({axis::edp}));
    if (layout.sharding != Sharding::None && instances > 1)
      add(made.expert_shard, "expert_shard", within(expert.along({axis::edp}), expert.along(axis::edp)));
    if (model.counts_together) add(made.same_stage, "tensor_data_context", mesh.along({axis::tp, axis::cp, axis::dp}));
    if (layout.sharding == Sharding::None)
      add(made.expert_norm, "expert_model_parallel", expert.along({axis::etp, axis::ep, axis::pp}));
  }
  for (auto& [slot, communicator] : of_one) append(*slot, std::move(communicator));
  if (layout.sharding == Sharding::Zero1)
    made.expert_norm = made.norm;
  else
    made.norm = made.model;
  return made;
}

}  // namespace tidemark::parallel
