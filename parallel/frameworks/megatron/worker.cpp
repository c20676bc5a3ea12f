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
               std::vector<Stage> its_chunks)
    : session(its_session),
      process(its_session.process),
      graph(input.graph),
      model(input.graph.model),
      layout(input.layout),
      train(input.train),
      runtime(input.runtime),
      comms(communicators),
      chunks(std::move(its_chunks)),
      sizes(sizes_of(input.graph.model, input.layout, input.train, input.runtime)),
      weights_(input.graph.parameters.size()) {}

// ---- kernels and collectives ---------------------------------------------------------------------------------------

void Worker::launch(const Kernel& kernel, Operands inputs, Operands outputs) const {
  std::array<BufferId, 16> buffers;
  std::size_t count = 0;
  for (const Operand& operand : inputs)
    if (operand.buffer.valid()) buffers[count++] = operand.buffer;
  const std::size_t read = count;
  for (const Operand& operand : outputs)
    if (operand.buffer.valid()) buffers[count++] = operand.buffer;
  const std::span all(buffers);
  process.launch(kernel, all.first(read), all.subspan(read, count - read));
}

void Worker::all_reduce(const Tensor& x) const {
  process.collective(comms.tensor, CollectiveKind::AllReduce, x.buffer(), x.buffer(), x.bytes());
}

Tensor Worker::all_gather(LabelId label, Tensor x, Shape whole_shape) const {
  Tensor gathered = communicated(label, std::move(whole_shape), x.dtype);
  process.collective(comms.tensor, CollectiveKind::AllGather, x.buffer(), gathered.buffer(), gathered.bytes());
  return gathered;
}

EventId Worker::aside(CollectiveKind kind, const Tensor& x, const Tensor& out) const {
  return process.collective_aside(comms.tensor, kind, x.buffer(), out.buffer(), std::max(x.bytes(), out.bytes()));
}

// ---- autograd ------------------------------------------------------------------------------------------------------

Ref<Node> Worker::node(LabelId mark, torch::Operands inputs) const {
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
  const Bytes size = weight.elements() * size_of(train.gradient_dtype);
  stream(Streaming::Add, {std::move(gradient), weight.main_gradients}, {weight.main_gradients}, 2 * size, size);
}

std::shared_ptr<GraphInput> graph_input(Session& session, const Tensor& value) {
  auto made = std::make_shared<GraphInput>();
  const Ref<Node> node = session.bare_node();
  node->sequence = std::numeric_limits<std::int64_t>::max();
  node->leaf = true;
  node->scope = {};
  node->apply = [input = std::weak_ptr<GraphInput>(made)](Gradients& gradients) {
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

BufferId Worker::linear_workspace(Pass thread) {
  if (runtime.framework_linears) return process.blas_workspace(thread);
  if (!gemm_workspace_.defined())
    gemm_workspace_ = cache("workspace.gemm", {runtime.gemm_workspace.count()}, DType::BOOL, Category::Workspaces);
  return gemm_workspace_.buffer();
}

Tensor Worker::global_buffer(Bytes size) {
  if (!global_buffer_.defined() || global_buffer_.bytes() < size)
    global_buffer_ = cache("global_memory_buffer.mpu", {size.count()}, DType::BOOL, Category::CommTp);
  return global_buffer_;
}

Tensor Worker::head_gather(Shape shape) {
  if (!runtime.persistent_head_gather) return communicated(process.label("head.gathered"), std::move(shape));
  return global_buffer(torch::elements_of(shape) * size_of(train.precision));
}

Tensor Worker::rotary_table() {
  if (rotary_table_.defined()) return rotary_table_;
  const Shape shape{train.sequence_length, model.rotary_dim()};
  const auto table = [&](std::string_view label) {
    // One angle for each pair of dimensions.
    const Tensor angles = temporary(process.label("rotary.angles"), {shape[0], shape[1] / 2}, DType::FP32);
    stream(Streaming::Fill, {}, {angles}, {}, angles.bytes());
    Tensor made = cache(label, shape, DType::FP32, Category::Workspaces);
    stream(Streaming::Copy, {angles}, {made}, angles.bytes(), made.bytes());
    return made;
  };
  rotary_table_ = table("rotary.table");
  if (!model.window_rotary) return rotary_table_;
  // Each table's own cache keeps it, and so does that of both together, of which layers take views.
  rotary_tables_ = {rotary_table_, table("rotary.window_table")};
  const Tensor both = cache("rotary.tables", {2, shape[0], shape[1]}, DType::FP32, Category::Workspaces);
  stream(Streaming::Copy, {rotary_tables_[0], rotary_tables_[1]}, {both}, both.bytes(), both.bytes());
  return rotary_table_ = both;
}

Tensor Worker::dummy_gradient(const Weight& weight) {
  const auto make_one = [&] {
    const LabelId label = process.label(fmt::format("dummy_gradient.{}x{}", weight.rows, weight.columns));
    return make(label, weight.shape(), train.precision, Category::Workspaces);
  };
  if (runtime.dummy_gradient == DummyGradient::Temporary) return make_one();
  Tensor& cached = dummy_gradients_[{weight.rows, weight.columns}];
  if (!cached.defined()) {
    cached = make_one();
    process.keep(cached.buffer());
  }
  return cached;
}

}  // namespace tidemark::parallel::megatron
