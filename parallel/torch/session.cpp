#include "parallel/torch/session.hpp"

#include <fmt/format.h>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel::torch {
namespace {

// torch/utils/checkpoint.py _StopRecomputationError: the last tensor that was asked for is there.
struct StopRecomputation {};

// What a job keeps from step to step, and programs call by name.
bool is_state(Category category) {
  return category == Category::Parameters || category == Category::OptimizerMaster ||
         category == Category::OptimizerMoments;
}

}  // namespace

Tensor Session::make(Shape sizes, Shape strides, DType dtype, std::string_view what, Category category) {
  Tensor tensor{nullptr, std::move(sizes), std::move(strides), dtype, {}};
  const std::string label = path_.empty() ? std::string(what) : fmt::format("{}.{}", path_, what);
  const BufferId buffer = process.alloc(tensor.bytes(), category, label);
  if (is_state(category)) process.keep(buffer);
  process.hold(buffer);
  tensor.storage = std::make_shared<Storage>(*this, buffer);
  if (recorder != nullptr && category == Category::Parameters)
    recorder->made({name_of(tensor), tensor.sizes, dtype, what == trained_parameter});
  return tensor;
}

Tensor Session::empty(Shape sizes, DType dtype, std::string_view what) {
  return empty(std::move(sizes), dtype, what, default_category());
}

Tensor Session::empty(Shape sizes, DType dtype, std::string_view what, Category category) {
  Shape strides = contiguous_strides(sizes);
  return make(std::move(sizes), std::move(strides), dtype, what, category);
}

Tensor Session::empty_strided(Shape sizes, Shape strides, DType dtype, std::string_view what) {
  return make(std::move(sizes), std::move(strides), dtype, what, default_category());
}

void Session::launch(const Kernel& kernel, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  std::vector<BufferId> in, out;
  for (const Tensor& t : inputs) in.push_back(t.buffer());
  for (const Tensor& t : outputs) out.push_back(t.buffer());
  process.launch(kernel, in, out);
  launched(inputs, outputs);
}

void Session::launched(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
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

void Session::checkpointed(std::string_view name, const Tensor& input, const Tensor& output) {
  if (recorder == nullptr) return;
  recorder->begin_function();
  recorder->launched({std::string(name), {name_of(input)}, {name_of(output)}, {name_of(input)}});
}

void Session::stream(Streaming kind, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  Bytes read, written;
  for (const Tensor& t : inputs) read += t.bytes();
  for (const Tensor& t : outputs) written += t.bytes();
  launch(Stream{kind, read, written}, inputs, outputs);
}

void Session::reclassify(const Tensor& tensor, Category category) { process.reclassify(tensor.buffer(), category); }

void Session::give_up(const Storage& storage) {
  if (!finished_) process.release(storage.buffer());
}

std::shared_ptr<Node> Session::node(const std::vector<const Tensor*>& inputs) {
  if (recorder != nullptr) recorder->begin_function();
  if (!grad_enabled) return nullptr;
  bool needed = false;
  for (const Tensor* t : inputs) needed |= t->requires_grad();
  if (!needed) return nullptr;
  auto made = std::make_shared<Node>();
  made->sequence = nodes_++;
  made->scope = process.label(path_.empty() ? "model" : path_);
  made->category = default_category() == Category::Recompute ? Category::Temporaries : default_category();
  for (const Tensor* t : inputs) made->inputs.push_back({t->gradient, t->sizes, t->dtype});
  return made;
}

Saved Session::save(const Tensor& tensor) {
  auto saved = std::make_shared<SavedTensor>();
  if (packing_) {
    saved->frame = packing_;
    packing_->saved.push_back(saved);
    return saved;
  }
  keep(tensor);
  if (recorder != nullptr) recorder->saved(name_of(tensor));
  saved->tensor = tensor.detached();
  if (again_ == nullptr) return saved;
  const std::size_t place = again_->made_again++;
  if (const Saved first = again_->saved[place].lock()) first->tensor = tensor.detached();
  if (again_->made_again == again_->saved.size()) throw StopRecomputation{};
  return saved;
}

void Session::keep(const Tensor& tensor) {
  const Category now = process.allocation(tensor.buffer()).category;
  if (now == Category::Temporaries)
    reclassify(tensor, again_ != nullptr || backward_ ? Category::Recompute : Category::SavedActivations);
}

void Session::run_again(CheckpointFrame& frame) {
  CheckpointFrame* const outer = std::exchange(again_, &frame);
  const std::string path = std::exchange(path_, {});
  try {
    const Again again(*this);
    frame.run_again(*this);
  } catch (const StopRecomputation&) {
  }
  path_ = path;
  again_ = outer;
  frame.done = true;
}

Tensor Session::unpack(const Saved& saved) {
  if (!saved->frame) return saved->tensor;
  if (!saved->frame->done) run_again(*saved->frame);
  ensure(saved->tensor.defined(), "a region that is run again saves what it saved before");
  return std::exchange(saved->tensor, Tensor{});
}

Session::Scope::Scope(Session& session, std::string_view name, std::optional<Category> category)
    : session_(session), path_(session.path_), category_(session.category_) {
  session.path_ = path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
  if (category) session.category_ = category;
}

Session::Scope::~Scope() {
  session_.path_ = std::move(path_);
  session_.category_ = category_;
}

Session::BackwardScope::BackwardScope(Session& session, const Node& node)
    : session_(session), path_(session.path_), category_(session.category_), backward_(session.backward_) {
  session.path_ = session.process.text(node.scope);
  session.category_ = node.category;
  session.backward_ = true;
}

Session::BackwardScope::~BackwardScope() {
  session_.path_ = std::move(path_);
  session_.category_ = category_;
  session_.backward_ = backward_;
}

}  // namespace tidemark::parallel::torch
