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
  Region region;
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

}  // namespace

Tensor checkpoint(Session& s, const Tensor& input, Region region, CheckpointOptions options) {
  const auto frame = std::make_shared<Frame>(Frame{std::move(region), {}, s.pack(input), s.scope(), s.autocast, {}});
  frame->options = std::move(options);
  if (!frame->packed) {
    frame->input = input;
    s.keep(input);
  }
  Tensor out;
  {
    std::optional<Keeping> keeping;
    if (frame->options.policy) keeping.emplace(s, frame->kept, frame->options.policy());
    const InMode mode(s, keeping ? &*keeping : s.dispatch_mode);
    const SavedTensorsHooks hooks(s, [&](const Tensor&) { return std::make_unique<Place>(frame); });
    out = frame->region(input);
  }
  s.checkpointed(input, out);
  return out;
}

Tensor checkpoint(Session& s, const Tensor& input, Region region) {
  return checkpoint(s, input, std::move(region), CheckpointOptions{});
}

Tensor checkpoint_reentrant(Session& s, const Tensor& input, Region region) {
  auto node = s.node({input});
  Tensor out;
  {
    const NoGrad no_grad(s);
    out = region(input);
  }
  if (!node) return out;
  s.checkpointed(input, out);
  // CheckpointFunction.backward: the region once more on a detached input, then its own backward pass.
  node->apply = [&s, region = std::move(region), saved = s.save(input), scope = s.scope(),
                 dtype = s.autocast](const Gradients& gradients) {
    const std::shared_ptr<Leaf> detached = leaf(s, s.unpack(saved));
    const OwnGraph graph(s);
    Tensor again;
    {
      const Autocast as_before(s, dtype);
      const Session::Again once_more(s, scope);
      const auto outer = std::exchange(s.checkpointed_input, detached);
      again = region(detached->value);
      s.checkpointed_input = outer;
    }
    backward(s, again, gradients.front());
    return Gradients{detached->gradient};
  };
  return with(std::move(out), std::move(node));
}

}  // namespace tidemark::parallel::torch
