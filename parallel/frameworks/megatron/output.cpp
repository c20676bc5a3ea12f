#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/multi_token_prediction.hpp"
#include "parallel/frameworks/megatron/recompute.hpp"

// GPTModel from its decoder on: the LM head, and the loss over a vocabulary that may be cut.

namespace tidemark::parallel::megatron {

using torch::with;

GPTModel::GPTModel(Worker& w, const Stage& stage, Parameters& parameters)
    : w_(w),
      stage_(stage),
      embedding_(w.name("embedding")),
      output_(w.name("head")),
      loss_(w.name("loss")),
      further_(w.name("next_tokens")) {
  const Model& m = w.model;
  const auto table = [&](const char* name) {
    return parameters.add(
        {.name = name, .rows = m.vocabulary, .columns = m.hidden, .cut = WeightCut::Rows, .vocabulary = true});
  };
  if (stage.embedding || (stage.head && !m.further.empty())) {
    parameters.enter(-1);
    words_ = table("embedding.weight");
    // Looked up before the sequence is cut: every rank computes all of their gradient.
    if (m.positions == Positions::Learned)
      positions_ = parameters.add({.name = "positions.weight", .rows = m.max_positions, .columns = m.hidden});
  }
  for (std::int32_t layer = stage.first; layer < stage.last; ++layer) {
    parameters.enter(layer);
    layers_.push_back(std::make_unique<TransformerLayer>(w, parameters, layer));
  }
  if (w.runtime.offloaded_layers > 0)
    offload_ =
        std::make_unique<LayerOffload>(w.session, layers_.size(), static_cast<std::size_t>(w.runtime.offloaded_layers));
  if (!stage.head) return;
  parameters.enter(static_cast<std::int32_t>(m.layers.size()));
  final_norm_ = make_norm(w, parameters, "final_norm");
  for (std::int32_t further = 0; further < m.further.size(); ++further)
    mtp_layers_.push_back(std::make_unique<NextTokenLayer>(w, parameters, further));
  output_weight_ = table(m.tied_embeddings ? "embedding.weight" : "head.weight");
  // skip_weight_param_allocation asks for the first stage; shared_embedding_or_output_weight then gives the
  // embedding's.
  // One rank that holds the whole model registers what other stages have.
  const bool spare = m.tied_embeddings && !m.further.empty() && (!stage.embedding || w.built.parameters.empty());
  if (spare)
    (void)parameters.add({.name = "head.weight",
                          .rows = m.vocabulary,
                          .columns = m.hidden,
                          .cut = WeightCut::Rows,
                          .vocabulary = true,
                          .spare = true});
}

GPTModel::~GPTModel() = default;

namespace {

bool takes_one_more(std::size_t deferred, const Worker& w) {
  return static_cast<std::int64_t>(deferred) < w.runtime.deferred_head_gradients;
}

}  // namespace

Tensor GPTModel::operator()(const std::shared_ptr<AutogradInput>& input, const Batch& batch) {
  Tensor hidden = stage_.embedding ? embedding(embedding_, batch.tokens, batch.position_ids) : input->value;
  if (w_.model.positions == Positions::Rotary && !w_.model.latent()) (void)w_.rotary_table();
  hidden = decoder(std::move(hidden));
  if (!stage_.head) return hidden;
  hidden = norm(w_, *final_norm_, std::move(hidden));
  Tensor further_logits;  // a variable of forward()
  if (!mtp_layers_.empty()) hidden = with_further_losses(hidden, batch, further_logits);
  if (w_.session.grad_enabled && takes_one_more(inputs_of_head_.size(), w_))
    inputs_of_head_.push_back({hidden.detached(), input});
  Tensor logits = head(output_, std::move(hidden));
  return loss(loss_, std::move(logits), batch.labels, LossGradient::OfTheirMean);
}

// core/transformer/transformer_block.py TransformerBlock. Uniform recomputation: groups of so many layers, all of them.
// Block: so many layers, one by one, and the rest saves.
Tensor GPTModel::decoder(Tensor hidden) {
  const Recomputation& requested = w_.train.recompute;
  const std::size_t layers = layers_.size(), count = static_cast<std::size_t>(requested.layers);
  const bool block = requested.method == RecomputeMethod::Block;
  const std::size_t again = requested.kind != Recompute::Full ? 0 : block ? std::min(layers, count) : layers;
  const std::size_t group = block ? 1 : count;
  for (std::size_t from = 0; from < again; from += group) {
    const auto run = [this, from, to = std::min(from + group, again)](Tensors of) {
      const GivenMask mask(w_, of);
      Tensor x = std::move(of.front());
      for (std::size_t layer = from; layer < to; ++layer) x = (*layers_[layer])(std::move(x));
      return x;
    };
    Tensors inputs;
    inputs.push_back(std::move(hidden));
    if (w_.attention_mask.defined()) inputs.push_back(w_.attention_mask);
    hidden = checkpoint(w_, run, std::move(inputs), saved_inputs(w_));
  }
  for (std::size_t layer = again; layer < layers; ++layer) {
    const auto run = [&] { return (*layers_[layer])(std::move(hidden)); };
    hidden = offload_ ? offload_->run(run) : run();
  }
  return hidden;
}

namespace {

Cap logits_cap(const Worker& w, const Name& head) {
  return {.value = w.model.logit_softcap,
          .divided = head("divided_by_cap"),
          .tangent = head("logits_tanh"),
          .capped = head("logits"),
          .capped_gradient = head("capped_gradient"),
          .tangent_gradient = head("tanh_gradient"),
          .uncapped_gradient = head("uncapped_gradient"),
          .category = Category::LogitsLoss,
          .tangent_category = Category::LogitsLoss};
}

}  // namespace

// core/tensor_parallel/layers.py LinearWithGradAccumulationAndAsyncCommunication.backward.
Gradients GPTModel::head_backward(const Name& name, Tensor gradient, Saved saved, Saved tangent) {
  Worker& w = w_;
  const Weight& weight = *output_weight_;
  if (tangent) gradient = cap_backward(w, logits_cap(w, name), std::move(gradient), w.take(tangent));
  const Tensor input = w.take(saved);
  const bool later = takes_one_more(gradients_of_logits_.size(), w);
  if (later) gradients_of_logits_.push_back(gradient);
  Tensor whole_input = input;
  EventId gathering;
  if (w.sequence_parallel() && !later) {
    whole_input = w.head_gather(w.whole(weight.columns));
    gathering = w.aside(CollectiveKind::AllGather, input, whole_input);
  }
  const Tensor dgrad = w.temporary(name("input_gradient"), w.whole(weight.columns));
  const BufferId workspace = w.process.blas_workspace(HostThread::Autograd);
  data_gradient_product(w, weight, gradient, dgrad, workspace);
  w.process.join(gathering);
  Tensor result = dgrad;
  EventId reducing;
  if (w.sequence_parallel()) {
    result = w.communicated(name("input_gradient_scattered"), input.sizes);
    reducing = w.aside(CollectiveKind::ReduceScatter, dgrad, result);
  } else {
    reducing = w.aside(CollectiveKind::AllReduce, dgrad, dgrad);
  }
  const Tensor held = gradient.detached();  // a variable of the function
  Tensor own;
  if (!later) own = weight_gradient_product(w, name, weight, std::move(whole_input), std::move(gradient), workspace);
  Tensor wgrad = given_gradient(w, weight, std::move(own));
  // A dummy that autograd adds to the embedding's gradient is zero (zero_out_wgrad).
  const bool dummy = w.zeroes_dummies() && w.runtime.dummy_gradient != DummyGradient::None;
  if (dummy && wgrad.defined()) w.launch({Operation::Fill, {0}}, {}, {wgrad});
  w.process.join(reducing);
  return {std::move(wgrad), std::move(result)};
}

// core/utils.py drain_embedding_wgrad_compute: while one product runs, the next one's input is gathered.
void GPTModel::finish_head_gradient() {
  if (gradients_of_logits_.empty()) return;
  Worker& w = w_;
  const Weight& weight = *output_weight_;
  w.mark(Phase::Backward, output_);
  const BufferId workspace = w.process.blas_workspace(HostThread::Main);
  struct Input {
    Tensor own, whole;  // the former until the latter is there
    EventId gathering;
  };
  auto next_input = [&, turn = 0]() mutable {
    Tensor own = std::move(inputs_of_head_.front().tensor);
    inputs_of_head_.pop_front();
    if (!w.sequence_parallel()) return Input{own, own, {}};
    using enum Worker::GlobalBuffer;
    const Tensor whole = w.global_buffer(w.whole(weight.columns), turn++ % 2 == 0 ? FirstOfTwo : SecondOfTwo);
    return Input{own, whole, w.aside(CollectiveKind::AllGather, own, whole)};
  };
  Input input = next_input();
  w.process.join(input.gathering);
  while (!gradients_of_logits_.empty()) {
    Input next;
    if (!inputs_of_head_.empty()) next = next_input();
    Tensor gradient = std::move(gradients_of_logits_.front());
    gradients_of_logits_.pop_front();
    (void)weight_gradient_product(w, output_, weight, std::move(input.whole), std::move(gradient), workspace);
    w.process.join(next.gathering);
    input = std::move(next);
  }
}

// core/tensor_parallel/layers.py ColumnParallelLinear.
Tensor GPTModel::head(const Name& name, Tensor hidden) {
  Worker& w = w_;
  const Weight& weight = *output_weight_;
  w.mark(Phase::Forward, name);
  const auto node = w.node(name(), {&weight.value, &hidden});
  Saved saved, saved_tangent;
  if (node) saved = w.session.save(hidden);
  if (w.sequence_parallel()) {
    const Tensor gathered = w.head_gather(w.whole(weight.columns));
    w.session.collective(w.comms.tensor, CollectiveKind::AllGather, hidden, gathered);
    hidden = gathered;
  }
  const bool capped = w.model.logit_softcap > 0;
  Tensor logits =
      w.make(name(capped ? "uncapped" : "logits"), {w.tokens(), weight.rows}, w.train.precision, Category::LogitsLoss);
  const BufferId workspace = w.process.blas_workspace(HostThread::Main);
  forward_product(w, weight, nullptr, std::move(hidden), logits, workspace);
  if (capped) {
    Tensor tangent;
    logits = cap_forward(w, logits_cap(w, name), logits, tangent);
    if (node) saved_tangent = w.session.save(tangent);
  }
  if (!node) return logits;
  node->apply = [this, &name, saved = std::move(saved),
                 tangent = std::move(saved_tangent)](Gradients& gradients) mutable {
    return head_backward(name, std::move(gradients.front()), std::move(saved), std::move(tangent));
  };
  return with(std::move(logits), node);
}

// ---- loss ----------------------------------------------------------------------------------------------------------

namespace {

struct Softmax {
  Tensor exponentials, target, mask;  ///< which backward reads
};

// The loss is the mean of all tokens' over all micro-batches (pretrain_gpt.py loss_func, forward_step_calc_loss of
// core/pipeline_parallel/schedules.py): each token's has this gradient. fp16 training's loss scale is taken as 1, and
// so is what the loss is multiplied by under context parallelism: the number of its ranks, which no update depends on.
double gradient_of_loss(const Worker& w) {
  return 1 / static_cast<double>(w.tokens() * micro_batches_of(w.train, w.layout));
}

class CrossEntropyLoss {
 public:
  CrossEntropyLoss(Worker& w, const Name& name, const Tensor& logits)
      : w_(w), name_(name), shape_(logits.sizes), first_(static_cast<double>(w.first_row(logits.size(-1)))) {}

  // TransformerEngine's (common/triton/cross_entropy.py): softmax statistics (maximum, denominator, target logit) of
  // each token, gathered over the vocabulary's parts; then one kernel writes the gradient over the logits.
  Tensor of_transformer_engine(const Tensor& logits, Tensor labels) {
    Tensor out = of_tokens("out", Category::LogitsLoss);
    Tensor statistics = w_.temporary(name_("statistics"), {w_.tokens(), 3}, DType::FP32);
    w_.launch({Operation::CrossEntropyStatistics, {first_}}, {logits, labels}, {statistics});
    const Shape of_all{w_.sizes.tensor, w_.tokens(), 3};
    if (w_.tensor_parallel()) statistics = w_.all_gather(name_("statistics_gathered"), std::move(statistics), of_all);
    w_.launch({Operation::CrossEntropyFromStatistics, {first_}},
              {logits, std::move(labels), sized(std::move(statistics), of_all)}, {logits, out});
    return out;
  }

  // core/fusions/fused_cross_entropy.py: the compiled kernel writes the exponentials beside the fp32 logits.
  Tensor fused(const Tensor& logits, Tensor labels, Softmax& made) {
    const Tensor work = in_fp32(logits, "logits_fp32");
    Tensor maximum = maximum_of(work);
    made.mask = w_.make(name_("target_mask"), w_.per_token(), DType::BOOL, Category::LogitsLoss);
    made.target = w_.make(name_("masked_target"), w_.per_token(), DType::INT64, Category::LogitsLoss);
    mask_targets(std::move(labels), made.mask, made.target);
    made.exponentials = w_.make(name_("softmax"), shape_, DType::FP32, Category::LogitsLoss);
    Tensor out = of_tokens("out", Category::LogitsLoss);
    const Tensor both = w_.temporary(name_("sums"), {2, w_.tokens()}, DType::FP32);
    const auto part = [&](std::int64_t at) { return sized(narrowed(both, 0, at, 1), w_.per_token()); };
    const Tensor target_logits = part(0), sums = part(1);
    w_.launch(Operation::ShiftedExponentials, {work, std::move(maximum), made.target, made.mask},
              {made.exponentials, sums, target_logits});
    w_.all_reduce(both);
    w_.launch(Operation::VocabularyLoss, {made.exponentials, sums, target_logits}, {made.exponentials, out});
    return out;
  }

  // core/tensor_parallel/cross_entropy.py: exponentials and softmax over the fp32 logits, the target's logit looked up
  // between.
  Tensor plain(const Tensor& logits, Tensor labels, Softmax& made) {
    const Tensor work = in_fp32(logits, "softmax");
    const auto indices = [&](std::string_view use) { return w_.temporary(name_(use), w_.per_token(), DType::INT64); };
    const Tensor maximum = maximum_of(work, indices("maximum_place"));
    Tensor below = w_.temporary(name_("target_below"), w_.per_token(), DType::BOOL),
           above = w_.temporary(name_("target_above"), w_.per_token(), DType::BOOL);
    made.mask = w_.make(name_("target_mask"), w_.per_token(), DType::BOOL, Category::LogitsLoss);
    below = above = {};
    Tensor copy = indices("target_copy");
    mask_targets(labels, made.mask, copy);
    made.target = w_.make(name_("masked_target"), w_.per_token(), DType::INT64, Category::LogitsLoss);
    w_.launch(Operation::Copy, {std::move(copy)}, {made.target});
    Tensor rows = indices("row_numbers");
    w_.launch({Operation::Arange, {0}}, {}, {rows});
    Tensor looked_up = of_tokens("target_logits");
    w_.launch(Operation::Gather, {work, by_row(made.target)}, {by_row(looked_up)});
    Tensor target_logits = of_tokens("target_logits_copy");
    // The maximum is subtracted where the exponentials are made, so that here it still has to be.
    w_.launch({Operation::AddScaled, {-1}}, {std::move(looked_up), maximum}, {target_logits});
    w_.launch({Operation::MaskedFill, {0}}, {target_logits, made.mask}, {target_logits});
    made.exponentials = work;
    Tensor sums = of_tokens("sums");
    w_.launch(Operation::ShiftedExponentials, {work, maximum, Tensor{}, Tensor{}}, {work, sums, Tensor{}});
    rows = labels = {};  // variables that lived while the exponentials were made
    w_.all_reduce(target_logits);
    w_.all_reduce(sums);
    Tensor logarithms = of_tokens("sums_logarithm"), out = of_tokens("out", Category::LogitsLoss);
    w_.launch(Operation::VocabularyLoss, {work, std::move(sums), std::move(target_logits)}, {work, out},
              std::move(logarithms));
    return out;
  }

 private:
  [[nodiscard]] Tensor of_tokens(std::string_view use, Category category = Category::Temporaries) const {
    return w_.make(name_(use), w_.per_token(), DType::FP32, category);
  }
  [[nodiscard]] Tensor in_fp32(const Tensor& logits, std::string_view use) const {
    if (logits.dtype == DType::FP32) return logits.detached();
    Tensor wide = w_.make(name_(use), shape_, DType::FP32, Category::LogitsLoss);
    w_.launch(Operation::Copy, {logits}, {wide});
    return wide;
  }
  // One element for each row of the logits.
  [[nodiscard]] Tensor by_row(Tensor of_tokens) const { return sized(std::move(of_tokens), {w_.tokens(), 1}); }
  /// `place`: of the largest in its row, where the kernel tells it too.
  [[nodiscard]] Tensor maximum_of(const Tensor& work, const Tensor& place = {}) const {
    Tensor maximum = of_tokens("maximum");
    w_.launch(Operation::Largest, {work}, {by_row(maximum)}, place);
    w_.all_reduce(maximum, Reduction::Largest);
    return maximum;
  }
  // Which labels are in other ranks' parts of the vocabulary; places in this one's of the others.
  void mask_targets(Tensor labels, const Tensor& mask, const Tensor& targets) const {
    w_.launch({Operation::VocabularyMask, {first_, first_ + static_cast<double>(shape_[1])}}, {std::move(labels)},
              {mask, targets});
  }

  Worker& w_;
  const Name& name_;
  Shape shape_;
  double first_;  ///< of the rank's part of the vocabulary
};

void times_gradients_of_tokens(const Worker& w, Tensor of_tokens, const Tensor& logits_gradient) {
  w.launch(Operation::Multiply, {logits_gradient, sized(std::move(of_tokens), {w.tokens(), 1})}, {logits_gradient});
}

// `of_tokens`: gradients of each token's loss, where they are not those of the mean.
Gradients loss_backward(Worker& w, const Name& name, Softmax its, Tensor of_tokens) {
  Tensor softmax = std::move(its.exponentials);
  const double factor = of_tokens.defined() ? 1 : gradient_of_loss(w);
  // Saved tensors live until gradients have been converted to the types of what they are gradients of.
  w.launch({Operation::VocabularyLossBackward, {factor}}, {softmax, its.target, its.mask}, {softmax});
  if (of_tokens.defined()) times_gradients_of_tokens(w, std::move(of_tokens), softmax);
  if (w.train.precision == DType::FP32) return {std::move(softmax)};
  Tensor gradient = w.make(name("logits_gradient"), softmax.sizes, w.train.precision, Category::LogitsLoss);
  w.launch(Operation::Copy, {std::move(softmax)}, {gradient});
  return {std::move(gradient)};
}

}  // namespace

Tensor GPTModel::loss(const Name& name, Tensor logits, const Tensor& given_labels, LossGradient gradient) {
  Worker& w = w_;
  w.mark(Phase::Forward, name);
  const auto node = w.node(name(), {&logits});
  Tensor labels = given_labels;
  if (w.sizes.micro_batch > 1) {  // as the logits lie: sequence first
    labels = w.like(name("labels"), given_labels);
    w.transpose_tokens(given_labels, labels, w.sizes.micro_batch);
  }
  CrossEntropyLoss function(w, name, logits);
  const bool of_mean = gradient == LossGradient::OfTheirMean;
  if (w.train.cross_entropy == CrossEntropy::TransformerEngine) {
    Tensor out = function.of_transformer_engine(logits, std::move(labels));
    if (!node) return out;
    // The gradient is there; backward only scales it.
    node->apply = [&w, of_mean, saved = w.session.save(logits)](Gradients& gradients) mutable {
      Tensor made = w.take(saved);
      if (of_mean)
        w.launch({Operation::Scale, {gradient_of_loss(w)}}, {made}, {made});
      else
        times_gradients_of_tokens(w, std::move(gradients.front()), made);
      return Gradients{std::move(made)};
    };
    return with(std::move(out), node);
  }
  Softmax made;
  const bool compiled = w.train.cross_entropy == CrossEntropy::Fused;
  Tensor out =
      compiled ? function.fused(logits, std::move(labels), made) : function.plain(logits, std::move(labels), made);
  if (!node) return out;
  Session& s = w.session;
  node->apply = [&w, &name, of_mean, softmax = s.save(made.exponentials), target = s.save(made.target),
                 mask = s.save(made.mask)](Gradients& gradients) mutable {
    const auto take = [&](Saved& saved) { return w.take(saved); };
    Softmax its{take(softmax), take(target), take(mask)};
    return loss_backward(w, name, std::move(its), of_mean ? Tensor{} : std::move(gradients.front()));
  };
  return with(std::move(out), node);
}

}  // namespace tidemark::parallel::megatron
