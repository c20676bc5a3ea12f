#include <optional>
#include <string_view>

#include "parallel/frameworks/pytorch/optimizers/update_rule.hpp"
#include "parallel/torch/operation.hpp"

// bitsandbytes/optim/optimizer.py Optimizer1State and Optimizer2State: one parameter after the other, by one kernel
// each.

namespace tidemark::parallel::pytorch {
namespace {

constexpr std::int64_t least_quantized = 4096;  // min_8bit_size: elements
constexpr std::int64_t codes = 256;             // of a map

constexpr std::int64_t least_paged = 100'000;  // get_state_buffer

struct StateKind {
  bool lion = false;  ///< one moment, and no second one
  bool quantized = false;
  bool paged = false;  ///< state is in managed memory
};

StateKind kind_of(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::AdamW8Bit:
      return {.quantized = true};
    case Optimizer::PagedAdamW:
      return {.paged = true};
    case Optimizer::PagedAdamW8Bit:
      return {.quantized = true, .paged = true};
    case Optimizer::Lion:
      return {.lion = true};
    case Optimizer::PagedLion:
      return {.lion = true, .paged = true};
    case Optimizer::Lion8Bit:
      return {.lion = true, .quantized = true};
    case Optimizer::PagedLion8Bit:
      return {.lion = true, .quantized = true, .paged = true};
    default:
      return {};
  }
}

class BitsAndBytesRule final : public UpdateRule {
 public:
  BitsAndBytesRule(Session& session, Optimizer kind, const EagerBehavior& behavior, const Parameters& parameters)
      : s_(session), kind_(kind_of(kind)), behavior_(behavior) {
    for (const std::shared_ptr<Leaf>& p : parameters) states_.push_back({p, {}, {}});
  }

  void step(std::int32_t /*number*/) override {
    for (State& state : states_) {
      if (!state.parameter->gradient.defined()) continue;
      if (state.moments.empty()) make(state);
      update(state);
      s_.process.synchronize();  // sync_gpu
    }
  }

 private:
  struct State {
    std::shared_ptr<Leaf> parameter;
    std::vector<Tensor> moments;
    std::vector<Tensor> scales;  ///< absmax of each moment's blocks, where it is in 8 bits
  };

  // GlobalOptimManager: transformers' Trainer._create_optimizer has it keep embeddings' state in 32 bits.
  [[nodiscard]] bool quantizes(const Leaf& parameter) const {
    const bool embedding = parameter.role == ParameterRole::Embedding;
    return kind_.quantized && parameter.value.elements() >= least_quantized &&
           (!embedding || behavior_.small_optimizer.narrow_embeddings);
  }

  [[nodiscard]] Tensor zeros(const Shape& sizes, DType dtype, std::string_view what) {
    Tensor made = s_.empty(sizes, dtype, what, Category::OptimizerMoments);
    s_.launch({Operation::Fill, {0}}, {}, {made});
    return made;
  }

  // name2qmap: the values that codes stand for, which all parameters share.
  void make_maps() {
    if (!maps_.empty()) return;
    for (const bool with_sign : {true, false}) {
      if (!with_sign && kind_.lion) continue;
      maps_.push_back(s_.empty({codes}, DType::FP32, with_sign ? "qmap1" : "qmap2", Category::OptimizerMoments));
      s_.launch({Operation::DynamicMap, {with_sign ? 1.0 : 0.0}}, {}, {maps_.back()});
    }
  }

  // get_state_buffer: of what the driver pages, or of PyTorch's allocator.
  [[nodiscard]] Tensor state_buffer(const Shape& sizes, DType dtype, std::string_view what) {
    std::optional<InMemory> managed;
    if (kind_.paged && elements_of(sizes) >= least_paged) managed.emplace(s_, MemorySpace::Managed);
    return zeros(sizes, dtype, what);
  }

  void make(State& state) {
    const Leaf& parameter = *state.parameter;
    const bool quantized = quantizes(parameter);
    if (quantized) make_maps();
    static constexpr std::string_view names[] = {"state1", "state2"}, of_scales[] = {"absmax1", "absmax2"};
    const std::size_t moments = kind_.lion ? 1 : 2;
    for (std::size_t m = 0; m < moments; ++m)
      state.moments.push_back(state_buffer(parameter.value.sizes, quantized ? DType::UINT8 : DType::FP32, names[m]));
    if (!quantized) return;
    const std::int64_t block = behavior_.quantized_block;
    const std::int64_t blocks = (parameter.value.elements() + block - 1) / block;
    for (std::size_t m = 0; m < moments; ++m) state.scales.push_back(zeros({blocks}, DType::FP32, of_scales[m]));
  }

  void update(const State& state) {
    const Tensor value = state.parameter->value.detached();
    const double decay = behavior_.weight_decay;
    std::vector<Tensor> read{value, state.parameter->gradient}, written{value};
    const auto hand = [&](const std::vector<Tensor>& kept) {
      read.insert(read.end(), kept.begin(), kept.end());
      written.insert(written.end(), kept.begin(), kept.end());
    };
    hand(state.moments);
    if (state.scales.empty()) {
      if (kind_.lion) {
        s_.launch({Operation::Lion, {usual_learning_rate, decay}}, read, written);
        return;
      }
      read.resize(6), written.resize(5);
      s_.launch({Operation::Adam, {usual_learning_rate, decay, 0}}, read, written);
      return;
    }
    hand(state.scales);
    read.insert(read.end(), maps_.begin(), maps_.end());
    const auto block = static_cast<double>(behavior_.quantized_block);
    s_.launch({kind_.lion ? Operation::LionBlockwise : Operation::AdamBlockwise, {usual_learning_rate, decay, block}},
              read, written);
  }

  Session& s_;
  StateKind kind_;
  const EagerBehavior& behavior_;
  std::vector<State> states_;
  std::vector<Tensor> maps_;
};

}  // namespace

UpdateRulePtr bitsandbytes_rule(Session& session, Optimizer kind, const EagerBehavior& behavior,
                                const Parameters& parameters) {
  return std::make_unique<BitsAndBytesRule>(session, kind, behavior, parameters);
}

}  // namespace tidemark::parallel::pytorch
