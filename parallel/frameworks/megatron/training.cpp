#include "parallel/frameworks/megatron/training.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/frameworks/megatron/optimizer/buffers.hpp"
#include "parallel/frameworks/megatron/optimizer/layer_wise_optimizer.hpp"
#include "parallel/frameworks/megatron/optimizer/optimizer.hpp"
#include "parallel/frameworks/megatron/optimizer/overlapped_buckets.hpp"
#include "parallel/frameworks/megatron/schedule.hpp"
#include "parallel/frameworks/megatron/user_buffers.hpp"
#include "parallel/generation/engine.hpp"
#include "sim/program/liveness.hpp"

namespace tidemark::parallel::megatron {
namespace {

// Of what TransformerEngine's functions give, nothing is held by autograd alone.
TorchBehavior behavior(const Runtime& runtime) {
  return {.sums_in_place = runtime.framework_linears, .deterministic = runtime.deterministic};
}

// training/training.py: construction, then steps.
class Training {
 public:
  explicit Training(Worker& worker, TrainingState* state = nullptr) : w_(worker), state_(state) {
    buffers_.reserve(4 * w_.chunks.size());
    for (std::size_t c = 0; c < w_.chunks.size(); ++c) {
      const std::string suffix = w_.chunks.size() > 1 ? fmt::format("[{}]", c) : "";
      for (const ParameterGroup group : buffer_groups(w_.layout, w_.runtime)) {
        const std::string name =
            fmt::format("{}{}", of_experts(group) ? ".experts" : "", of_matrices(group) ? ".matrices" : "");
        ParamAndGradBuffer buffer(w_, w_.chunks[c], group, name + suffix);
        if (group == ParameterGroup::Dense || !buffer.parameters().empty()) buffers_.push_back(std::move(buffer));
      }
    }
    optimizers_ = make_optimizers(w_, buffers_);
  }

  void construct() {
    torch::Process& process = w_.process;
    process.at(0, -1);
    process.mark(Phase::Construction, "start_up");
    process.create(DriverResource::Context);
    process.create(DriverResource::Modules);
    if (w_.comms.world.valid()) {
      process.create(DriverResource::NcclKernels);
      reduce("barrier", w_.comms.world);
    }
    register_user_buffers(w_);
    process.mark(Phase::Construction, "build_model");
    for (const Stage& chunk : w_.chunks) {
      build_model(w_, chunk);
      build_routers(w_, chunk);
    }
    process.mark(Phase::Construction, "build_buffers");
    for (ParamAndGradBuffer& buffer : buffers_) buffer.build();
    if (w_.runtime.overlap.gradients) overlapped_.emplace(w_, buffers_);
    process.mark(Phase::Construction, "build_optimizer");
    for (MegatronOptimizer& optimizer : optimizers_) optimizer.build();
    make_scalars();
    if (w_.train.rollout) construct_rollout();
  }

  /// The first forward pass, of a rank that holds the whole model.
  void forward() {
    if (torch::Recorder* const recorder = w_.session.recorder) {
      for (const ParamAndGradBuffer& buffer : buffers_)
        for (const ParameterId id : buffer.parameters()) {
          const Tensor& value = w_.weight(id).value;
          recorder->made({w_.built[id].name, value.sizes, value.dtype, true});
        }
      recorder->begin_pass();
    }
    make_step_losses(w_);
    ModelStage stage(w_, 0);
    (void)stage.forward(1, 0, nullptr);
  }

  void train_step(std::int32_t number, std::int32_t micro_batches) {
    torch::Process& process = w_.process;
    step_ = number;
    process.at(number, -1);
    process.mark(Phase::OptimizerStep, "zero_gradients");
    for (ParamAndGradBuffer& buffer : buffers_) buffer.zero_gradients();
    if (overlapped_) overlapped_->begin_step(number);
    for (MegatronOptimizer& optimizer : optimizers_) optimizer.zero_gradients();
    if (micro_batches > 0 && engine_) roll_out();
    make_step_losses(w_);
    if (micro_batches > 0) run_passes(number, micro_batches);
    process.mark(Phase::Communication, "reduce_gradients");
    keep_last_report(w_);
    finalize_model_gradients(w_, buffers_);
    w_.losses.total_tokens = {};  // an argument of core/distributed/finalize_model_grads.py
    if (state_ != nullptr) {
      StateMoment& moment = state_->emplace_back(StateMoment::What::Gradients, number, process.marks());
      for (const MegatronOptimizer& optimizer : optimizers_)
        for (StateTensor& tensor : optimizer.gradients()) moment.tensors.push_back(std::move(tensor));
    }
    process.mark(Phase::OptimizerStep, "optimizer_step");
    step(w_, optimizers_);
    const bool gathered_later = overlapped_ && overlapped_->gathers();  // beside the next step's first passes
    if (w_.layout.sharding == Sharding::Zero1 && !gathered_later) {
      process.mark(Phase::Communication, "gather_parameters");
      if (shards_buffers(w_.layout, w_.runtime))
        for (ParamAndGradBuffer& buffer : buffers_) buffer.gather_parameters();
      else
        gather_ping_pong_parameters(w_);
    }
    if (state_ != nullptr)
      state_->push_back(
          {StateMoment::What::Parameters, number, process.marks(), gathered_later ? own_parameters() : parameters()});
    end_step();
  }

 private:
  // Each optimizer has its own: core/optimizer/optimizer.py MixedPrecisionOptimizer has one more flag of overflows
  // where training is not bf16.
  void make_scalars() {
    std::vector<Bytes> sizes = w_.runtime.scalars;
    if (w_.layout.sharding == Sharding::Zero1 && w_.train.precision != DType::BF16) sizes.push_back(sizes.front());
    const auto make = [&](std::size_t place, Bytes size) {
      scalars_.push_back(w_.make(w_.process.label(fmt::format("runtime.scalar{}", place)), {size.count()}, DType::BOOL,
                                 Category::Workspaces));
    };
    for (std::size_t set = 0; set < optimizers_.size(); ++set)
      for (std::size_t i = 0; i < sizes.size(); ++i) make(i, sizes[i]);
    make(sizes.size(), size_of(DType::FP64));  // training.py pretrain: start_time_tensor
    if (!w_.runtime.framework_linears) {
      // TransformerEngine attention/dot_product_attention/utils.py get_full_cu_seqlens; context_parallel.py.
      const std::size_t lists = w_.layout.context > 1 && w_.layout.context_kind == ContextKind::Ring ? 3 : 1;
      for (std::size_t list = 0; list < lists; ++list)
        make(sizes.size(), (w_.sizes.micro_batch + 1) * size_of(DType::INT32));
      // get_seq_chunk_ids_for_reordering_before_attn and _after_attn.
      if (w_.layout.context > 1 && w_.layout.context_kind == ContextKind::AllToAll)
        for (int order = 0; order < 2; ++order) make(sizes.size(), 2 * w_.layout.context * size_of(DType::INT32));
    }
    if (w_.model.experts() == nullptr) return;
    make(sizes.size(), size_of(DType::FP32));  // initialize.py MoEAuxLossAutoScaler.set_loss_scale
    for (std::size_t loss = 0; loss < tracked_losses(); ++loss)
      make(sizes.size() + 1 + loss, w_.model.all_layers() * size_of(DType::FP32));
  }

  // core/transformer/moe/moe_utils.py save_to_aux_losses_tracker: for the log, of each loss a number for each layer.
  [[nodiscard]] std::size_t tracked_losses() const {
    const ExpertBehavior& its = w_.runtime.experts;
    if (w_.model.experts() == nullptr || its.balances_by(LoadBalancing::Sinkhorn)) return 0;
    return its.balancing.size() + (its.z_loss ? 1 : 0);
  }

  void construct_rollout() {
    w_.process.mark(Phase::Construction, "build_frozen_models");
    std::vector<generation::TrainedWeight> trained;
    for (const auto& [id, weight] : w_.weights())
      if (weight.parameter != nullptr && !weight.parameter->spare)
        trained.push_back({weight.shape(), weight.parameter->vocabulary && id != 0});
    frozen_ = generation::frozen(w_.session, w_.built, w_.train, trained);
    engine_.emplace(w_.session, w_.built, w_.train);
    engine_->construct();
  }

  // What is generated, and a pass without gradients for its log-probabilities: of what is trained, which stands for the
  // reference's, the same kernels on other weights. It holds less than passes that are trained, and is left out where
  // stages hand over, or layers hand what they save to the host.
  void roll_out() {
    engine_->generate();
    if (w_.layout.pipeline > 1 || w_.runtime.offloaded_layers > 0 || w_.runtime.module_offload.any()) return;
    const torch::NoGrad no_grad(w_.session);
    ModelStage stage(w_, 0);
    (void)stage.forward(step_, -1, nullptr);
  }

  [[nodiscard]] std::vector<StateTensor> parameters() const {
    std::vector<StateTensor> all;
    for (const ParamAndGradBuffer& buffer : buffers_)
      for (const ParameterId id : buffer.parameters())
        if (!w_.built[id].spare)
          all.push_back(torch::state_tensor(name_in_model(w_.built[id], w_.first_expert()), w_.weight(id).value));
    return all;
  }

  [[nodiscard]] std::vector<StateTensor> own_parameters() const {
    std::vector<StateTensor> all;
    for (const MegatronOptimizer& optimizer : optimizers_)
      for (StateTensor& tensor : optimizer.parameters()) all.push_back(std::move(tensor));
    return all;
  }

  void run_passes(std::int32_t step, std::int32_t micro_batches) {
    if (!pipeline_) pipeline_.emplace(w_, w_.place.pipeline, overlapped_ ? &*overlapped_ : nullptr);
    pipeline_->run(step, micro_batches);
  }

  // What the training loop does between steps: the last stage averages its loss, and the iteration timer, which logs
  // every step, waits for all ranks and for the device.
  void end_step() {
    w_.process.mark(Phase::Communication, "end_step");
    if (w_.runtime.agrees_after_steps) {
      // training.py train_step: whether the update went well, and the gradient norm for the log.
      reduce("update_successful", w_.comms.model, Reduction::Largest);
      reduce("reported_norm", w_.comms.model, Reduction::Largest);
    }
    // The sum, and how many tokens it is over. No launch says what they are: losses of micro-batches are left where
    // the cross entropy writes them.
    if (w_.head()) report_loss();
    if (w_.runtime.core.logs_tracked_losses) {
      logged_losses_.resize(tracked_losses());
      for (Tensor& its : logged_losses_) its = w_.temporary(w_.process.label("loss.logged"), {1}, DType::FP32);
    }
    reduce("barrier", w_.comms.world);
    w_.process.synchronize();
  }

  void report_loss() {
    StepLosses& its = w_.losses;
    const auto number = [&](std::string_view label, std::int64_t count = 1) {
      return w_.temporary(w_.process.label(label), {count}, DType::FP32);
    };
    Tensor sum, tokens;
    if (w_.runtime.core.stacks_reports) {
      const Tensor stacked = number("loss.stacked", 2 * static_cast<std::int64_t>(its.reports.size()));
      sum = number("loss.reported", 2);
    } else {
      sum = number("loss.reported");
      tokens = number("loss.reported_tokens");
    }
    w_.session.unchecked_collective(w_.comms.data, CollectiveKind::AllReduce, sum, sum, Reduction::Sum);
    its.reduced = number("loss.logged");
    sum = tokens = {};  // variables of train_step
    its.reports.clear();
    its.logged = number("loss.logged");
  }

  // Numbers of the host.
  void reduce(std::string_view what, CommSlot comm, Reduction reduction = Reduction::Sum, std::int64_t count = 1) {
    const Tensor value = w_.temporary(w_.process.label(what), {count}, DType::FP32);
    w_.session.unchecked_collective(comm, CollectiveKind::AllReduce, value, value, reduction);
  }

  Worker& w_;
  TrainingState* state_;
  std::vector<ParamAndGradBuffer> buffers_;
  std::optional<OverlappedBuckets> overlapped_;
  std::vector<MegatronOptimizer> optimizers_;
  std::vector<Tensor> scalars_, logged_losses_;
  std::optional<Pipeline> pipeline_;
  std::optional<generation::Engine> engine_;
  std::vector<Tensor> frozen_;  ///< weights of models that are not trained
  std::int32_t step_ = 0;
};

// A rank that holds the whole model.
class OneRank {
 public:
  explicit OneRank(const LoweringInput& requested)
      : input_{requested.built, layout_, requested.train, requested.runtime},
        comms_(communicators_of(input_)),
        process_(comms_.table, requested.runtime.blas_workspace),
        session_(process_, behavior(input_.runtime)),
        scope_(session_, "model"),
        worker_(session_, input_, comms_, {}) {}

  [[nodiscard]] Worker& worker() { return worker_; }
  void run_forward(torch::Recorder* recorder) {
    session_.recorder = recorder;
    Training training(worker_);
    training.construct();
    training.forward();
    session_.finish();
  }
  [[nodiscard]] const Program& written() const { return process_.written(); }

 private:
  Layout layout_;
  LoweringInput input_;
  Communicators comms_;
  torch::Process process_;
  Session session_;
  Session::Scope scope_;
  Worker worker_;
};

}  // namespace

Program lower_training(const LoweringInput& input, const Coordinates& place, const StepSizes& micro_batches,
                       TrainingState* state) {
  const Communicators comms = communicators_of(input);
  torch::Process process(comms.table, input.runtime.blas_workspace);
  {
    Session session(process, behavior(input.runtime));
    const Session::Scope scope(session, "model");
    Worker worker(session, input, comms, place);
    Training training(worker, state);
    training.construct();
    const std::size_t constructed = process.written().ops.size();
    for (std::int32_t step = 1; step <= input.train.steps; ++step) {
      training.train_step(step, static_cast<std::int32_t>(micro_batches[static_cast<std::size_t>(step) - 1]));
      if (step > 1) continue;
      // The others are as long, and no buffer is freed twice.
      const Program& program = process.written();
      const auto steps = static_cast<std::size_t>(input.train.steps);
      process.reserve(program.ops.size() + (steps - 1) * (program.ops.size() - constructed) +
                      steps * static_cast<std::size_t>(program.buffers));
    }
    session.finish();
  }
  return with_frees(std::move(process).finish());
}

std::vector<Parameter> registered_parameters(const Model& model, const ModelOptions& options) {
  const BuiltModel nothing_yet{model, options, {}};
  const Train train{.attention = options.attention};
  RuntimeSettings settings;
  settings.local_layers = options.attention == AttentionKernel::Local;
  settings.experts.grouped_linears = options.grouped_experts;
  const Runtime runtime = megatron_runtime({}, settings, {});
  OneRank rank({nothing_yet, {}, train, runtime});
  Parameters parameters(rank.worker());
  const GPTModel modules(rank.worker(), rank.worker().chunks.front(), parameters);
  return std::move(parameters).registered();
}

torch::Recording record_forward(const LoweringInput& input) {
  torch::Recorder recorder;
  OneRank(input).run_forward(&recorder);
  return std::move(recorder).finish();
}

Program lower_forward(const LoweringInput& input) {
  OneRank rank(input);
  rank.run_forward(nullptr);
  return rank.written();
}

}  // namespace tidemark::parallel::megatron
