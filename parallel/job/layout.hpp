#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "parallel/namespace.hpp"
#include "parallel/schedule/schedule_kind.hpp"

namespace tidemark::parallel {

/// What a layout's order names: axes of the meshes that a job has (mesh.hpp). Of two, experts have axes of their own in
/// these places.
enum class MeshAxis : std::uint8_t { Tensor, Context, Expert, Data, Pipeline };

/// What data-parallel ranks share out: nothing; optimizer state (ZeRO stage 1, Megatron's distributed optimizer); and
/// gradients (stage 2); and parameters (stage 3, fully sharded).
enum class Sharding : std::uint8_t { None, Zero1, Zero2, Zero3 };

/// How attention sees the whole sequence where ranks hold parts of it: keys and values go round a ring; are gathered;
/// all-to-alls give each rank all tokens of a part of the heads; or these within small groups, and a ring over groups.
enum class ContextKind : std::uint8_t { Ring, AllGather, AllToAll, AllToAllAndRing };

/// How a model is spread over the ranks of a job. Degrees count ranks.
struct Layout {
  std::int32_t tensor = 1;
  bool sequence_parallel = false;
  std::int32_t context = 1;
  ContextKind context_kind = ContextKind::Ring;
  std::int32_t context_inner = 1;  ///< with both: ranks that all-to-alls go among, next to each other
  std::int32_t expert = 1;
  std::int32_t expert_tensor = 0;  ///< of each expert; 0: as `tensor`, Megatron's default
  std::int32_t pipeline = 1;
  std::int32_t data = 1;  ///< derived from the number of devices where a scenario leaves it out
  Sharding sharding = Sharding::None;
  std::int32_t shard_group = 0;  ///< data-parallel ranks that share out together, next to each other; 0: all
  /// Fastest-running axis first: consecutive ranks, and so devices of a node, differ along it. Megatron's default.
  std::array<MeshAxis, 5> order{MeshAxis::Tensor, MeshAxis::Context, MeshAxis::Expert, MeshAxis::Data,
                                MeshAxis::Pipeline};
  bool count_embedding = false;  ///< the embedding takes one layer's place when layers are split over stages
  bool count_loss = false;       ///< the LM head and loss take one layer's place
  ScheduleKind schedule = ScheduleKind::OneFOneB;
  std::int32_t chunks = 1;       ///< virtual stages of a rank
  std::int32_t chunk_group = 0;  ///< interleaved: micro-batches that a chunk runs in a row; 0: as many as stages
  /// Layers of each stage in the order of the model; empty: equal shares, but for the two below.
  std::vector<std::int32_t> stage_layers{};
  std::int32_t first_layers = 0;  ///< of the first rank, all its chunks together; 0: its equal share
  std::int32_t last_layers = 0;   ///< the same of the last rank

  /// Which stages of the model each pipeline rank holds: a matter of the schedule.
  [[nodiscard]] StagePlacement placement() const { return {traits_of(schedule).placement, pipeline, chunks}; }
  [[nodiscard]] std::int32_t stages() const { return placement().stages(); }
  [[nodiscard]] std::int32_t group() const { return chunk_group == 0 ? pipeline : chunk_group; }
  /// After how many micro-batches a schedule does the same with the next ones.
  [[nodiscard]] std::int32_t period() const { return traits_of(schedule).in_groups ? group() : 1; }
  /// Ranks that hold the same parameters, and gradients of other tokens: optimizer state is cut over these.
  [[nodiscard]] std::int32_t replicas() const { return data * context; }
  /// Data-parallel ranks over which one copy of what is shared out is spread.
  [[nodiscard]] std::int32_t shards() const { return shard_group == 0 ? data : shard_group; }
  /// Groups of these, each of which holds all that is shared out: replicas of HSDP, Megatron's optimizer instances.
  [[nodiscard]] std::int32_t instances() const { return data / shards(); }
  /// Ranks among which all-to-alls give each a part of the heads.
  [[nodiscard]] std::int32_t ulysses() const {
    switch (context_kind) {
      case ContextKind::Ring:
      case ContextKind::AllGather:
        return 1;
      case ContextKind::AllToAll:
        return context;
      case ContextKind::AllToAllAndRing:
        return context_inner;
    }
    return 1;
  }
  [[nodiscard]] std::int32_t world_size() const { return tensor * context * pipeline * data; }
  [[nodiscard]] std::int32_t expert_tensor_parallel() const { return expert_tensor == 0 ? tensor : expert_tensor; }
  /// How many replicas each expert has.
  [[nodiscard]] std::int32_t experts_data() const {
    return tensor * context * data / (expert_tensor_parallel() * expert);
  }
  bool operator==(const Layout&) const = default;
};

}  // namespace tidemark::parallel
