#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "parallel/frameworks/pytorch/fsdp/flat_parameter.hpp"
#include "parallel/frameworks/pytorch/fsdp/fully_shard.hpp"
#include "parallel/frameworks/pytorch/script.hpp"
#include "parallel/frameworks/pytorch/training.hpp"
#include "parallel/job/sizes.hpp"

// Which ranks do the same: those that hold as much of everything.

namespace tidemark::parallel::pytorch {
namespace {

/// What one rank holds, by count; ranks for which that is the same share a role.
using Holdings = std::vector<std::int64_t>;

/// The parameters of a model, unit by unit: of each layer, and of the rest; adapters of FSDP1 are units of their own.
std::vector<std::vector<Shape>> units_of(const LoweringInput& input) {
  const Model& model = input.built.model;
  const std::int64_t vocabulary = sizes_of(model, input.layout, input.train, input.runtime).vocabulary;
  std::vector<CausalLM::Range> layers;
  std::vector<bool> apart;
  const std::vector<Shape> all = parameter_shapes(input, [&](Session& session, const MakeParameter& make) {
    const CausalLM made(session, model, vocabulary, input.train, *input.runtime.eager, input.train.precision, make);
    for (std::size_t layer = 0; layer < made.layers(); ++layer) layers.push_back(made.parameters_of_layer(layer));
    for (const std::shared_ptr<Leaf>& p : made.parameters())
      apart.push_back(input.train.adapter && input.runtime.eager->flat && p->trained());
  });
  std::vector<std::vector<Shape>> units(1), of_adapters;
  std::size_t next = 0;
  const auto take = [&](std::vector<Shape>& unit) {
    if (apart[next])
      of_adapters.push_back({all[next]});
    else
      unit.push_back(all[next]);
    ++next;
  };
  for (const CausalLM::Range& layer : layers) {
    while (next < layer.begin) take(units.front());
    units.emplace_back();
    while (next < layer.end) take(units.back());
  }
  while (next < all.size()) take(units.front());
  units.insert(units.end(), of_adapters.begin(), of_adapters.end());
  return units;
}

/// Rows of each parameter, of which there are as many as in others once.
std::vector<Holdings> rows_of_ranks(const std::vector<std::vector<Shape>>& units, std::int64_t ranks) {
  std::set<std::int64_t> rows;
  for (const std::vector<Shape>& unit : units)
    for (const Shape& sizes : unit) rows.insert(sizes.front());
  std::vector<Holdings> held(static_cast<std::size_t>(ranks));
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    for (const std::int64_t all : rows)
      held[static_cast<std::size_t>(rank)].push_back(rows_of_shard(all, ranks, rank).rows);
  return held;
}

/// Elements of each part of flat parameters, where the optimizer sees parameters; else of flat ones that are no
/// padding.
std::vector<Holdings> elements_of_ranks(const std::vector<std::vector<Shape>>& units,
                                        const FlatParameterBehavior& behavior, const ShardMesh& mesh) {
  std::set<std::vector<std::int64_t>> unlike;
  for (const std::vector<Shape>& unit : units) {
    std::vector<std::int64_t> elements;
    for (const Shape& sizes : unit) elements.push_back(elements_of(sizes));
    unlike.insert(std::move(elements));
  }
  std::vector<Holdings> held(static_cast<std::size_t>(mesh.ranks));
  for (const std::vector<std::int64_t>& unit : unlike) {
    const FlatLayout layout = flat_layout(behavior, unit, behavior.param_dtype, mesh);
    for (std::int64_t rank = 0; rank < mesh.ranks; ++rank) {
      std::int64_t all = 0;
      for (const FlatLayout::Part& part : layout.parts()) {
        const std::int64_t its = layout.in_shard(part, rank).elements;
        all += its;
        if (behavior.original_parameters) held[static_cast<std::size_t>(rank)].push_back(its);
      }
      held[static_cast<std::size_t>(rank)].push_back(all);
    }
  }
  return held;
}

std::vector<Holdings> held_by_ranks(const LoweringInput& input) {
  const EagerBehavior& behavior = *input.runtime.eager;
  const std::optional<ShardMesh> mesh = shard_mesh(input, {}, {});
  if (!mesh) return {{}};
  return behavior.flat ? elements_of_ranks(units_of(input), *behavior.flat, *mesh)
                       : rows_of_ranks(units_of(input), mesh->ranks);
}

}  // namespace

std::optional<ShardMesh> shard_mesh(const LoweringInput& input, const Communicators& groups, const Coordinates& place) {
  const EagerBehavior& behavior = *input.runtime.eager;
  if (!behavior.fully_shard && !behavior.flat) return std::nullopt;
  const std::int32_t ranks = input.layout.shards(), data = input.layout.data;
  if (behavior.flat && behavior.flat->whole) return ShardMesh{{}, groups.data, 1, 0, data};
  const std::int64_t few = behavior.fully_shard ? behavior.fully_shard->ranks_after_forward : 0;
  return ShardMesh{groups.shard,
                   groups.replicate,
                   ranks,
                   place.data % ranks,
                   data / ranks,
                   groups.secondary,
                   std::max<std::int64_t>(few, 1)};
}

std::vector<Role> roles(const LoweringInput& input) {
  const std::vector<Holdings> held = held_by_ranks(input);
  return roles_by(input.layout,
                  [&](const Coordinates& place) { return held[static_cast<std::size_t>(place.data) % held.size()]; });
}

}  // namespace tidemark::parallel::pytorch
