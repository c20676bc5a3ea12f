#include "parallel/lower/model_state.hpp"

#include <utility>

#include <fmt/format.h>

namespace tidemark {

using namespace literals;

ModelState::ModelState(Emitter& emit, std::int32_t shard)
    : emit_(emit),
      parameters_(stage_parameters(emit.graph, emit.stage, emit.runtime)),
      buffer_(buffer_layout(emit.graph, parameters_, emit.sizes, emit.runtime, emit.stage, emit.layout.sharding,
                            emit.layout.data)) {
  const std::vector<ShardPiece> held = sharded() ? buffer_.pieces(shard, emit.layout.data) : buffer_.pieces(0, 1);
  // Optimizers keep matrices and vectors in two groups, because weight decay leaves vectors alone; the group of the
  // parameter that was registered first comes first.
  const bool first = emit.graph[parameters_.front()].matrix();
  for (const bool matrices : {first, !first})
    for (const ShardPiece& piece : held)
      if (emit.graph[piece.parameter].matrix() == matrices)
        pieces_.push_back({piece.parameter, piece.elements, {}, {}, {}});
}

std::string ModelState::piece_name(const Piece& piece, std::string_view what) const {
  return fmt::format("{}.{}", emit_.graph[piece.parameter].name, what);
}

int ModelState::moments_per_parameter() const {
  switch (emit_.train.optimizer) {
    case Optimizer::AdamW:
      return 2;
    case Optimizer::SgdMomentum:
      return 1;
    case Optimizer::Sgd:
      return 0;
  }
  return 0;
}

void ModelState::construct() {
  emit_.mark(Phase::Construction, "start_up");
  emit_.program.push(CreateDriver{DriverResource::Context});
  emit_.program.push(CreateDriver{DriverResource::Modules});
  if (emit_.comms.world.valid()) {
    emit_.program.push(CreateDriver{DriverResource::NcclKernels});
    const BufferId barrier = emit_.alloc(4_B, Category::Temporaries, "barrier");
    emit_.collective(emit_.comms.world, CollectiveKind::AllReduce, barrier, barrier, 4_B);
  }
  build_model();
  build_buffers();
  build_optimizer();
  for (std::size_t i = 0; i < emit_.runtime.scalars.size(); ++i) {
    const std::string name = fmt::format("runtime.scalar{}", i);
    emit_.bind(name, emit_.alloc(emit_.runtime.scalars[i], Category::Workspaces, name));
  }
}

void ModelState::build_model() {
  emit_.mark(Phase::Construction, "build_model");
  for (const ParameterId id : parameters_) {
    const Parameter& parameter = emit_.graph[id];
    const Bytes size = emit_.sizes.elements(parameter) * size_of(emit_.train.precision);
    const BufferId weight = emit_.alloc(size, Category::Parameters, parameter.name);
    emit_.program.launch(Stream{Streaming::Fill, {}, size}, {}, {weight});
    emit_.bind(parameter.name, weight);
    emit_.weight[id.index()] = weight;
  }
}

void ModelState::build_buffers() {
  emit_.mark(Phase::Construction, "build_buffers");
  if (sharded()) {
    const Bytes size = buffer_.elements * size_of(emit_.train.precision);
    parameter_buffer_ = emit_.alloc(size, Category::Parameters, "parameter_buffer");
    emit_.program.launch(Stream{Streaming::Fill, {}, size}, {}, {parameter_buffer_});
    emit_.bind("parameter_buffer", parameter_buffer_);
  }
  const Bytes size = buffer_.elements * size_of(emit_.gradient_dtype());
  emit_.gradients = emit_.alloc(size, Category::Gradients, "gradient_buffer");
  emit_.program.launch(Stream{Streaming::Fill, {}, size}, {}, {emit_.gradients});
  emit_.bind("gradient_buffer", emit_.gradients);
  if (!sharded()) return;
  // Parameters move into the buffer one by one; each gives up its own storage.
  for (const BufferLayout::Place& place : buffer_.places) {
    const Bytes moved = (place.end - place.begin) * size_of(emit_.train.precision);
    BufferId& weight = emit_.weight[place.parameter.index()];
    emit_.program.launch(Stream{Streaming::Copy, moved, moved}, {weight, parameter_buffer_}, {parameter_buffer_});
    emit_.unbind(emit_.graph[place.parameter].name);
    weight = parameter_buffer_;
  }
}

void ModelState::build_optimizer() {
  emit_.mark(Phase::Construction, "build_optimizer");
  for (Piece& piece : pieces_) {
    const BufferId weight = emit_.weight[piece.parameter.index()];
    if (!has_master()) {
      piece.main = weight;
      continue;
    }
    // weight.clone().float(): the clone goes when the fp32 tensor is there.
    const Bytes low = piece.bytes(emit_.train.precision), high = piece.bytes(DType::FP32);
    const BufferId clone = emit_.alloc(low, Category::Temporaries, piece_name(piece, "clone"));
    emit_.program.launch(Stream{Streaming::Copy, low, low}, {weight}, {clone});
    const std::string name = piece_name(piece, "main");
    piece.main = emit_.alloc(high, Category::OptimizerMaster, name);
    emit_.bind(name, piece.main);
    emit_.program.launch(Stream{Streaming::Copy, low, high}, {clone}, {piece.main});
  }
}

void ModelState::zero_gradients() {
  emit_.mark(Phase::OptimizerStep, "zero_gradients");
  const Bytes size = buffer_.elements * size_of(emit_.gradient_dtype());
  emit_.program.launch(Stream{Streaming::Fill, {}, size}, {}, {emit_.gradients});
  for (Piece& piece : pieces_)
    if (std::exchange(piece.gradient_copy, BufferId{}).valid()) emit_.unbind(piece_name(piece, "main_gradient"));
}

void ModelState::reduce_gradients() {
  emit_.mark(Phase::Communication, "reduce_gradients");
  const Bytes size = buffer_.elements * size_of(emit_.gradient_dtype());
  const CollectiveKind kind = sharded() ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce;
  emit_.collective(emit_.comms.data, kind, emit_.gradients, emit_.gradients, size);
  if (emit_.sizes.sequence_parallel) sum_norm_gradients();
  if (emit_.comms.embedding.valid() && (emit_.stage.embedding || emit_.stage.head)) {
    const Parameter& shared = emit_.graph.parameters.front();
    emit_.collective(emit_.comms.embedding, CollectiveKind::AllReduce, emit_.gradients, emit_.gradients,
                     emit_.sizes.elements(shared) * size_of(emit_.gradient_dtype()));
  }
}

void ModelState::sum_norm_gradients() {
  // Under sequence parallelism each rank saw other tokens: gradients of what is whole on every rank are summed, as one
  // flat copy.
  std::int64_t elements = 0;
  for (const ParameterId id : parameters_)
    if (emit_.graph[id].cut == WeightCut::None) elements += emit_.sizes.elements(emit_.graph[id]);
  const Bytes size = elements * size_of(emit_.gradient_dtype());
  const BufferId flat = emit_.alloc(size, Category::CommTp, "norm_gradients.flat");
  emit_.program.launch(Stream{Streaming::Copy, size, size}, {emit_.gradients}, {flat});
  emit_.collective(emit_.comms.tensor, CollectiveKind::AllReduce, flat, flat, size);
  emit_.program.launch(Stream{Streaming::Copy, size, size}, {flat, emit_.gradients}, {emit_.gradients});
}

void ModelState::copy_gradients() {
  if (!has_master() || emit_.gradient_dtype() == DType::FP32) return;  // views of the buffer will do
  for (Piece& piece : pieces_) {
    const std::string name = piece_name(piece, "main_gradient");
    piece.gradient_copy = emit_.alloc(piece.bytes(DType::FP32), Category::Gradients, name);
    emit_.bind(name, piece.gradient_copy);
    emit_.program.launch(Stream{Streaming::Copy, piece.bytes(emit_.gradient_dtype()), piece.bytes(DType::FP32)},
                         {emit_.gradients}, {piece.gradient_copy});
  }
}

void ModelState::reduce_gradient_norm() {
  const BufferId norm = emit_.alloc(4_B, Category::Temporaries, "gradient_norm");
  const Bytes size = buffer_.elements * size_of(emit_.gradient_dtype());
  emit_.program.launch(Stream{Streaming::Reduce, size, 4_B}, {emit_.gradients}, {norm});
  emit_.collective(emit_.comms.norm, CollectiveKind::AllReduce, norm, norm, 4_B);
  emit_.synchronize();  // the host reads it, to clip
}

void ModelState::create_moments() {
  static constexpr std::string_view kinds[] = {"exp_avg", "exp_avg_sq"};
  for (Piece& piece : pieces_) {
    if (!piece.moments.empty()) continue;  // made in the first step
    for (int m = 0; m < moments_per_parameter(); ++m) {
      const std::string name =
          piece_name(piece, emit_.train.optimizer == Optimizer::AdamW ? kinds[m] : "momentum_buffer");
      const BufferId moment = emit_.alloc(piece.bytes(DType::FP32), Category::OptimizerMoments, name);
      emit_.bind(name, moment);
      emit_.program.launch(Stream{Streaming::Fill, {}, piece.bytes(DType::FP32)}, {}, {moment});
      piece.moments.push_back(moment);
    }
  }
}

void ModelState::update() {
  emit_.mark(Phase::OptimizerStep, "optimizer_step");
  copy_gradients();
  reduce_gradient_norm();
  create_moments();
  // Multi-tensor kernels: one launch for all pieces. Each rank has an equal share of the padded buffer.
  const std::int64_t share = buffer_.elements / (sharded() ? emit_.layout.data : 1);
  std::vector<BufferId> state{emit_.gradients}, masters, weights;
  for (const Piece& piece : pieces_) {
    state.push_back(piece.main);
    if (piece.gradient_copy.valid()) state.push_back(piece.gradient_copy);
    state.insert(state.end(), piece.moments.begin(), piece.moments.end());
    masters.push_back(piece.main);
    weights.push_back(emit_.weight[piece.parameter.index()]);
  }
  const Bytes touched = share * size_of(DType::FP32) * (1 + moments_per_parameter());
  emit_.program.launch(Stream{Streaming::Update, touched + share * size_of(DType::FP32), touched}, state, state);
  const Bytes size = buffer_.elements * size_of(emit_.train.precision);
  if (has_master())
    emit_.program.launch(Stream{Streaming::Copy, share * size_of(DType::FP32), share * size_of(emit_.train.precision)},
                         masters, weights);
  if (sharded()) {
    emit_.mark(Phase::Communication, "gather_parameters");
    emit_.collective(emit_.comms.data, CollectiveKind::AllGather, parameter_buffer_, parameter_buffer_, size);
  }
}

}  // namespace tidemark
