#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tidemark::sim {

/// What a kernel computes: a closed list. Operands, their shapes and attributes: `facts_of`, docs/operations.md.
enum class Operation : std::uint8_t {
  // Values out of nothing.
  Fill,
  Initialize,
  Arange,
  RotaryTable,
  // Element by element.
  Copy,
  Add,
  AddScaled,
  Multiply,
  Divide,
  Scale,
  AddNumber,
  Remainder,
  Power,
  Cosine,
  Sine,
  Exponential,
  Logarithm,
  Absolute,
  Sign,
  Maximum,
  LogAddExp,
  SoftmaxCorrection,
  Clamp,
  Equals,
  Differs,
  LessEqual,
  And,
  Where,
  MaskedFill,
  CausalMask,
  Tanh,
  TanhBackward,
  Sigmoid,
  SigmoidBackward,
  Silu,
  SiluBackward,
  Gelu,
  GeluBackward,
  Relu,
  ReluBackward,
  SquaredRelu,
  SquaredReluBackward,
  SwiGlu,
  SwiGluBackward,
  WeightedSwiGlu,
  WeightedSwiGluBackward,
  GeGlu,
  GeGluBackward,
  Dropout,
  DropoutBackward,
  BiasDropoutAdd,
  Rotary,
  RotaryBackward,
  RotaryPairs,
  RotaryPairsBackward,
  ComplexMultiply,
  LatentKeys,
  LatentKeysBackward,
  // Of rows.
  Sum,
  Mean,
  MeanOfProducts,
  Largest,
  CumulativeSum,
  Norm,
  Softmax,
  SoftmaxBackward,
  LogSoftmax,
  LogSoftmaxBackward,
  LayerNorm,
  LayerNormBackward,
  RmsNorm,
  RmsNormBackward,
  GroupedRmsNorm,
  GroupedRmsNormBackward,
  CausalConv1d,
  CausalConv1dBackward,
  SsdScan,
  SsdScanBackward,
  // Rows by number.
  Embedding,
  EmbeddingBackward,
  Gather,
  VocabularyMask,
  // Choices, and rows that follow them.
  TopK,
  Scatter,
  MaskedSelect,
  MaskedSelectBackward,
  TokenMap,
  PermuteRows,
  UnpermuteRows,
  UnpermuteRowsBackward,
  ChunkMap,
  SortRows,
  // Losses.
  NllLoss,
  NllLossBackward,
  CrossEntropyStatistics,
  CrossEntropyFromStatistics,
  ShiftedExponentials,
  VocabularyLoss,
  VocabularyLossBackward,
  // Matrix products.
  Matmul,
  Attention,
  AttentionBackward,
  // Optimizers.
  Adam,
  Sgd,
  Lion,
  AdamBlockwise,
  LionBlockwise,
  DynamicMap,
  Lerp,
  AddProduct,
  AddQuotient,
  JoinBits,
  SplitBits,
};

/// The numbers that an operation takes besides its operands, in the order of `OperationFacts::attributes`.
using Attributes = std::array<double, 3>;

/// How the sizes of an operation's operands go together.
enum class OperandSizes : std::uint8_t {
  Free,         ///< nothing is held
  Elementwise,  ///< inputs broadcast to the first output; outputs are alike
  Pairs,        ///< the n-th input broadcasts to the n-th output
  Reduction,    ///< the output broadcasts to the input
  Rows,         ///< all operands have the same sizes but for the last dimension
  Halves,       ///< elementwise, over the two halves of the first input's last dimension
  Matmul,       ///< [..., m, k] times [..., k, n], batches alike
  Attention,    ///< q, k, v: [batch, sequence, heads, width]
};

/// An operand that an operation names.
struct OperandFacts {
  std::string_view name;
  bool optional = false;  ///< may be absent
  bool many = false;      ///< one or more of them
};

struct OperationFacts {
  std::string_view name;
  std::vector<OperandFacts> inputs, outputs;
  std::vector<std::string_view> attributes;
  std::size_t required = 0;  ///< attributes; the others are zero where nothing is said
  OperandSizes sizes = OperandSizes::Free;
  bool grouped = false;  ///< one kernel may do it for several groups of operands, one group after another
};

[[nodiscard]] const OperationFacts& facts_of(Operation operation);
/// All of them, in the order of the enumeration.
[[nodiscard]] std::span<const OperationFacts> all_operations();
[[nodiscard]] inline std::string_view name(Operation operation) { return facts_of(operation).name; }

}  // namespace tidemark::sim
