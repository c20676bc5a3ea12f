#include "parallel/torch/checkpoint.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "parallel/torch/operation.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::parallel::torch {
namespace {

// torch/utils/checkpoint.py _StopRecomputationError: the last tensor that was asked for is there.
struct StopRecomputation {};

class Place;

// torch/utils/checkpoint.py _CachingTorchDispatchMode, _CachedTorchDispatchMode: what operations made, in their order.
using Kept = std::map<Dispatched, std::deque<std::vector<Tensor>>>;

class Keeping final : public DispatchMode {
 public:
  Keeping(Session& s, Kept& kept, KeepsResult keeps) : s_(s), kept_(kept), keeps_(std::move(keeps)) {}
  bool recalls(Dispatched, std::span<Tensor>) override { return false; }
  void made(Dispatched what, std::span<const Tensor> results) override {
    if (!keeps_(what)) return;
    std::vector<Tensor>& its = kept_[what].emplace_back();
    for (const Tensor& result : results) {
      s_.keep(result);
      its.push_back(result.detached());
    }
  }

 private:
  Session& s_;
  Kept& kept_;
  KeepsResult keeps_;
};

class Recalling final : public DispatchMode {
 public:
  Recalling(Kept& kept, KeepsResult keeps) : kept_(kept), keeps_(std::move(keeps)) {}
  bool recalls(Dispatched what, std::span<Tensor> results) override {
    if (!keeps_(what)) return false;
    std::deque<std::vector<Tensor>>& all = kept_[what];
    ensure(!all.empty() && all.front().size() == results.size(), "what is kept is asked for in its order");
    std::ranges::move(all.front(), results.begin());
    all.pop_front();
    return true;
  }
  void made(Dispatched, std::span<const Tensor>) override {}

 private:
  Kept& kept_;
  KeepsResult keeps_;
};

class InMode {
 public:
  InMode(Session& s, DispatchMode* mode) : s_(s), before_(std::exchange(s.dispatch_mode, mode)) {}
  ~InMode() { s_.dispatch_mode = before_; }
  InMode(const InMode&) = delete;
  InMode& operator=(const InMode&) = delete;

 private:
  Session& s_;
  DispatchMode* before_;
};

// A graph of its own: what its functions hold goes with it.
class OwnGraph {
 public:
  explicit OwnGraph(Session& s) : s_(s), outer_(std::exchange(s.outlives_backward, {})) {}
  ~OwnGraph() { s_.outlives_backward = std::move(outer_); }
  OwnGraph(const OwnGraph&) = delete;
  OwnGraph& operator=(const OwnGraph&) = delete;

 private:
  Session& s_;
  std::vector<std::shared_ptr<void>> outer_;
};

// torch/utils/checkpoint.py _CheckpointFrame: keeps the region and its input until nobody asks for what it saved.
struct Frame {
  WideRegion region;
  Tensor input;                          // or, under hooks around the region,
  std::unique_ptr<PackedTensor> packed;  // (_NoopSaveInputs)
  LabelId scope;
  std::optional<DType> autocast;
  std::vector<Place*> saved;  // null where nobody asks for it any more
  bool done = false;
  CheckpointOptions options{};
  Kept kept{};

  void run_again(Session& s);
};

// What a node holds instead of a tensor that the region saved.
class Place final : public PackedTensor {
 public:
  explicit Place(std::shared_ptr<Frame> frame) : frame_(std::move(frame)), place_(frame_->saved.size()) {
    frame_->saved.push_back(this);
  }
  ~Place() override { frame_->saved[place_] = nullptr; }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  void fill(const Tensor& tensor) { tensor_ = tensor.detached(); }
  Tensor unpack(Session& s) override {
    if (!frame_->done) frame_->run_again(s);
    ensure(tensor_.defined(), "a region that is run again saves what it saved before");
    return std::exchange(tensor_, Tensor{});
  }

 private:
  std::shared_ptr<Frame> frame_;
  std::size_t place_;
  Tensor tensor_;
};

void Frame::run_again(Session& s) {
  const OwnGraph graph(s);
  const Session::Again again(s, scope);
  const Autocast as_before(s, autocast);
  std::size_t next = 0;
  const SavedTensorsHooks hooks(s, [&](const Tensor& tensor) -> std::unique_ptr<PackedTensor> {
    s.keep(tensor);
    if (Place* const first = saved[next]) first->fill(tensor);
    if (++next == saved.size() && options.early_stop) throw StopRecomputation{};
    return nullptr;
  });
  std::optional<Recalling> recalling;
  if (options.policy) recalling.emplace(kept, options.policy());
  const InMode mode(s, recalling ? &*recalling : s.dispatch_mode);
  try {
    const Tensor detached = leaf(s, packed ? packed->unpack(s) : input)->value;
    detached.gradient.node->leaf = false;  // but what it was: the output of an operation
    (void)region(detached);
  } catch (const StopRecomputation&) {
  }
  done = true;
}

WideRegion alone(Region region) {
  return [region = std::move(region)](const Tensor& x) { return std::vector<Tensor>{region(x)}; };
}

// What a function remembers of its outputs (torch/csrc/autograd/input_metadata.h).
struct Form {
  Shape sizes;
  DType dtype;
};
std::vector<Form> forms_of(const std::vector<Tensor>& tensors) {
  std::vector<Form> forms;
  for (const Tensor& t : tensors) forms.push_back({t.sizes, t.dtype});
  return forms;
}
Tensor zeros(Session& s, const Form& form) {
  Tensor made = s.empty(form.sizes, form.dtype, "zero_gradient");
  s.launch({Operation::Fill, {0}}, {}, {made});
  return made;
}

}  // namespace

std::vector<Tensor> checkpoint(Session& s, const Tensor& input, WideRegion region, CheckpointOptions options) {
  const auto frame = std::make_shared<Frame>(Frame{std::move(region), {}, s.pack(input), s.scope(), s.autocast, {}});
  frame->options = std::move(options);
  if (!frame->packed) {
    frame->input = input;
    s.keep(input);
  }
  std::vector<Tensor> outputs;
  {
    std::optional<Keeping> keeping;
    if (frame->options.policy) keeping.emplace(s, frame->kept, frame->options.policy());
    const InMode mode(s, keeping ? &*keeping : s.dispatch_mode);
    const SavedTensorsHooks hooks(s, [&](const Tensor&) { return std::make_unique<Place>(frame); });
    outputs = frame->region(input);
  }
  s.checkpointed(input, outputs.front());
  return outputs;
}

Tensor checkpoint(Session& s, const Tensor& input, Region region, CheckpointOptions options) {
  return checkpoint(s, input, alone(std::move(region)), std::move(options)).front();
}

Tensor checkpoint(Session& s, const Tensor& input, Region region) {
  return checkpoint(s, input, std::move(region), CheckpointOptions{});
}

std::vector<Tensor> checkpoint_reentrant(Session& s, const Tensor& input, WideRegion region) {
  auto node = s.node({input});
  std::vector<Tensor> outputs;
  {
    const NoGrad no_grad(s);
    outputs = region(input);
  }
  if (!node) return outputs;
  s.checkpointed(input, outputs.front());
  node->outputs = outputs.size();
  // CheckpointFunction.backward: the region once more on a detached input, then its own backward pass. A function gets
  // zeros for outputs that nobody used (ctx.set_materialize_grads), before it runs.
  node->apply = [&s, region = std::move(region), saved = s.save(input), scope = s.scope(), dtype = s.autocast,
                 forms = forms_of(outputs)](Gradients& gradients) {
    for (std::size_t i = 0; i < forms.size(); ++i)
      if (!gradients[i].defined()) gradients[i] = zeros(s, forms[i]);
    const std::shared_ptr<Leaf> detached = leaf(s, s.unpack(saved));
    const OwnGraph graph(s);
    std::vector<Tensor> again;
    {
      const Autocast as_before(s, dtype);
      const Session::Again once_more(s, scope);
      const auto outer = std::exchange(s.checkpointed_input, detached);
      again = region(detached->value);
      s.checkpointed_input = outer;
    }
    std::vector<WaitingGradient> roots;
    for (std::size_t i = 0; i < again.size(); ++i)
      if (again[i].requires_grad()) roots.push_back({again[i].gradient, gradients[i]});
    backward(s, std::move(roots));
    return Gradients{detached->gradient};
  };
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i].gradient = {node, i};
  return outputs;
}

Tensor checkpoint_reentrant(Session& s, const Tensor& input, Region region) {
  return checkpoint_reentrant(s, input, alone(std::move(region))).front();
}

}  // namespace tidemark::parallel::torch
