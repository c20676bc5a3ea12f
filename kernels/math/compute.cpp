#include "kernels/math/compute.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/math/elementwise.hpp"
#include "kernels/math/families.hpp"

namespace tidemark::math {

void check_index(std::int64_t id, std::int64_t count, const char* of) {
  if (id < 0 || id >= count) throw WrongIndex(fmt::format("{} {}, where there are {}", of, id, count));
}

namespace {

template <class Real>
void run(Operation operation, const Call& c) {
  const Attributes& attributes = c.attributes;
  const Real number = static_cast<Real>(attributes[0]);
  const Gelu kind = gelu_kind(attributes[0]);
  switch (operation) {
    case Operation::Fill:
      return Fills<Real>::fill(c);
    case Operation::Initialize:
      return Fills<Real>::initialize(c);
    case Operation::Arange:
      return Fills<Real>::arange(c);
    case Operation::RotaryTable:
      return Fills<Real>::rotary_table(c);
    case Operation::Copy:
      return copy<Real>(c);
    case Operation::Add:
      return add<Real>(c);
    case Operation::AddScaled:
      return map<Real>(c, [=](Real x, Real added) { return x + number * added; });
    case Operation::Multiply:
      return map<Real>(c, [](Real x, Real factor) { return x * factor; });
    case Operation::Divide:
      return map<Real>(c, [](Real x, Real divisor) { return x / divisor; });
    case Operation::Scale:
      return map<Real>(c, [=](Real x) { return number * x; });
    case Operation::AddNumber:
      return map<Real>(c, [=](Real x) { return x + number; });
    case Operation::Power:
      return map<Real>(c, [=](Real x) { return power(x, number); });
    case Operation::Cosine:
      return map<Real>(c, [](Real x) { return std::cos(x); });
    case Operation::Sine:
      return map<Real>(c, [](Real x) { return std::sin(x); });
    case Operation::Maximum:
      return map<Real>(c, [](Real x, Real other) { return larger(x, other); });
    case Operation::LogAddExp:
      return map<Real>(c, log_add_exp<Real>);
    case Operation::SoftmaxCorrection:
      return map<Real>(c, [](Real x, Real of_x, Real lse, Real added) { return added + x * std::exp(of_x - lse); });
    case Operation::Clamp:
      return map<Real>(c, [=](Real x) { return x > number ? number : x; });
    case Operation::Differs:
      return map<Real>(c, [](Real x, Real other) { return x != other; });
    case Operation::LessEqual:
      return map<Real>(c, [](Real x, Real other) { return x <= other; });
    case Operation::And:
      return map<Real>(c, [](Real x, Real other) { return x != 0 && other != 0; });
    case Operation::Where:
      return map<Real>(c, [](Real mask, Real x, Real other) { return mask != 0 ? x : other; });
    case Operation::MaskedFill:
      return map<Real>(c, [=](Real x, Real mask) { return mask != 0 ? number : x; });
    case Operation::CausalMask:
      return Softmaxes<Real>::causal_mask(c);
    case Operation::Tanh:
      return map<Real>(c, [](Real x) { return std::tanh(x); });
    case Operation::TanhBackward:
      return map<Real>(c, [](Real dy, Real y) { return dy * (1 - y * y); });
    case Operation::Silu:
      return map<Real>(c, [](Real x) { return silu(x); });
    case Operation::SiluBackward:
      return map<Real>(c, [](Real dy, Real x) { return dy * silu_slope(x); });
    case Operation::Gelu:
      return map<Real>(c, [=](Real x, Real bias) { return gelu(kind, x + bias); });
    case Operation::GeluBackward:
      return map<Real>(c, [=](Real dy, Real x, Real bias) { return dy * gelu_slope(kind, x + bias); });
    case Operation::Relu:
      return map<Real>(c, [](Real x) { return relu(x); });
    case Operation::ReluBackward:
      return map<Real>(c, [](Real dy, Real y) { return y <= 0 ? Real(0) : dy; });
    case Operation::SquaredRelu:
      return map<Real>(c, [](Real x, Real bias) { return relu(x + bias) * relu(x + bias); });
    case Operation::SquaredReluBackward:
      return map<Real>(c, [](Real dy, Real x, Real bias) { return dy * 2 * relu(x + bias); });
    case Operation::SwiGlu:
      return gated<Real>(c, silu<Real>);
    case Operation::SwiGluBackward:
      return gated_backward<Real>(c, silu<Real>, silu_slope<Real>);
    case Operation::GeGlu:
      return gated<Real>(c, [](Real x) { return gelu(Gelu::ByTanh, x); });
    case Operation::GeGluBackward:
      return gated_backward<Real>(
          c, [](Real x) { return gelu(Gelu::ByTanh, x); }, [](Real x) { return gelu_slope(Gelu::ByTanh, x); });
    case Operation::Dropout:
      return Dropouts<Real>::dropout(c);
    case Operation::DropoutBackward:
      return Dropouts<Real>::dropout_backward(c);
    case Operation::BiasDropoutAdd:
      return Dropouts<Real>::bias_dropout_add(c);
    case Operation::Rotary:
      return RotaryPositions<Real>::rotary(c);
    case Operation::RotaryBackward:
      return RotaryPositions<Real>::rotary_backward(c);
    case Operation::Sum:
      return Reductions<Real>::sum(c);
    case Operation::Mean:
      return Reductions<Real>::mean(c);
    case Operation::MeanOfProducts:
      return Reductions<Real>::mean_of_products(c);
    case Operation::Largest:
      return Reductions<Real>::largest(c);
    case Operation::CumulativeSum:
      return Reductions<Real>::cumulative_sum(c);
    case Operation::Norm:
      return Reductions<Real>::norm(c);
    case Operation::Softmax:
      return Softmaxes<Real>::softmax(c);
    case Operation::SoftmaxBackward:
      return Softmaxes<Real>::softmax_backward(c);
    case Operation::LogSoftmax:
      return Softmaxes<Real>::log_softmax(c);
    case Operation::LogSoftmaxBackward:
      return Softmaxes<Real>::log_softmax_backward(c);
    case Operation::LayerNorm:
      return Norms<Real>::layer_norm(c);
    case Operation::LayerNormBackward:
      return Norms<Real>::layer_norm_backward(c);
    case Operation::RmsNorm:
      return Norms<Real>::rms_norm(c);
    case Operation::RmsNormBackward:
      return Norms<Real>::rms_norm_backward(c);
    case Operation::Embedding:
      return Lookups<Real>::embedding(c);
    case Operation::EmbeddingBackward:
      return Lookups<Real>::embedding_backward(c);
    case Operation::Gather:
      return Lookups<Real>::gather(c);
    case Operation::VocabularyMask:
      return Lookups<Real>::vocabulary_mask(c);
    case Operation::NllLoss:
      return Losses<Real>::nll_loss(c);
    case Operation::NllLossBackward:
      return Losses<Real>::nll_loss_backward(c);
    case Operation::CrossEntropyStatistics:
      return Losses<Real>::cross_entropy_statistics(c);
    case Operation::CrossEntropyFromStatistics:
      return Losses<Real>::cross_entropy_from_statistics(c);
    case Operation::ShiftedExponentials:
      return Losses<Real>::shifted_exponentials(c);
    case Operation::VocabularyLoss:
      return Losses<Real>::vocabulary_loss(c);
    case Operation::VocabularyLossBackward:
      return Losses<Real>::vocabulary_loss_backward(c);
    case Operation::Matmul:
      return Products<Real>::matmul(c);
    case Operation::Attention:
      return Attentions<Real>::attention(c);
    case Operation::AttentionBackward:
      return Attentions<Real>::attention_backward(c);
    case Operation::Adam:
      return Optimizers<Real>::adam(c);
    case Operation::Sgd:
      return Optimizers<Real>::sgd(c);
    case Operation::Lerp:
      return map<Real>(c, [=](Real x, Real to) { return x + number * (to - x); });
    case Operation::AddProduct:
      return map<Real>(c, [=](Real x, Real a, Real b) { return x + number * a * b; });
    case Operation::AddQuotient:
      return map<Real>(c, [=](Real x, Real a, Real b) { return x + number * a / b; });
  }
}

// fp64 where all is stored so, and for integers, which fp32 would round.
bool in_float64(const Call& c) {
  const auto floating = [](const Array& a) {
    return a.there() && a.view.dtype != DType::INT64 && a.view.dtype != DType::BOOL;
  };
  return c.setting.storage == Storage::Wide ||
         (std::ranges::none_of(c.in, floating) && std::ranges::none_of(c.out, floating));
}

}  // namespace

void compute(Operation operation, const Attributes& attributes, std::span<const Array> inputs,
             std::span<const Array> outputs, const Setting& setting) {
  const OperationFacts& facts = facts_of(operation);
  const std::size_t groups = facts.grouped ? outputs.size() / facts.outputs.size() : 1;
  ensure(groups > 0, "a kernel has outputs");
  const std::size_t in = inputs.size() / groups, out = outputs.size() / groups;
  ensure(in >= facts.inputs.size() && out == facts.outputs.size() && in * groups == inputs.size() &&
             out * groups == outputs.size(),
         "a kernel is given all operands of its operation");
  for (std::size_t g = 0; g < groups; ++g) {
    const Call call{attributes, inputs.subspan(g * in, in), outputs.subspan(g * out, out), setting, g};
    if (in_float64(call))
      run<double>(operation, call);
    else
      run<float>(operation, call);
  }
}

void compute(const Program& program, const Launch& launch, const std::function<std::byte*(BufferId)>& memory,
             const Setting& setting) {
  const auto arrays = [&](const std::vector<ViewId>& views, OperandList list) {
    const std::span<const Operand> operands = program[list];
    std::vector<Array> all;
    std::size_t next = 0;
    for (const ViewId view : views) {
      if (!view.valid()) {
        all.emplace_back();
        continue;
      }
      const Operand& operand = operands[next++];
      all.push_back(
          {memory(operand.buffer) + program[operand.offset].count() * spread(setting.storage), program[view]});
    }
    return all;
  };
  const Kernel& kernel = program[launch.kernel];
  const std::vector<Array> inputs = arrays(kernel.inputs, launch.inputs),
                           outputs = arrays(kernel.outputs, launch.outputs);
  compute(kernel.operation, kernel.attributes, inputs, outputs, setting);
}

}  // namespace tidemark::math
