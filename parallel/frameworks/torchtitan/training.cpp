#include "parallel/frameworks/torchtitan/training.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "parallel/expert_routing.hpp"
#include "parallel/frameworks/pytorch/fully_shard.hpp"
#include "parallel/frameworks/pytorch/optimizer.hpp"
#include "parallel/frameworks/pytorch/script.hpp"
#include "parallel/frameworks/torchtitan/decoder.hpp"
#include "parallel/sizes.hpp"
#include "parallel/torch/flex_attention.hpp"

// torchtitan/train.py, models/llama3/infra/parallelize.py, and qwen3's and deepseek_v3's, 0.1.0 to 0.2.2.

namespace tidemark::parallel::torchtitan {
namespace {

class Trainer {
 public:
  Trainer(Session& session, const Communicators& groups, const LoweringInput& input, std::optional<ShardMesh> mesh = {},
          const TensorGroup& tensor = {}, const ContextGroup& context = {}, const ExpertGroup& experts = {},
          const ShardMesh& expert_mesh = {}, TrainingState* state = nullptr)
      : s_(session),
        groups_(groups),
        input_(input),
        habits_(*input.runtime.eager),
        titan_(*habits_.titan),
        mesh_(mesh),
        tensor_(tensor),
        context_(context),
        experts_(experts),
        expert_mesh_(expert_mesh),
        state_(state) {}

  /// Its first forward pass.
  void record() {
    construct();
    s_.process.at(1, 0);
    load_batch();
    s_.recorder->begin_pass();
    const Part its = part();
    (void)loss_of(forward(its), its.labels, 1);
  }

  void run(const StepSizes& micro_batches) {
    construct();
    const std::int64_t passes = std::accumulate(micro_batches.begin(), micro_batches.end(), std::int64_t{0});
    std::int32_t step = 0;
    for (const std::int64_t its : micro_batches) train_step(++step, its, passes);
  }

 private:
  void construct() {
    start_up(s_, groups_);
    s_.mark(Phase::Construction, "build_model");
    const Train& train = input_.train;
    const Model& model = input_.built.model;
    const std::int64_t vocabulary = sizes_of(model, input_.layout, train, input_.runtime).vocabulary;
    if (mesh_) {
      shards_.emplace(s_, *mesh_, *habits_.fully_shard, train.master_dtype);
      model_.emplace(s_, model, vocabulary, train, habits_, tensor_, context_, experts_, train.precision,
                     [this](const std::string& name, const Shape& sizes, DType type) {
                       return shards_->parameter(name, sizes, type);
                     });
      shard_model();
    } else {
      model_.emplace(s_, model, vocabulary, train, habits_, tensor_, context_, experts_, train.master_dtype);
    }
    optimizer_.emplace(s_, train, habits_, shards_ ? shards_->parameters() : model_->parameters(),
                       mesh_ ? std::vector{mesh_->shard, tensor_.comm} : std::vector<CommSlot>());
  }

  // apply_fsdp. Up to 0.1.0 the root has both ends, and the last layer is what the backward pass begins with.
  void shard_model() {
    std::vector<Decoder::Part>& parts = model_->parts();
    const bool never = titan_.asked.reshard == ReshardPolicy::Never,
               by_default = titan_.asked.reshard == ReshardPolicy::Default;
    const auto after = [](bool reshards) { return reshards ? AfterForward::Reshards : AfterForward::Keeps; };
    std::vector<ShardUnit> units{{"root", after(titan_.reshards_root), {}}};
    std::vector<Decoder::Part*> hooked;
    const std::size_t last_unit = parts.size() - (titan_.ends_are_units ? 1 : 2);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool is_end = i == 0 || i + 1 == parts.size();
      const bool own = titan_.ends_are_units || !is_end;
      if (own) {
        units.push_back({parts[i].name, after(!never && !(by_default && i == last_unit)), {}});
        hooked.push_back(&parts[i]);
      }
      std::vector<std::size_t>& its = (own ? units.back() : units.front()).parameters;
      const bool apart = experts_.ranks > 1 && parts[i].moe != nullptr;
      for (std::size_t p = parts[i].begin; p < parts[i].end; ++p)
        if (!apart || p < parts[i].experts_begin || p >= parts[i].experts_end) its.push_back(p);
      if (apart) units.push_back(experts_of(parts[i], after(!never)));
    }
    for (const std::size_t parameter : model_->partial()) shards_->sum_over(tensor_.comm, parameter);
    const std::vector<UnitParameters*> made = shards_->shard(units);
    const auto hooks_of = [](UnitParameters* its) {
      return ForwardHooks{[its](const Tensor& input) { return its->pre_forward(input); },
                          [its](const Tensor& output) { return its->post_forward(output); }};
    };
    std::vector<std::vector<UnitParameters*>> of_parts;
    std::size_t next = 1;
    for (Decoder::Part* const part : hooked) {
      of_parts.push_back({made[next++]});
      part->hooks = hooks_of(of_parts.back().front());
      if (experts_.ranks == 1 || part->moe == nullptr) continue;
      of_parts.back().push_back(made[next++]);
      part->moe->hook(hooks_of(of_parts.back().back()));
    }
    if (experts_.ranks > 1) prefetch(of_parts);
  }

  // llama4/infra/parallelize.py apply_fsdp: experts are cut over the ranks that hold the same ones.
  ShardUnit experts_of(const Decoder::Part& part, AfterForward after_forward) {
    ShardUnit unit{part.name + ".moe.experts", after_forward, {}};
    for (std::size_t p = part.experts_begin; p < part.experts_end; ++p) {
      shards_->cut_over(expert_mesh_, experts_.rank * model_->parameters()[p]->value.elements(), p);
      unit.parameters.push_back(p);
    }
    return unit;
  }

  // The same: what comes next is told, since the host waits for counts; at the ends without its experts.
  static void prefetch(const std::vector<std::vector<UnitParameters*>>& parts) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::vector<UnitParameters*> in_forward, in_backward;
      if (i + 1 < parts.size()) in_forward = i == 0 ? std::vector{parts[1].front()} : parts[i + 1];
      if (i > 0) in_backward = i + 1 == parts.size() ? std::vector{parts[i - 1].front()} : parts[i - 1];
      parts[i].front()->prefetch(std::move(in_forward), std::move(in_backward));
    }
  }

  void train_step(std::int32_t step, std::int64_t micro_batches, std::int64_t passes) {
    s_.process.at(step, -1);
    if (step > 1) {
      if (shards_) shards_->before_zero_grad();
      optimizer_->zero_grad();
    }
    const Tensor counted = titan_.counts_tokens ? count_tokens() : Tensor{};
    std::vector<Tensor> losses;
    Tensor loss;
    for (std::int32_t m = 0; m < micro_batches; ++m) {
      s_.process.at(step, m);
      load_batch();
      loss = forward_backward(micro_batches);
      losses.push_back(loss);
      if (step == 1 && m == 0) s_.process.expect(passes);
    }
    s_.process.at(step, -1);
    tell(StateMoment::What::Gradients, step);
    {
      std::optional<OnHost> host;
      if (shards_ && habits_.fully_shard->offload) host.emplace(s_);
      optimizer_->clip();
      {
        const OnDevice device(s_);
        model_->update_expert_biases(context_.ranks > 1 ? groups_.batch : groups_.data);
      }
      optimizer_->step();
    }
    tell(StateMoment::What::Parameters, step);
    sum(losses);
    batches_.clear();
    if (titan_.holds_batches) labels_ = {};
    s_.process.synchronize();
  }

  // Of all micro-batches, on the host; summed over ranks, and read there.
  Tensor count_tokens() {
    const Session::Scope scope(s_, "valid_tokens");
    s_.mark(Phase::Forward, "count_tokens");
    const Tensor local = s_.empty({}, DType::INT64, "local");
    s_.launch(Operation::Initialize, {}, {local});
    const Tensor global = s_.empty({}, DType::INT64, "global");
    s_.launch(Operation::Copy, {local}, {global});
    const CommSlot batch = context_.ranks > 1 ? groups_.batch : groups_.data;
    if (batch.valid()) s_.collective(batch, CollectiveKind::AllReduce, global, global);
    s_.process.synchronize();
    return local;
  }

  // Made on the host. Where inputs are not held, the generator that moves them holds the last ones.
  void load_batch() {
    s_.mark(Phase::Forward, "load_batch");
    const Session::Scope scope(s_, "batch");
    if (!titan_.holds_batches) batches_.clear();
    const auto moved = [&](std::string_view what) {
      Tensor made = s_.empty({input_.train.micro_batch, input_.train.sequence_length}, DType::INT64, what);
      s_.launch(Operation::Initialize, {}, {made});
      return made;
    };
    batches_.push_back(moved("input_ids"));
    labels_ = moved("labels");
  }

  // What the rank has of a micro-batch, and the places of its tokens where these do not follow from it.
  struct Part {
    Tensor inputs, labels, positions;
    std::vector<Tensor> mask;  ///< of flex_attention
  };
  // Trainer.post_dataloading_process, context_parallel.py prepare_context_parallel_input.
  Part part() {
    if (input_.built.model.latent)
      return {batches_.back(), labels_, {}, block_mask(s_, input_.train.micro_batch, input_.train.sequence_length)};
    if (context_.ranks == 1) return {batches_.back(), labels_, {}, {}};
    const Session::Scope scope(s_, "part_of_batch");
    const std::int64_t sequence = input_.train.sequence_length;
    const Tensor counted = s_.empty({sequence}, DType::INT32, "positions");
    s_.launch({Operation::Arange, {0}}, {}, {counted});
    const auto its = [this](const Tensor& whole) { return part_of_sequence(s_, context_, whole); };
    const Tensor inputs = its(batches_.back()), labels = its(labels_);
    return {inputs, labels, its(expanded(sized(counted, {1, sequence}), labels_.sizes)), {}};
  }

  Tensor forward_backward(std::int64_t micro_batches) {
    const Part its = part();
    Loss loss = loss_of(forward(its), its.labels, micro_batches);
    if (!titan_.counts_tokens) loss.sum = {};
    const Tensor one = s_.empty({}, loss.scaled.dtype, "loss_gradient");
    s_.launch({Operation::Fill, {1}}, {}, {one});
    backward(s_, loss.scaled, one);
    if (shards_) shards_->finish_backward();
    return loss.scaled;
  }

  Tensor forward(const Part& its) {
    // Sharded parameters are gathered in the type that is computed in.
    const bool mixed = !shards_ && input_.train.precision != input_.train.master_dtype;
    const Autocast autocast(s_, mixed ? std::optional(input_.train.precision) : std::nullopt);
    if (shards_) shards_->root_pre_forward();
    const Tensor predicted = (*model_)(its.inputs, its.positions);
    return shards_ ? shards_->root_post_forward(predicted) : predicted;
  }

  struct Loss {
    Tensor sum, scaled;
  };
  // The logits go with the call. A sum over the tokens of this micro-batch by the number of all ranks' and
  // micro-batches' is their mean by the number of these; where ranks' gradients are averaged, by that of micro-batches.
  Loss loss_of(const Tensor& predicted, const Tensor& its_labels, std::int64_t micro_batches) {
    const Session::Scope scope(s_, "loss", Category::LogitsLoss);
    s_.mark(Phase::Forward, "loss");
    const std::int64_t tokens = its_labels.elements();
    const Tensor rows = view(s_, predicted, {tokens, predicted.size(-1)});
    Loss made;
    const auto of = [&](const Tensor& wide) {
      const Tensor labels = sized(its_labels, {tokens});
      const bool cut = tensor_.ranks > 1 && titan_.asked.loss_parallel;
      return cut ? cross_entropy(s_, tensor_, wide, labels) : torch::cross_entropy(s_, wide, labels);
    };
    const auto compiled = [&](const std::vector<Tensor>& given) {
      return torch::cross_entropy(s_, to(s_, given[0], DType::FP32), given[1]);
    };
    made.sum = titan_.asked.compile_loss ? compiled_loss_(s_, {rows, sized(its_labels, {tokens})}, compiled, {})
                                         : of(to(s_, rows, DType::FP32));
    const std::int64_t parts = micro_batches * (titan_.counts_tokens ? input_.layout.replicas() : 1);
    made.scaled = mul_number(s_, made.sum, 1 / static_cast<double>(parts));
    return made;
  }

  // What is logged, made whether it is or not.
  void sum(const std::vector<Tensor>& losses) {
    const Session::Scope scope(s_, "logged_loss");
    const Tensor stacked = s_.empty({static_cast<std::int64_t>(losses.size())}, DType::FP32, "stacked");
    std::vector<Tensor> places;
    for (std::size_t i = 0; i < losses.size(); ++i)
      places.push_back(narrowed(stacked, 0, static_cast<std::int64_t>(i), 1));
    s_.launch(Operation::Copy, losses, places);
    const Tensor total = s_.empty({}, DType::FP32, "sum");
    s_.launch(Operation::Sum, {stacked}, {total});
  }

  void tell(StateMoment::What what, std::int32_t step) {
    if (state_ == nullptr) return;
    StateMoment moment{what, step, s_.process.marks(), {}};
    const auto of = [&](const Leaf& p) { return what == StateMoment::What::Gradients ? p.gradient : p.value; };
    if (shards_)
      for (const ShardedParameter* p : shards_->shards())
        moment.tensors.push_back(state_tensor(s_.parameter_name(p->padded), of(*p->sharded), p->begin));
    else
      for (const std::shared_ptr<Leaf>& p : model_->parameters())
        moment.tensors.push_back(state_tensor(s_.parameter_name(p->value), of(*p)));
    state_->push_back(std::move(moment));
  }

  Session& s_;
  const Communicators& groups_;
  const LoweringInput& input_;
  const EagerHabits& habits_;
  const TitanHabits& titan_;
  std::optional<ShardMesh> mesh_;  ///< none where one rank has all
  const TensorGroup tensor_;
  const ContextGroup context_;
  const ExpertGroup experts_;
  const ShardMesh expert_mesh_;
  TrainingState* state_;
  std::optional<FullyShard> shards_;
  std::optional<Decoder> model_;
  CompiledRegion compiled_loss_;
  std::optional<TorchOptimizer> optimizer_;
  std::vector<Tensor> batches_;  ///< inputs of micro-batches that are held
  Tensor labels_;
};

// How many rows there are of the parameters, each number once.
std::set<std::int64_t> rows_of_parameters(const LoweringInput& input) {
  const Model& model = input.built.model;
  const std::int64_t vocabulary = sizes_of(model, input.layout, input.train, input.runtime).vocabulary;
  const std::vector<Shape> shapes = parameter_shapes(input, [&](Session& session, const MakeParameter& make) {
    const Decoder made(session, model, vocabulary, input.train, *input.runtime.eager,
                       TensorGroup{{}, input.layout.tensor, 0}, {}, {}, input.train.precision, make);
  });
  std::set<std::int64_t> rows;
  for (const Shape& sizes : shapes) rows.insert(sizes.front());
  return rows;
}

// Where a rank is among those that share out experts, and those that share out the same ones.
struct PlaceOfExperts {
  std::int32_t group = 0, shard = 0, shards = 1;
};
PlaceOfExperts experts_at(const Layout& layout, const Coordinates& place) {
  const Mesh mesh = expert_mesh(layout);
  const Rank rank = rank_at(layout, place);
  const std::int32_t shards = layout.experts_data() / layout.instances();
  return {mesh.coordinate(rank, axis::ep), mesh.coordinate(rank, axis::edp) % shards, shards};
}

// How many rows come to experts, and how many of these are here.
std::vector<std::int64_t> held_of_experts(const LoweringInput& input, const Coordinates& place) {
  const Layout& layout = input.layout;
  const Model& model = input.built.model;
  const PlaceOfExperts its = experts_at(layout, place);
  std::vector<std::int64_t> held{rows_of_shard(model.experts->count / layout.expert, its.shards, its.shard).rows};
  for (std::int32_t layer = 0; layer < model.layers; ++layer) {
    const LayerRouting routing(*model.experts, input.train.routing, layer, input.train.tokens(), layout.expert);
    std::ranges::copy(routing.received(its.group, layout.expert), std::back_inserter(held));
    if (alike_in_all_layers(input.train.routing.loads)) break;
  }
  return held;
}

// One rank wraps nothing.
std::optional<ShardMesh> shard_mesh(const LoweringInput& input, const Communicators& groups, const Coordinates& place) {
  const Layout& layout = input.layout;
  if (layout.replicas() == 1) return std::nullopt;
  return ShardMesh{groups.shard, groups.replicate, layout.shards() * layout.context, shard_of(layout, place),
                   layout.instances()};
}

}  // namespace

std::vector<Role> roles(const LoweringInput& input) {
  const std::int64_t ranks = std::int64_t{input.layout.shards()} * input.layout.context;
  return roles_by(input.layout, [&, rows = rows_of_parameters(input)](const Coordinates& place) {
    std::vector<std::int64_t> held;
    for (const std::int64_t all : rows) held.push_back(rows_of_shard(all, ranks, shard_of(input.layout, place)).rows);
    if (input.layout.context > 1) held.push_back(place.context);  // whose attention sees other keys
    if (input.layout.expert > 1) std::ranges::copy(held_of_experts(input, place), std::back_inserter(held));
    return held;
  });
}

Program lower_training(const LoweringInput& input, const Coordinates& place, const StepSizes& micro_batches,
                       TrainingState* state) {
  return program_of(input, micro_batches, [&](Session& session, const Communicators& groups) {
    const TensorGroup tensor{groups.tensor, input.layout.tensor, place.tensor};
    const ContextGroup context{groups.context, input.layout.context, place.context,
                               input.runtime.eager->titan->asked.balances_context};
    const PlaceOfExperts experts = experts_at(input.layout, place);
    return Trainer(session, groups, input, shard_mesh(input, groups, place), tensor, context,
                   {groups.expert, input.layout.expert, experts.group},
                   {input.layout.instances() > 1 ? groups.expert_shard : groups.expert_data, groups.replicate,
                    experts.shards, experts.shard, input.layout.instances()},
                   state);
  });
}

Recording record_forward(const LoweringInput& input) {
  return recording_of(input,
                      [&](Session& session, const Communicators& groups) { return Trainer(session, groups, input); });
}

}  // namespace tidemark::parallel::torchtitan
