#include "parallel/torch/session.hpp"

#include <fmt/format.h>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel::torch {
namespace {

// What a job keeps from step to step, and programs call by name.
bool is_state(Category category) {
  return category == Category::Parameters || category == Category::OptimizerMaster ||
         category == Category::OptimizerMoments;
}

}  // namespace

Tensor Session::make(const Shape& sizes, const Shape& strides, DType dtype, std::string_view what, Category category) {
  const Bytes size = elements_of(sizes) * size_of(dtype);
  const BufferId buffer = process.alloc(size, category, labels_.within(scope_, what), stream_);
  if (is_state(category)) process.keep(buffer);
  process.hold(buffer);
  Tensor tensor{Ref(storages_.make(*this, buffer)), sizes, strides, dtype, {}};
  if (recorder != nullptr && category == Category::Parameters)
    recorder->made({name_of(tensor), tensor.sizes, dtype, what == trained_parameter});
  return tensor;
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

void Session::launch(const Kernel& kernel, Operands inputs, Operands outputs, BufferId workspace) {
  inputs_.clear(), outputs_.clear();
  for (const Tensor& t : inputs) inputs_.push_back(t.buffer());
  for (const Tensor& t : outputs) outputs_.push_back(t.buffer());
  if (workspace.valid()) inputs_.push_back(workspace);
  process.launch(kernel, inputs_, outputs_, stream_);
  if (recorder == nullptr) return;
  Recording::Operation operation;
  const std::string made = name_of(outputs.front());
  operation.name = made.substr(0, made.find('@'));
  for (const Tensor& t : inputs) operation.inputs.push_back(name_of(t));
  for (const Tensor& t : outputs) operation.outputs.push_back(name_of(t));
  recorder->launched(std::move(operation));
}

// Parameters and buffers by their own names, which are nobody else's; others with their buffer in the program.
std::string Session::name_of(const Tensor& tensor) const {
  const Alloc& alloc = process.allocation(tensor.buffer());
  const std::string& label = process.text(alloc.label);
  if (alloc.category != Category::Parameters) return fmt::format("{}@b{}", label, alloc.buffer.value);
  const std::size_t end = label.size() - trained_parameter.size() - 1;
  return label.ends_with(trained_parameter) && label[end] == '.' ? label.substr(0, end) : label;
}

void Session::checkpointed(const Tensor& input, const Tensor& output) {
  if (recorder == nullptr) return;
  recorder->begin_function();
  recorder->launched({process.text(scope_), {name_of(input)}, {name_of(output)}, {name_of(input)}});
}

void Session::stream(Streaming kind, Operands inputs, Operands outputs) {
  Bytes read, written;
  for (const Tensor& t : inputs) read += t.bytes();
  for (const Tensor& t : outputs) written += t.bytes();
  launch(Stream{kind, read, written}, inputs, outputs);
}

void Session::reclassify(const Tensor& tensor, Category category) { process.reclassify(tensor.buffer(), category); }

void Session::give_up(Storage& storage) {
  if (!finished_) process.release(storage.buffer());
  storages_.recycle(&storage);
}

Ref<Node> Session::bare_node() {
  Ref<Node> made(nodes_.make(nodes_));
  made->scope = scope_.valid() ? scope_ : process.label("model");
  return made;
}

Ref<Node> Session::node(Operands inputs) {
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
  if (pack_ != nullptr) saved->packed = (*pack_)(tensor);
  if (saved->packed) return saved;
  keep(tensor);
  if (recorder != nullptr) recorder->saved(name_of(tensor));
  saved->tensor = tensor.detached();
  return saved;
}

void Session::keep(const Tensor& tensor) {
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
