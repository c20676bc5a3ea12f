#include <algorithm>
#include <cmath>

#include "kernels/math/elementwise.hpp"
#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"

namespace tidemark::math {
namespace {

template <class Call>
void run(Operation operation, const Call& c) {
  using Real = typename Call::Real;
  const Attributes& attributes = c.attributes;
  const Real number = static_cast<Real>(attributes[0]), second = static_cast<Real>(attributes[1]);
  const Gelu kind = gelu_kind(attributes[0]);
  switch (operation) {
    case Operation::Fill:
      return Fills<Call>::fill(c);
    case Operation::Initialize:
      return Fills<Call>::initialize(c);
    case Operation::Arange:
      return Fills<Call>::arange(c);
    case Operation::RotaryTable:
      return Fills<Call>::rotary_table(c);
    case Operation::Copy:
      return copy(c);
    case Operation::Add:
      return add(c);
    case Operation::AddScaled:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real added) { return x + number * added; });
    case Operation::Multiply:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real factor) { return x * factor; });
    case Operation::Divide:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real divisor) { return x / divisor; });
    case Operation::Scale:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return number * x; });
    case Operation::AddNumber:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return x + number; });
    case Operation::Remainder:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return x - number * std::floor(x / number); });
    case Operation::Power:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return power(x, number); });
    case Operation::Cosine:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return std::cos(x); });
    case Operation::Sine:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return std::sin(x); });
    case Operation::Exponential:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return std::exp(x); });
    case Operation::Logarithm:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return std::log(x); });
    case Operation::Absolute:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return std::fabs(x); });
    case Operation::Sign:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return Real(x > 0) - Real(x < 0); });
    case Operation::Maximum:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real other) { return larger(x, other); });
    case Operation::LogAddExp:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real other) { return log_add_exp(x, other); });
    case Operation::SoftmaxCorrection:
      return softmax_correction(c);
    case Operation::Clamp:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return x < number ? number : x > second ? second : x; });
    case Operation::Equals:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return x == number; });
    case Operation::Differs:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real other) { return x != other; });
    case Operation::LessEqual:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real other) { return x <= other; });
    case Operation::And:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real other) { return x != 0 && other != 0; });
    case Operation::Where:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real mask, Real x, Real other) { return mask != 0 ? x : other; });
    case Operation::MaskedFill:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real mask) { return mask != 0 ? number : x; });
    case Operation::CausalMask:
      return Softmaxes<Call>::causal_mask(c);
    case Operation::Tanh:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return std::tanh(x); });
    case Operation::TanhBackward:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real dy, Real y) { return dy * (1 - y * y); });
    case Operation::Sigmoid:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return sigmoid(x); });
    case Operation::SigmoidBackward:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real dy, Real y) { return dy * y * (1 - y); });
    case Operation::Silu:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return silu(x); });
    case Operation::SiluBackward:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real dy, Real x) { return dy * silu_slope(x); });
    case Operation::Gelu:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real bias) { return gelu(kind, x + bias); });
    case Operation::GeluBackward:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real dy, Real x, Real bias) { return dy * gelu_slope(kind, x + bias); });
    case Operation::Relu:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x) { return relu(x); });
    case Operation::ReluBackward:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real dy, Real y) { return y <= 0 ? Real(0) : dy; });
    case Operation::SquaredRelu:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real bias) { return relu(x + bias) * relu(x + bias); });
    case Operation::SquaredReluBackward:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real dy, Real x, Real bias) { return dy * 2 * relu(x + bias); });
    case Operation::SwiGlu:
      return gated<GatedBySilu>(c);
    case Operation::SwiGluBackward:
      return gated_backward<GatedBySilu>(c);
    case Operation::WeightedSwiGlu:
      return WeightedSwiGlus<Call>::weighted_swiglu(c);
    case Operation::WeightedSwiGluBackward:
      return WeightedSwiGlus<Call>::weighted_swiglu_backward(c);
    case Operation::GeGlu:
      return gated<GatedByGelu>(c);
    case Operation::GeGluBackward:
      return gated_backward<GatedByGelu>(c);
    case Operation::Dropout:
      return Dropouts<Call>::dropout(c);
    case Operation::DropoutBackward:
      return Dropouts<Call>::dropout_backward(c);
    case Operation::BiasDropoutAdd:
      return Dropouts<Call>::bias_dropout_add(c);
    case Operation::Rotary:
      return RotaryPositions<Call>::rotary(c);
    case Operation::RotaryBackward:
      return RotaryPositions<Call>::rotary_backward(c);
    case Operation::RotaryPairs:
      return RotaryPositions<Call>::rotary_pairs(c);
    case Operation::RotaryPairsBackward:
      return RotaryPositions<Call>::rotary_pairs_backward(c);
    case Operation::ComplexMultiply:
      return RotaryPositions<Call>::complex_multiply(c);
    case Operation::LatentKeys:
      return RotaryPositions<Call>::latent_keys(c);
    case Operation::LatentKeysBackward:
      return RotaryPositions<Call>::latent_keys_backward(c);
    case Operation::Sum:
      return Reductions<Call>::sum(c);
    case Operation::Mean:
      return Reductions<Call>::mean(c);
    case Operation::MeanOfProducts:
      return Reductions<Call>::mean_of_products(c);
    case Operation::Largest:
      return Reductions<Call>::largest(c);
    case Operation::CumulativeSum:
      return Reductions<Call>::cumulative_sum(c);
    case Operation::Norm:
      return Reductions<Call>::norm(c);
    case Operation::Softmax:
      return Softmaxes<Call>::softmax(c);
    case Operation::SoftmaxBackward:
      return Softmaxes<Call>::softmax_backward(c);
    case Operation::LogSoftmax:
      return Softmaxes<Call>::log_softmax(c);
    case Operation::LogSoftmaxBackward:
      return Softmaxes<Call>::log_softmax_backward(c);
    case Operation::LayerNorm:
      return Norms<Call>::layer_norm(c);
    case Operation::LayerNormBackward:
      return Norms<Call>::layer_norm_backward(c);
    case Operation::RmsNorm:
      return Norms<Call>::rms_norm(c);
    case Operation::RmsNormBackward:
      return Norms<Call>::rms_norm_backward(c);
    case Operation::GroupedRmsNorm:
      return Norms<Call>::grouped_rms_norm(c);
    case Operation::GroupedRmsNormBackward:
      return Norms<Call>::grouped_rms_norm_backward(c);
    case Operation::CausalConv1d:
      return Scans<Call>::causal_conv1d(c);
    case Operation::CausalConv1dBackward:
      return Scans<Call>::causal_conv1d_backward(c);
    case Operation::SsdScan:
      return Scans<Call>::ssd_scan(c);
    case Operation::SsdScanBackward:
      return Scans<Call>::ssd_scan_backward(c);
    case Operation::Embedding:
      return Lookups<Call>::embedding(c);
    case Operation::EmbeddingBackward:
      return Lookups<Call>::embedding_backward(c);
    case Operation::Gather:
      return Lookups<Call>::gather(c);
    case Operation::VocabularyMask:
      return Lookups<Call>::vocabulary_mask(c);
    case Operation::TopK:
      return Choices<Call>::top_k(c);
    case Operation::Scatter:
      return Choices<Call>::scatter(c);
    case Operation::MaskedSelect:
      return Choices<Call>::masked_select(c);
    case Operation::MaskedSelectBackward:
      return Choices<Call>::masked_select_backward(c);
    case Operation::TokenMap:
      return Permutations<Call>::token_map(c);
    case Operation::PermuteRows:
      return Permutations<Call>::permute_rows(c);
    case Operation::UnpermuteRows:
      return Permutations<Call>::unpermute_rows(c);
    case Operation::UnpermuteRowsBackward:
      return Permutations<Call>::unpermute_rows_backward(c);
    case Operation::ChunkMap:
      return Permutations<Call>::chunk_map(c);
    case Operation::SortRows:
      return Permutations<Call>::sort_rows(c);
    case Operation::NllLoss:
      return Losses<Call>::nll_loss(c);
    case Operation::NllLossBackward:
      return Losses<Call>::nll_loss_backward(c);
    case Operation::CrossEntropyStatistics:
      return Losses<Call>::cross_entropy_statistics(c);
    case Operation::CrossEntropyFromStatistics:
      return Losses<Call>::cross_entropy_from_statistics(c);
    case Operation::ShiftedExponentials:
      return Losses<Call>::shifted_exponentials(c);
    case Operation::VocabularyLoss:
      return Losses<Call>::vocabulary_loss(c);
    case Operation::VocabularyLossBackward:
      return Losses<Call>::vocabulary_loss_backward(c);
    case Operation::Matmul:
      return Products<Call>::matmul(c);
    case Operation::Attention:
      return Attentions<Call>::attention(c);
    case Operation::AttentionBackward:
      return Attentions<Call>::attention_backward(c);
    case Operation::Adam:
      return Optimizers<Call>::adam(c);
    case Operation::Sgd:
      return Optimizers<Call>::sgd(c);
    case Operation::Lion:
      return Optimizers<Call>::lion(c);
    case Operation::AdamBlockwise:
      return Optimizers<Call>::adam_blockwise(c);
    case Operation::LionBlockwise:
      return Optimizers<Call>::lion_blockwise(c);
    case Operation::DynamicMap:
      return Optimizers<Call>::dynamic_map(c);
    case Operation::Lerp:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real to) { return x + number * (to - x); });
    case Operation::AddProduct:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real a, Real b) { return x + number * a * b; });
    case Operation::AddQuotient:
      return map(c, [=] TIDEMARK_EVERYWHERE(Real x, Real a, Real b) { return x + number * a / b; });
    case Operation::JoinBits:
      return Optimizers<Call>::join_bits(c);
    case Operation::SplitBits:
      return Optimizers<Call>::split_bits(c);
  }
}

// fp64 where all is stored so or an operand is, and for integers, which fp32 would round.
bool in_float64(std::span<const Array> in, std::span<const Array> out, Storage storage) {
  const auto floating = [](const Array& a) { return a.there() && is_floating(a.view.dtype); };
  const auto wide = [](const Array& a) { return a.there() && a.view.dtype == DType::FP64; };
  return storage == Storage::Wide || std::ranges::any_of(in, wide) || std::ranges::any_of(out, wide) ||
         (std::ranges::none_of(in, floating) && std::ranges::none_of(out, floating));
}

}  // namespace

template <class Engine>
void compute_on(Engine& engine, Operation operation, const Attributes& attributes, std::span<const Array> inputs,
                std::span<const Array> outputs, const Setting& setting) {
  const OperationFacts& facts = facts_of(operation);
  const std::size_t groups = facts.grouped ? outputs.size() / facts.outputs.size() : 1;
  ensure(groups > 0, "a kernel has outputs");
  const std::size_t in = inputs.size() / groups, out = outputs.size() / groups;
  ensure(in >= facts.inputs.size() && out == facts.outputs.size() && in * groups == inputs.size() &&
             out * groups == outputs.size(),
         "a kernel is given all operands of its operation");
  for (std::size_t g = 0; g < groups; ++g) {
    const std::span<const Array> its_in = inputs.subspan(g * in, in), its_out = outputs.subspan(g * out, out);
    if (in_float64(its_in, its_out, setting.storage))
      run(operation, KernelCall<Engine, double>(engine, attributes, its_in, its_out, setting, g));
    else
      run(operation, KernelCall<Engine, float>(engine, attributes, its_in, its_out, setting, g));
    engine.done();
  }
}

template void compute_on(ThisEngine&, Operation, const Attributes&, std::span<const Array>, std::span<const Array>,
                         const Setting&);

}  // namespace tidemark::math
