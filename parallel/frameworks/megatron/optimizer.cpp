#include "parallel/frameworks/megatron/optimizer.hpp"

#include <utility>

#include <fmt/format.h>

namespace tidemark::parallel::megatron {

using namespace literals;

MegatronOptimizer::MegatronOptimizer(Worker& w, const std::vector<ParamAndGradBuffer>& buffers, std::int32_t shard)
    : w_(w), buffers_(buffers) {
  std::vector<std::vector<ShardPiece>> held;
  for (const ParamAndGradBuffer& buffer : buffers)
    held.push_back(sharded() ? buffer.layout().pieces(shard, w.layout.data) : buffer.layout().pieces(0, 1));
  // Optimizers keep matrices and vectors in two groups, because weight decay leaves vectors alone; the group of the
  // parameter that was registered first comes first.
  const bool first = w.graph[buffers.front().parameters().front()].matrix();
  for (const bool matrices : {first, !first})
    for (std::size_t c = 0; c < buffers.size(); ++c)
      for (const ShardPiece& piece : held[c])
        if (w.graph[piece.parameter].matrix() == matrices)
          pieces_.push_back({&w.weight(piece.parameter), &buffers[c], piece.elements, {}, {}, {}});
}

std::vector<BufferId> MegatronOptimizer::all_gradients() const {
  std::vector<BufferId> all;
  for (const ParamAndGradBuffer& buffer : buffers_) all.push_back(buffer.gradients().buffer());
  return all;
}

std::int64_t MegatronOptimizer::elements() const {
  std::int64_t sum = 0;
  for (const ParamAndGradBuffer& buffer : buffers_) sum += buffer.layout().elements;
  return sum;
}

LabelId MegatronOptimizer::label(const Piece& piece, std::string_view what) const {
  return w_.process.label(fmt::format("{}.{}", piece.weight->parameter->name, what));
}

int MegatronOptimizer::moments_per_parameter() const {
  switch (w_.train.optimizer) {
    case Optimizer::AdamW:
      return 2;
    case Optimizer::SgdMomentum:
      return 1;
    case Optimizer::Sgd:
      return 0;
  }
  return 0;
}

void MegatronOptimizer::build() {
  for (Piece& piece : pieces_) {
    const Tensor& value = piece.weight->value;
    if (!has_master()) {
      piece.main = value;
      continue;
    }
    // weight.clone().float(): the clone goes when the fp32 tensor is there.
    const Bytes low = piece.bytes(w_.train.precision), high = piece.bytes(DType::FP32);
    const Tensor clone = w_.temporary(label(piece, "clone"), {piece.elements});
    w_.stream(Streaming::Copy, {value}, {clone}, low, low);
    piece.main = w_.make(label(piece, "main"), {piece.elements}, DType::FP32, Category::OptimizerMaster);
    w_.stream(Streaming::Copy, {clone}, {piece.main}, low, high);
  }
}

void MegatronOptimizer::zero_gradients() {
  for (Piece& piece : pieces_) piece.gradient_copy = {};
}

void MegatronOptimizer::copy_gradients() {
  if (!has_master() || w_.train.gradient_dtype == DType::FP32) return;  // views of the buffer will do
  for (Piece& piece : pieces_) {
    piece.gradient_copy = w_.make(label(piece, "main_gradient"), {piece.elements}, DType::FP32, Category::Gradients);
    w_.stream(Streaming::Copy, {piece.buffer->gradients()}, {piece.gradient_copy}, piece.bytes(w_.train.gradient_dtype),
              piece.bytes(DType::FP32));
  }
}

void MegatronOptimizer::reduce_gradient_norm() {
  Tensor norm = w_.temporary(w_.process.label("gradient_norm"), {1}, DType::FP32);
  const Bytes size = elements() * size_of(w_.train.gradient_dtype);
  w_.process.launch(Stream{Streaming::Reduce, size, 4_B}, all_gradients(), std::vector{norm.buffer()});
  w_.process.unchecked_collective(w_.comms.norm, CollectiveKind::AllReduce, norm.buffer(), norm.buffer(), 4_B);
  norm = {};
  w_.process.synchronize();  // the host reads it, to clip
}

void MegatronOptimizer::create_moments() {
  static constexpr std::string_view kinds[] = {"exp_avg", "exp_avg_sq"};
  for (Piece& piece : pieces_) {
    if (!piece.moments.empty()) continue;  // made in the first step
    for (int m = 0; m < moments_per_parameter(); ++m) {
      const std::string_view what = w_.train.optimizer == Optimizer::AdamW ? kinds[m] : "momentum_buffer";
      piece.moments.push_back(w_.make(label(piece, what), {piece.elements}, DType::FP32, Category::OptimizerMoments));
      w_.stream(Streaming::Fill, {}, {piece.moments.back()}, {}, piece.bytes(DType::FP32));
    }
  }
}

void MegatronOptimizer::step() {
  copy_gradients();
  reduce_gradient_norm();
  create_moments();
  // Multi-tensor kernels: one launch for all pieces. Each rank has an equal share of the padded buffer.
  const std::int64_t share = elements() / (sharded() ? w_.layout.data : 1);
  std::vector<BufferId> state = all_gradients(), masters, weights;
  for (const Piece& piece : pieces_) {
    state.push_back(piece.main.buffer());
    if (piece.gradient_copy.defined()) state.push_back(piece.gradient_copy.buffer());
    for (const Tensor& moment : piece.moments) state.push_back(moment.buffer());
    masters.push_back(piece.main.buffer());
    weights.push_back(piece.weight->value.buffer());
  }
  const Bytes touched = share * size_of(DType::FP32) * (1 + moments_per_parameter());
  w_.process.launch(Stream{Streaming::Update, touched + share * size_of(DType::FP32), touched}, state, state);
  if (!has_master()) return;
  const Bytes high = share * size_of(DType::FP32), low = share * size_of(w_.train.precision);
  w_.process.launch(Stream{Streaming::Copy, high, low}, masters, weights);
}

}  // namespace tidemark::parallel::megatron
