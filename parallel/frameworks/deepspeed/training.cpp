#include "parallel/frameworks/deepspeed/training.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "parallel/frameworks/deepspeed/bf16_optimizer.hpp"
#include "parallel/frameworks/deepspeed/chosen_optimizer.hpp"
#include "parallel/frameworks/deepspeed/host_copies.hpp"
#include "parallel/frameworks/deepspeed/stage3.hpp"
#include "parallel/frameworks/deepspeed/stage_1_and_2.hpp"
#include "parallel/frameworks/pytorch/batch.hpp"
#include "parallel/frameworks/pytorch/script.hpp"
#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/job/sizes.hpp"

// deepspeed/runtime/engine.py DeepSpeedEngine, and the loop of a script around it.

namespace tidemark::parallel::deepspeed {
namespace {

class Training {
 public:
  Training(Session& session, const Communicators& groups, const LoweringInput& input, const Coordinates& place,
           TrainingState* state)
      : s_(session),
        groups_(groups),
        input_(input),
        behavior_(*input.runtime.eager),
        group_{groups.data, input.layout.data, place.data},
        neighbours_{groups.secondary, behavior_.zero->secondary_ranks, place.data % behavior_.zero->secondary_ranks},
        state_(state) {
    // deepspeed.zero.Init: whatever modules make is of the type that is computed in. transformers makes quantized
    // models without it (modeling_utils.py get_init_context), and the engine partitions them once they are there.
    behavior_.zero_init = partitions_parameters() && !input.train.quantization;
    behavior_.stage_3_linear = partitions_parameters();
  }

  /// Its first forward pass, of a rank that holds the model whole.
  void record() {
    make_model({});
    s_.process.at(1, 0);
    batch_ = pytorch::collated_batch(s_, input_.train);
    s_.recorder->begin_pass();
    (void)forward();
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
        loss_ = forward();
        backward(its, m + 1 == its);
        if (behavior_.filters_losses) pytorch::filter_loss(s_);
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
    pytorch::start_up(s_, groups_);
    s_.mark(Phase::Construction, "build_model");
    NamedParameters parameters;
    std::vector<Tensor> on_host;
    // Not partitioned, they are made on the host, cast there, and moved. Where nothing stays there, nobody looks.
    const bool looks = behavior_.zero->offload_optimizer && !partitions_parameters();
    const auto make = [&](const std::string& name, const Shape& sizes, DType dtype) {
      if (looks) on_host.push_back(made_on_host(name, sizes));
      parameters.push_back({name, looks || partitions_parameters() ? parameter_elsewhere(s_, sizes, dtype)
                                                                   : initialized_parameter(s_, name, sizes, dtype)});
      return parameters.back().leaf;
    };
    if (is_made_whole())
      parameters = made_whole();
    else
      make_model(make);
    if (looks) {
      if (untied() > 0) (void)made_on_host("untied", {untied()});
      move(std::move(on_host), parameters);
    }
    s_.mark(Phase::Construction, "build_optimizer");
    // How much is left of a gradient changes neither memory nor time: the usual norm.
    const Scaling scaling{behavior_.zero->loss_scale, behavior_.zero->clipping > 0 ? 1.0 : 0.0};
    if (partitions_parameters())
      stage3_.emplace(s_, group_, neighbours_, *behavior_.zero, behavior_, input_.train, scaling, std::move(parameters),
                      untied(), *model_);
    else if (takes_bf16_optimizer(input_.layout, input_.train, *behavior_.zero))
      bf16_.emplace(s_, group_, behavior_, input_.train, scaling.largest, trained(std::move(parameters)));
    else
      stage_1_and_2_.emplace(s_, group_, *behavior_.zero, behavior_, input_.train, input_.layout.sharding, scaling,
                             trained(std::move(parameters)));
    s_.process.synchronize();  // dist.barrier
  }

  // What is frozen stays as it is: groups of parameters are of those that require gradients. The engine follows the
  // module's order, where adapters come after what they are beside.
  [[nodiscard]] NamedParameters trained(NamedParameters all) const {
    std::map<const Leaf*, std::string> names;
    for (NamedParameter& its : all) names.emplace(its.leaf.get(), std::move(its.name));
    NamedParameters made;
    for (const std::shared_ptr<Leaf>& its : model_->trained()) made.push_back({names.at(its.get()), its});
    return made;
  }

  // On the device, as transformers and PEFT make it; then all numbers are cast (_cast_module_mixed_precision), unless
  // there is but fp32.
  [[nodiscard]] NamedParameters made_whole() {
    make_model({});
    const NoGrad no_grad(s_);
    NamedParameters all;
    for (const std::shared_ptr<Leaf>& its : model_->parameters()) {
      Tensor& value = its->value;
      all.push_back({s_.parameter_name(value), its});
      const DType dtype = input_.train.precision;
      if (value.dtype == byte_type || value.dtype == dtype || dtype == DType::FP32) continue;
      const LabelId label = s_.process.allocation(value.buffer()).label;
      const Category category = s_.process.allocation(value.buffer()).category;
      Tensor cast = s_.empty(value.sizes, dtype, label, category);
      s_.launch(Operation::Copy, {value}, {cast});
      cast.gradient = value.gradient;
      value = std::move(cast);
    }
    return all;
  }

  [[nodiscard]] Tensor made_on_host(const std::string& name, const Shape& sizes) {
    const Session::Scope scope(s_, name);
    const OnHost host(s_);
    Tensor made = s_.empty(sizes, DType::FP32, torch::trained_parameter, Category::Parameters);
    s_.launch(Operation::Initialize, {}, {made});
    return made;
  }

  // _cast_module_mixed_precision, then Module.to: one after the other.
  void move(std::vector<Tensor> made, NamedParameters& parameters) {
    const NoGrad no_grad(s_);
    for (std::size_t p = 0; p < made.size(); ++p) {
      const DType dtype = parameters[p].leaf->value.dtype;
      const Session::Scope scope(s_, parameters[p].name);
      if (made[p].dtype != dtype)
        made[p] = moved(s_, made[p], MemorySpace::Pageable, dtype, "cast", Category::Parameters);
    }
    for (std::size_t p = 0; p < made.size(); ++p) {
      const Session::Scope scope(s_, parameters[p].name);
      Tensor there = moved(s_, made[p], MemorySpace::Device, made[p].dtype, "moved", Category::Parameters);
      parameters[p].leaf->value.storage = std::move(there.storage);
      made[p] = {};
    }
  }

  [[nodiscard]] bool partitions_parameters() const { return input_.layout.sharding == Sharding::Zero3; }
  [[nodiscard]] bool is_made_whole() const { return partitions_parameters() && !behavior_.zero_init; }

  template <class Use>
  void optimizer(const Use& use) {
    if (stage3_)
      use(*stage3_);
    else if (bf16_)
      use(*bf16_);
    else
      use(*stage_1_and_2_);
  }

  [[nodiscard]] std::int64_t vocabulary() const {
    return sizes_of(input_.built.model, input_.layout, input_.train, input_.runtime).vocabulary;
  }
  // Elements of the weight that an LM head is made with before it is tied to the embedding's.
  [[nodiscard]] std::int64_t untied() const {
    return input_.built.model.tied_embeddings && !is_made_whole() ? vocabulary() * input_.built.model.hidden : 0;
  }

  void make_model(const MakeParameter& make) {
    model_.emplace(s_, input_.built.model, vocabulary(), input_.train, behavior_, input_.train.precision, make);
  }

  Tensor forward() {
    // The last loss, and its graph, go once this one is there.
    const auto last_graph = std::exchange(s_.outlives_backward, {});
    CausalLM::Outputs outputs = (*model_)(batch_[0], batch_[1], pytorch::given_positions(batch_, input_.train));
    Tensor loss = outputs.loss;
    if (behavior_.keeps_outputs) outputs_ = std::move(outputs);
    return loss;
  }

  // DeepSpeedEngine.backward.
  void backward(std::int64_t micro_batches, bool is_boundary) {
    const Tensor share = mul_number(s_, loss_, 1 / static_cast<double>(micro_batches));
    const Tensor scaled = bf16_ ? share : mul_number(s_, share, behavior_.zero->loss_scale);  // which that one has not
    {
      const Tensor one = s_.empty({}, scaled.dtype, "loss_gradient");
      s_.launch({Operation::Fill, {1}}, {}, {one});
      optimizer([&](auto& o) { o.begin_backward(is_boundary); });
      torch::backward(s_, scaled, one);
    }
    optimizer([](auto& o) { o.finish_backward(); });
    if (behavior_.filters_losses) s_.outlives_backward.clear();  // with training_step of transformers' Trainer
  }

  void tell(StateMoment::What what, std::int32_t step, std::vector<StateTensor> tensors) {
    if (state_ != nullptr) state_->push_back({what, step, s_.process.marks(), std::move(tensors)});
  }

  Session& s_;
  const Communicators& groups_;
  const LoweringInput& input_;
  EagerBehavior behavior_;
  const DataGroup group_, neighbours_;
  TrainingState* state_;
  std::optional<CausalLM> model_;
  std::optional<Stage1And2> stage_1_and_2_;  ///< one of the three
  std::optional<Bf16Optimizer> bf16_;
  std::optional<Stage3> stage3_;
  std::vector<Tensor> batch_;  ///< the loop's variable, until the next one is there
  CausalLM::Outputs outputs_;
  Tensor loss_;  ///< the same
};

// Of the parameters that are partitioned, in the order in which they are registered: all, or what is trained.
std::vector<std::int64_t> parameter_sizes(const LoweringInput& input) {
  const Model& model = input.built.model;
  const std::int64_t vocabulary = sizes_of(model, input.layout, input.train, input.runtime).vocabulary;
  std::vector<std::int64_t> sizes;
  (void)pytorch::parameter_shapes(input, [&](Session& session, const MakeParameter& make) {
    const CausalLM made(session, model, vocabulary, input.train, *input.runtime.eager, input.train.precision, make);
    for (const std::shared_ptr<Leaf>& its : made.parameters())
      if (its->trained() || input.layout.sharding == Sharding::Zero3) sizes.push_back(its->value.elements());
  });
  return sizes;
}

}  // namespace

// Where in a parameter a piece begins is said for the first rank that has one as large.
std::vector<Role> roles(const LoweringInput& input) {
  const std::int64_t ranks = input.layout.data;
  const ZeroBehavior& behavior = *input.runtime.eager->zero;
  const std::int64_t neighbours = behavior.secondary_ranks;
  const std::vector<std::int64_t> sizes = parameter_sizes(input);
  const bool deals_out = behavior.round_robin && !takes_bf16_optimizer(input.layout, input.train, behavior);
  const FlatLayout layout = flat_layout(sizes, ranks, deals_out ? FlatOrder::RoundRobin : FlatOrder::AsRegistered);
  return pytorch::roles_by(input.layout, [&](const Coordinates& place) {
    std::vector<std::pair<std::int64_t, std::int64_t>> pieces;
    if (input.layout.sharding == Sharding::Zero3) {
      for (const std::int64_t whole : sizes) {
        const std::int64_t each = (whole + ranks - 1) / ranks;
        pieces.emplace_back(whole, std::clamp<std::int64_t>(whole - each * place.data, 0, each));
        if (neighbours == 1) continue;
        const std::int64_t secondary = each * (ranks / neighbours);
        const std::int64_t begin = secondary * (place.data % neighbours);
        pieces.emplace_back(whole, std::clamp<std::int64_t>(whole - begin, 0, secondary));
      }
    } else {
      for (const FlatSlice& slice : layout.slices_of(place.data))
        pieces.emplace_back(layout.sizes[slice.parameter], slice.elements);
    }
    return pieces;
  });
}

Program lower_training(const LoweringInput& input, const Coordinates& place, const StepSizes& micro_batches,
                       TrainingState* state) {
  return pytorch::program_of(input, micro_batches, [&](Session& session, const Communicators& groups) {
    return Training(session, groups, input, place, state);
  });
}

Recording record_forward(const LoweringInput& input) {
  return pytorch::recording_of(input, [&](Session& session, const Communicators& groups) {
    return Training(session, groups, input, {}, nullptr);
  });
}

}  // namespace tidemark::parallel::deepspeed
