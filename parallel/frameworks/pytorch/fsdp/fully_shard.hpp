#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/frameworks/pytorch/fsdp/sharded_model.hpp"

// torch.distributed.fsdp.fully_shard (FSDP2) as torch/distributed/fsdp/_fully_shard has it in PyTorch 2.15: what its
// functions are called, functions here are called. Nothing is tied to another stream by record_stream: what one stream
// makes and another one uses is kept by a reference until the first has been told to wait.

namespace tidemark::parallel::pytorch {

/// Rows of a tensor that one of several ranks holds: torch.chunk gives all as many but the last ones.
struct RowsOfShard {
  std::int64_t begin = 0, rows = 0;
  std::int64_t padded = 0;  ///< rows that every rank has room for
};
[[nodiscard]] RowsOfShard rows_of_shard(std::int64_t rows, std::int64_t ranks, std::int64_t rank);

/// _fsdp_param.py FSDPParam.
struct ShardedParameter {
  std::shared_ptr<Leaf> unsharded;  ///< what the module reads
  std::shared_ptr<Leaf> sharded;    ///< what the optimizer updates
  Tensor padded;                    ///< the memory of `sharded`, flat
  std::string name;
  std::int64_t begin = 0;  ///< the first of the parameter's elements that are here
  bool trained = true;
  CommSlot partial;  ///< ranks over which its gradient is still to be summed
  /// may_reduce_grad_outside_dp: its gradient is kept in the type of the reduction, since it could be such a sum's
  /// part.
  bool widened = false;
  /// Its gradient is that of a larger parameter, in which the first of its elements is that one; none: its own.
  std::optional<std::int64_t> part_of_gradient{};
  EventId gradient_copied;  ///< grad_offload_event: its gradient has come to the host
};

/// _fsdp_param_group.py FSDPCommContext, and what the states of one root share.
struct CommContext {
  /// Each root of a process has streams of its own.
  explicit CommContext(std::int32_t root)
      : copy_in(streams_of(root)),
        all_gather(streams_of(root) + 1),
        reduce_scatter(streams_of(root) + 2),
        all_reduce(streams_of(root) + 3) {}
  /// The first of a root's.
  [[nodiscard]] static constexpr std::int32_t streams_of(std::int32_t root) { return 2 + 4 * root; }

  const StreamId copy_in, all_gather, reduce_scatter, all_reduce;
  Tensor all_gather_output;  ///< all_gather_state: of the last unit in forward, until the next one is copied out
  EventId copied_out;
  struct ReduceScatterState {
    Tensor input;
    EventId event;
  };
  std::vector<ReduceScatterState> reduce_scatter_states;
  std::vector<class UnitParameters*> post_forward_order;
  /// iter_forward_root: whose forward pass the others run in; a layer that is run again by itself is its own.
  const class UnitParameters* forward_root = nullptr;
  bool reduces_gradients = true;        ///< set_requires_gradient_sync
  bool reshards_after_backward = true;  ///< set_reshard_after_backward

  void all_gather_streams_wait(Session& s, EventId event) const;
  void release_all_gather_output(Session& s);
  void release_reduce_scatter_inputs(Session& s);
};

/// reshard_after_forward. To fewer: a rank keeps a part of what few of them have all of between them.
enum class AfterForward : std::uint8_t { Reshards, Keeps, ReshardsToFewer };

/// _fsdp_param_group.py FSDPParamGroup: parameters that are gathered, and whose gradients are reduced, together. A root
/// may have none.
class UnitParameters {
 public:
  UnitParameters(Session& session, const ShardMesh& mesh, const FullyShardBehavior& behavior, CommContext& comms,
                 std::string name, AfterForward after_forward, std::vector<ShardedParameter> parameters);

  /// _fsdp_state.py _pre_forward, _post_forward: hooks of the unit's module.
  [[nodiscard]] Tensor pre_forward(const Tensor& input);
  [[nodiscard]] Tensor post_forward(const Tensor& output);
  void post_backward();
  void reshard();
  void finalize_backward();
  /// set_modules_to_forward_prefetch, set_modules_to_backward_prefetch: units that are gathered next; without the
  /// latter it is the one that ran before.
  void prefetch(std::vector<UnitParameters*> in_forward, std::vector<UnitParameters*> in_backward) {
    after_forward_units_ = std::move(in_forward);
    after_backward_units_ = std::move(in_backward);
  }

  [[nodiscard]] const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  /// What the unit computes in; adapters may in a type of their own.
  [[nodiscard]] DType computed() const { return parameters_.front().unsharded->value.dtype; }
  /// UnshardHandle of FSDPModule.unshard(async_op=True): begins to gather, and waits for it.
  void begin_unshard() { unshard(Gathers::Asynchronously); }
  void end_unshard() { wait_for_unshard(); }
  /// Whether its gradients wait for a post_backward that no input's gradient has called.
  [[nodiscard]] bool misses_backward() const { return state_ != TrainingState::PostBackward && !parameters_.empty(); }
  void be_idle() { state_ = TrainingState::Idle; }

 private:
  enum class TrainingState : std::uint8_t { Idle, Forward, PreBackward, PostBackward };

  /// FSDPModule.unshard(async_op=True) copies on the current stream.
  enum class Gathers : std::uint8_t { OnStreams, Asynchronously };
  void unshard(Gathers how = Gathers::OnStreams);
  void wait_for_unshard();
  void cast_own();
  void reshard_to_fewer();
  void pre_backward();
  void backward_prefetch();
  void copy_out(const Tensor& gathered);
  /// The memory of a parameter of which so many elements are gathered, or of this rank's own.
  void make_whole(ShardedParameter& parameter, std::int64_t elements);
  void set_gradient_dtypes();
  void wait_for_post_backward();
  void release_all_reduced();
  [[nodiscard]] Tensor placed(const ShardedParameter& parameter, Tensor gradient);
  void look_up(const std::vector<std::int64_t>& bytes, bool alike);
  void reduce(const std::vector<ShardedParameter*>& reduced, std::vector<Tensor> gradients);
  void keep_reduced(const std::vector<ShardedParameter*>& reduced, const Tensor& output);
  void keep_on_host(ShardedParameter& parameter, const Tensor& gradient);
  [[nodiscard]] Tensor from_host(const ShardedParameter& parameter);
  [[nodiscard]] std::vector<Tensor> all_gather_inputs();
  /// The group that the unit is gathered in: of those who have it between them now.
  struct GatherGroup {
    CommSlot comm;
    std::int64_t ranks = 1, rank = 0;
  };
  [[nodiscard]] GatherGroup gather_group() const;
  /// Elements that each of them gives of a parameter.
  [[nodiscard]] std::int64_t given_of(const ShardedParameter& p) const {
    return p.padded.elements() * mesh_.ranks / gather_group().ranks;
  }
  [[nodiscard]] Reduction reduction() const;

  Session& s_;
  const ShardMesh& mesh_;
  const FullyShardBehavior& behavior_;
  CommContext& comms_;
  std::string name_;
  AfterForward after_forward_;
  std::vector<ShardedParameter> parameters_;
  TrainingState state_ = TrainingState::Idle;
  bool unsharded_ = false;
  bool called_alone_ = false;  ///< for, where this rank holds all
  Tensor gathered_;            ///< _all_gather_result, while it is on its way
  EventId gathered_event_;
  std::vector<Tensor> parts_;  ///< _sharded_post_forward_param_data, of each parameter, while there is any
  EventId resharded_;          ///< _reshard_after_forward_event
  std::vector<std::size_t> post_forward_indices_;
  std::vector<UnitParameters*> after_forward_units_, after_backward_units_;
  EventId reduced_;     ///< _post_reduce_event
  Tensor all_reduced_;  ///< _all_reduce_state
  EventId all_reduced_event_;
};

/// A call of fully_shard.
struct ShardUnit {
  std::string name;
  AfterForward after_forward = AfterForward::Reshards;
  std::vector<std::size_t> parameters;  ///< by when they were registered
};

/// A model whose modules, and itself as their root, are units.
class FullyShard {
 public:
  /// `root` counts the models of a process.
  FullyShard(Session& session, const ShardMesh& mesh, const FullyShardBehavior& behavior, DType kept,
             std::int32_t root = 0)
      : s_(session), mesh_(mesh), behavior_(behavior), kept_(kept), comms_(root) {}

  /// A parameter on the meta device, which has no memory.
  [[nodiscard]] std::shared_ptr<Leaf> parameter(const std::string& name, const Shape& sizes, DType computed) {
    return made_on_meta(name, sizes, computed, {kept_, Category::Parameters});
  }
  /// One that is kept in a type of its own.
  [[nodiscard]] std::shared_ptr<Leaf> adapter(const std::string& name, const Shape& sizes, DType computed, DType kept) {
    return made_on_meta(name, sizes, computed, {kept, Category::Adapters});
  }
  /// A DTensor whose gradient is a part of a sum over these ranks; to be said before it is sharded.
  void sum_over(CommSlot ranks, std::size_t parameter) {
    on_meta_[parameter].partial = ranks;
    widen_gradient(parameter);
  }
  /// A DTensor that ranks of another dimension have whole; to be said before it is sharded.
  void widen_gradient(std::size_t parameter) { on_meta_[parameter].widened = true; }
  /// A DTensor of which the gradient comes whole, and this part of it from that element on is kept; to be said before
  /// it is sharded.
  void cut_gradient(std::int64_t first, std::size_t parameter) { on_meta_[parameter].part_of_gradient = first; }
  /// A DTensor that ranks of another mesh have parts of, of which the first element here is that one of the whole; to
  /// be said before it is sharded. The mesh outlives this.
  void cut_over(const ShardMesh& mesh, std::int64_t first, std::size_t parameter) {
    on_meta_[parameter].mesh = &mesh;
    on_meta_[parameter].first = first;
  }
  /// From now on they are numbered as a model registers them.
  void number_as(const Parameters& registered) { in_order_of(registered, on_meta_); }
  /// fully_shard of modules, of which the first is the root; to_empty and the initialization of what is here. Of each
  /// unit comes what its module's hooks are to call.
  [[nodiscard]] std::vector<UnitParameters*> shard(const std::vector<ShardUnit>& units);

  void root_pre_forward();
  [[nodiscard]] Tensor root_post_forward(const Tensor& output);
  /// _root_post_backward_final_callback.
  void finish_backward();
  void set_requires_gradient_sync(bool reduces) { comms_.reduces_gradients = reduces; }
  void set_reshard_after_backward(bool reshards) { comms_.reshards_after_backward = reshards; }
  /// What backward passes left for later begins to be reduced: of all units, the root's first or last.
  void start_gradient_reduction(bool root_last);
  void wait_for_gradient_reduction() { end_iteration(); }
  /// FSDPModule.unshard(async_op=True) of each module; end_unshard waits for all.
  void begin_unshard();
  void end_unshard();
  /// FSDPModule.reshard of each module.
  void reshard();
  /// To be called before gradients of shards are given up.
  void before_zero_grad();

  /// What the optimizer sees: not what is empty here.
  [[nodiscard]] Parameters parameters() const;
  [[nodiscard]] std::vector<const ShardedParameter*> shards() const;

 private:
  struct Kept {
    DType dtype;
    Category category;
  };
  struct OnMeta {
    std::string name;
    std::shared_ptr<Leaf> leaf;
    Kept kept;
    CommSlot partial{};
    bool widened = false;
    std::optional<std::int64_t> part_of_gradient{};
    const ShardMesh* mesh = nullptr;  ///< none: the model's
    std::int64_t first = 0;
  };
  [[nodiscard]] std::shared_ptr<Leaf> made_on_meta(const std::string& name, const Shape& sizes, DType computed,
                                                   Kept kept);
  [[nodiscard]] ShardedParameter sharded(const OnMeta& parameter);
  [[nodiscard]] RowsOfShard rows_of(const OnMeta& parameter) const;
  void end_iteration();
  void pad(ShardedParameter& parameter, const OnMeta& meta);
  void pin(ShardedParameter& parameter);

  Session& s_;
  const ShardMesh mesh_;
  const FullyShardBehavior& behavior_;
  DType kept_;  ///< of shards
  CommContext comms_;
  std::vector<OnMeta> on_meta_;
  std::vector<std::unique_ptr<UnitParameters>> groups_;  ///< the root's is the first
};

}  // namespace tidemark::parallel::pytorch
