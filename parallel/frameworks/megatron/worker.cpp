#include "parallel/frameworks/megatron/worker.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace tidemark::parallel::megatron {

LabelId Name::operator()(std::string_view use) const {
  for (const auto& [text, label] : known_)
    if (text == use.data()) return label;
  const LabelId made = use.empty() ? process_->label(path_) : process_->label(fmt::format("{}.{}", path_, use));
  known_.emplace_back(use.data(), made);
  return made;
}

Worker::Worker(Session& its_session, const LoweringInput& input, const Communicators& communicators,
               const Coordinates& its_place)
    : session(its_session),
      process(its_session.process),
      built(input.built),
      model(input.built.model),
      layout(input.layout),
      train(input.train),
      runtime(input.runtime),
      comms(communicators),
      place(its_place),
      chunks(
          chunks_of_rank(static_cast<std::int32_t>(input.built.model.layers.size()), input.layout, its_place.pipeline)),
      sizes(sizes_of(input.built.model, input.layout, input.train, input.runtime)) {
  if (layout.context > 1) process.order_frees(attention_stream);
}

void Worker::transpose_tokens(Tensor from, const Tensor& to, std::int64_t outer) const {
  const std::int64_t inner = tokens() / outer;
  Shape lies{outer, inner}, lies_then{inner, outer};
  for (Shape* shape : {&lies, &lies_then})
    for (std::size_t d = 1; d < to.sizes.size(); ++d) shape->push_back(to.sizes[d]);
  launch(Operation::Copy, {swapped(sized(std::move(from), lies), 0, 1)}, {sized(to, lies_then)});
}

// core/utils.py get_batch_on_this_cp_rank, core/models/common/embeddings/rope_utils.py get_pos_emb_on_this_cp_rank.
void Worker::own_tokens(const Name& name, Tensor whole, const Tensor& own, int dimension) const {
  const Tensor numbers = temporary(name("chunks"), {2}, DType::INT64);
  const std::int64_t chunk = own.size(dimension) / 2, last = 2 * layout.context - 1;
  const auto of_whole = [&](std::int64_t i) { return narrowed(whole, dimension, i * chunk, chunk); };
  const auto of_own = [&](std::int64_t i) { return narrowed(own, dimension, i * chunk, chunk); };
  launch(Operation::Copy, {of_whole(place.context), of_whole(last - place.context)}, {of_own(0), of_own(1)}, numbers);
}

// ---- collectives ---------------------------------------------------------------------------------------

void Worker::all_reduce(const Tensor& x, Reduction reduction) const {
  session.collective(comms.tensor, CollectiveKind::AllReduce, x, x, reduction);
}

Tensor Worker::all_gather(LabelId label, Tensor x, Shape whole_shape) const {
  Tensor gathered = communicated(label, std::move(whole_shape), x.dtype);
  session.collective(comms.tensor, CollectiveKind::AllGather, x, gathered);
  return gathered;
}

EventId Worker::aside(CollectiveKind kind, const Tensor& x, const Tensor& out) const {
  return session.collective_aside(comms.tensor, kind, x, out);
}

// ---- autograd ------------------------------------------------------------------------------------------------------

Ref<Node> Worker::node(LabelId mark, Operands inputs) const {
  Ref<Node> made = session.node(inputs);
  if (made) made->scope = mark;
  return made;
}

Tensor Worker::take(Saved& saved) const {
  Tensor tensor = session.unpack(saved);
  saved = {};
  return tensor;
}

void Worker::accumulate(const Weight& weight, Tensor gradient) const {
  launch(Operation::Add, {weight.main_gradients, std::move(gradient)}, {weight.main_gradients});
}

std::shared_ptr<AutogradInput> autograd_input(Session& session, const Tensor& value) {
  auto made = std::make_shared<AutogradInput>();
  const Ref<Node> node = session.bare_node();
  node->sequence = std::numeric_limits<std::int64_t>::max();
  node->leaf = true;
  node->scope = {};
  node->apply = [input = std::weak_ptr<AutogradInput>(made)](Gradients& gradients) {
    if (const auto its = input.lock()) its->gradient = std::move(gradients.front());
    return Gradients{};
  };
  made->value = value.detached();
  made->value.gradient = {node, 0};
  return made;
}

// ---- caches --------------------------------------------------------------------------------------------------------

Tensor Worker::cache(std::string_view label, Shape shape, DType dtype, Category category) const {
  Tensor made = make(process.label(label), std::move(shape), dtype, category);
  process.keep(made.buffer());
  return made;
}

BufferId Worker::linear_workspace(HostThread thread) {
  return runtime.framework_linears ? process.blas_workspace(thread) : library_workspace();
}

BufferId Worker::library_workspace() {
  if (!gemm_workspace_.defined())
    gemm_workspace_ = cache("workspace.gemm", {runtime.gemm_workspace.count()}, DType::BOOL, Category::Workspaces);
  return gemm_workspace_.buffer();
}

// TransformerEngine, cpp_extensions/gemm.py get_cublas_workspace; before 2.10 module/base.py initialize_ub made one of
// the same size, which all GEMMs use.
BufferId Worker::user_buffer_workspace() {
  constexpr std::int64_t streams = 3;
  Tensor& its = runtime.shared_user_workspace ? gemm_workspace_ : user_buffer_workspace_;
  if (!its.defined())
    its =
        cache("workspace.user_buffers", {streams * runtime.gemm_workspace.count()}, DType::BOOL, Category::Workspaces);
  return its.buffer();
}

// TransformerEngine, cpp_extensions/gemm.py get_multi_stream_cublas_workspace: all are made at once.
BufferId Worker::grouped_workspace(std::size_t gemm) {
  for (std::size_t i = 0; i < grouped_workspaces_.size(); ++i)
    if (!grouped_workspaces_[i].defined())
      grouped_workspaces_[i] = cache(fmt::format("workspace.grouped_gemm{}", i), {runtime.gemm_workspace.count()},
                                     DType::BOOL, Category::Workspaces);
  return grouped_workspaces_[gemm % grouped_workspaces_.size()].buffer();
}

Tensor Worker::global_buffer(const Shape& shape, GlobalBuffer which) {
  static constexpr std::array names{"global_memory_buffer.mpu", "global_memory_buffer.mpu_0",
                                    "global_memory_buffer.mpu_1"};
  const auto i = static_cast<std::size_t>(which);
  const Bytes size = elements_of(shape) * size_of(train.precision);
  Tensor& buffer = global_buffers_.at(i);
  if (!buffer.defined() || buffer.bytes() < size)
    buffer = cache(names.at(i), {size.count()}, DType::BOOL, Category::CommTp);
  return {buffer.storage, shape, contiguous_strides(shape), 0, train.precision, {}, true};
}

Tensor Worker::causal_mask() {
  if (causal_mask_.defined()) return causal_mask_;
  const Shape square{sizes.sequence, sizes.sequence};
  const Tensor ones = temporary(process.label("attention_mask.ones"), square, DType::FP32);
  const Tensor upper = temporary(process.label("attention_mask.upper"), square, DType::FP32);
  // One for all before core 0.16. TODO: of 0.15, which is not told apart here, it is one for all, too.
  if (runtime.core.batches_by_chunk && runtime.core.holds_heads)
    return temporary(process.label("attention_mask.causal"), square, DType::BOOL);
  return causal_mask_ = cache("attention_mask.causal", square, DType::BOOL, Category::Workspaces);
}

Tensor Worker::head_gather(Shape shape) {
  if (!runtime.persistent_head_gather) return communicated(process.label("head.gathered"), std::move(shape));
  return global_buffer(shape);
}

Tensor Worker::rotary_table() {
  RotaryTables& its = rotary_tables_[running_chunk];
  if (its.shared.defined()) return its.shared;
  const std::int64_t pairs = model.rotary_dim() / 2;
  const Shape shape{train.sequence_length, 2 * pairs}, own_shape{sizes.sequence, 2 * pairs};
  const auto table = [&](std::string_view label) {
    // One angle for each pair of dimensions.
    const Tensor angles = temporary(process.label("rotary.angles"), {shape[0], pairs}, DType::FP32);
    launch({Operation::RotaryTable, {usual_rotary_base}}, {}, {angles});
    const bool whole = layout.context == 1;
    Tensor made = whole ? cache(label, shape, DType::FP32, Category::Workspaces)
                        : temporary(process.label("rotary.whole_table"), shape, DType::FP32);
    launch(Operation::Copy, {angles, angles}, {narrowed(made, -1, 0, pairs), narrowed(made, -1, pairs, pairs)});
    if (whole) return made;
    Tensor own = cache(label, own_shape, DType::FP32, Category::Workspaces);
    own_tokens(name("rotary"), std::move(made), own, 0);
    return own;
  };
  its.shared = table("rotary.table");
  if (!model.window_rotary) return its.shared;
  // Each table's own cache keeps it, and so does that of both together, of which layers take views.
  its.parts = {its.shared, table("rotary.window_table")};
  const Tensor both = cache("rotary.tables", {2, own_shape[0], own_shape[1]}, DType::FP32, Category::Workspaces);
  const auto part = [&](std::int64_t which) { return sized(narrowed(both, 0, which, 1), own_shape); };
  launch(Operation::Copy, {its.parts[0], its.parts[1]}, {part(0), part(1)});
  return its.shared = both;
}

bool Worker::caches_dummy(const Weight& weight) const {
  const bool of_core = runtime.framework_linears || weight.parameter->vocabulary;
  return (of_core ? runtime.core.dummy_gradient : runtime.dummy_gradient) != DummyGradient::Temporary;
}

Tensor Worker::dummy_gradient(const Weight& weight) {
  const auto make_one = [&] {
    const LabelId label = process.label(fmt::format("dummy_gradient.{}x{}", weight.rows, weight.columns));
    Tensor made = make(label, weight.shape(), train.precision, Category::Workspaces);
    // Those of several uses are summed, and nobody reads the sum: that it is one of nothing is said here. Of a tied
    // embedding the sum is read, and what makes it fills it each time.
    if (weight.uses > 1 && !zeroes_dummies()) launch({Operation::Fill, {0}}, {}, {made});
    return made;
  };
  if (!caches_dummy(weight)) return make_one();
  Tensor& cached = dummy_gradients_[{weight.rows, weight.columns}];
  if (!cached.defined()) {
    cached = make_one();
    process.keep(cached.buffer());
  }
  return cached;
}

}  // namespace tidemark::parallel::megatron
