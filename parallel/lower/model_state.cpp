#include "parallel/lower/model_state.hpp"

#include <utility>

#include <fmt/format.h>

namespace tidemark::parallel {

using namespace literals;

ModelState::ModelState(Emitter& emit, std::int32_t shard) : emit_(emit) {
  std::vector<std::vector<ShardPiece>> held;
  for (std::size_t c = 0; c < emit.chunks.size(); ++c) {
    Chunk chunk;
    chunk.parameters = stage_parameters(emit.graph, emit.chunks[c], emit.runtime);
    chunk.buffer = buffer_layout(emit.graph, chunk.parameters, emit.sizes, emit.runtime, emit.chunks[c],
                                 emit.layout.sharding, emit.layout.data);
    if (emit.chunks.size() > 1) chunk.suffix = fmt::format("[{}]", c);
    held.push_back(sharded() ? chunk.buffer.pieces(shard, emit.layout.data) : chunk.buffer.pieces(0, 1));
    chunks_.push_back(std::move(chunk));
  }
  // Optimizers keep matrices and vectors in two groups, because weight decay leaves vectors alone; the group of the
  // parameter that was registered first comes first.
  const bool first = emit.graph[chunks_.front().parameters.front()].matrix();
  for (const bool matrices : {first, !first})
    for (std::size_t c = 0; c < chunks_.size(); ++c)
      for (const ShardPiece& piece : held[c])
        if (emit.graph[piece.parameter].matrix() == matrices)
          pieces_.push_back({piece.parameter, piece.elements, static_cast<std::int32_t>(c), {}, {}, {}});
}

std::vector<BufferId> ModelState::all_gradients() const {
  std::vector<BufferId> all;
  for (const Chunk& chunk : chunks_) all.push_back(chunk.gradients);
  return all;
}

std::int64_t ModelState::elements() const {
  std::int64_t sum = 0;
  for (const Chunk& chunk : chunks_) sum += chunk.buffer.elements;
  return sum;
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
    emit_.unchecked_collective(emit_.comms.world, CollectiveKind::AllReduce, barrier, barrier, 4_B);
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
  for (const Chunk& chunk : chunks_) {
    for (const ParameterId id : chunk.parameters) {
      const Parameter& parameter = emit_.graph[id];
      const Bytes size = emit_.sizes.elements(parameter) * size_of(emit_.train.precision);
      const BufferId weight = emit_.alloc(size, Category::Parameters, parameter.name);
      emit_.program.launch(Stream{Streaming::Fill, {}, size}, {}, {weight});
      emit_.bind(parameter.name, weight);
      emit_.weight[id.index()] = weight;
    }
  }
}

void ModelState::build_buffers() {
  emit_.mark(Phase::Construction, "build_buffers");
  for (Chunk& chunk : chunks_) {
    const auto make = [&](std::string_view what, Bytes size, Category category) {
      const std::string name = fmt::format("{}{}", what, chunk.suffix);
      const BufferId buffer = emit_.alloc(size, category, name);
      emit_.program.launch(Stream{Streaming::Fill, {}, size}, {}, {buffer});
      emit_.bind(name, buffer);
      return buffer;
    };
    if (sharded())
      chunk.parameter_buffer =
          make("parameter_buffer", chunk.buffer.elements * size_of(emit_.train.precision), Category::Parameters);
    chunk.gradients = make("gradient_buffer", gradient_bytes(chunk), Category::Gradients);
    emit_.chunk_gradients.push_back(chunk.gradients);
    if (!sharded()) continue;
    // Parameters move into the buffer one by one; each gives up its own storage.
    for (const BufferLayout::Place& place : chunk.buffer.places) {
      const Bytes moved = (place.end - place.begin) * size_of(emit_.train.precision);
      BufferId& weight = emit_.weight[place.parameter.index()];
      emit_.program.launch(Stream{Streaming::Copy, moved, moved}, {weight, chunk.parameter_buffer},
                           {chunk.parameter_buffer});
      emit_.unbind(emit_.graph[place.parameter].name);
      weight = chunk.parameter_buffer;
    }
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
  for (const Chunk& chunk : chunks_)
    emit_.program.launch(Stream{Streaming::Fill, {}, gradient_bytes(chunk)}, {}, {chunk.gradients});
  for (Piece& piece : pieces_)
    if (std::exchange(piece.gradient_copy, BufferId{}).valid()) emit_.unbind(piece_name(piece, "main_gradient"));
}

void ModelState::reduce_gradients() {
  emit_.mark(Phase::Communication, "reduce_gradients");
  const CollectiveKind kind = sharded() ? CollectiveKind::ReduceScatter : CollectiveKind::AllReduce;
  for (const Chunk& chunk : chunks_)
    emit_.unchecked_collective(emit_.comms.data, kind, chunk.gradients, chunk.gradients, gradient_bytes(chunk));
  sum_partial_gradients();
  if (emit_.comms.embedding.valid() && (emit_.embedding() || emit_.head())) {
    const Parameter& shared = emit_.graph.parameters.front();
    const BufferId its = (emit_.embedding() ? chunks_.front() : chunks_.back()).gradients;
    emit_.collective(emit_.comms.embedding, CollectiveKind::AllReduce, its, its,
                     emit_.sizes.elements(shared) * size_of(emit_.gradient_dtype()));
  }
}

// Parameters that every tensor-parallel rank holds whole, and of whose gradient each computes a part, by id. Ranks meet
// them with other heads (norms of queries and keys), or under sequence parallelism with other tokens. Learned positions
// are looked up before the sequence is cut: every rank computes all of their gradient.
std::vector<bool> ModelState::partial_gradients() const {
  std::vector<bool> partial(emit_.graph.parameters.size(), false);
  if (!emit_.tensor_parallel()) return partial;
  for (const Operator& op : emit_.graph.operators) {
    if (std::holds_alternative<Embedding>(op.type)) continue;
    const Placement met = emit_.graph[op.outputs.front()].placement;
    const bool in_parts = met == Placement::Tensor || (met == Placement::Residual && emit_.sizes.sequence_parallel);
    for (const ParameterId id : op.parameters) partial[id.index()] = in_parts && emit_.graph[id].cut == WeightCut::None;
  }
  return partial;
}

// Megatron-LM core 0.14, core/distributed/finalize_model_grads.py, _allreduce_non_tensor_model_parallel_grads (before
// 0.13 _allreduce_layernorm_grads): what carries `sequence_parallel` (norms, biases of row-parallel linears), and
// q_layernorm and k_layernorm with or without it. Learned positions carry nothing.
void ModelState::sum_partial_gradients() {
  const std::vector<bool> partial = partial_gradients();
  std::vector<BufferId> whose;  // gradients of chunks that have any
  std::int64_t parameters = 0, elements = 0;
  for (const Chunk& chunk : chunks_)
    for (const ParameterId id : chunk.parameters) {
      if (!partial[id.index()]) continue;
      ++parameters;
      elements += emit_.sizes.elements(emit_.graph[id]);
      if (whose.empty() || whose.back() != chunk.gradients) whose.push_back(chunk.gradients);
    }
  if (parameters == 0) return;
  const Bytes size = elements * size_of(emit_.gradient_dtype());
  if (parameters == 1) {  // torch/_utils.py _flatten_dense_tensors: a single tensor, flat, is a view of itself
    emit_.collective(emit_.comms.tensor, CollectiveKind::AllReduce, whose.front(), whose.front(), size);
    return;
  }
  const BufferId flat = emit_.alloc(size, Category::CommTp, "partial_gradients.flat");
  emit_.program.launch(Stream{Streaming::Copy, size, size}, whose, std::vector{flat});
  emit_.collective(emit_.comms.tensor, CollectiveKind::AllReduce, flat, flat, size);
  std::vector<BufferId> read{flat};
  read.insert(read.end(), whose.begin(), whose.end());  // what lies between stays
  emit_.program.launch(Stream{Streaming::Copy, size, size}, read, whose);
}

void ModelState::copy_gradients() {
  if (!has_master() || emit_.gradient_dtype() == DType::FP32) return;  // views of the buffer will do
  for (Piece& piece : pieces_) {
    const std::string name = piece_name(piece, "main_gradient");
    piece.gradient_copy = emit_.alloc(piece.bytes(DType::FP32), Category::Gradients, name);
    emit_.bind(name, piece.gradient_copy);
    emit_.program.launch(Stream{Streaming::Copy, piece.bytes(emit_.gradient_dtype()), piece.bytes(DType::FP32)},
                         {chunks_[static_cast<std::size_t>(piece.chunk)].gradients}, {piece.gradient_copy});
  }
}

void ModelState::reduce_gradient_norm() {
  const BufferId norm = emit_.alloc(4_B, Category::Temporaries, "gradient_norm");
  const Bytes size = elements() * size_of(emit_.gradient_dtype());
  emit_.program.launch(Stream{Streaming::Reduce, size, 4_B}, all_gradients(), std::vector{norm});
  emit_.unchecked_collective(emit_.comms.norm, CollectiveKind::AllReduce, norm, norm, 4_B);
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
  const std::int64_t share = elements() / (sharded() ? emit_.layout.data : 1);
  std::vector<BufferId> state = all_gradients(), masters, weights;
  for (const Piece& piece : pieces_) {
    state.push_back(piece.main);
    if (piece.gradient_copy.valid()) state.push_back(piece.gradient_copy);
    state.insert(state.end(), piece.moments.begin(), piece.moments.end());
    masters.push_back(piece.main);
    weights.push_back(emit_.weight[piece.parameter.index()]);
  }
  const Bytes touched = share * size_of(DType::FP32) * (1 + moments_per_parameter());
  emit_.program.launch(Stream{Streaming::Update, touched + share * size_of(DType::FP32), touched}, state, state);
  if (has_master())
    emit_.program.launch(Stream{Streaming::Copy, share * size_of(DType::FP32), share * size_of(emit_.train.precision)},
                         masters, weights);
  if (!sharded()) return;
  emit_.mark(Phase::Communication, "gather_parameters");
  for (const Chunk& chunk : chunks_)
    emit_.unchecked_collective(emit_.comms.data, CollectiveKind::AllGather, chunk.parameter_buffer,
                               chunk.parameter_buffer, chunk.buffer.elements * size_of(emit_.train.precision));
}

}  // namespace tidemark::parallel
