#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/job/layout.hpp"
#include "sim/base/units.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::parallel {

/// The ranks of a job, counted along named axes. The first axis runs fastest: consecutive ranks differ along it.
class Mesh {
 public:
  struct Axis {
    std::string_view name;  ///< outlives the mesh
    std::int32_t size = 1;
    bool operator==(const Axis&) const = default;
  };
  /// A rank's position on one axis.
  using Place = std::pair<std::string_view, std::int32_t>;

  /// Names differ.
  explicit Mesh(std::vector<Axis> axes);

  [[nodiscard]] const std::vector<Axis>& axes() const { return axes_; }
  /// Number of ranks.
  [[nodiscard]] std::int32_t size() const;
  /// The ranks that differ along that axis only.
  [[nodiscard]] GroupAxis along(std::string_view name) const;
  /// The ranks that differ along those axes only; whichever runs faster comes first, however they are named.
  [[nodiscard]] std::vector<GroupAxis> along(std::initializer_list<std::string_view> names) const;
  [[nodiscard]] std::int32_t coordinate(Rank rank, std::string_view name) const { return along(name).coordinate(rank); }
  /// The rank at those places, and at the beginning of the axes that are not named.
  [[nodiscard]] Rank rank_at(std::initializer_list<Place> places) const;

  bool operator==(const Mesh&) const = default;

 private:
  std::vector<Axis> axes_;
};

/// Names of axes, as Megatron abbreviates them. A job has two meshes of the same ranks: one for modules that all tokens
/// go through, one for experts, which cut the ranks of a pipeline stage in another way.
///
///   dense   tp  cp  dp   pp       tensor, context and data parallelism, and the pipeline's ranks
///   expert  etp ep  edp  pp       tensor parallelism within an expert, experts, and replicas of experts
namespace axis {
inline constexpr std::string_view tp = "tp", cp = "cp", dp = "dp", pp = "pp", etp = "etp", ep = "ep", edp = "edp";
}

/// Both have their axes in the layout's order, etp and edp in the places of tp and dp.
[[nodiscard]] Mesh dense_mesh(const Layout& layout);
[[nodiscard]] Mesh expert_mesh(const Layout& layout);

/// A rank's position on the dense mesh.
struct Coordinates {
  std::int32_t tensor = 0;
  std::int32_t context = 0;
  std::int32_t data = 0;
  std::int32_t pipeline = 0;
  bool operator==(const Coordinates&) const = default;
};
[[nodiscard]] Coordinates coordinates(const Layout& layout, Rank rank);
[[nodiscard]] Rank rank_at(const Layout& layout, const Coordinates& coordinates);
/// Which of the ranks that hold the same parameters it is, in the order of their group.
[[nodiscard]] std::int32_t replica(const Layout& layout, const Coordinates& coordinates);
/// Which shard it has, of as many as a group of shards has ranks, context-parallel ones included.
[[nodiscard]] std::int32_t shard_of(const Layout& layout, const Coordinates& coordinates);
/// Ranks of a context-parallel group with equal numbers do the same in attention, on other tokens.
[[nodiscard]] std::int32_t attention_place(const Layout& layout, std::int32_t context);

/// The communicators of a job, as slots of its workload. A slot is invalid where its group would have one member and
/// nobody makes a communicator for it.
struct Communicators {
  CommSlot world;                                    ///< start-up barrier
  CommSlot tensor;                                   ///< activations of tensor and sequence parallelism
  CommSlot user_buffers;                             ///< the same, through Userbuffers
  CommSlot user_buffers_world, user_buffers_domain;  ///< by which they are set up
  CommSlot data;                                     ///< gradients and parameters, over context-parallel ranks too
  CommSlot batch;       ///< of `data`, those with other sequences, where parameters are shared out over context too
  CommSlot shard;       ///< of `data`, those who share out parameters together, where that is not the same
  CommSlot secondary;   ///< of `data`, those who hold parameters a second time together
  CommSlot replicate;   ///< … and those who hold the same shard, of experts too
  CommSlot norm;        ///< the gradient norm: with a sharded optimizer an instance's ranks, tensor x pipeline without
  CommSlot model;       ///< what ranks that hold parts of one model agree on after each step: tensor x pipeline
  CommSlot pipeline;    ///< sends and receives between stages
  CommSlot heads;       ///< all-to-alls of context parallelism
  CommSlot context;     ///< its ring, or its all-gathers
  CommSlot neighbours;  ///< of context-parallel ranks, where a token's value goes to the rank of the one before it
  CommSlot embedding;   ///< first and last stage, where they share the embedding's weight

  // Where the model has experts.
  CommSlot tensor_context;  ///< ranks with parts of one sequence: how many of its tokens each expert gets
  CommSlot expert;          ///< tokens on their way to experts and back
  CommSlot expert_tensor;   ///< tokens within an expert
  CommSlot expert_model;    ///< ranks that together hold a layer's experts: how many tokens go where
  CommSlot token_buffers;   ///< the same, through DeepEP's buffers
  CommSlot expert_data;     ///< gradients and parameters of experts
  CommSlot expert_shard;    ///< of `expert_data`, those that shard the optimizer state
  CommSlot expert_norm;     ///< their gradient norm
  CommSlot same_stage;      ///< all ranks of a stage: how many of their tokens each expert gets, if a loss needs it

  std::vector<Communicator> table;  ///< by slot
};

/// Whether the framework calls collectives in groups of one too. NCCL then makes a communicator, whose structures take
/// as much memory as any; nothing goes through it.
enum class Alone : std::uint8_t { Skips, Calls };

/// Parts of a model that decide which ranks communicate.
struct SharedParts {
  bool embedding_at_both_ends = false, experts = false;
  std::int32_t secondary_ranks = 1;  ///< that together hold a second copy of the parameters
  bool counts_together = false;      ///< ranks of a stage add up how many tokens each expert gets
  bool token_buffers = false;        ///< tokens go through DeepEP's
  bool user_buffers = false;         ///< Userbuffers replace NCCL during products of tensor-parallel ranks
  bool further_tokens = false;       ///< modules read values of the tokens that follow
};
[[nodiscard]] Communicators communicators(const Layout& layout, SharedParts model, Alone alone = Alone::Skips,
                                          MessageRoute ring = MessageRoute::Pairs);

}  // namespace tidemark::parallel
