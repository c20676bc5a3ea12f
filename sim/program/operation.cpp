#include "sim/program/operation.hpp"

#include <array>
#include <cstddef>
#include <iterator>
#include <string>

#include "sim/base/ensure.hpp"

namespace tidemark::sim {
namespace {

// "x [bias] -> y": brackets around what may be absent, operands and attributes, a star behind what there may be several
// of; "..." at the end where a kernel may do it for several groups.
struct Line {
  Operation operation;
  std::string_view name, signature, attributes;
  OperandSizes sizes;
};

constexpr auto lines = [] {
  using enum OperandSizes;
  return std::to_array<Line>({
      {Operation::Fill, "fill", "-> y ...", "value", Free},
      {Operation::Initialize, "initialize", "-> y ...", "", Free},
      {Operation::Arange, "arange", "-> y", "start", Free},
      {Operation::RotaryTable, "rotary_table", "-> y", "base", Free},

      {Operation::Copy, "copy", "x -> y ...", "", Pairs},
      {Operation::Add, "add", "x* -> y", "", Elementwise},
      {Operation::AddScaled, "add_scaled", "x added -> y ...", "factor", Elementwise},
      {Operation::Multiply, "multiply", "x factor -> y ...", "", Elementwise},
      {Operation::Divide, "divide", "x divisor -> y ...", "", Elementwise},
      {Operation::Scale, "scale", "x -> y ...", "factor", Elementwise},
      {Operation::AddNumber, "add_number", "x -> y ...", "number", Elementwise},
      {Operation::Remainder, "remainder", "x -> y", "divisor", Elementwise},
      {Operation::Power, "power", "x -> y ...", "exponent", Elementwise},
      {Operation::Cosine, "cosine", "x -> y", "", Elementwise},
      {Operation::Sine, "sine", "x -> y", "", Elementwise},
      {Operation::Exponential, "exponential", "x -> y", "", Elementwise},
      {Operation::Logarithm, "logarithm", "x -> y", "", Elementwise},
      {Operation::Absolute, "absolute", "x -> y", "", Elementwise},
      {Operation::Sign, "sign", "x -> y", "", Elementwise},
      {Operation::Maximum, "maximum", "x other -> y ...", "", Elementwise},
      {Operation::LogAddExp, "log_add_exp", "x other -> y", "", Elementwise},
      {Operation::SoftmaxCorrection, "softmax_correction", "x lse_of_x lse [added] -> y", "", Elementwise},
      {Operation::Clamp, "clamp", "x -> y", "least most", Elementwise},
      {Operation::Equals, "equals", "x -> y", "number", Elementwise},
      {Operation::Differs, "differs", "x other -> y", "", Elementwise},
      {Operation::LessEqual, "less_equal", "x other -> y", "", Elementwise},
      {Operation::And, "and", "x other -> y", "", Elementwise},
      {Operation::Where, "where", "mask x other -> y", "", Elementwise},
      {Operation::MaskedFill, "masked_fill", "x mask -> y", "value", Elementwise},
      {Operation::CausalMask, "causal_mask", "x -> y", "number", Elementwise},
      {Operation::Tanh, "tanh", "x -> y", "", Elementwise},
      {Operation::TanhBackward, "tanh_backward", "dy y -> dx", "", Elementwise},
      {Operation::Sigmoid, "sigmoid", "x -> y", "", Elementwise},
      {Operation::SigmoidBackward, "sigmoid_backward", "dy y -> dx", "", Elementwise},
      {Operation::Silu, "silu", "x -> y", "", Elementwise},
      {Operation::SiluBackward, "silu_backward", "dy x -> dx", "", Elementwise},
      {Operation::Gelu, "gelu", "x [bias] -> y", "tanh", Elementwise},
      {Operation::GeluBackward, "gelu_backward", "dy x [bias] -> dx", "tanh", Elementwise},
      {Operation::Relu, "relu", "x -> y", "", Elementwise},
      {Operation::ReluBackward, "relu_backward", "dy y -> dx", "", Elementwise},
      {Operation::SquaredRelu, "squared_relu", "x [bias] -> y", "", Elementwise},
      {Operation::SquaredReluBackward, "squared_relu_backward", "dy x [bias] -> dx", "", Elementwise},
      {Operation::SwiGlu, "swiglu", "x [bias] -> y", "", Halves},
      {Operation::SwiGluBackward, "swiglu_backward", "dy x [bias] -> dx", "", Free},
      {Operation::WeightedSwiGlu, "weighted_swiglu", "x [bias] probs -> y", "slope offset", Halves},
      {Operation::WeightedSwiGluBackward, "weighted_swiglu_backward", "dy x [bias] probs -> dx dprobs", "slope offset",
       Free},
      {Operation::GeGlu, "geglu", "x [bias] -> y", "", Halves},
      {Operation::GeGluBackward, "geglu_backward", "dy x [bias] -> dx", "", Free},
      {Operation::Dropout, "dropout", "x -> y mask", "probability", Elementwise},
      {Operation::DropoutBackward, "dropout_backward", "dy mask -> dx", "probability", Elementwise},
      {Operation::BiasDropoutAdd, "bias_dropout_add", "residual x [bias] -> y [mask]", "probability", Elementwise},
      {Operation::Rotary, "rotary", "x table -> y", "", Free},
      {Operation::RotaryBackward, "rotary_backward", "dy table -> dx", "", Free},
      {Operation::RotaryPairs, "rotary_pairs", "x cos sin -> y", "", Elementwise},
      {Operation::RotaryPairsBackward, "rotary_pairs_backward", "dy cos sin -> dx", "", Elementwise},
      {Operation::ComplexMultiply, "complex_multiply", "x y -> z", "conjugate", Elementwise},
      {Operation::LatentKeys, "latent_keys", "heads positions cos sin -> keys values", "", Free},
      {Operation::LatentKeysBackward, "latent_keys_backward", "dkeys dvalues cos sin -> dheads dpositions", "", Free},

      {Operation::Sum, "sum", "x -> y", "", Reduction},
      {Operation::Mean, "mean", "x -> y", "", Reduction},
      {Operation::MeanOfProducts, "mean_of_products", "x* -> y", "", Reduction},
      {Operation::Largest, "largest", "x -> y", "", Reduction},
      {Operation::CumulativeSum, "cumulative_sum", "x -> y", "", Elementwise},
      {Operation::Norm, "norm", "x* -> y", "", Free},
      {Operation::Softmax, "softmax", "x -> y", "scale causal", Elementwise},
      {Operation::SoftmaxBackward, "softmax_backward", "dy y -> dx", "scale", Elementwise},
      {Operation::LogSoftmax, "log_softmax", "x -> y", "", Elementwise},
      {Operation::LogSoftmaxBackward, "log_softmax_backward", "dy y -> dx", "", Elementwise},
      {Operation::LayerNorm, "layer_norm", "x weight bias -> y mean rstd", "epsilon weight_offset", Free},
      {Operation::LayerNormBackward, "layer_norm_backward", "dy x mean rstd weight -> dx [dweight] [dbias]",
       "weight_offset", Free},
      {Operation::RmsNorm, "rms_norm", "x weight [squares] -> y rstd", "epsilon weight_offset", Free},
      {Operation::RmsNormBackward, "rms_norm_backward", "dy x rstd weight [products] -> [dx] [dweight]",
       "weight_offset", Free},
      {Operation::GroupedRmsNorm, "grouped_rms_norm", "x weight -> y rstd", "epsilon", Free},
      {Operation::GroupedRmsNormBackward, "grouped_rms_norm_backward", "dy x rstd weight -> dx dweight", "", Free},
      {Operation::CausalConv1d, "causal_conv1d", "x weight bias -> y", "", Free},
      {Operation::CausalConv1dBackward, "causal_conv1d_backward", "dy x weight bias -> dx dweight dbias", "", Free},
      {Operation::SsdScan, "ssd_scan", "x dt a b c d z dt_bias -> y y_before_gate", "groups chunk", Free},
      {Operation::SsdScanBackward, "ssd_scan_backward",
       "dy x dt a b c d z dt_bias y_before_gate -> dx ddt da db dc dd dz ddt_bias", "groups chunk", Free},

      {Operation::Embedding, "embedding", "ids table -> y", "", Free},
      {Operation::EmbeddingBackward, "embedding_backward", "dy ids -> dtable", "", Free},
      {Operation::Gather, "gather", "x ids -> y", "", Free},
      {Operation::VocabularyMask, "vocabulary_mask", "ids -> outside ids_within", "first end", Elementwise},

      {Operation::TopK, "top_k", "x -> values ids", "count routed of_group", Rows},
      {Operation::Scatter, "scatter", "[x] ids [values] -> y", "number", Rows},
      {Operation::MaskedSelect, "masked_select", "x mask -> y", "", Free},
      {Operation::MaskedSelectBackward, "masked_select_backward", "dy mask -> dx", "", Free},
      {Operation::TokenMap, "token_map", "routing_map -> row_map", "", Rows},
      {Operation::PermuteRows, "permute_rows", "x row_map [probs] -> y [permuted_probs]", "", Free},
      {Operation::UnpermuteRows, "unpermute_rows", "x row_map [weights] [permuted_probs] -> y [probs]", "", Free},
      {Operation::UnpermuteRowsBackward, "unpermute_rows_backward", "dy row_map x weights -> dx dweights", "", Free},
      {Operation::ChunkMap, "chunk_map", "chunk_sizes order -> row_map", "", Free},
      {Operation::SortRows, "sort_rows", "x row_map [probs] -> y [sorted_probs]", "back", Free},

      {Operation::NllLoss, "nll_loss", "x labels -> loss total_weight", "", Free},
      {Operation::NllLossBackward, "nll_loss_backward", "dloss labels total_weight -> dx", "", Free},
      {Operation::CrossEntropyStatistics, "cross_entropy_statistics", "logits labels -> statistics", "first", Free},
      {Operation::CrossEntropyFromStatistics, "cross_entropy_from_statistics",
       "logits labels statistics -> dlogits loss", "first", Free},
      {Operation::ShiftedExponentials, "shifted_exponentials",
       "logits maximum [ids] [outside] -> exponentials sums [target_logits]", "", Free},
      {Operation::VocabularyLoss, "vocabulary_loss", "exponentials sums target_logits -> softmax loss", "", Free},
      {Operation::VocabularyLossBackward, "vocabulary_loss_backward", "softmax ids outside -> dlogits", "factor", Free},

      {Operation::Matmul, "matmul", "a b [bias] [added] -> c", "scale [spared] [alike]", Matmul},
      {Operation::Attention, "attention", "q k v [bias] -> y [lse] [seed] [offset]", "scale causal dropout", Attention},
      {Operation::AttentionBackward, "attention_backward", "dy q k v [y] lse [seed] [offset] [bias] -> dq dk dv",
       "scale causal dropout", Attention},

      {Operation::Adam, "adam", "p g m v [largest] [step] -> p m v [largest] [step] ...",
       "learning_rate weight_decay gradient_decay", Free},
      {Operation::Sgd, "sgd", "p g [momentum] -> p [momentum] ...", "learning_rate momentum gradient_decay", Free},
      {Operation::Lion, "lion", "p g m -> p m", "learning_rate weight_decay", Free},
      {Operation::AdamBlockwise, "adam_blockwise", "p g m v m_scales v_scales m_map v_map -> p m v m_scales v_scales",
       "learning_rate weight_decay block", Free},
      {Operation::LionBlockwise, "lion_blockwise", "p g m m_scales m_map -> p m m_scales",
       "learning_rate weight_decay block", Free},
      {Operation::DynamicMap, "dynamic_map", "-> y", "signed", Free},
      {Operation::Lerp, "lerp", "x to -> y ...", "weight", Elementwise},
      {Operation::AddProduct, "add_product", "x a b -> y ...", "factor", Elementwise},
      {Operation::AddQuotient, "add_quotient", "x a b -> y ...", "factor", Elementwise},
      {Operation::JoinBits, "join_bits", "upper lower -> x ...", "", Elementwise},
      {Operation::SplitBits, "split_bits", "x -> upper lower ...", "", Elementwise},
  });
}();

constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(lines); ++i)
    if (static_cast<std::size_t>(lines[i].operation) != i) return false;
  return true;
}
static_assert(in_order(), "operations have their lines in the order of the enumeration, and each has one");

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> found;
  for (std::size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string_view::npos;) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    found.push_back(text.substr(at, end - at));
    at = end;
  }
  return found;
}

std::vector<OperationFacts> read_all() {
  std::vector<OperationFacts> all;
  for (const Line& line : lines) {
    OperationFacts facts{line.name, {}, {}, words(line.attributes), 0, line.sizes, false};
    for (std::string_view& attribute : facts.attributes) {
      const bool optional = attribute.starts_with('[');
      if (optional) attribute = attribute.substr(1, attribute.size() - 2);
      facts.required += optional ? 0 : 1;
    }
    std::vector<OperandFacts>* list = &facts.inputs;
    for (std::string_view word : words(line.signature)) {
      if (word == "->") {
        list = &facts.outputs;
      } else if (word == "...") {
        facts.grouped = true;
      } else {
        const bool optional = word.starts_with('['), many = word.ends_with('*');
        if (optional) word = word.substr(1, word.size() - 2);
        if (many) word.remove_suffix(1);
        list->push_back({word, optional, many});
      }
    }
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace

std::span<const OperationFacts> all_operations() {
  static const std::vector<OperationFacts> all = read_all();
  return all;
}

const OperationFacts& facts_of(Operation operation) {
  const auto place = static_cast<std::size_t>(operation);
  ensure(place < std::size(lines), "every operation has its line");
  return all_operations()[place];
}

}  // namespace tidemark::sim
