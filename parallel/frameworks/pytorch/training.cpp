#include "parallel/frameworks/pytorch/training.hpp"

#include <optional>
#include <utility>

#include "parallel/frameworks/pytorch/data_parallel.hpp"
#include "parallel/frameworks/pytorch/optimizer.hpp"
#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/sizes.hpp"
#include "sim/program/liveness.hpp"

namespace tidemark::parallel::pytorch {
namespace {

using namespace literals;

class Training {
 public:
  Training(Session& session, const Communicators& groups, const LoweringInput& input)
      : s_(session), groups_(groups), input_(input), habits_(*input.runtime.eager) {}

  /// Its first forward pass.
  Recording record() {
    Recorder recorder;
    s_.recorder = &recorder;
    construct();
    s_.process.at(1, 0);
    load_batch();
    recorder.begin_pass();
    (void)forward(batch_[0], batch_[1]);
    s_.recorder = nullptr;
    return std::move(recorder).finish();
  }

  void run() {
    construct();
    const auto micro_batches = static_cast<std::int32_t>(micro_batches_of(input_.train, input_.layout));
    for (std::int32_t step = 1; step <= input_.train.steps; ++step) {
      for (std::int32_t m = 0; m < micro_batches; ++m) {
        s_.process.at(step, m);
        pass(m + 1 == micro_batches);
      }
      s_.process.at(step, -1);
      if (scale_.defined()) unscale();
      optimizer_->clip();
      {
        const std::vector<Tensor> handed = handed_to_fused();
        optimizer_->step();
      }
      found_infinity_ = {};
      optimizer_->zero_grad();
      outputs_ = {}, loss_ = {};
      s_.outlives_backward.clear();  // with the loss
      s_.process.synchronize();
    }
  }

 private:
  void construct() {
    s_.process.at(0, -1);
    s_.mark(Phase::Construction, "start_up");
    s_.process.create(DriverResource::Context);
    s_.process.create(DriverResource::Modules);
    if (groups_.world.valid()) s_.process.create(DriverResource::NcclKernels);
    s_.mark(Phase::Construction, "build_model");
    const std::int64_t vocabulary =
        sizes_of(input_.graph.model, input_.layout, input_.train, input_.runtime).vocabulary;
    model_.emplace(s_, input_.graph.model, vocabulary, input_.train, habits_);
    if (input_.layout.data > 1) replicas_.emplace(s_, groups_.data, habits_, model_->parameters());
    optimizer_.emplace(s_, input_.train, habits_, model_->parameters());
    if (input_.train.precision == DType::FP16 && input_.train.master_dtype == DType::FP32) {
      const Session::Scope scope(s_, "grad_scaler");
      scale_ = s_.empty({}, DType::FP32, "scale", Category::Workspaces);
      growth_ = s_.empty({}, DType::INT64, "growth_tracker", Category::Workspaces);
    }
  }

  void pass(bool last) {
    load_batch();
    run(batch_[0], batch_[1], last);
  }

  // What a data collator hands out; the loop's variable holds it until the next one is there.
  void load_batch() {
    s_.mark(Phase::Forward, "load_batch");
    const Shape sizes{input_.train.micro_batch, input_.train.sequence_length};
    const Session::Scope scope(s_, "batch");
    std::vector<Tensor> made{batch(sizes, "input_ids"), batch(sizes, "labels"), batch(sizes, "attention_mask")};
    batch_ = std::move(made);
  }

  Tensor batch(const Shape& sizes, std::string_view what) {
    Tensor made = s_.empty(sizes, DType::INT64, what);
    s_.stream(Streaming::Fill, {}, {made});
    return made;
  }

  void run(const Tensor& ids, const Tensor& labels, bool last) {
    if (replicas_) replicas_->prepare_for_backward(last);
    loss_ = forward(ids, labels);
    const Tensor loss = scale_.defined() ? mul(s_, loss_, scale_) : loss_;
    const Tensor one = s_.empty({}, loss.dtype, "loss_gradient");
    s_.stream(Streaming::Fill, {}, {one});
    backward(s_, loss, one);
    if (replicas_) replicas_->finish_backward();
  }

  Tensor forward(const Tensor& ids, const Tensor& labels) {
    const bool mixed = input_.train.precision != input_.train.master_dtype;
    const Autocast autocast(s_, mixed ? std::optional(input_.train.precision) : std::nullopt);
    // The last loss, and its graph, go once this one is there.
    const auto last_graph = std::exchange(s_.outlives_backward, {});
    CausalLM::Outputs outputs = (*model_)(ids, labels);
    Tensor loss = outputs.loss;
    if (habits_.keeps_outputs) outputs_ = std::move(outputs);
    return loss;
  }

  // torch/amp/grad_scaler.py step: fused kernels unscale, and skip a step, themselves.
  std::vector<Tensor> handed_to_fused() {
    if (!scale_.defined() || habits_.optimizer != OptimizerKernels::Fused) return {};
    const Session::Scope scope(s_, "grad_scaler");
    std::vector<Tensor> handed{s_.empty({}, DType::FP32, "found_inf")};
    if (!habits_.clips_gradients) handed.push_back(s_.empty({}, DType::FP32, "grad_scale"));
    return handed;
  }

  // torch/amp/grad_scaler.py: gradients are divided in place; whether one is infinite goes to the host.
  void unscale() {
    const Session::Scope scope(s_, "grad_scaler");
    s_.mark(Phase::OptimizerStep, "unscale");
    const auto scalar = [&](std::string_view what, DType dtype = DType::FP32) { return s_.empty({}, dtype, what); };
    const auto inverted = [&] {  // self._scale.double().reciprocal().float()
      Tensor exact = scalar("exact_scale", DType::INT64);
      exact = scalar("exact_inverse", DType::INT64);
      return scalar("inverse_scale");
    };
    const Tensor master = inverted(), found = scalar("found_inf");
    // _MultiDeviceReplicator: copies for the device, of which what was found is kept until the scale is updated.
    found_infinity_ = scalar("found_inf");
    const Tensor inverse = scalar("inverse_scale");
    std::vector<Tensor> gradients;
    for (const std::shared_ptr<Leaf>& p : model_->parameters()) gradients.push_back(p->gradient);
    std::vector<Tensor> in = gradients;
    in.push_back(inverse);
    gradients.push_back(found_infinity_);
    s_.stream(Streaming::Update, in, gradients);
    s_.process.synchronize();
  }

  Session& s_;
  const Communicators& groups_;
  const LoweringInput& input_;
  const EagerHabits& habits_;
  std::optional<CausalLM> model_;
  std::optional<DistributedDataParallel> replicas_;
  std::optional<TorchOptimizer> optimizer_;
  std::vector<Tensor> batch_;
  CausalLM::Outputs outputs_;
  Tensor loss_;  ///< the loop's variable, until the next one is there or the step is over
  Tensor scale_, growth_, found_infinity_;
};

}  // namespace

Program lower_training(const LoweringInput& input) {
  const Communicators groups = communicators_of(input);
  Process process(groups.table, input.runtime.blas_workspace);
  {
    Session session(process, input.runtime.eager->torch);
    Training training(session, groups, input);
    training.run();
    session.finish();
  }
  return with_frees(std::move(process).finish());
}

Recording record_forward(const LoweringInput& input) {
  const Communicators groups = communicators_of(input);
  Process process(groups.table, input.runtime.blas_workspace);
  Session session(process, input.runtime.eager->torch);
  Training training(session, groups, input);
  Recording recording = training.record();
  session.finish();
  return recording;
}

}  // namespace tidemark::parallel::pytorch
