#include <cmath>
#include <limits>
#include <utility>

#include "parallel/frameworks/megatron/moe.hpp"
#include "parallel/torch/aten.hpp"
#include "parallel/torch/indexing.hpp"
#include "parallel/torch/operation.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::megatron {

using torch::Picks;
using torch::with;

Router::Router(Worker& w, Parameters& parameters, const std::string& path)
    : w_(w), experts_(*w.model.experts), path_(path + ".router"), name_(w.name(path_)) {
  weight_ = parameters.add({.name = path_ + ".weight",
                            .rows = experts_.count,
                            .columns = w.model.hidden,
                            .in_parts = GradientInParts::UnderSequenceParallelism});
  if (experts_.biases)
    bias_ = parameters.add(
        {.name = path_ + ".bias", .rows = experts_.count, .in_parts = GradientInParts::UnderSequenceParallelism});
}

namespace {

// The same values in that type; itself where it has it.
Tensor converted(const Worker& w, LabelId label, const Tensor& x, DType dtype) {
  if (x.dtype == dtype) return x.detached();
  Tensor made = w.temporary(label, x.sizes, dtype);
  w.launch(Operation::Copy, {x}, {made});
  return made;
}

}  // namespace

// moe_utils.py RouterGatingLinearFunction, by TransformerEngine's products or by PyTorch's.
Tensor Router::gating(const Tensor& hidden) {
  w_.mark(Phase::Forward, name_);
  const DType type = w_.runtime.experts.fp32_router ? DType::FP32 : w_.train.precision;
  const auto node = w_.node(name_(), {&hidden, &weight_->value, &value_of(bias_)});
  Saved saved;
  if (node) saved = w_.session.save(hidden);
  Tensor logits;
  const bool library = w_.runtime.experts.library_router;
  const auto product_workspace = [this, library](HostThread thread) {
    return library ? w_.library_workspace() : w_.process.blas_workspace(thread);
  };
  {
    const Tensor input = library ? hidden.detached() : converted(w_, name_("input"), hidden, type);
    const Tensor weight = library ? weight_->value.detached() : converted(w_, name_("weight"), weight_->value, type);
    logits = w_.temporary(name_("logits"), {hidden.size(0), experts_.count}, type);
    w_.launch({Operation::Matmul, {1}}, {input, swapped(weight, 0, 1), value_of(bias_), Tensor{}}, {logits},
              product_workspace(HostThread::Main));
  }
  if (!node) return logits;
  node->sum = name_("gradient_sum");
  node->apply = [this, type, product_workspace, saved = std::move(saved)](Gradients& gradients) mutable {
    const Tensor input = w_.take(saved), gradient = std::move(gradients.front());
    const BufferId workspace = product_workspace(HostThread::Autograd);
    const Computation product{Operation::Matmul, {1}};
    Gradients made(bias_ != nullptr ? 3 : 2);
    {
      const Tensor weight = converted(w_, name_("weight"), weight_->value, type);
      const Tensor wide = w_.temporary(name_("input_gradient"), input.sizes, type);
      w_.launch(product, {gradient, weight, Tensor{}, Tensor{}}, {wide}, workspace);
      made[0] = converted(w_, name_("input_gradient"), wide, input.dtype);
    }
    {
      const Tensor wide_input = converted(w_, name_("input"), input, type);
      const Tensor wide = w_.temporary(name_("weight_gradient"), weight_->shape(), type);
      w_.launch(product, {swapped(gradient, 0, 1), wide_input, Tensor{}, Tensor{}}, {wide}, workspace);
      made[1] = converted(w_, name_("weight_gradient"), wide, weight_->value.dtype);
    }
    if (bias_ != nullptr) {
      const Tensor wide = w_.temporary(name_("bias_gradient"), bias_->shape(), type);
      w_.launch(Operation::Sum, {gradient}, {wide});
      made[2] = converted(w_, name_("bias_gradient"), wide, bias_->value.dtype);
    }
    return made;
  };
  return with(std::move(logits), node);
}

namespace {

// moe_utils.py group_limited_topk: experts are chosen from the groups whose best experts have the largest sum.
torch::TopK top_k_of_groups(Session& s, const Experts& experts, const Tensor& scores) {
  const std::int64_t tokens = scores.size(0), of_group = experts.count / experts.groups;
  const Tensor by_group = torch::view(s, scores, {tokens, experts.groups, of_group});
  const Tensor best = torch::top_k(s, by_group, experts.chosen / experts.chosen_groups).values;
  const Tensor group_scores = torch::sum(s, best, -1);
  const Tensor chosen = torch::top_k(s, group_scores, experts.chosen_groups).ids;
  const Tensor group_mask = torch::zeros(s, group_scores.sizes, group_scores.dtype);
  s.launch({Operation::Scatter, {1}}, {group_mask, chosen, Tensor{}}, {group_mask});
  const Tensor wide = torch::expand(s, torch::unsqueeze(s, group_mask, 2), {tokens, experts.groups, of_group});
  const Tensor score_mask = torch::reshape(s, wide, {tokens, experts.count});
  const Tensor outside = torch::logical_not(s, torch::to(s, score_mask, DType::BOOL));
  const Tensor masked = torch::masked_fill(s, scores, outside, -std::numeric_limits<double>::infinity());
  return torch::top_k(s, masked, experts.chosen, Picks::Experts);
}

torch::TopK top_k(Session& s, const Experts& experts, const Tensor& scores) {
  if (experts.groups > 0) return top_k_of_groups(s, experts, scores);
  return torch::top_k(s, scores, experts.chosen, Picks::Experts);
}

// x / (sum of its rows + 1e-20).
Tensor normalized(Session& s, const Tensor& x) {
  const Tensor sum = torch::unsqueeze(s, torch::sum(s, x, -1), 1);
  return torch::div(s, x, torch::add_number(s, sum, 1e-20));
}

}  // namespace

// moe_utils.py topk_routing_with_score_function.
Router::Choice Router::choose(const Tensor& logits) {
  Session& s = w_.session;
  torch::TopK picked;
  Tensor probabilities;
  switch (experts_.score) {
    case RouterScore::SoftmaxBefore: {
      const Tensor scores = torch::to(s, torch::softmax_last(s, logits, DType::FP32), logits.dtype);
      picked = top_k(s, experts_, scores);
      probabilities = picked.values;
      break;
    }
    case RouterScore::Softmax:
      picked = top_k(s, experts_, logits);
      probabilities = torch::to(s, torch::softmax_last(s, picked.values, DType::FP32), logits.dtype);
      break;
    case RouterScore::Sigmoid: {
      const Tensor scores = torch::to(s, torch::sigmoid(s, torch::to(s, logits, DType::FP32)), logits.dtype);
      Tensor chosen;
      if (expert_bias_.defined()) {
        picked = top_k(s, experts_, torch::add(s, scores, expert_bias_));
        chosen = torch::gather(s, scores, picked.ids);
      } else {
        picked = top_k(s, experts_, scores);
        chosen = picked.values;
      }
      probabilities = experts_.chosen > 1 ? normalized(s, chosen) : chosen;
      break;
    }
  }
  if (experts_.scale != 1) probabilities = torch::mul_number(s, probabilities, experts_.scale);
  Choice choice;
  choice.probabilities = torch::scatter(s, torch::zeros(s, logits.sizes, logits.dtype), picked.ids, probabilities);
  const Tensor none = torch::to(s, torch::zeros(s, logits.sizes, logits.dtype).detached(), DType::INT32);
  choice.map = torch::to(s, torch::scatter_ones(s, none, picked.ids), DType::BOOL);
  return choice;
}

namespace {

// x / (sum of its rows + 1e-8) / their number, `dimension` being the one that is summed.
Tensor share_of_sums(Session& s, const Tensor& weighted, int dimension, std::int64_t count) {
  const Tensor sums = torch::add_number(s, torch::sum(s, weighted, dimension), 1e-8);
  return torch::mul_number(s, torch::pow_number(s, sums, -1), 1.0 / static_cast<double>(count));
}

// moe_utils.py sinkhorn. Logits decide how often its loop runs, whose tensors take each other's places: once here.
Tensor sinkhorn(Session& s, const Tensor& logits) {
  const std::int64_t tokens = logits.size(0), experts = logits.size(1);
  const Tensor cost = torch::elementwise(s, "exp", Operation::Exponential, {&logits}, DType::FP32);
  Tensor by_expert = s.empty({experts}, DType::FP32, "ones");
  s.launch({Operation::Fill, {1}}, {}, {by_expert});
  const Tensor by_token = share_of_sums(s, torch::mul(s, cost, by_expert), 1, tokens);
  by_expert = share_of_sums(s, torch::mul(s, cost, torch::unsqueeze(s, by_token, 1)), 0, experts);
  return torch::mul(s, torch::mul(s, cost, by_expert), torch::unsqueeze(s, by_token, 1));
}

}  // namespace

// router.py sinkhorn_load_balancing.
Router::Choice Router::choose_by_sinkhorn(const Tensor& logits) {
  Session& s = w_.session;
  Tensor ids;
  {
    const torch::NoGrad no_grad(s);
    const Tensor balanced_logits = sinkhorn(s, torch::to(s, logits.detached(), DType::FP32));
    ids = torch::top_k(s, balanced_logits, experts_.chosen, Picks::Experts).ids;
  }
  const Tensor scores = experts_.chosen == 1 ? torch::sigmoid(s, logits)
                                             : torch::to(s, torch::softmax_last(s, logits, DType::FP32), logits.dtype);
  const Tensor none = torch::to(s, torch::zeros(s, logits.sizes, logits.dtype).detached(), DType::INT32);
  const Tensor map = torch::to(s, torch::scatter_ones(s, none, ids), DType::BOOL);
  return {torch::mul(s, scores, map), map};
}

// moe_utils.py apply_router_token_dropping: each expert takes those that want it most.
void Router::drop_tokens(Choice& choice) {
  Session& s = w_.session;
  const std::int64_t capacity = capacity_of(experts_, w_.train.routing, choice.map.size(0));
  Tensor mask;
  {
    const torch::NoGrad ids_need_none(s);
    const Tensor by_expert = swapped(choice.probabilities.detached(), 0, 1);
    const Tensor ids = torch::top_k(s, by_expert, capacity).ids;
    const Tensor none = torch::zeros(s, choice.probabilities.sizes, choice.probabilities.dtype);
    const Tensor marked = s.empty(none.sizes, none.dtype, "scatter");
    s.launch({Operation::Scatter, {1}}, {swapped(none, 0, 1), ids, Tensor{}}, {swapped(marked, 0, 1)});
    mask = torch::to(s, marked, DType::BOOL);
  }
  if (!w_.train.routing.pads_to_capacity) {
    const Tensor both = s.empty(mask.sizes, DType::BOOL, "final_map");
    s.launch(Operation::And, {choice.map, mask}, {both});
    mask = both;
  }
  choice.probabilities = torch::mul(s, choice.probabilities, mask);
  choice.map = mask;
}

// moe_utils.py MoEAuxLossAutoScaler: the loss's gradient joins that of what the router gives. Gradients are averaged
// over context-parallel ranks, whose losses are parts of one: core/pipeline_parallel/schedules.py
// forward_step_calc_loss multiplies by their number (set_loss_scale), which core 0.14 still forgets.
Tensor Router::with_loss(Tensor activation, const Tensor& loss) {
  Session& s = w_.session;
  auto node = s.node({&activation, &loss});
  if (node)
    node->apply = [&s, saved = s.save(loss), scale = w_.micro_batch_share() * w_.layout.context](const Gradients& g) {
      const Tensor its = s.unpack(saved);
      const Tensor made = s.empty(its.sizes, its.dtype, "loss_gradient");
      s.launch({Operation::Fill, {scale}}, {}, {made});
      return Gradients{g.front(), made};
    };
  activation.gradient = {};
  return with(std::move(activation), std::move(node));
}

// moe_utils.py compute_routing_scores_for_aux_loss, switch_load_balancing_loss_func; router.py _apply_aux_loss.
Tensor Router::balanced(Tensor probabilities, const Tensor& logits) {
  Session& s = w_.session;
  // Of each sequence, where they are balanced one by one: rows of tokens lie sequence first.
  const bool one_by_one = w_.runtime.experts.balancing == LoadBalancing::SequenceLoss;
  const std::int64_t sequences = one_by_one ? w_.sizes.micro_batch : 1;
  const std::int64_t tokens = logits.size(0) / sequences;
  Tensor scores;
  if (experts_.score == RouterScore::Sigmoid)
    scores = normalized(s, torch::sigmoid(s, logits));
  else
    scores = torch::softmax_last(s, logits, DType::FP32);
  const Tensor ids = torch::top_k(s, scores, experts_.chosen).ids;
  const Tensor none = torch::to(s, torch::zeros(s, logits.sizes, logits.dtype), DType::INT32);
  const Tensor map = torch::to(s, torch::scatter_ones(s, none, ids), DType::BOOL);
  const Shape by_sequence{tokens, sequences * experts_.count};
  const Tensor counts = torch::sum(s, sized(map, by_sequence), 0);
  s.collective(w_.comms.tensor_context, CollectiveKind::AllReduce, counts, counts);
  const Tensor sums = torch::sum(s, torch::reshape(s, scores, by_sequence), 0);
  const Tensor products = torch::mul(s, sums, torch::to(s, counts, sums.dtype));
  const double total = static_cast<double>(tokens) * w_.layout.tensor * w_.layout.context;
  const double factor = static_cast<double>(experts_.count) * usual_balance /
                        (static_cast<double>(experts_.chosen) * total * total * static_cast<double>(sequences));
  const Tensor loss = torch::mul_number(s, torch::sum(s, products, 0), factor);
  return with_loss(std::move(probabilities), loss);
}

// moe_utils.py z_loss_func; router.py apply_z_loss: of this rank's tokens, of which others of the sequence have others.
Tensor Router::with_z_loss(Tensor logits) {
  Session& s = w_.session;
  const double coefficient = *w_.runtime.experts.z_loss / (w_.layout.tensor * w_.layout.context);
  const Tensor squares = torch::pow_number(s, torch::logsumexp(s, logits), 2);
  return with_loss(std::move(logits), torch::mul_number(s, torch::mean_last(s, squares), coefficient));
}

Router::Choice Router::operator()(const Tensor& hidden) {
  const bool bias = experts_.correction_bias;
  if (bias && !expert_bias_.defined()) {
    const auto buffer = [&](const char* use) {
      Tensor made = w_.make(name_(use), {experts_.count}, DType::FP32, Category::Workspaces);
      w_.launch({Operation::Fill, {0}}, {}, {made});
      w_.process.keep(made.buffer());
      return made;
    };
    tokens_per_expert_ = buffer("local_tokens_per_expert");
    expert_bias_ = buffer("expert_bias");
  }
  Tensor logits = gating(hidden);
  const Session::Scope scope(w_.session, name_());
  if (w_.runtime.experts.z_loss && w_.session.grad_enabled) logits = with_z_loss(std::move(logits));
  const LoadBalancing balancing = w_.runtime.experts.balancing;
  Choice choice = balancing == LoadBalancing::Sinkhorn ? choose_by_sinkhorn(logits) : choose(logits);
  if (w_.train.routing.capacity_factor > 0) drop_tokens(choice);
  const bool loss = balancing == LoadBalancing::Loss || balancing == LoadBalancing::SequenceLoss;
  if (loss && w_.session.grad_enabled) choice.probabilities = balanced(std::move(choice.probabilities), logits);
  if (bias && w_.session.grad_enabled) {
    const torch::NoGrad no_grad(w_.session);
    const Tensor counts = torch::sum(w_.session, choice.map, 0);
    w_.launch(Operation::Add, {tokens_per_expert_, counts}, {tokens_per_expert_});
  }
  return choice;
}

}  // namespace tidemark::parallel::megatron
