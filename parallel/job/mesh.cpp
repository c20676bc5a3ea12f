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

namespace {

// Makes a job's groups of ranks, in the order in which frameworks do; those of one rank come last.
class GroupsOfJob {
 public:
  GroupsOfJob(const Layout& layout, const SharedParts& model, Alone alone)
      : layout_(layout), model_(model), alone_(alone) {
    ensure(pipeline_.size == 1 || pipeline_ == expert_.along(axis::pp),
           "experts cut the ranks of a stage, and of no other");
  }

  void add_tensor();
  void add_data();
  void add_pipeline();
  void add_context(MessageRoute ring);
  void add_context_neighbours();
  void add_embedding();
  void add_experts();

  Communicators made() && {
    for (auto& [slot, communicator] : of_one_rank_) append(*slot, std::move(communicator));
    if (layout_.sharding == Sharding::Zero1)
      made_.expert_norm = made_.norm;
    else
      made_.norm = made_.model;
    return std::move(made_);
  }

 private:
  void append(CommSlot& slot, Communicator communicator) {
    slot = {static_cast<std::int32_t>(made_.table.size())};
    made_.table.push_back(std::move(communicator));
  }

  void add(CommSlot& slot, const char* name, std::vector<GroupAxis> axes) {
    Communicator communicator{name, std::move(axes), MessageRoute::Group};
    if (group_size(communicator) > 1)
      append(slot, std::move(communicator));
    else if (alone_ == Alone::Calls && &slot != &made_.pipeline)  // nobody sends to itself
      of_one_rank_.emplace_back(&slot, std::move(communicator));
  }

  // The ranks along those axes that belong to one instance of the optimizer.
  [[nodiscard]] std::vector<GroupAxis> within_instance(std::vector<GroupAxis> axes, const GroupAxis& data) const {
    for (GroupAxis& its : axes)
      if (its == data) its.size /= layout_.instances();
    return axes;
  }

  Communicator& of(CommSlot slot) { return made_.table[slot.index()]; }

  const Layout& layout_;
  const SharedParts& model_;
  Alone alone_;
  Mesh mesh_ = dense_mesh(layout_), expert_ = expert_mesh(layout_);
  GroupAxis all_{mesh_.size(), 1, 1}, pipeline_ = mesh_.along(axis::pp), data_ = mesh_.along(axis::dp),
                                      context_ = mesh_.along(axis::cp);
  Communicators made_;
  std::vector<std::pair<CommSlot*, Communicator>> of_one_rank_;
};

void GroupsOfJob::add_tensor() {
  add(made_.world, "world", {all_});
  add(made_.tensor, "tensor", mesh_.along({axis::tp}));
  if (!model_.user_buffers || layout_.tensor == 1) return;
  // transformer_engine/pytorch/module/base.py initialize_ub
  add(made_.user_buffers_world, "user_buffers_world", {all_});
  if (layout_.tensor < mesh_.size()) add(made_.user_buffers_domain, "user_buffers_domain", mesh_.along({axis::tp}));
  add(made_.user_buffers, "user_buffers", mesh_.along({axis::tp}));
  of(made_.user_buffers).messages = MessageRoute::CopyEngines;
}

void GroupsOfJob::add_data() {
  const bool context_parallel = layout_.context > 1;
  const std::int32_t instances = layout_.instances();
  add(made_.data, "data", context_parallel ? mesh_.along({axis::cp, axis::dp}) : mesh_.along({axis::dp}));
  // Megatron makes a group of its own for the sharded optimizer's statistics, even if it holds the same ranks as world.
  if (layout_.sharding == Sharding::Zero1) {
    const bool one = instances == 1;
    add(made_.norm, "optimizer_instance",
        one ? std::vector{all_} : within_instance(mesh_.along({axis::tp, axis::cp, axis::dp, axis::pp}), data_));
    if (!one) add(made_.shard, "shard", within_instance(mesh_.along({axis::cp, axis::dp}), data_));
  }
  if (layout_.sharding == Sharding::Zero2 || layout_.sharding == Sharding::Zero3) {
    add(made_.shard, "shard",
        within_instance(context_parallel ? mesh_.along({axis::cp, axis::dp}) : std::vector{data_}, data_));
    if (context_parallel) add(made_.batch, "batch", {data_});
  }
  if (model_.secondary_ranks > 1) add(made_.secondary, "secondary", {{model_.secondary_ranks, data_.stride, 1}});
  if (instances > 1) add(made_.replicate, "replicate", {{instances, data_.stride * layout_.shards(), 1}});
}

void GroupsOfJob::add_pipeline() {
  add(made_.model, "model_parallel", mesh_.along({axis::tp, axis::pp}));
  add(made_.pipeline, "pipeline", {pipeline_});
  // Interleaved stages hand over by single sends and receives, which overlap with passes (overlap_p2p_comm); and so do
  // all schedules of several stages that are PyTorch's own.
  if (made_.pipeline.valid() && traits_of(layout_.schedule).p2p != P2pMode::Batched)
    of(made_.pipeline).messages = MessageRoute::Pairs;
}

// Next to each other along the axis are the ranks that each have a part of the heads (core/parallel_state.py
// create_hierarchical_groups).
void GroupsOfJob::add_context(MessageRoute ring) {
  const std::int32_t inner = layout_.ulysses();
  if (inner > 1) add(made_.heads, "context_heads", {{inner, context_.stride, 1}});
  if (layout_.context > inner) add(made_.context, "context", {{layout_.context / inner, context_.stride * inner, 1}});
  if (made_.context.valid() && layout_.context_kind != ContextKind::AllGather) of(made_.context).messages = ring;
}

// Ranks that read tokens of the next one do so by single sends and receives, for which PyTorch makes communicators of
// two: those of the ring, where that is all of the group's and hands over so.
void GroupsOfJob::add_context_neighbours() {
  if (!model_.further_tokens || layout_.context == 1) return;
  if (layout_.ulysses() == 1 && of(made_.context).messages == MessageRoute::Pairs) {
    made_.neighbours = made_.context;
  } else {
    add(made_.neighbours, "context_neighbours", {context_});
    of(made_.neighbours).messages = MessageRoute::Pairs;
  }
}

void GroupsOfJob::add_embedding() {
  const StagePlacement placement = layout_.placement();
  const std::int32_t first = placement.place_of(0).rank, last = placement.place_of(placement.stages() - 1).rank;
  if (model_.embedding_at_both_ends && first != last)
    add(made_.embedding, "embedding", {{2, pipeline_.stride, last - first}});
}

void GroupsOfJob::add_experts() {
  if (!model_.experts) return;
  add(made_.tensor_context, "tensor_context", mesh_.along({axis::tp, axis::cp}));
  add(made_.expert, "expert", expert_.along({axis::ep}));
  add(made_.expert_tensor, "expert_tensor", expert_.along({axis::etp}));
  add(made_.expert_model, "expert_model", expert_.along({axis::etp, axis::ep}));
  if (model_.token_buffers) add(made_.token_buffers, "deep_ep", expert_.along({axis::etp, axis::ep}));
  add(made_.expert_data, "expert_data", expert_.along({axis::edp}));
  if (layout_.sharding != Sharding::None && layout_.instances() > 1)
    add(made_.expert_shard, "expert_shard", within_instance(expert_.along({axis::edp}), expert_.along(axis::edp)));
  if (model_.counts_together) add(made_.same_stage, "tensor_data_context", mesh_.along({axis::tp, axis::cp, axis::dp}));
  if (layout_.sharding == Sharding::None)
    add(made_.expert_norm, "expert_model_parallel", expert_.along({axis::etp, axis::ep, axis::pp}));
}

}  // namespace

Communicators communicators(const Layout& layout, SharedParts model, Alone alone, MessageRoute ring) {
  GroupsOfJob groups(layout, model, alone);
  groups.add_tensor();
  groups.add_data();
  groups.add_pipeline();
  groups.add_context(ring);
  groups.add_context_neighbours();
  groups.add_embedding();
  groups.add_experts();
  return std::move(groups).made();
}

}  // namespace tidemark::parallel
