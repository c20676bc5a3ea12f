#include "parallel/frameworks/pytorch/training.hpp"

#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "parallel/frameworks/pytorch/batch.hpp"
#include "parallel/frameworks/pytorch/data_parallel.hpp"
#include "parallel/frameworks/pytorch/fsdp/fully_sharded_data_parallel.hpp"
#include "parallel/frameworks/pytorch/fsdp/fully_sharded_layers.hpp"
#include "parallel/frameworks/pytorch/optimizers/optimizer.hpp"
#include "parallel/frameworks/pytorch/script.hpp"
#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/generation/engine.hpp"
#include "parallel/job/sizes.hpp"
#include "parallel/torch/save_on_cpu.hpp"

namespace tidemark::parallel::pytorch {
namespace {

using namespace literals;

class Training {
 public:
  Training(Session& session, const Communicators& groups, const LoweringInput& input,
           std::optional<ShardMesh> mesh = {}, TrainingState* state = nullptr)
      : s_(session), groups_(groups), input_(input), behavior_(*input.runtime.eager), mesh_(mesh), state_(state) {}

  /// Its first forward pass.
  void record() {
    construct();
    s_.process.at(1, 0);
    batch_ = collated_batch(s_, input_.train);
    s_.recorder->begin_pass();
    (void)forward(batch_);
  }

  void run(const StepSizes& micro_batches) {
    construct();
    const std::int64_t passes = std::accumulate(micro_batches.begin(), micro_batches.end(), std::int64_t{0});
    std::int32_t step = 0;
    for (const std::int64_t its : micro_batches) {
      ++step;
      if (its > 0 && engine_) roll_out(step);
      for (std::int32_t m = 0; m < its; ++m) {
        s_.process.at(step, m);
        pass(m + 1 == its);
        if (behavior_.filters_losses) filter_loss(s_);
        if (step == 1 && m == 0) s_.process.expect(passes);
      }
      s_.process.at(step, -1);
      if (scale_.defined()) unscale();
      tell(StateMoment::What::Gradients, step);
      {
        std::optional<OnHost> host;
        if (shards_ && shards_->on_host()) host.emplace(s_);
        if (!shards_ || !behavior_.clips_gradients || !shards_->clip_grad_norm()) optimizer_->clip();
        const std::vector<Tensor> handed = handed_to_fused();
        optimizer_->step();
      }
      found_infinity_ = {};
      tell(StateMoment::What::Parameters, step);
      if (shards_) shards_->before_zero_grad();
      optimizer_->zero_grad();
      if (!logits_go_on_) outputs_ = {};
      loss_ = {};
      s_.outlives_backward.clear();  // with the loss
      s_.process.synchronize();
    }
  }

 private:
  void construct() {
    start_up(s_, groups_);
    s_.mark(Phase::Construction, "build_model");
    const std::int64_t vocabulary =
        sizes_of(input_.built.model, input_.layout, input_.train, input_.runtime).vocabulary;
    const DType kept = input_.train.master_dtype;
    if (mesh_) {
      shards_ = sharded_model(kept);
      const DType computed = behavior_.flat ? behavior_.flat->param_dtype : input_.train.precision;
      model_.emplace(s_, input_.built.model, vocabulary, input_.train, behavior_, computed,
                     [this](const std::string& name, const Shape& sizes, DType dtype) {
                       return shards_->parameter(name, sizes, dtype);
                     });
      shards_->shard(*model_);
    } else {
      model_.emplace(s_, input_.built.model, vocabulary, input_.train, behavior_, kept);
      if (input_.layout.data > 1) replicas_.emplace(s_, groups_.data, input_.layout.data, behavior_, model_->trained());
    }
    optimizer_.emplace(s_, input_.train, behavior_, shards_ ? shards_->parameters() : model_->trained(),
                       mesh_ && mesh_->ranks > 1 ? std::vector{mesh_->shard} : std::vector<CommSlot>());
    if (input_.train.precision == DType::FP16 && input_.train.master_dtype == DType::FP32) {
      const Session::Scope scope(s_, "grad_scaler");
      constexpr double first_scale = 65536;
      scale_ = s_.empty({}, DType::FP32, "scale", Category::Workspaces);
      s_.launch({Operation::Fill, {first_scale}}, {}, {scale_});
      growth_ = s_.empty({}, DType::FP32, "growth_tracker", Category::Workspaces);  // as wide as its int32
      s_.launch({Operation::Fill, {0}}, {}, {growth_});
    }
    if (input_.train.rollout) construct_rollout();
  }

  void construct_rollout() {
    s_.mark(Phase::Construction, "build_frozen_models");
    std::vector<generation::TrainedWeight> trained;
    for (const std::shared_ptr<Leaf>& p : shards_ ? shards_->parameters() : model_->parameters())
      trained.push_back({p->value.sizes, s_.parameter_name(p->value).starts_with("lm_head")});
    frozen_ = generation::frozen(s_, input_.built, input_.train, trained);
    engine_.emplace(s_, input_.built, input_.train);
    engine_->construct();
  }

  // What is generated, and a pass without gradients for its log-probabilities: of what is trained, which stands for the
  // reference's, the same kernels on other weights.
  void roll_out(std::int32_t step) {
    s_.process.at(step, -1);
    engine_->generate();
    const NoGrad no_grad(s_);
    const std::vector<Tensor> batch = collated_batch(s_, input_.train);
    (void)forward(batch);
    outputs_ = {};
  }

  std::unique_ptr<ShardedModel> sharded_model(DType kept) {
    if (behavior_.flat) return std::make_unique<FullyShardedDataParallel>(s_, *mesh_, behavior_, kept);
    return std::make_unique<FullyShardedLayers>(s_, *mesh_, *behavior_.fully_shard, kept, input_.train.precision);
  }

  [[nodiscard]] bool reduces_each_backward() const {
    return behavior_.flat ? behavior_.flat->reduces_each_backward : behavior_.fully_shard->reduces_each_backward;
  }

  // Sharded parameters are gathered in the type that is computed in.
  [[nodiscard]] bool autocasts() const {
    if (shards_) return behavior_.flat && behavior_.flat->autocast;
    return behavior_.autocast.value_or(input_.train.precision != input_.train.master_dtype);
  }

  void pass(bool last) {
    batch_ = collated_batch(s_, input_.train);
    if (replicas_) replicas_->prepare_for_backward(last);
    if (shards_) shards_->set_requires_gradient_sync(last || reduces_each_backward());
    loss_ = forward(batch_);
    const Tensor loss = scale_.defined() ? mul(s_, loss_, scale_) : loss_;
    const Tensor one = s_.empty({}, loss.dtype, "loss_gradient");
    s_.launch({Operation::Fill, {1}}, {}, {one});
    backward(s_, loss, one);
    if (replicas_) replicas_->finish_backward();
    if (shards_) shards_->finish_backward();
    // transformers' Trainer has its loss in a function, and its graph goes with that (trainer.py training_step).
    if (behavior_.filters_losses) s_.outlives_backward.clear();
  }

  Tensor forward(const std::vector<Tensor>& batch) {
    const Autocast autocast(s_, autocasts() ? std::optional(input_.train.precision) : std::nullopt);
    // The last loss, and its graph, go once this one is there.
    const auto last_graph = std::exchange(s_.outlives_backward, {});
    if (shards_) shards_->root_pre_forward();
    std::optional<SavedTensorsHooks> on_cpu;
    if (behavior_.saved_on_host) on_cpu.emplace(s_, save_on_cpu(s_, *behavior_.saved_on_host));
    CausalLM::Outputs outputs = (*model_)(batch[0], batch[1], given_positions(batch, input_.train));
    if (shards_) shards_->root_post_forward(outputs);
    Tensor loss = outputs.loss;
    if (behavior_.keeps_outputs) outputs_ = std::move(outputs);
    return loss;
  }

  // torch/amp/grad_scaler.py step: fused kernels unscale, and skip a step, themselves.
  std::vector<Tensor> handed_to_fused() {
    if (!scale_.defined() || behavior_.optimizer != OptimizerKernels::Fused) return {};
    const Session::Scope scope(s_, "grad_scaler");
    std::vector<Tensor> handed{s_.empty({}, DType::FP32, "found_inf")};
    if (!behavior_.clips_gradients) handed.push_back(s_.empty({}, DType::FP32, "grad_scale"));
    return handed;
  }

  // torch/amp/grad_scaler.py: gradients are divided in place; whether one is infinite goes to the host.
  void unscale() {
    const Session::Scope scope(s_, "grad_scaler");
    s_.mark(Phase::OptimizerStep, "unscale");
    const auto scalar = [&](std::string_view what, DType dtype = DType::FP32) { return s_.empty({}, dtype, what); };
    // self._scale.double().reciprocal().float(): kernels here know no fp64, but a power of two has an exact inverse in
    // fp32 too.
    const auto inverted = [&] {
      Tensor exact = scalar("exact_scale", DType::INT64);
      exact = scalar("exact_inverse", DType::INT64);
      Tensor made = scalar("inverse_scale");
      s_.launch({Operation::Power, {-1}}, {scale_}, {made});
      return made;
    };
    const auto copied = [&](const Tensor& x, std::string_view what) {
      Tensor made = scalar(what);
      s_.launch(Operation::Copy, {x}, {made});
      return made;
    };
    const Tensor master = inverted(), found = scalar("found_inf");
    s_.launch({Operation::Fill, {0}}, {}, {found});
    // _MultiDeviceReplicator: copies for the device, of which what was found is kept until the scale is updated.
    found_infinity_ = copied(found, "found_inf");
    const Tensor inverse = copied(master, "inverse_scale");
    // torch._amp_foreach_non_finite_check_and_unscale_; here no gradient is ever infinite.
    std::vector<Tensor> gradients, in;
    for (const std::shared_ptr<Leaf>& p : shards_ ? shards_->parameters() : model_->trained()) {
      if (!p->gradient.defined()) continue;  // a shard without rows
      gradients.push_back(p->gradient);
      in.push_back(p->gradient);
      in.push_back(inverse);
    }
    if (!gradients.empty()) s_.launch(Operation::Multiply, in, gradients);
    // Of DTensors: torch/distributed/tensor/_dispatch.py found_inf_reduce_handler.
    if (mesh_ && mesh_->ranks > 1)
      s_.collective(mesh_->shard, CollectiveKind::AllReduce, found_infinity_, found_infinity_, Reduction::Largest);
    s_.process.synchronize();
  }

  void tell(StateMoment::What what, std::int32_t step) {
    if (state_ == nullptr) return;
    StateMoment moment{what, step, s_.process.marks(), {}};
    const auto of = [&](const Leaf& p) { return what == StateMoment::What::Gradients ? p.gradient : p.value; };
    if (shards_)
      for (const ShardPiece& p : shards_->pieces())
        moment.tensors.push_back(
            state_tensor(p.parameter, what == StateMoment::What::Gradients ? p.gradient : p.value, p.first));
    else
      for (const std::shared_ptr<Leaf>& p : model_->trained())
        moment.tensors.push_back(state_tensor(s_.parameter_name(p->value), of(*p)));
    state_->push_back(std::move(moment));
  }

  Session& s_;
  const Communicators& groups_;
  const LoweringInput& input_;
  const EagerBehavior& behavior_;
  std::optional<ShardMesh> mesh_;  ///< of what is sharded; none of a model that ranks hold whole
  TrainingState* state_;
  std::unique_ptr<ShardedModel> shards_;
  std::optional<CausalLM> model_;
  std::optional<DistributedDataParallel> replicas_;
  std::optional<TorchOptimizer> optimizer_;
  std::vector<Tensor> batch_;  ///< the loop's variable, which holds it until the next one is there
  CausalLM::Outputs outputs_;
  /// A loop without a function around its step: the variable lives until it has the next ones.
  const bool logits_go_on_ = behavior_.modules == ModuleLibrary::LitGpt;
  Tensor loss_;  ///< the loop's variable, until the next one is there or the step is over
  Tensor scale_, growth_, found_infinity_;
  std::optional<generation::Engine> engine_;
  std::vector<Tensor> frozen_;  ///< weights of models that are not trained
};

}  // namespace

Program lower_training(const LoweringInput& input, const Coordinates& place, const StepSizes& micro_batches,
                       TrainingState* state) {
  return program_of(input, micro_batches, [&](Session& session, const Communicators& groups) {
    return Training(session, groups, input, shard_mesh(input, groups, place), state);
  });
}

Recording record_forward(const LoweringInput& input) {
  return recording_of(input,
                      [&](Session& session, const Communicators& groups) { return Training(session, groups, input); });
}

}  // namespace tidemark::parallel::pytorch
