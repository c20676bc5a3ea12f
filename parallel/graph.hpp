#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "parallel/model.hpp"
#include "parallel/train.hpp"
#include "sim/base/dtype.hpp"
#include "sim/base/units.hpp"

// The layer graph of one forward pass over one micro-batch: operators, the values that flow between them, and what each
// operator saves for backward. It knows nothing of ranks. Values say along which dimension tensor parallelism may cut
// them; whether and how far it does is the lowering's business.

namespace tidemark::parallel {

using ValueId = Id<struct ValueKind>;
using ParameterId = Id<struct ParameterKind>;
using OperatorId = Id<struct OperatorKind>;

/// How a value or a parameter lies on the ranks of a tensor-parallel group.
enum class Placement : std::uint8_t {
  Replicated,  ///< whole on every rank
  Residual,    ///< of the residual stream: whole, or cut along the sequence under sequence parallelism
  Tensor,      ///< cut along heads, feed-forward width or vocabulary
};

/// Element type relative to the training's precision.
enum class Precision : std::uint8_t { Compute, Fp32, Int64, Bool, Byte };

/// A tensor of the forward pass: `per_token` elements for each token of the micro-batch and `fixed` ones besides.
struct Value {
  std::string name;
  std::int64_t per_token = 0;
  std::int64_t fixed = 0;
  Placement placement = Placement::Residual;
  Precision precision = Precision::Compute;
  bool vocabulary = false;  ///< `per_token` is the vocabulary, which runtimes pad
};

/// Which dimension of a weight matrix tensor parallelism cuts.
enum class WeightCut : std::uint8_t { None, Rows, Columns };

/// A weight: `rows` outputs by `columns` inputs, or a vector of `rows` (columns = 1).
struct Parameter {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 1;
  WeightCut cut = WeightCut::None;
  bool vocabulary = false;  ///< its rows are the vocabulary, which runtimes pad

  [[nodiscard]] bool matrix() const { return columns > 1; }
};

/// Looks up token embeddings, adds those of learned positions, and drops out.
struct Embedding {};
/// RMSNorm or LayerNorm over the hidden dimension.
struct Norm {};
/// y = x W^T, and + b where the GEMM adds it. Column-parallel linears take residual values and give tensor-parallel
/// ones, row-parallel ones the other way round.
struct Linear {};
/// Cuts the joint QKV projection into q, k, v, and turns q and k by their positions. With parameters, q and k are
/// normalized before; the last four outputs are then what was normalized, and the norms' statistics.
struct Rotary {};
/// Cuts the joint QKV projection into q, k, v, which are views of it.
struct Split {};
/// Batch-first copy of a sequence-first tensor, or back; nothing to do for a micro-batch of one.
struct Transpose {};
/// Causal self-attention that never stores its scores.
struct SelfAttention {};
/// Causal self-attention that stores its scores: scaled and masked softmax, dropout, weighted sum. Capped scores store
/// their hyperbolic tangents too.
struct ScoredAttention {};
/// silu(gate) * up, or an activation of one branch; adds the bias of the linear before it. A second output is what
/// became of the gate, where it and the product are two steps.
struct PointwiseActivation {};
/// Residual addition of a branch, after its linear's bias and dropout.
struct Residual {};
/// The projection onto the vocabulary. A second output is the hyperbolic tangent of capped logits.
struct Head {};
/// Cross-entropy over a vocabulary that may be cut.
struct Loss {
  CrossEntropy variant = CrossEntropy::Unfused;
};

using OperatorType = std::variant<Embedding, Norm, Linear, Rotary, Split, Transpose, SelfAttention, ScoredAttention,
                                  PointwiseActivation, Residual, Head, Loss>;

/// One step of the forward pass.
struct Operator {
  std::string name;
  OperatorType type;
  std::int32_t layer = 0;  ///< transformer layer from 0; -1 before the first, `layers` after the last
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::vector<ParameterId> parameters;
  std::vector<ValueId> saved;  ///< inputs, outputs and statistics that its backward pass reads
};

/// Whether positions are turned by one kernel from a shared table, or by plain operations that keep cosines and sines.
enum class RotaryKernel : std::uint8_t { Fused, Unfused };

/// What decides which operators a model becomes, besides the model.
struct GraphOptions {
  AttentionKernel attention = AttentionKernel::Fused;
  CrossEntropy cross_entropy = CrossEntropy::Unfused;
  double hidden_dropout = 0;
  double attention_dropout = 0;
  RotaryKernel rotary = RotaryKernel::Fused;
  bool fused_gate = true;                            ///< a gated activation is one kernel, which saves its input only
  std::int64_t sequence_length = 0;                  ///< read only where scores, or cosines and sines, are stored
  Precision softmax_precision = Precision::Compute;  ///< of the probabilities that such attention saves
  bool operator==(const GraphOptions&) const = default;
};

struct ModelGraph {
  Model model;
  GraphOptions options;  ///< that it was built with
  std::vector<Value> values;
  std::vector<Parameter> parameters;
  std::vector<Operator> operators;  ///< in the order they were added

  [[nodiscard]] const Value& operator[](ValueId id) const { return values[id.index()]; }
  [[nodiscard]] const Parameter& operator[](ParameterId id) const { return parameters[id.index()]; }
  [[nodiscard]] const Operator& operator[](OperatorId id) const { return operators[id.index()]; }
};

/// What training says of them. Attention has to be settled.
[[nodiscard]] GraphOptions graph_options(const Train& train);

/// The layer graph of a decoder-only model. `options.attention` is settled, never Auto.
[[nodiscard]] ModelGraph build_model(const Model& model, const GraphOptions& options);

/// Elements of all parameters, tied ones once, nothing padded: what a model card publishes.
[[nodiscard]] std::int64_t parameter_count(const ModelGraph& graph);

/// The operators in an order in which each follows those whose outputs it reads; ties keep the order of adding.
[[nodiscard]] std::vector<OperatorId> topological_order(const ModelGraph& graph);

/// The graph as text, one operator a line: name, inputs -> outputs, parameters, what is saved.
[[nodiscard]] std::string text(const ModelGraph& graph);

}  // namespace tidemark::parallel
