#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/frameworks/deepspeed/gradient_norm.hpp"
#include "parallel/frameworks/deepspeed/optimizer_swapper.hpp"
#include "parallel/frameworks/deepspeed/parameter_coordinator.hpp"
#include "parallel/frameworks/pytorch/optimizers/optimizer.hpp"

// DeepSpeedZeroOptimizer_Stage3 of deepspeed/runtime/zero/stage3.py (0.19), and what its hooks do around every module
// (parameter_offload.py).

namespace tidemark::parallel::deepspeed {

class Stage3 {
 public:
  /// Of parameters that have no memory yet. The model's modules are hooked. `untied` elements were partitioned besides,
  /// of a weight that was tied to another then.
  /// `neighbours` hold secondary parts of parameters together.
  Stage3(Session& session, const DataGroup& group, const DataGroup& neighbours, const ZeroBehavior& behavior,
         const EagerBehavior& eager, const Train& train, const Scaling& scaling, NamedParameters parameters,
         std::int64_t untied, CausalLM& model);

  /// Whether the pass that begins is the last one of a step.
  void begin_backward(bool is_boundary) { is_boundary_ = is_boundary; }
  void finish_backward();
  /// `gradients_are_there` is called when the rank's part of some of them is whole.
  void step(const std::function<void()>& gradients_are_there);

  /// The rank's part of gradients and of parameters.
  [[nodiscard]] std::vector<StateTensor> gradients() const;
  [[nodiscard]] std::vector<StateTensor> parameters() const;

 private:
  /// Parameters that are updated together.
  struct SubGroup {
    std::vector<std::size_t> parameters;
    std::int64_t begin = 0, elements = 0;     ///< in the rank's parts of all
    MemorySpace space = MemorySpace::Device;  ///< where it is updated
    std::shared_ptr<Leaf> master;
    std::unique_ptr<pytorch::TorchOptimizer> optimizer;
    std::unique_ptr<SwappedState> swapped;  ///< what is updated is in files
    bool parameters_swapped = false;        ///< … and what is computed with, of some
  };
  /// Gradients in fp32, on their way to the files of a sub-group.
  using GoingGradients = std::vector<std::pair<SwappedState*, std::vector<std::pair<std::int64_t, Tensor>>>>;

  void make_state(const Train& train, const EagerBehavior& eager);
  void hook(CausalLM& model, const Train& train, const EagerBehavior& eager);
  [[nodiscard]] Tensor before_forward(std::size_t module, const Tensor& input);
  [[nodiscard]] Tensor after_forward(std::size_t module, const Tensor& output);
  void add_to_bucket(std::size_t parameter);
  void reduce_bucket();
  [[nodiscard]] std::vector<Tensor> scattered();
  void keep(std::size_t parameter, Tensor reduced, GoingGradients& going);
  void keep_on_host(std::size_t parameter, const Tensor& reduced, GoingGradients& going);
  void make_groups();
  void make_masters(const Train& train, const EagerBehavior& eager);
  [[nodiscard]] Tensor flat(const SubGroup& group) const { return parameters_.flat(group.begin, group.elements); }
  [[nodiscard]] SwappedState* swapped_after(const SubGroup& group);
  void put_back(SubGroup& group);
  void make_gradients(std::int64_t largest);
  [[nodiscard]] SubGroup& group_of(std::size_t parameter);
  [[nodiscard]] Tensor norm_of_offloaded();
  void update_offloaded(SubGroup& group, const Tensor& scaled_norm, const std::function<void()>& gradients_are_there);
  void update(SubGroup& group, const Tensor& scaled_norm, const std::function<void()>& gradients_are_there);
  [[nodiscard]] StreamId reducing() const { return behavior_.overlaps ? reduction : Process::compute_stream; }
  [[nodiscard]] Tensor gradient_of(std::size_t parameter) const;

  static constexpr StreamId gathering{2}, reduction{3};

  Session& s_;
  const DataGroup group_;
  const ZeroBehavior& behavior_;
  const Scaling scaling_;
  DType dtype_, accumulation_;
  PartitionedParameters parameters_;
  std::vector<std::size_t> persistent_, trained_;
  /// By module, parameters whose gradients are reduced when its backward pass is over.
  std::vector<std::vector<std::size_t>> reduced_together_;
  std::unique_ptr<ParameterCoordinator> coordinator_;
  std::vector<std::int64_t> begins_;  ///< in the rank's parts of all; by parameter
  std::vector<SubGroup> groups_;
  std::optional<OptimizerSwapper> swapper_;
  EagerBehavior host_behavior_;  ///< of optimizers on the host
  Tensor ipg_buffer_;            ///< gradients on their way
  std::vector<std::size_t> bucket_;
  std::int64_t bucket_elements_ = 0;
  OngoingEvents reductions_;  ///< param_reduce_events
  Tensor gradients_;          ///< grad_partitions_flat_buffer: the rank's parts of all
  Tensor norm_;               ///< _global_grad_norm
  Tensor tracker_;            ///< inf_or_nan_tracker
  const SubGroup* updating_ = nullptr;
  std::vector<Tensor> norms_;  ///< norm_for_param_grads, where the optimizer is on the host
  bool is_boundary_ = true;
  bool ran_backward_ = false;    ///< since the last step or forward pass
  std::int64_t micro_step_ = 0;  ///< of a step
};

}  // namespace tidemark::parallel::deepspeed
