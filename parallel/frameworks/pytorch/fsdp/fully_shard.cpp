#include "parallel/frameworks/pytorch/fsdp/fully_shard.hpp"

#include <algorithm>
#include <numeric>
#include <ranges>
#include <span>
#include <utility>

#include "parallel/torch/operation.hpp"

namespace tidemark::parallel::pytorch {
namespace {

std::int64_t columns_of(const Shape& sizes) {
  return std::accumulate(sizes.begin() + 1, sizes.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

RowsOfShard rows_of_shard(std::int64_t rows, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t each = (rows + ranks - 1) / ranks, begin = std::min(rows, each * rank);
  return {begin, std::min(rows, begin + each) - begin, each};
}

std::shared_ptr<Leaf> FullyShard::made_on_meta(const std::string& name, const Shape& sizes, DType computed, Kept kept) {
  on_meta_.push_back({name, parameter_elsewhere(s_, sizes, computed), kept});
  return on_meta_.back().leaf;
}

RowsOfShard FullyShard::rows_of(const OnMeta& meta) const {
  const ShardMesh& mesh = meta.mesh != nullptr ? *meta.mesh : mesh_;
  return rows_of_shard(meta.leaf->value.sizes.front(), mesh.ranks, mesh.rank);
}

// Module.to_empty: the rank's rows alone.
ShardedParameter FullyShard::sharded(const OnMeta& meta) {
  const Session::Scope scope(s_, meta.name);
  const Shape& sizes = meta.leaf->value.sizes;
  const RowsOfShard its = rows_of(meta);
  const std::int64_t columns = columns_of(sizes);
  ShardedParameter made;
  made.name = meta.name + ".unsharded";
  made.unsharded = meta.leaf;
  made.partial = meta.partial;
  made.widened = meta.widened;
  made.part_of_gradient = meta.part_of_gradient;
  made.trained = meta.leaf->trained();
  made.begin = meta.first + its.begin * columns;
  std::optional<OnHost> host;
  if (behavior_.offload) host.emplace(s_);
  if (its.rows == its.padded)
    made.padded = s_.empty({its.padded * columns}, meta.kept.dtype, trained_parameter, meta.kept.category);
  else if (its.rows > 0)
    made.padded = s_.empty({its.rows * columns}, meta.kept.dtype, "local", Category::Temporaries);
  Tensor value = made.padded.detached();  // there may be nothing in it
  value.sizes = with_size(sizes, 0, its.rows);
  value.strides = contiguous_strides(value.sizes);
  value.dtype = meta.kept.dtype;
  if (its.rows == its.padded) s_.launch(Operation::Initialize, {}, {value});
  made.sharded = leaf(s_, value);
  made.sharded->parameter = true;
  if (!made.trained) made.sharded->freeze();
  return made;
}

// Into memory of as many rows as every rank has. What was made before has no values yet.
void FullyShard::pad(ShardedParameter& parameter, const OnMeta& meta) {
  const Session::Scope scope(s_, meta.name);
  const RowsOfShard its = rows_of(meta);
  const std::int64_t columns = columns_of(meta.leaf->value.sizes);
  std::optional<OnHost> host;
  if (behavior_.offload) host.emplace(s_);
  const Tensor local = std::exchange(
      parameter.padded, s_.empty({its.padded * columns}, meta.kept.dtype, trained_parameter, meta.kept.category));
  Tensor& value = parameter.sharded->value;
  value.storage = parameter.padded.storage;
  if (its.rows > 0) s_.launch(Operation::Initialize, {}, {value});
  s_.launch({Operation::Fill, {0}}, {},
            {narrowed(parameter.padded, 0, its.rows * columns, (its.padded - its.rows) * columns)});
}

void FullyShard::pin(ShardedParameter& parameter) {
  const Session::Scope scope(s_, parameter.name.substr(0, parameter.name.rfind('.')));
  const OnHost host(s_, MemorySpace::Pinned);
  const Tensor pinned =
      s_.empty(parameter.padded.sizes, parameter.padded.dtype, trained_parameter, Category::Parameters);
  s_.launch(Operation::Copy, {parameter.padded}, {pinned});
  parameter.padded = pinned;
  parameter.sharded->value.storage = pinned.storage;
}

// FSDPModule._apply: modules within come first.
std::vector<UnitParameters*> FullyShard::shard(const std::vector<ShardUnit>& units) {
  std::vector<ShardedParameter> all;
  // reset_sharded_param, once all of a module's parameters are there.
  const auto reset = [&](const ShardUnit& unit) {
    for (const std::size_t place : unit.parameters) {
      const RowsOfShard rows = rows_of(on_meta_[place]);
      if (rows.rows < rows.padded) pad(all[place], on_meta_[place]);
      if (behavior_.offload == MemorySpace::Pinned) pin(all[place]);
    }
  };
  for (const OnMeta& meta : on_meta_) {
    all.push_back(sharded(meta));
    for (const ShardUnit& unit : std::span(units).subspan(1))
      if (unit.parameters.back() + 1 == all.size()) reset(unit);
  }
  reset(units.front());
  std::vector<UnitParameters*> made;
  for (const ShardUnit& unit : units) {
    std::vector<ShardedParameter> its;
    for (const std::size_t place : unit.parameters) its.push_back(std::move(all[place]));
    const ShardMesh* const other = unit.parameters.empty() ? nullptr : on_meta_[unit.parameters.front()].mesh;
    groups_.push_back(std::make_unique<UnitParameters>(s_, other != nullptr ? *other : mesh_, behavior_, comms_,
                                                       unit.name, unit.after_forward, std::move(its)));
    made.push_back(groups_.back().get());
  }
  return made;
}

void FullyShard::root_pre_forward() { (void)groups_.front()->pre_forward({}); }

Tensor FullyShard::root_post_forward(const Tensor& output) { return groups_.front()->post_forward(output); }

void FullyShard::finish_backward() {
  for (const auto& group : groups_) {
    if (group->misses_backward()) group->post_backward();
    group->be_idle();
  }
  if (!comms_.reduces_gradients) return comms_.release_all_gather_output(s_);
  end_iteration();
}

// _end_backward_iteration.
void FullyShard::end_iteration() {
  for (const StreamId stream : {comms_.reduce_scatter, comms_.all_reduce})
    if (stream == comms_.reduce_scatter || mesh_.replicas > 1) s_.process.join(s_.process.record(stream));
  for (const auto& group : groups_) group->finalize_backward();
  comms_.release_all_gather_output(s_);
  comms_.post_forward_order.clear();
  comms_.release_reduce_scatter_inputs(s_);
}

// FSDPState.finalize_backward.
void FullyShard::start_gradient_reduction(bool root_last) {
  comms_.reduces_gradients = comms_.reshards_after_backward = true;
  const auto finalize = [](UnitParameters& group) {
    group.post_backward();
    group.be_idle();
  };
  if (root_last)
    for (const auto& group : std::views::reverse(groups_)) finalize(*group);
  else
    for (const auto& group : groups_) finalize(*group);
}

void FullyShard::begin_unshard() {
  for (const auto& group : groups_) group->begin_unshard();
}

void FullyShard::end_unshard() {
  for (const auto& group : groups_) group->end_unshard();
}

void FullyShard::reshard() {
  for (const auto& group : groups_) group->reshard();
}

// The next reduction's stream waits for what the compute stream was given until then; said here, where the memory
// goes.
void FullyShard::before_zero_grad() {
  if (behavior_.offload) return;
  const StreamId made_on = mesh_.replicas > 1 ? comms_.all_reduce : comms_.reduce_scatter;
  s_.process.wait(made_on, s_.process.record(Process::compute_stream));
  if (made_on != comms_.reduce_scatter) s_.process.wait(comms_.reduce_scatter, s_.process.record(made_on));
}

Parameters FullyShard::parameters() const {
  Parameters all;
  for (const ShardedParameter* p : shards()) all.push_back(p->sharded);
  return all;
}

std::vector<const ShardedParameter*> FullyShard::shards() const {
  std::vector<const ShardedParameter*> all;
  for (const OnMeta& meta : on_meta_)
    for (const auto& group : groups_)
      for (const ShardedParameter& p : group->parameters())
        if (p.unsharded == meta.leaf && p.trained && p.sharded->value.elements() > 0) all.push_back(&p);
  return all;
}

}  // namespace tidemark::parallel::pytorch
