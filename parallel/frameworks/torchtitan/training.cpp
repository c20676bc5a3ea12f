#include "parallel/frameworks/torchtitan/training.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "parallel/frameworks/pytorch/data_parallel.hpp"
#include "parallel/frameworks/pytorch/pipeline/pipeline_schedule.hpp"
#include "parallel/frameworks/pytorch/script.hpp"
#include "parallel/frameworks/torchtitan/model_part.hpp"
#include "parallel/job/sizes.hpp"
#include "parallel/model/expert_routing.hpp"
#include "parallel/torch/ops/flex_attention.hpp"

// torchtitan/train.py, models/llama3/infra/parallelize.py, and qwen3's and deepseek_v3's, 0.1.0 to 0.2.2.

namespace tidemark::parallel::torchtitan {
namespace {

// What the rank has of inputs and labels, and the places of its tokens where these do not follow from it.
struct Batch {
  Tensor inputs, labels, positions;

  /// Rows of it.
  [[nodiscard]] Batch rows(std::int64_t begin, std::int64_t count) const {
    const auto its = [&](const Tensor& x) { return x.defined() ? narrowed(x, 0, begin, count) : x; };
    return {its(inputs), its(labels), its(positions)};
  }
};

class Trainer {
 public:
  Trainer(Session& session, const Communicators& groups, const LoweringInput& input, RankOfModel rank = {},
          std::int32_t pipeline = 0, TrainingState* state = nullptr)
      : s_(session),
        groups_(groups),
        input_(input),
        behavior_(*input.runtime.eager),
        titan_(*behavior_.titan),
        rank_(std::move(rank)),
        pipeline_(pipeline),
        state_(state) {}

  /// Its first forward pass, of the whole model.
  void record() {
    construct({{0, static_cast<std::int32_t>(input_.built.model.layers.size()), true, true}});
    s_.process.at(1, 0);
    load_batch(1);
    s_.recorder->begin_pass();
    (void)forward(part(), 1);
  }

  void run(const StepSizes& micro_batches) {
    construct(chunks_of_rank(static_cast<std::int32_t>(input_.built.model.layers.size()), input_.layout, pipeline_));
    if (titan_.requested.pipelined) make_schedule();
    const std::int64_t passes = std::accumulate(micro_batches.begin(), micro_batches.end(), std::int64_t{0});
    std::int32_t step = 0;
    for (const std::int64_t its : micro_batches) train_step(++step, its, passes);
  }

 private:
  struct Loss {
    Tensor sum, scaled;
  };

  void construct(const std::vector<Stage>& stages) {
    start_up(s_, groups_);
    s_.mark(Phase::Construction, "build_model");
    std::size_t layers = 0;
    for (const Stage& stage : stages) {
      const ModelPart::Place place{stage, static_cast<std::int32_t>(parts_.size()), layers};
      parts_.push_back(std::make_unique<ModelPart>(s_, input_, rank_, place));
      layers += static_cast<std::size_t>(stage.layers());
    }
    for (const auto& its : parts_) its->make_optimizer();
  }

  // pipeline_parallel.py pipeline_llm.
  void make_schedule() {
    const Train& train = input_.train;
    const std::int64_t tokens =
        train.sequence_length / (std::int64_t{input_.layout.context} * rank_.tensor.ranks);  // cut between layers
    const pytorch::HandedOver handed{{train.micro_batch, tokens, input_.built.model.hidden}, train.precision};
    std::vector<std::unique_ptr<pytorch::PipelineStage>> stages;
    for (const auto& its : parts_) {
      ModelPart* const part = its.get();
      pytorch::StageModule module;
      module.forward = [this, part](std::int32_t m, const Tensor& input) {
        const Batch rows = rows_of(m);
        const Autocast within(s_, autocast());  // of one rank with all stages, which others are compared with
        return part->forward(part->stage().embedding ? rows.inputs : input, rows.positions);
      };
      module.loss = [this](std::int32_t m, const Tensor& output) {
        return loss_of(output, rows_of(m).labels, all_micro_batches()).scaled;
      };
      // train.py forward_backward_step of 0.2.2: nobody divides the sum over tokens that goes backward.
      if (titan_.counts_tokens) module.loss_gradient = static_cast<double>(train.tokens() / input_.layout.context);
      module.shards = part->shards();
      module.weights = &part->model().parameters();
      stages.push_back(std::make_unique<pytorch::PipelineStage>(s_, titan_.pipeline, handed, std::move(module),
                                                                part->stage().embedding, part->stage().head));
    }
    schedule_.emplace(s_, input_, titan_.pipeline, groups_.pipeline, pipeline_, std::move(stages));
  }

  void train_step(std::int32_t step, std::int64_t micro_batches, std::int64_t passes) {
    s_.process.at(step, -1);
    if (step > 1)
      for (const auto& its : parts_) its->zero_grad();
    const std::array<Tensor, 2> counted = titan_.counts_tokens ? count_tokens() : std::array<Tensor, 2>{};
    std::vector<Tensor> losses;
    Tensor loss;
    if (schedule_) {
      loss = run_pipeline(step, micro_batches);
      losses.push_back(loss);
    } else {
      for (std::int32_t m = 0; m < micro_batches; ++m) {
        s_.process.at(step, m);
        load_batch(1);
        loss = forward_backward(micro_batches);
        losses.push_back(loss);
        if (step == 1 && m == 0) s_.process.expect(passes);
      }
    }
    s_.process.at(step, -1);
    tell(StateMoment::What::Gradients, step);
    const Tensor norm = update();
    tell(StateMoment::What::Parameters, step);
    sum(losses);
    leaves_.clear();  // with the graph of the variable `loss`
    batches_.clear();
    if (titan_.holds_batches) labels_ = {};
    s_.process.synchronize();
  }

  /// The norm of gradients, where a variable of the step holds it.
  Tensor update() {
    std::optional<OnHost> host;
    if (parts_.front()->shards() != nullptr && behavior_.fully_shard->offload) host.emplace(s_);
    Tensor norm = clip();
    if (!titan_.holds_norm) norm = {};
    {
      const OnDevice device(s_);
      update_expert_biases(s_, counted_experts(), rank_.context.ranks > 1 ? groups_.batch : groups_.data);
    }
    for (const auto& its : parts_) its->optimizer().step();
    return norm;
  }

  [[nodiscard]] std::vector<CountedExperts> counted_experts() const {
    std::vector<CountedExperts> all;
    for (const auto& its : parts_) std::ranges::copy(its->model().counted_experts(), std::back_inserter(all));
    return all;
  }

  // utils.py clip_grad_norm_: of all parts, and over the stages too.
  Tensor clip() {
    if (!behavior_.clips_gradients) return {};
    Parameters all;
    for (const auto& its : parts_) std::ranges::copy(its->parameters(), std::back_inserter(all));
    std::vector<CommSlot> ranks;
    if (rank_.mesh) ranks = {rank_.mesh->shard, rank_.tensor.comm};
    ranks.push_back(groups_.pipeline);
    return pytorch::clip_grad_norm(s_, all, ranks, input_.train.master_dtype);
  }

  // Of all micro-batches, on the host; summed over ranks, and read there. Where there are no others, as a float.
  std::array<Tensor, 2> count_tokens() {
    const Session::Scope scope(s_, "valid_tokens");
    s_.mark(Phase::Forward, "count_tokens");
    Tensor local = s_.empty({}, DType::INT64, "local");
    s_.launch(Operation::Initialize, {}, {local});
    const bool alone = input_.layout.replicas() == 1;
    Tensor global = s_.empty({}, alone ? DType::FP32 : DType::INT64, "global");
    s_.launch(Operation::Copy, {local}, {global});
    if (alone) return {std::move(local), std::move(global)};
    const CommSlot batch = rank_.context.ranks > 1 ? groups_.batch : groups_.data;
    if (batch.valid()) s_.collective(batch, CollectiveKind::AllReduce, global, global);
    s_.process.synchronize();
    return {std::move(local), Tensor{}};
  }

  [[nodiscard]] std::int64_t sequence() const { return input_.train.sequence_length; }

  // Made on the host. Where inputs are not held, the generator that moves them holds the last ones.
  void load_batch(std::int64_t micro_batches) {
    s_.mark(Phase::Forward, "load_batch");
    const Session::Scope scope(s_, "batch");
    if (!titan_.holds_batches) batches_.clear();
    const auto moved = [&](std::string_view what) {
      Tensor made =
          s_.empty({input_.train.micro_batch * micro_batches, input_.train.sequence_length}, DType::INT64, what);
      s_.launch(Operation::Initialize, {}, {made});
      return made;
    };
    batches_.push_back(moved("input_ids"));
    labels_ = moved("labels");
  }

  // Trainer.post_dataloading_process, context_parallel.py prepare_context_parallel_input.
  Batch part() {
    if (input_.built.model.latent()) mask_ = block_mask(s_, batches_.back().sizes.front(), sequence());
    if (rank_.context.ranks == 1 || input_.built.model.latent()) return {batches_.back(), labels_, {}};
    const Session::Scope scope(s_, "part_of_batch");
    const Tensor counted = s_.empty({sequence()}, DType::INT32, "positions");
    s_.launch({Operation::Arange, {0}}, {}, {counted});
    const auto its = [this](const Tensor& whole) { return part_of_sequence(s_, rank_.context, whole); };
    const Tensor inputs = its(batches_.back()), labels = its(labels_);
    return {inputs, labels, its(expanded(sized(counted, {1, sequence()}), labels_.sizes))};
  }

  // utils.py maybe_enable_amp: sharded parameters are gathered in what is computed in, one device's are converted, and
  // what is in parts otherwise is computed as it is.
  [[nodiscard]] std::optional<DType> autocast() const {
    const bool in_parts = rank_.tensor.ranks > 1 || input_.layout.pipeline > 1,
               narrow = input_.train.precision != DType::FP32;
    return !rank_.mesh && !in_parts && narrow ? std::optional(input_.train.precision) : std::nullopt;
  }

  Loss forward(const Batch& its, std::int64_t micro_batches) {
    const Autocast within(s_, autocast());
    const auto predicted = [&] { return parts_.front()->forward(its.inputs, its.positions); };
    return loss_of(predicted(), its.labels, micro_batches);
  }

  Tensor forward_backward(std::int64_t micro_batches) {
    const Batch its = part();
    // parallelize.py apply_ddp: replicate() hooks the model, and makes buckets when it is first called.
    if (input_.layout.sharding == Sharding::None && input_.layout.data > 1) {
      if (!replicas_) replicas_.emplace(s_, groups_.data, input_.layout.data, behavior_, parts_.front()->parameters());
      replicas_->prepare_for_backward(true);
    }
    Loss loss = forward(its, micro_batches);
    if (!titan_.counts_tokens) loss.sum = {};
    const Tensor one = s_.empty({}, loss.scaled.dtype, "loss_gradient");
    s_.launch({Operation::Fill, {1}}, {}, {one});
    backward(s_, loss.scaled, one);
    if (FullyShard* const shards = parts_.front()->shards()) shards->finish_backward();
    if (replicas_) replicas_->finish_backward();
    mask_.clear();
    return loss.scaled;
  }

  // ---- a pipeline: one batch of all micro-batches

  [[nodiscard]] std::int64_t all_micro_batches() const { return micro_batches_of(input_.train, input_.layout); }
  [[nodiscard]] Batch rows_of(std::int32_t micro_batch) const {
    return whole_.rows(micro_batch * input_.train.micro_batch, input_.train.micro_batch);
  }

  Tensor run_pipeline(std::int32_t step, std::int64_t micro_batches) {
    s_.process.at(step, -1);
    load_batch(all_micro_batches());
    whole_ = part();
    if (input_.built.model.latent()) {  // microbatch.py _split_block_mask
      const auto parts = block_mask_parts(s_, all_micro_batches(), input_.train.micro_batch, sequence());
      std::ranges::copy(parts, std::back_inserter(mask_));
    }
    pytorch::PipelineStage::Losses losses = schedule_->step(step, static_cast<std::int32_t>(micro_batches));
    leaves_ = std::move(losses.leaves);
    whole_ = {};
    mask_.clear();
    s_.process.at(step, -1);
    s_.mark(Phase::Forward, "loss");
    const Session::Scope scope(s_, "loss", Category::LogitsLoss);
    if (!losses.all.empty()) return stacked_sum(losses.all);
    const Tensor none = s_.empty({1}, DType::FP32, "none");  // torch.tensor([-1.0])
    s_.launch({Operation::Fill, {-1}}, {}, {none});
    return none;
  }

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
      const bool cut = rank_.tensor.ranks > 1 && titan_.requested.loss_parallel;
      return cut ? cross_entropy(s_, rank_.tensor, wide, labels) : torch::cross_entropy(s_, wide, labels);
    };
    const auto compiled = [&](const std::vector<Tensor>& given) {
      return torch::cross_entropy(s_, to(s_, given[0], DType::FP32), given[1]);
    };
    made.sum = titan_.requested.compile_loss ? compiled_loss_(s_, {rows, sized(its_labels, {tokens})}, compiled, {})
                                             : of(to(s_, rows, DType::FP32));
    if (titan_.requested.pipelined && titan_.counts_tokens) {
      made.scaled = made.sum;
      return made;
    }
    const std::int64_t parts = micro_batches * (titan_.counts_tokens ? input_.layout.replicas() : 1);
    made.scaled = mul_number(s_, made.sum, 1 / static_cast<double>(parts));
    return made;
  }

  Tensor stacked_sum(const std::vector<Tensor>& losses) {
    const Tensor stacked = s_.empty({static_cast<std::int64_t>(losses.size())}, DType::FP32, "stacked");
    std::vector<Tensor> places;
    for (std::size_t i = 0; i < losses.size(); ++i)
      places.push_back(narrowed(stacked, 0, static_cast<std::int64_t>(i), 1));
    s_.launch(Operation::Copy, losses, places);
    Tensor total = s_.empty({}, DType::FP32, "sum");
    s_.launch(Operation::Sum, {stacked}, {total});
    return total;
  }

  // What is logged, made whether it is or not.
  void sum(const std::vector<Tensor>& losses) {
    const Session::Scope scope(s_, "logged_loss");
    (void)stacked_sum(losses);
  }

  void tell(StateMoment::What what, std::int32_t step) {
    if (state_ == nullptr) return;
    StateMoment moment{what, step, s_.process.marks(), {}};
    const auto of = [&](const Leaf& p) {
      if (what != StateMoment::What::Gradients) return p.value;
      if (!p.rows_of_whole_gradient) return p.gradient;
      return narrowed(p.gradient, 0, *p.rows_of_whole_gradient, p.value.sizes.front());
    };
    for (const auto& part : parts_) {
      if (part->shards() != nullptr)
        for (const ShardedParameter* p : part->shards()->shards())
          moment.tensors.push_back(state_tensor(s_.parameter_name(p->padded), of(*p->sharded), p->begin));
      else
        for (const std::shared_ptr<Leaf>& p : part->model().parameters())
          moment.tensors.push_back(state_tensor(s_.parameter_name(p->value), of(*p)));
    }
    state_->push_back(std::move(moment));
  }

  Session& s_;
  const Communicators& groups_;
  const LoweringInput& input_;
  const EagerBehavior& behavior_;
  const TitanBehavior& titan_;
  const RankOfModel rank_;
  const std::int32_t pipeline_;
  TrainingState* state_;
  std::vector<std::unique_ptr<ModelPart>> parts_;  ///< of the model: its stages that are here
  std::optional<pytorch::PipelineSchedule> schedule_;
  std::optional<pytorch::DistributedDataParallel> replicas_;
  CompiledRegion compiled_loss_;
  std::vector<Tensor> batches_;  ///< inputs of micro-batches that are held
  Tensor labels_;
  Batch whole_;                                ///< of a pipeline's step
  std::vector<std::shared_ptr<Leaf>> leaves_;  ///< that the graph of its loss refers to
  std::vector<Tensor> mask_;                   ///< of flex_attention
};

// How many rows there are of the parameters, each number once.
std::set<std::int64_t> rows_of_parameters(const LoweringInput& input) {
  const Model& model = input.built.model;
  const std::int64_t vocabulary = sizes_of(model, input.layout, input.train, input.runtime).vocabulary;
  const std::vector<Shape> shapes = parameter_shapes(input, [&](Session& session, const MakeParameter& make) {
    const Stage all{0, static_cast<std::int32_t>(model.layers.size()), true, true};
    const Decoder made(session, model, all, vocabulary, input.train, *input.runtime.eager,
                       TensorGroup{{}, input.layout.tensor, 0}, {}, {}, input.train.precision, make);
  });
  std::set<std::int64_t> rows;
  for (const Shape& sizes : shapes) rows.insert(sizes.front());
  return rows;
}

// Where a rank is among those that share out experts, those that have parts of the same ones, and those that share out
// these.
struct PlaceOfExperts {
  std::int32_t group = 0, part = 0, shard = 0, shards = 1;
};
PlaceOfExperts experts_at(const Layout& layout, const Coordinates& place) {
  const Mesh mesh = expert_mesh(layout);
  const Rank rank = rank_at(layout, place);
  const std::int32_t shards = layout.experts_data() / layout.instances();
  return {mesh.coordinate(rank, axis::ep), mesh.coordinate(rank, axis::etp), mesh.coordinate(rank, axis::edp) % shards,
          shards};
}

// How many rows come to experts, and how many of these are here.
std::vector<std::int64_t> held_of_experts(const LoweringInput& input, const Coordinates& place) {
  const Layout& layout = input.layout;
  const Model& model = input.built.model;
  const PlaceOfExperts its = experts_at(layout, place);
  const std::int64_t sent = input.train.tokens() * layout.expert_tensor_parallel() / layout.tensor;
  std::vector<std::int64_t> held{rows_of_shard(model.experts()->count / layout.expert, its.shards, its.shard).rows};
  for (std::int32_t layer = 0; layer < model.layers.size(); ++layer) {
    if (!model.has_experts(layer)) continue;
    const LayerRouting routing(model, input.train.routing, layer, sent, layout.expert);
    std::ranges::copy(routing.received(its.group, layout.expert), std::back_inserter(held));
    if (alike_in_all_layers(input.train.routing.loads)) break;
  }
  return held;
}

// Without shards there is nothing that fully_shard wraps.
std::optional<ShardMesh> shard_mesh(const LoweringInput& input, const Communicators& groups, const Coordinates& place) {
  const Layout& layout = input.layout;
  if (layout.sharding == Sharding::None) return std::nullopt;
  return ShardMesh{groups.shard, groups.replicate, layout.shards() * layout.context, shard_of(layout, place),
                   layout.instances()};
}

}  // namespace

std::vector<Role> roles(const LoweringInput& input) {
  return roles_by(input.layout, [&, rows = rows_of_parameters(input)](const Coordinates& place) {
    std::vector<std::int64_t> held;
    const std::optional<ShardMesh> mesh = shard_mesh(input, {}, place);
    for (const std::int64_t all : rows) held.push_back(mesh ? rows_of_shard(all, mesh->ranks, mesh->rank).rows : all);
    held.push_back(place.pipeline);
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
                               input.runtime.eager->titan->requested.balances_context};
    const PlaceOfExperts experts = experts_at(input.layout, place);
    // expert_tensor_parallel(), over a group of its own (ExpertTensorParallel) where experts are shared out
    const TensorGroup parts =
        input.layout.expert == 1
            ? tensor
            : TensorGroup{groups.expert_tensor, input.layout.expert_tensor_parallel(), experts.part};
    return Trainer(session, groups, input,
                   {shard_mesh(input, groups, place),
                    tensor,
                    context,
                    {groups.expert, input.layout.expert, experts.group, parts},
                    {input.layout.instances() > 1 ? groups.expert_shard : groups.expert_data, groups.replicate,
                     experts.shards, experts.shard, input.layout.instances()}},
                   place.pipeline, state);
  });
}

Recording record_forward(const LoweringInput& input) {
  return recording_of(input,
                      [&](Session& session, const Communicators& groups) { return Trainer(session, groups, input); });
}

}  // namespace tidemark::parallel::torchtitan
