#include "parallel/torch/session.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "parallel/torch/trace.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::torch {
namespace {

// What a job keeps from step to step, and programs call by name.
bool is_state(Category category) {
  return category == Category::Parameters || category == Category::Adapters || category == Category::Quantization ||
         category == Category::OptimizerMaster || category == Category::OptimizerMoments;
}

// What is made of modules' own parameters and buffers, which programs call by their names in the model.
bool is_of_modules(Category category) {
  return category == Category::Parameters || category == Category::Adapters || category == Category::Quantization;
}

}  // namespace

Tensor Session::make(const Shape& sizes, const Shape& strides, DType dtype, std::string_view what, Category category) {
  Tensor tensor = make(sizes, strides, dtype, labels_.within(scope_, what), category, space_);
  if (recorder != nullptr && is_of_modules(category))
    recorder->made({name_of(tensor.buffer()), tensor.sizes, dtype, what == trained_parameter});
  return tensor;
}

Tensor Session::make(const Shape& sizes, const Shape& strides, DType dtype, LabelId label, Category category,
                     MemorySpace space) {
  if (tracer != nullptr)
    return {Ref(storages_.make(*this, tracer->alloc(sizes, strides, dtype, label))), sizes, strides, 0, dtype, {}};
  const StreamId stream = stream_.valid() ? stream_ : Process::compute_stream;  // of no meaning on the host
  const BufferId buffer = process.alloc(elements_of(sizes) * size_of(dtype), category, label, stream, space);
  if (is_state(category)) process.keep(buffer);
  process.hold(buffer);
  return {Ref(storages_.make(*this, buffer)), sizes, strides, 0, dtype, {}};
}

Tensor Session::empty(const Shape& sizes, DType dtype, LabelId label, Category category) {
  return make(sizes, contiguous_strides(sizes), dtype, label, category, space_);
}

Tensor Session::empty(Shape sizes, DType dtype, std::string_view what) {
  return empty(sizes, dtype, what, default_category());
}

Tensor Session::empty(Shape sizes, DType dtype, std::string_view what, Category category) {
  return make(sizes, contiguous_strides(sizes), dtype, what, category);
}

Tensor Session::empty_strided(Shape sizes, Shape strides, DType dtype, std::string_view what) {
  return make(sizes, strides, dtype, what, default_category());
}

Tensor Session::empty_strided(Shape sizes, Shape strides, DType dtype, std::string_view what, Category category) {
  return make(sizes, strides, dtype, what, category);
}

Tensor Session::in_registers(Shape sizes, Shape strides, DType dtype, std::string_view what) {
  return make(sizes, strides, dtype, labels_.within(scope_, what), Category::Temporaries, MemorySpace::Registers);
}

Operand Session::operand(const Tensor& tensor, BufferId buffer) {
  return {buffer, process.offset(tensor.offset * size_of(tensor.dtype))};
}

void Session::view(Operands operands, std::vector<ViewedOperand>& into) {
  into.clear();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const BufferId buffer = operands.buffer(i);
    const Tensor& t = operands[i];
    into.push_back(buffer.valid() ? ViewedOperand{operand(t, buffer), process.view(t.dtype, t.sizes, t.strides)}
                                  : ViewedOperand{});
  }
}

void Session::launch(const Computation& what, Operands inputs, Operands outputs, const Scratch& scratch) {
  if (tracer != nullptr) return tracer->launched(what, inputs, outputs, scratch);
  view(inputs, inputs_);
  view(outputs, outputs_);
  process.launch(what, inputs_, outputs_, scratch.buffers(), stream_);
  if (recorder == nullptr) return;
  Recording::Operation operation;
  const auto names = [&](const std::vector<ViewedOperand>& operands) {
    std::vector<std::string> all;
    for (const ViewedOperand& o : operands)
      if (o.operand.buffer.valid()) all.push_back(name_of(o.operand.buffer));
    return all;
  };
  operation.inputs = names(inputs_);
  operation.outputs = names(outputs_);
  const std::string& made = operation.outputs.front();
  operation.name = made.substr(0, made.find('@'));
  recorder->launched(std::move(operation));
}

void Session::copy(const Tensor& from, const Tensor& to) {
  process.copy(stream_, operand(from, from.buffer()), operand(to, to.buffer()), from.bytes());
}

void Session::collective(CommSlot comm, CollectiveKind kind, const Tensor& in, const Tensor& out, Reduction reduction) {
  process.collective(comm, {kind, in.dtype, reduction}, operand(in, in.buffer()), operand(out, out.buffer()),
                     std::max(in.bytes(), out.bytes()), stream_);
}

void Session::collective(CommSlot comm, CollectiveKind kind, const Tensor& in, const Tensor& out,
                         const MatrixRow& row) {
  process.collective(comm, {kind, in.dtype, Reduction::Sum}, operand(in, in.buffer()), operand(out, out.buffer()), row,
                     stream_);
}

void Session::sum_over(CommSlot comm, const Tensor& tensor) {
  if (space_ == MemorySpace::Device) return collective(comm, CollectiveKind::AllReduce, tensor, tensor);
  const OnDevice device(*this);
  const Tensor summed = empty(tensor.sizes, tensor.dtype, "summed");
  copy(tensor, summed);
  collective(comm, CollectiveKind::AllReduce, summed, summed);
  copy(summed, tensor);
  process.synchronize();
}

void Session::unchecked_collective(CommSlot comm, CollectiveKind kind, const Tensor& in, const Tensor& out,
                                   Reduction reduction) {
  process.unchecked_collective(comm, {kind, in.dtype, reduction}, operand(in, in.buffer()), operand(out, out.buffer()),
                               std::max(in.bytes(), out.bytes()));
}

EventId Session::collective_aside(CommSlot comm, CollectiveKind kind, const Tensor& in, const Tensor& out,
                                  Reduction reduction) {
  return process.collective_aside(comm, {kind, in.dtype, reduction}, operand(in, in.buffer()),
                                  operand(out, out.buffer()), std::max(in.bytes(), out.bytes()));
}

EventId Session::unchecked_collective_aside(StreamId stream, CommSlot comm, CollectiveKind kind, const Tensor& in,
                                            const Tensor& out, Reduction reduction) {
  return process.unchecked_collective_aside(comm, {kind, in.dtype, reduction}, operand(in, in.buffer()),
                                            operand(out, out.buffer()), std::max(in.bytes(), out.bytes()), stream);
}

// Parameters and buffers by their own names, which are nobody else's; others with their buffer in the program.
std::string Session::name_of(BufferId buffer) const {
  const Alloc& alloc = process.allocation(buffer);
  const std::string& label = process.text(alloc.label);
  if (!is_of_modules(alloc.category)) return fmt::format("{}@b{}", label, alloc.buffer.value);
  const std::size_t end = label.size() - trained_parameter.size() - 1;
  return label.ends_with(trained_parameter) && label[end] == '.' ? label.substr(0, end) : label;
}

void Session::checkpointed(const Tensor& input, const Tensor& output) {
  if (recorder == nullptr) return;
  recorder->begin_function();
  recorder->launched(
      {process.text(scope_), {name_of(input.buffer())}, {name_of(output.buffer())}, {name_of(input.buffer())}});
}

void Session::relabel(const Tensor& tensor, LabelId label) {
  const std::string before = recorder != nullptr ? name_of(tensor.buffer()) : std::string();
  process.relabel(tensor.buffer(), label);
  if (recorder != nullptr) recorder->renamed(before, name_of(tensor.buffer()));
}

void Session::reclassify(const Tensor& tensor, Category category) {
  if (tracer == nullptr) process.reclassify(tensor.buffer(), category);
}

void Session::discard(const Tensor& tensor) {
  if (!tensor.storage->buffer().valid()) return;
  process.release(tensor.buffer());
  tensor.storage->buffer_ = {};
}

void Session::restore(const Tensor& tensor, const Tensor& again) {
  ensure(tensor.dense() && !tensor.storage->buffer().valid(), "what was discarded is a whole tensor");
  const Alloc& its = process.allocation(again.buffer());
  tensor.storage->buffer_ = process.alloc(its.size, Category::Recompute, its.label, stream_);
  process.hold(tensor.buffer());
  launch(Operation::Copy, {again}, {tensor});
}

void Session::replace(const Tensor& tensor, Tensor data) {
  ensure(data.storage.use_count() == 1, "memory is handed over");
  std::swap(tensor.storage->buffer_, data.storage->buffer_);
}

void Session::give_up(Storage& storage) {
  if (!finished_ && storage.buffer().valid() && !Tracer::is_traced(storage.buffer())) process.release(storage.buffer());
  storages_.recycle(&storage);
}

StateTensor state_tensor(std::string parameter, const Tensor& tensor, std::int64_t first) {
  return {std::move(parameter),
          first,
          tensor.buffer(),
          tensor.offset * size_of(tensor.dtype),
          {tensor.dtype, tensor.sizes, tensor.strides}};
}

Ref<Node> Session::bare_node() {
  Ref<Node> made(nodes_.make(nodes_));
  made->scope = scope_.valid() ? scope_ : process.label("model");
  made->stream = stream_;
  return made;
}

Ref<Node> Session::node(Operands inputs) {
  if (before_operation) before_operation(inputs);
  if (recorder != nullptr) recorder->begin_function();
  if (!grad_enabled) return nullptr;
  bool needed = false;
  for (const Tensor& t : inputs) needed |= t.requires_grad();
  if (!needed) return nullptr;
  Ref<Node> made = bare_node();
  made->sequence = sequence_++;
  made->category = default_category() == Category::Recompute ? Category::Temporaries : default_category();
  for (const Tensor& t : inputs) made->inputs.push_back({t.gradient, t.sizes, t.dtype});
  return made;
}

Saved Session::save(const Tensor& tensor) {
  Saved saved(saved_tensors_.make(saved_tensors_));
  if (tracer == nullptr) saved->packed = pack(tensor);
  if (saved->packed) return saved;
  keep_saved(tensor);
  saved->tensor = tensor.detached();
  return saved;
}

void Session::keep_saved(const Tensor& tensor) {
  keep(tensor);
  if (recorder != nullptr) recorder->saved(name_of(tensor.buffer()));
}

void Session::keep(const Tensor& tensor) {
  if (tracer != nullptr) return;
  if (process.allocation(tensor.buffer()).category == Category::Temporaries)
    reclassify(tensor, backward_ ? Category::Recompute : Category::SavedActivations);
}

Tensor Session::unpack(const Saved& saved) { return saved->packed ? saved->packed->unpack(*this) : saved->tensor; }

Session::Scope::Scope(Session& session, std::string_view name, std::optional<Category> category)
    : session_(session), scope_(session.scope_), category_(session.category_) {
  session.scope_ = session.labels_.within(scope_, name);
  if (category) session.category_ = category;
}

Session::Scope::~Scope() {
  session_.scope_ = scope_;
  session_.category_ = category_;
}

Session::BackwardScope::BackwardScope(Session& session, const Node& node)
    : session_(session), scope_(session.scope_), category_(session.category_), backward_(session.backward_) {
  session.scope_ = node.scope;
  session.category_ = node.category;
  session.backward_ = true;
}

Session::BackwardScope::~BackwardScope() {
  session_.scope_ = scope_;
  session_.category_ = category_;
  session_.backward_ = backward_;
}

}  // namespace tidemark::parallel::torch
