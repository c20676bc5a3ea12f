#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "parallel/frameworks/deepspeed/flat_layout.hpp"
#include "parallel/frameworks/deepspeed/gradient_norm.hpp"
#include "parallel/frameworks/deepspeed/zero_parameters.hpp"
#include "parallel/frameworks/pytorch/optimizers/optimizer.hpp"
#include "parallel/job/layout.hpp"

// DeepSpeedZeroOptimizer of deepspeed/runtime/zero/stage_1_and_2.py (0.19): what its functions are called, functions
// here are called. Every rank holds all parameters, in one flat buffer, and updates its part of them.

namespace tidemark::parallel::deepspeed {

class Stage1And2 {
 public:
  /// `scaling` is what gradients are divided by. Parameters move to the flat buffer.
  Stage1And2(Session& session, const DataGroup& group, const ZeroBehavior& behavior, const EagerBehavior& eager,
             const Train& train, Sharding stage, const Scaling& scaling, NamedParameters parameters);

  /// Whether the pass that begins is the last one of a step.
  void begin_backward(bool is_boundary) { is_boundary_ = is_boundary; }
  /// DeepSpeedEngine.allreduce_gradients.
  void finish_backward();
  /// `gradients_are_there` is called when the rank's part of them is whole.
  void step(const std::function<void()>& gradients_are_there);

  /// The rank's part of gradients, and whole parameters.
  [[nodiscard]] std::vector<StateTensor> gradients() const;
  [[nodiscard]] std::vector<StateTensor> parameters() const;

 private:
  /// Gradients on their way (IPG: independent parameter gradients).
  struct Bucket {
    std::vector<Tensor> buffers;
    std::size_t filling = 0;               ///< of the buffers
    std::map<std::size_t, EventId> reuse;  ///< reuse_events: when what was in a buffer has gone to the host
    std::vector<std::size_t> parameters;
    std::vector<Tensor> gradients;  ///< of these
    std::int64_t elements = 0;
  };
  /// A piece of a bucket, which one rank or, where it may be any of several, nobody in particular updates.
  struct Piece {
    Tensor tensor;
    std::int64_t rank = 0;
    Tensor sum;  ///< of the rank's gradients, where they are added up in another type
  };

  void process_gradients(std::size_t parameter);
  void setup_buckets();
  void reduce_when_full(std::size_t parameter);
  void reduce_bucket();
  void average(const Tensor& tensor);
  [[nodiscard]] std::vector<Piece> pieces_of_bucket(const Tensor& tensor);
  void allreduce_and_scatter(std::vector<Piece> pieces);
  void allreduce_and_copy(const std::vector<Piece>& pieces);
  void copy_to_partition(std::size_t parameter);
  void make_state();
  void make_host_state();
  [[nodiscard]] Tensor own_part() const;
  void accumulate_on_host(std::size_t parameter);
  void keep_on_host(std::size_t parameter);
  void step_on_host(const std::function<void()>& gradients_are_there);
  void gather_updated();
  void epilogue();
  void add_to_accumulated();
  [[nodiscard]] std::vector<Tensor> flat_partition();
  [[nodiscard]] Tensor summed_slice(const FlatSlice& slice);
  void clear_gradients();
  [[nodiscard]] bool partitions_gradients() const { return stage_ == Sharding::Zero2; }
  /// DeepSpeed asks for them where the optimizer is on the host.
  [[nodiscard]] bool is_contiguous() const { return behavior_.contiguous_gradients || behavior_.offload_optimizer; }
  [[nodiscard]] bool is_compact() const { return accumulation_ != dtype_; }
  [[nodiscard]] bool is_mine(std::size_t parameter) const { return of_parameter_[parameter].has_value(); }
  [[nodiscard]] StreamId reducing() const { return behavior_.overlaps ? reduction : Process::compute_stream; }

  static constexpr StreamId reduction{2};
  static constexpr std::int64_t before_first_pass = -1;

  Session& s_;
  const DataGroup group_;
  const ZeroBehavior& behavior_;
  const Sharding stage_;
  const Scaling scaling_;
  NamedParameters parameters_;
  DType dtype_, accumulation_;
  FlatLayout layout_;
  std::vector<FlatSlice> slices_;                       ///< of this rank
  std::vector<std::optional<FlatSlice>> of_parameter_;  ///< the same, by parameter
  Tensor flat_;
  std::shared_ptr<Leaf> master_;  ///< the rank's part in fp32, which the optimizer updates
  EagerBehavior update_behavior_;
  std::optional<pytorch::TorchOptimizer> optimizer_;
  Bucket bucket_;
  std::optional<std::size_t> too_large_;  ///< for a bucket
  Tensor partition_gradients_;            ///< grads_in_partition: of this rank's parameters, as they come
  std::int64_t partition_filled_ = 0;     ///< elements of it
  std::vector<Tensor> accumulated_;       ///< all_grad_tensors: of former passes; by slice
  std::vector<Tensor> averaged_;          ///< averaged_gradients: the whole partition in pieces
  Tensor summed_;                         ///< the same in a type of its own
  std::vector<std::size_t> reduced_;      ///< whose gradients go with the next reduction
  Tensor norm_;                           ///< _global_grad_norm
  // Where the optimizer is on the host.
  Tensor staging_;                                ///< param_buffer_of_bit16: what was updated, as it is computed in
  Tensor host_buffer_, device_buffer_;            ///< temp_grad_buffer_for_cpu_offload, and for_gpu_offload
  std::map<std::size_t, Tensor> host_gradients_;  ///< accumulated_grads_in_cpu: whole ones, by parameter
  std::vector<Tensor> norms_;                     ///< norm_for_param_grads
  std::int64_t micro_step_ = before_first_pass;   ///< of a step
  bool has_buckets_ = false;                      ///< ready_for_gradients
  bool is_boundary_ = true;
};

}  // namespace tidemark::parallel::deepspeed
