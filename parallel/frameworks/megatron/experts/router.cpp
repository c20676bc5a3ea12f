#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/ops/indexing.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::megatron {

using torch::Picks;
using torch::with;

Router::Router(Worker& w, Parameters& parameters, const Experts& experts, const std::string& path)
    : w_(w), experts_(experts), path_(path + ".router"), name_(w.name(path_)) {
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

// moe_utils.py RouterGatingLinearFunction, by TransformerEngine's products, which take no fp64, or by PyTorch's.
// Before it router.py called torch.nn.functional.linear.
Tensor Router::gating(const Tensor& hidden) {
  w_.mark(Phase::Forward, name_);
  const DType type = w_.runtime.experts.router_type.value_or(w_.train.precision);
  if (w_.runtime.experts.keeps_router_inputs) {
    Session& s = w_.session;
    const Session::Scope scope(s, name_());
    const Tensor input = torch::to(s, hidden, type);
    return torch::linear(s, input, torch::to(s, weight_->value, type), {});
  }
  const auto node = w_.node(name_(), {&hidden, &weight_->value, &value_of(bias_)});
  Saved saved;
  if (node) saved = w_.session.save(hidden);
  Tensor logits;
  const bool library = w_.runtime.experts.library_router && type != DType::FP64;
  const auto product_workspace = [this, library](HostThread thread) {
    return library ? w_.library_workspace() : w_.process.blas_workspace(thread);
  };
  {
    const Tensor bias =
        library || bias_ == nullptr ? value_of(bias_) : converted(w_, name_("bias"), bias_->value, type);
    const Tensor input = library ? hidden.detached() : converted(w_, name_("input"), hidden, type);
    const Tensor weight = library ? weight_->value.detached() : converted(w_, name_("weight"), weight_->value, type);
    logits = w_.temporary(name_("logits"), {hidden.size(0), experts_.count}, type);
    w_.launch({Operation::Matmul, {1}}, {input, swapped(weight, 0, 1), bias, Tensor{}}, {logits},
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
  const Tensor best = torch::top_k(s, by_group, experts.chosen / experts.topk_group).values;
  const Tensor group_scores = torch::sum(s, best, -1);
  const Tensor chosen = torch::top_groups(s, group_scores, experts.topk_group, experts.chosen, of_group).ids;
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
      if (buffers_.expert_bias.defined()) {
        picked = top_k(s, experts_, torch::add(s, scores, buffers_.expert_bias));
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

// moe_utils.py compute_routing_scores_for_aux_loss.
Router::Scores Router::scores_for_loss(const Tensor& logits) const {
  Session& s = w_.session;
  Tensor scores;
  if (experts_.score == RouterScore::Sigmoid)
    scores = normalized(s, torch::sigmoid(s, logits));
  else
    scores = torch::softmax_last(s, logits, DType::FP32);
  const Tensor ids = torch::top_k(s, scores, experts_.chosen).ids;
  const Tensor none = torch::to(s, torch::zeros(s, logits.sizes, logits.dtype), DType::INT32);
  return {std::move(scores), torch::to(s, torch::scatter_ones(s, none, ids), DType::BOOL)};
}

// moe_utils.py switch_load_balancing_loss_func.
Tensor Router::balancing_loss(const Tensor& scores, const Tensor& counts, std::int64_t total,
                              std::int64_t sequences) const {
  Session& s = w_.session;
  const Tensor sums = torch::sum(s, scores, 0);
  const Tensor products = torch::mul(s, sums, counts);
  const double tokens = static_cast<double>(total);
  const double factor = static_cast<double>(experts_.count) * usual_balance /
                        (static_cast<double>(experts_.chosen) * tokens * tokens * static_cast<double>(sequences));
  return torch::mul_number(s, torch::sum(s, products, 0), factor);
}

// router.py _apply_aux_loss, _apply_seq_aux_loss: of each sequence, where there are several; rows of tokens lie
// sequence first.
Tensor Router::by_own_tokens(const Scores& its, std::int64_t sequences) const {
  Session& s = w_.session;
  const std::int64_t tokens = its.map.size(0) / sequences;
  const Shape by_sequence{tokens, sequences * experts_.count};
  const Tensor counts = torch::sum(s, sized(its.map, by_sequence), 0);
  s.collective(w_.comms.tensor_context, CollectiveKind::AllReduce, counts, counts);
  const std::int64_t ranks = std::int64_t{w_.layout.tensor} * w_.layout.context;
  return balancing_loss(torch::reshape(s, its.scores, by_sequence), counts, tokens * ranks, sequences);
}

// router.py _apply_global_aux_loss: with the mean of what was chosen so far.
Tensor Router::by_all_tokens(const Scores& its) {
  Session& s = w_.session;
  const Tensor counts = torch::sum(s, its.map, 0);
  s.collective(w_.comms.same_stage, CollectiveKind::AllReduce, counts, counts);
  s.launch(Operation::Add, {buffers_.step_tokens, counts}, {buffers_.step_tokens});
  s.launch({Operation::AddNumber, {1}}, {buffers_.passes}, {buffers_.passes});
  const Tensor mean = torch::div(s, buffers_.step_tokens, buffers_.passes);
  const std::int64_t ranks = std::int64_t{w_.layout.tensor} * w_.layout.context * w_.layout.data;
  return balancing_loss(its.scores, mean, its.map.size(0) * ranks, 1);
}

// router.py routing: the losses one after the other.
Tensor Router::balanced(Tensor probabilities, const Tensor& logits) {
  const ExpertBehavior& behavior = w_.runtime.experts;
  const Scores its = scores_for_loss(logits);
  if (behavior.balances_by(LoadBalancing::Loss))
    probabilities = with_loss(std::move(probabilities), by_own_tokens(its, 1));
  if (behavior.balances_by(LoadBalancing::SequenceLoss))
    probabilities = with_loss(std::move(probabilities), by_own_tokens(its, w_.sizes.micro_batch));
  if (behavior.balances_by(LoadBalancing::GlobalLoss))
    probabilities = with_loss(std::move(probabilities), by_all_tokens(its));
  return probabilities;
}

// moe_utils.py z_loss_func; router.py apply_z_loss: of this rank's tokens, of which others of the sequence have others.
Tensor Router::with_z_loss(Tensor logits) {
  Session& s = w_.session;
  const double coefficient = *w_.runtime.experts.z_loss / (w_.layout.tensor * w_.layout.context);
  const Tensor squares = torch::pow_number(s, torch::logsumexp(s, logits), 2);
  return with_loss(std::move(logits), torch::mul_number(s, torch::mean_last(s, squares), coefficient));
}

namespace {

// Buffers of the module, which live as long as that; those that model and losses ask for.
RouterBuffers make_buffers(Worker& w, const Experts& experts, const std::string& path) {
  const Name name = w.name(path);
  const auto buffer = [&](const char* use, std::int64_t count) {
    Tensor made = w.make(name(use), {count}, DType::FP32, Category::Workspaces);
    w.launch({Operation::Fill, {0}}, {}, {made});
    w.process.keep(made.buffer());
    return made;
  };
  RouterBuffers made;
  if (experts.correction_bias) {
    made.tokens_per_expert = buffer("local_tokens_per_expert", experts.count);
    made.expert_bias = buffer("expert_bias", experts.count);
  }
  if (w.runtime.experts.balances_by(LoadBalancing::GlobalLoss)) {
    made.step_tokens = buffer("global_tokens_per_expert", experts.count);
    made.passes = buffer("ga_steps", 1);
  }
  return made;
}

}  // namespace

void build_routers(Worker& w, const Stage& stage) {
  const bool any = w.model.experts() &&
                   (w.model.experts()->correction_bias || w.runtime.experts.balances_by(LoadBalancing::GlobalLoss));
  if (!any) return;
  const std::int64_t last = stage.last + (stage.head ? w.model.further.size() : 0);
  for (std::int64_t layer = stage.first; layer < last; ++layer) {
    const Experts* const experts = w.model.layer(layer).experts();
    if (experts == nullptr) continue;
    const std::string path = fmt::format("layers.{}.mlp.router", layer);
    w.routers.emplace_back(path, make_buffers(w, *experts, path));
  }
}

Router::Choice Router::operator()(const Tensor& hidden) {
  const auto built = std::ranges::find(w_.routers, path_, &std::pair<std::string, RouterBuffers>::first);
  buffers_ = built != w_.routers.end() ? built->second : make_buffers(w_, experts_, path_);
  Tensor logits = gating(hidden);
  const Session::Scope scope(w_.session, name_());
  const ExpertBehavior& behavior = w_.runtime.experts;
  if (behavior.z_loss && w_.session.grad_enabled) logits = with_z_loss(std::move(logits));
  const bool sinkhorn = behavior.balances_by(LoadBalancing::Sinkhorn);
  Choice choice = sinkhorn ? choose_by_sinkhorn(logits) : choose(logits);
  if (w_.train.routing.capacity_factor > 0) drop_tokens(choice);
  if (!behavior.balancing.empty() && !sinkhorn && w_.session.grad_enabled)
    choice.probabilities = balanced(std::move(choice.probabilities), logits);
  if (experts_.correction_bias && w_.session.grad_enabled) {
    const torch::NoGrad no_grad(w_.session);
    const Tensor counts = torch::sum(w_.session, choice.map, 0);
    w_.launch(Operation::Add, {buffers_.tokens_per_expert, counts}, {buffers_.tokens_per_expert});
  }
  return choice;
}

namespace {

// torch.stack.
Tensor stacked(Worker& w, const Name& name, const std::vector<Tensor>& rows) {
  const std::int64_t width = rows.front().size(0);
  Tensor all = w.temporary(name("stack"), {static_cast<std::int64_t>(rows.size()), width}, DType::FP32);
  std::vector<Tensor> places;
  for (std::size_t i = 0; i < rows.size(); ++i)
    places.push_back(sized(narrowed(all, 0, static_cast<std::int64_t>(i), 1), {width}));
  w.launch(Operation::Copy, rows, places);
  return all;
}

constexpr double update_rate = 1e-3;  // TransformerConfig.moe_router_bias_update_rate

// finalize_model_grads.py _update_router_expert_bias; moe_utils.py get_updated_expert_bias.
void move_expert_biases(Worker& w) {
  Session& s = w.session;
  const Name name = w.name("expert_bias");
  const Session::Scope scope(s, name());
  std::vector<Tensor> counts, biases;
  for (const auto& [path, its] : w.routers) counts.push_back(its.tokens_per_expert), biases.push_back(its.expert_bias);
  const Tensor tokens = stacked(w, name, counts), before = stacked(w, name, biases);
  s.collective(w.comms.same_stage, CollectiveKind::AllReduce, tokens, tokens);
  const Tensor mean = torch::unsqueeze(
      s, torch::mul_number(s, torch::sum(s, tokens, -1), 1.0 / static_cast<double>(tokens.size(1))), 1);
  const Tensor offset = torch::elementwise(s, "sub", {Operation::AddScaled, {-1}}, {&mean, &tokens}, DType::FP32);
  const Tensor sign = torch::elementwise(s, "sign", Operation::Sign, {&offset}, DType::FP32);
  const Tensor after = torch::add(s, before, torch::mul_number(s, sign, update_rate));
  for (std::size_t i = 0; i < biases.size(); ++i) {
    const Tensor row = sized(narrowed(after, 0, static_cast<std::int64_t>(i), 1), {after.size(1)});
    w.launch(Operation::Copy, {row}, {biases[i]});
  }
}

}  // namespace

void finish_routing(Worker& w) {
  if (w.routers.empty()) return;
  w.process.mark(Phase::Communication, "finish_routing");
  const torch::NoGrad no_grad(w.session);
  if (w.routers.front().second.expert_bias.defined()) move_expert_biases(w);
  for (const auto& [path, its] : w.routers)
    for (const Tensor& counter : {its.tokens_per_expert, its.step_tokens, its.passes})
      if (counter.defined()) w.launch({Operation::Fill, {0}}, {}, {counter});
}

}  // namespace tidemark::parallel::megatron
