#include "parallel/frameworks/deepspeed/training.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "parallel/frameworks/deepspeed/stage3.hpp"
#include "parallel/frameworks/deepspeed/stage_1_and_2.hpp"
#include "parallel/frameworks/pytorch/batch.hpp"
#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/sizes.hpp"
#include "sim/program/liveness.hpp"

// deepspeed/runtime/engine.py DeepSpeedEngine, and the loop of a script around it.

namespace tidemark::parallel::deepspeed {
namespace {

class Training {
 public:
  Training(Session& session, const LoweringInput& input, const DataGroup& group, TrainingState* state)
      : s_(session), input_(input), habits_(*input.runtime.eager), group_(group), state_(state) {
    // deepspeed.zero.Init: whatever modules make is of the type that is computed in.
    habits_.zero_init = partitions_parameters();
  }

  /// Its first forward pass, of a rank that holds the model whole.
  Recording record() {
    Recorder recorder;
    s_.recorder = &recorder;
    make_model({});
    s_.process.at(1, 0);
    batch_ = pytorch::collated_batch(s_, input_.train);
    recorder.begin_pass();
    (void)forward();
    s_.recorder = nullptr;
    return std::move(recorder).finish();
  }

  void run(const StepSizes& micro_batches) {
    construct();
    const std::int64_t passes = std::accumulate(micro_batches.begin(), micro_batches.end(), std::int64_t{0});
    std::int32_t step = 0;
    for (const std::int64_t its : micro_batches) {
      ++step;
      for (std::int32_t m = 0; m < its; ++m) {
        s_.process.at(step, m);
        batch_ = pytorch::collated_batch(s_, input_.train);
        optimizer([&](auto& o) { o.begin_backward(m + 1 == its); });
        loss_ = forward();
        backward(its);
        if (step == 1 && m == 0) s_.process.expect(passes);
      }
      s_.process.at(step, -1);
      optimizer([&](auto& o) {
        o.step([&] { tell(StateMoment::What::Gradients, step, o.gradients()); });
        tell(StateMoment::What::Parameters, step, o.parameters());
      });
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
    if (group_.comm.valid()) s_.process.create(DriverResource::NcclKernels);
    s_.mark(Phase::Construction, "build_model");
    NamedParameters parameters;
    make_model([&](const std::string& name, const Shape& sizes, DType dtype) {
      parameters.push_back(
          {name, partitions_parameters() ? without_memory(sizes, dtype) : moved_to_device(name, sizes, dtype)});
      return parameters.back().leaf;
    });
    s_.mark(Phase::Construction, "build_optimizer");
    // How much is left of a gradient changes neither memory nor time: the usual norm.
    const Scaling scaling{habits_.zero->loss_scale, habits_.zero->clipping > 0 ? 1.0 : 0.0};
    if (partitions_parameters())
      stage3_.emplace(s_, group_, *habits_.zero, habits_, input_.train, scaling, std::move(parameters), *model_);
    else
      stage_1_and_2_.emplace(s_, group_, *habits_.zero, habits_, input_.train, input_.layout.sharding, scaling,
                             std::move(parameters));
    s_.process.synchronize();  // dist.barrier
  }

  [[nodiscard]] bool partitions_parameters() const { return input_.layout.sharding == Sharding::Zero3; }

  template <class Use>
  void optimizer(const Use& use) {
    if (stage3_)
      use(*stage3_);
    else
      use(*stage_1_and_2_);
  }

  void make_model(const MakeParameter& make) {
    const std::int64_t vocabulary =
        sizes_of(input_.built.model, input_.layout, input_.train, input_.runtime).vocabulary;
    model_.emplace(s_, input_.built.model, vocabulary, input_.train, habits_, input_.train.precision, make);
  }

  std::shared_ptr<Leaf> without_memory(const Shape& sizes, DType dtype) {
    Tensor value;
    value.sizes = sizes;
    value.strides = contiguous_strides(sizes);
    value.dtype = dtype;
    std::shared_ptr<Leaf> made = leaf(s_, value);
    made->parameter = true;
    return made;
  }

  // Module.to of a model that was made on the host, and cast there.
  std::shared_ptr<Leaf> moved_to_device(const std::string& name, const Shape& sizes, DType dtype) {
    const Session::Scope scope(s_, name);
    const Tensor value = s_.empty(sizes, dtype, trained_parameter, Category::Parameters);
    s_.launch(Operation::Initialize, {}, {value});
    std::shared_ptr<Leaf> made = leaf(s_, value);
    made->parameter = true;
    return made;
  }

  Tensor forward() {
    // The last loss, and its graph, go once this one is there.
    const auto last_graph = std::exchange(s_.outlives_backward, {});
    CausalLM::Outputs outputs = (*model_)(batch_[0], batch_[1]);
    Tensor loss = outputs.loss;
    if (habits_.keeps_outputs) outputs_ = std::move(outputs);
    return loss;
  }

  // DeepSpeedEngine.backward.
  void backward(std::int64_t micro_batches) {
    const Tensor share = mul_number(s_, loss_, 1 / static_cast<double>(micro_batches));
    const Tensor scaled = mul_number(s_, share, habits_.zero->loss_scale);
    {
      const Tensor one = s_.empty({}, scaled.dtype, "loss_gradient");
      s_.launch({Operation::Fill, {1}}, {}, {one});
      torch::backward(s_, scaled, one);
    }
    optimizer([](auto& o) { o.finish_backward(); });
  }

  void tell(StateMoment::What what, std::int32_t step, std::vector<StateTensor> tensors) {
    if (state_ != nullptr) state_->push_back({what, step, s_.process.marks(), std::move(tensors)});
  }

  Session& s_;
  const LoweringInput& input_;
  EagerHabits habits_;
  const DataGroup group_;
  TrainingState* state_;
  std::optional<CausalLM> model_;
  std::optional<Stage1And2> stage_1_and_2_;  ///< one of the two
  std::optional<Stage3> stage3_;
  std::vector<Tensor> batch_;  ///< the loop's variable, until the next one is there
  CausalLM::Outputs outputs_;
  Tensor loss_;  ///< the same
};

DataGroup group_of(const LoweringInput& input, const Communicators& groups, const Coordinates& place) {
  return {groups.data, input.layout.data, place.data};
}

// Of the parameters that the model has, in the order in which they are registered.
std::vector<std::int64_t> parameter_sizes(const LoweringInput& input) {
  Process process({}, {});
  Session session(process, input.runtime.eager->torch);
  std::vector<std::int64_t> sizes;
  const auto note = [&](const std::string&, const Shape& shape, DType dtype) {
    sizes.push_back(elements_of(shape));
    Tensor value;
    value.sizes = shape;
    value.dtype = dtype;
    return leaf(session, value);
  };
  const Model& model = input.built.model;
  const std::int64_t vocabulary = sizes_of(model, input.layout, input.train, input.runtime).vocabulary;
  const CausalLM made(session, model, vocabulary, input.train, *input.runtime.eager, input.train.precision, note);
  session.finish();
  return sizes;
}

}  // namespace

std::vector<Role> roles(const LoweringInput& input) {
  const std::int64_t ranks = input.layout.data;
  const std::vector<std::int64_t> sizes = parameter_sizes(input);
  const FlatLayout layout = flat_layout(
      sizes, ranks, input.runtime.eager->zero->round_robin ? FlatOrder::RoundRobin : FlatOrder::AsRegistered);
  // Where in a parameter a piece begins is said for the first rank that has one as large.
  std::map<std::vector<std::pair<std::int64_t, std::int64_t>>, std::size_t> known;
  std::vector<Role> all;
  for (Rank rank{0}; rank.value < input.layout.world_size(); ++rank.value) {
    const Coordinates place = coordinates(input.layout, rank);
    std::vector<std::pair<std::int64_t, std::int64_t>> pieces;
    if (input.layout.sharding == Sharding::Zero3) {
      for (const std::int64_t whole : sizes) {
        const std::int64_t each = (whole + ranks - 1) / ranks;
        pieces.emplace_back(whole, std::clamp<std::int64_t>(whole - each * place.data, 0, each));
      }
    } else {
      for (const FlatSlice& slice : layout.slices_of(place.data))
        pieces.emplace_back(layout.sizes[slice.parameter], slice.elements);
    }
    const auto [role, is_new] = known.try_emplace(std::move(pieces), all.size());
    if (is_new) all.push_back({place, {}});
    all[role->second].ranks.push_back(rank);
  }
  return all;
}

Program lower_training(const LoweringInput& input, const Coordinates& place, const StepSizes& micro_batches,
                       TrainingState* state) {
  const Communicators groups = communicators_of(input);
  Process process(groups.table, input.runtime.blas_workspace);
  {
    Session session(process, input.runtime.eager->torch);
    Training training(session, input, group_of(input, groups, place), state);
    training.run(micro_batches);
    session.finish();
  }
  return with_frees(std::move(process).finish());
}

Recording record_forward(const LoweringInput& input) {
  const Communicators groups = communicators_of(input);
  Process process(groups.table, input.runtime.blas_workspace);
  Session session(process, input.runtime.eager->torch);
  Training training(session, input, group_of(input, groups, {}), nullptr);
  Recording recording = training.record();
  session.finish();
  return recording;
}

}  // namespace tidemark::parallel::deepspeed
