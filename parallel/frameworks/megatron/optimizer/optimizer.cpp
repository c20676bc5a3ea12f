#include "parallel/frameworks/megatron/optimizer/optimizer.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/optimizer/layer_wise_optimizer.hpp"

namespace tidemark::parallel::megatron {

MegatronOptimizer::MegatronOptimizer(Worker& w, const std::vector<ParamAndGradBuffer>& all, Updates its_updates)
    : w_(w), updates_(std::move(its_updates)) {
  std::vector<const ParamAndGradBuffer*> buffers;
  std::optional<bool> first;
  for (const ParamAndGradBuffer& buffer : all) {
    if (std::ranges::find(updates_.groups, buffer.group()) == updates_.groups.end()) continue;
    buffers.push_back(&buffer);
    for (const ParameterId id : buffer.parameters())
      if (!first && updates(id)) first = w.built[id].matrix();
  }
  if (!first) return;
  // Optimizers keep matrices and vectors in two groups, because weight decay leaves vectors alone; the group of the
  // parameter that was registered first comes first.
  for (const bool matrices : {*first, !*first})
    for (const ParamAndGradBuffer* const its : buffers) {
      const ParamAndGradBuffer& buffer = *its;
      const auto of_these = [&](ParameterId id) { return w.built[id].matrix() == matrices && updates(id); };
      for (const ParameterId id : buffer.parameters())
        if (of_these(id)) weights_.push_back(&w.weight(id));
      for (const BufferLayout::Place& held : held_of(buffer)) {
        if (!of_these(held.parameter)) continue;
        const Parameter& parameter = w.built[held.parameter];
        // core/transformer/module.py param_is_not_shared, core/tensor_parallel/layers.py
        // param_is_not_tensor_parallel_duplicate: the first stage counts a tied embedding, and the first
        // tensor-parallel rank what all of them hold.
        const bool copied = held.parameter == ParameterId{0} && !buffer.stage().embedding;
        const bool duplicate = parameter.cut == WeightCut::None && w.place.tensor > 0;
        pieces_.push_back({.weight = &w.weight(held.parameter),
                           .buffer = &buffer,
                           .begin = held.begin,
                           .end = held.end,
                           .counts = !copied && !duplicate});
      }
    }
}

bool MegatronOptimizer::updates(ParameterId parameter) const {
  return made_orthogonal(w_.built[parameter]) ? updates_.matrices : updates_.others;
}

// The whole buffer, the rank's share of it, or the whole parameters that are dealt to the rank.
std::vector<BufferLayout::Place> MegatronOptimizer::held_of(const ParamAndGradBuffer& buffer) const {
  const ReplicaPlace among = sharded() ? buffer.shard() : ReplicaPlace{};
  std::vector<BufferLayout::Place> held = buffer.layout().places_in(among.place, among.count);
  if (w_.layout.sharding == Sharding::None)
    std::ranges::reverse(held);  // as the model has them; buffers begin at its end
  if (w_.layout.sharding == Sharding::None || sharded()) return held;
  const std::vector<ParameterId> own = updated_by(w_.built, w_.layout, w_.sizes, w_.place);
  std::erase_if(held,
                [&](const BufferLayout::Place& place) { return std::ranges::find(own, place.parameter) == own.end(); });
  return held;
}

LabelId MegatronOptimizer::label(const Piece& piece, std::string_view what) const {
  return w_.process.label(fmt::format("{}.{}", piece.weight->parameter->name, what));
}

int moments_of(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::AdamW:
      return 2;
    case Optimizer::SgdMomentum:
    case Optimizer::Muon:
      return 1;
    case Optimizer::Sgd:
      return 0;
    // Not Megatron's: an error of the scenario.
    case Optimizer::Adafactor:
    case Optimizer::AdamW8Bit:
    case Optimizer::Lion:
    case Optimizer::Lion8Bit:
    case Optimizer::PagedAdamW:
    case Optimizer::PagedAdamW8Bit:
    case Optimizer::PagedLion:
    case Optimizer::PagedLion8Bit:
    case Optimizer::ApolloAdamW:
    case Optimizer::GaloreAdamW:
    case Optimizer::GaloreAdamWLayerwise:
      return 0;
  }
  return 0;
}

// distrib_optimizer.py: of the pieces, or of what they are copied into.
void MegatronOptimizer::make_inner() {
  const OptimizerBehavior& behavior = w_.runtime.optimizer;
  if (updates_.optimizer == Optimizer::Muon) {
    std::vector<Muon::Matrix> matrices;
    for (const Piece& piece : pieces_) matrices.push_back({piece.weight, sized(piece.main, piece.weight->shape()), {}});
    muon_.emplace(w_, std::move(matrices));
    return;
  }
  const auto updated = [](const Piece& piece) { return Updated{piece.weight->parameter->name, piece.main}; };
  if (behavior.offloaded) {
    std::vector<Updated> all;
    for (const Piece& piece : pieces_) all.push_back(updated(piece));
    hybrid_.emplace(w_.session, behavior, std::move(all));
  } else if (behavior.precision_aware) {
    std::vector<std::vector<Updated>> groups(2);
    for (const Piece& piece : pieces_) {
      const bool other = piece.weight->parameter->matrix() != pieces_.front().weight->parameter->matrix();
      groups[other ? 1 : 0].push_back(updated(piece));
    }
    adam_.emplace(w_.session, behavior, std::move(groups));
  }
}

void MegatronOptimizer::build() {
  if (w_.runtime.optimizer.offloaded) {
    // The first one is of whole parameters (core/optimizer/__init__.py).
    std::vector<Updated> whole;
    for (const Weight* weight : weights_) whole.push_back({weight->parameter->name + ".whole", weight->value});
    first_hybrid_.emplace(w_.session, w_.runtime.optimizer, std::move(whole));
  }
  for (Piece& piece : pieces_) {
    const Tensor& whole = piece.weight->value;
    piece.value = sharded() ? piece.buffer->values(piece.begin, piece.end) : sized(whole, piece.shape());
    if (!makes_master()) {
      piece.main = piece.value;
      continue;
    }
    // weight.clone().float(): the clone goes when the fp32 tensor is there.
    const Tensor clone = w_.temporary(label(piece, "clone"), piece.shape());
    w_.launch(Operation::Copy, {piece.value}, {clone});
    piece.main = w_.make(label(piece, "main"), piece.shape(), DType::FP32, Category::OptimizerMaster);
    w_.launch(Operation::Copy, {clone}, {piece.main});
  }
  make_inner();
}

void MegatronOptimizer::zero_gradients() {
  // Its hooks refer to it: it goes when Python looks for such circles, which construction gives it reason to.
  first_hybrid_.reset();
  for (Piece& piece : pieces_) piece.gradient_copy = {};
}

void MegatronOptimizer::copy_gradients() {
  if (!makes_master() || w_.train.gradient_dtype == DType::FP32) return;  // views of the buffer will do
  for (Piece& piece : pieces_) {
    const Tensor copy = w_.make(label(piece, "main_gradient"), piece.shape(), DType::FP32, Category::Gradients);
    w_.launch(Operation::Copy, {piece.gradient()}, {copy});
    piece.gradient_copy = copy;
  }
}

std::vector<Tensor> MegatronOptimizer::counted_gradients() const {
  std::vector<Tensor> gradients;
  for (const Piece& piece : pieces_)
    if (piece.counts) gradients.push_back(piece.gradient());
  return gradients;
}

void MegatronOptimizer::create_moments() {
  static constexpr std::string_view kinds[] = {"exp_avg", "exp_avg_sq"};
  for (Piece& piece : pieces_) {
    if (!piece.moments.empty()) continue;  // made in the first step
    for (int m = 0; m < moments_of(updates_.optimizer); ++m) {
      const std::string_view what = updates_.optimizer == Optimizer::AdamW ? kinds[m] : "momentum_buffer";
      piece.moments.push_back(w_.make(label(piece, what), piece.shape(), DType::FP32, Category::OptimizerMoments));
      w_.launch({Operation::Fill, {0}}, {}, {piece.moments.back()});
    }
  }
}

// Multi-tensor kernels: one launch for all pieces.
void MegatronOptimizer::update_pieces() {
  const bool adam = updates_.optimizer == Optimizer::AdamW;
  std::vector<Tensor> read, written;
  for (const Piece& piece : pieces_) {
    read.insert(read.end(), {piece.main, piece.gradient()});
    written.push_back(piece.main);
    for (std::vector<Tensor>* all : {&read, &written}) {
      all->insert(all->end(), piece.moments.begin(), piece.moments.end());
      // Adam keeps no largest second moments and counts steps on the host; plain SGD has no momentum.
      const std::size_t absent = adam ? 2 : 1 - piece.moments.size();
      all->insert(all->end(), absent, Tensor{});
    }
  }
  if (adam)
    w_.launch({Operation::Adam, {usual_learning_rate}}, read, written);
  else
    w_.launch({Operation::Sgd, {usual_learning_rate, usual_momentum}}, read, written);
}

void MegatronOptimizer::copy_to_model() {
  std::vector<Tensor> masters, values;
  for (const Piece& piece : pieces_) {
    masters.push_back(piece.main);
    values.push_back(piece.value);
  }
  w_.launch(Operation::Copy, masters, values);
}

void MegatronOptimizer::update() {
  if (pieces_.empty()) return;  // a shard of padding
  if (adam_) {
    adam_->step(own_gradients());
  } else if (hybrid_) {
    hybrid_->step(own_gradients());
  } else if (muon_) {
    muon_->step(own_gradients());
  } else {
    create_moments();
    update_pieces();
  }
  if (makes_master()) copy_to_model();
}

std::vector<Tensor> MegatronOptimizer::own_gradients() const {
  std::vector<Tensor> all;
  for (const Piece& piece : pieces_) all.push_back(piece.gradient());
  return all;
}

StateTensor MegatronOptimizer::state_of(const Piece& piece, const Tensor& its) const {
  return torch::state_tensor(name_in_model(*piece.weight->parameter, w_.first_expert()), its,
                             piece.begin - piece.weight->main_gradients.offset);
}

std::vector<StateTensor> MegatronOptimizer::gradients() const {
  std::vector<StateTensor> all;
  for (const Piece& piece : pieces_)
    if (!piece.weight->parameter->spare) all.push_back(state_of(piece, piece.gradient()));
  return all;
}

std::vector<StateTensor> MegatronOptimizer::parameters() const {
  std::vector<StateTensor> all;
  for (const Piece& piece : pieces_)
    if (!piece.weight->parameter->spare) all.push_back(state_of(piece, piece.value));
  return all;
}

// core/optimizer/__init__.py _get_param_groups: all ranks have the groups that one has. A stage without experts has
// none of their parameters, and takes part in their norm.
std::vector<MegatronOptimizer> make_optimizers(Worker& w, const std::vector<ParamAndGradBuffer>& buffers) {
  using enum ParameterGroup;
  std::vector<MegatronOptimizer> made;
  const auto add = [&](Updates updates) { made.emplace_back(w, buffers, std::move(updates)); };
  const bool experts = w.model.experts() != nullptr && experts_apart(w.layout);
  const CommSlot norm = w.comms.norm, of_experts = w.comms.expert_norm;
  if (!w.runtime.optimizer.muon) {
    add({{Dense}, w.train.optimizer, true, true, norm});
    if (experts) add({{Experts}, w.train.optimizer, true, true, of_experts});
  } else if (w.layout.sharding == Sharding::None) {
    // _get_megatron_emerging_optimizer: what is no matrix, embeddings and heads are Adam's.
    add({{Dense}, Optimizer::Muon, true, false, norm});
    add({{Dense}, Optimizer::AdamW, false, true, norm});
    if (experts) add({{Experts}, Optimizer::Muon, true, false, of_experts});
    if (experts) add({{Experts}, Optimizer::AdamW, false, true, of_experts});
  } else {
    add({{Dense, DenseMatrices, Experts, ExpertMatrices}, Optimizer::Muon, true, false, norm});
    add({{Dense, DenseMatrices, Experts, ExpertMatrices}, Optimizer::AdamW, false, true, norm});
  }
  return made;
}

namespace {

// core/optimizer/clip_grads.py get_grad_norm_fp32: squares are summed. Gradients are clipped if the norm that the host
// reads is too large, which no program knows: in this one it never is.
void reduce_gradient_norm(Worker& w, CommSlot among, const std::vector<Tensor>& gradients) {
  Tensor norm = w.temporary(w.process.label("gradient_norm"), {1}, DType::FP32);
  if (gradients.empty())
    w.launch({Operation::Fill, {0}}, {}, {norm});
  else
    w.launch(Operation::Norm, gradients, {norm});
  w.launch({Operation::Power, {2}}, {norm}, {norm});
  w.session.unchecked_collective(among, CollectiveKind::AllReduce, norm, norm);
  norm = {};
  w.process.synchronize();  // the host reads it, to clip
}

}  // namespace

namespace {

// core/optimizer/clip_grads.py count_zeros_fp32: torch.count_nonzero makes which elements are none, and sums them up as
// numbers of 8 bytes.
void count_zeros(Worker& w, const std::vector<Tensor>& gradients) {
  const auto make = [&](std::string_view use, DType dtype, std::int64_t elements) {
    return w.temporary(w.process.label(use), {elements}, dtype);
  };
  Tensor total = make("zeros.total", DType::FP32, 1), of_one;
  for (const Tensor& gradient : gradients) {
    Tensor other = make("zeros.others", DType::BOOL, gradient.elements());
    const Tensor sum = make("zeros.sum", DType::INT64, 1);
    Tensor numbers = make("zeros.others_as_numbers", DType::INT64, gradient.elements());
    numbers = other = {};
    of_one = make("zeros.of_one", DType::INT64, 1);
    total = make("zeros.total", DType::FP32, 1);
  }
}

}  // namespace

// core/optimizer/optimizer.py ChainedOptimizer: one norm of all gradients where it is reduced over the same ranks.
void step(Worker& w, std::vector<MegatronOptimizer>& optimizers) {
  for (MegatronOptimizer& optimizer : optimizers) optimizer.copy_gradients();
  std::vector<Tensor> gradients;
  const bool one_norm = std::ranges::all_of(
      optimizers, [&](const MegatronOptimizer& its) { return its.norm() == optimizers.front().norm(); });
  const std::size_t gradients_of_all = one_norm ? optimizers.size() : 0;
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    for (Tensor& its : optimizers[i].counted_gradients()) gradients.push_back(std::move(its));
    if (i + 1 < optimizers.size() && optimizers[i + 1].norm() == optimizers[i].norm()) continue;
    reduce_gradient_norm(w, optimizers[i].norm(), gradients);
    if (w.runtime.core.counts_zeros && i + 1 == gradients_of_all) count_zeros(w, gradients);
    gradients.clear();
  }
  for (MegatronOptimizer& optimizer : optimizers) optimizer.update();
}

}  // namespace tidemark::parallel::megatron
