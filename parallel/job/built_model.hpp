#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/job/train.hpp"
#include "parallel/model/model.hpp"
#include "sim/base/units.hpp"

// A model with what decides how its modules are built, and the parameters that they register.

namespace tidemark::parallel {

using ParameterId = Id<struct ParameterKind>;

/// Which dimension of a weight matrix tensor parallelism cuts.
enum class WeightCut : std::uint8_t { None, Rows, Columns };

/// When tensor-parallel ranks that all hold a parameter whole compute a part of its gradient each.
enum class GradientInParts : std::uint8_t {
  Never,
  UnderSequenceParallelism,  ///< they meet it with other tokens: Megatron's attribute `sequence_parallel`
  Always,                    ///< they meet it with other heads
};

/// A weight: `rows` outputs by `columns` inputs, of which one is a matrix too, or a vector of `rows` (no columns).
/// Nothing is cut or padded.
struct Parameter {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  WeightCut cut = WeightCut::None;
  GradientInParts in_parts = GradientInParts::Never;
  bool vocabulary = false;   ///< its rows are the vocabulary, which runtimes pad
  std::int32_t layer = 0;    ///< transformer layer from 0; -1 before the first, their number after the last
  std::int32_t expert = -1;  ///< of its layer, from 0; -1: of none
  std::vector<std::int64_t> joined =
      {};              ///< rows of each of several weights in one, which are cut one by one; empty: of one
  bool spare = false;  ///< a head that nobody reads: there where a stage has it without the embedding it is tied to

  [[nodiscard]] bool matrix() const { return columns > 0; }
  [[nodiscard]] std::int64_t elements() const { return matrix() ? rows * columns : rows; }
  [[nodiscard]] bool of_expert() const { return expert >= 0; }
  bool operator==(const Parameter&) const = default;
};

/// Whether positions are turned by one kernel from a shared table, or by plain operations that keep cosines and sines.
enum class RotaryKernel : std::uint8_t { Fused, Unfused };

/// Of the probabilities that attention saves.
enum class SoftmaxPrecision : std::uint8_t { Compute, Fp32 };

/// What decides how modules are built, besides the model.
struct ModelOptions {
  AttentionKernel attention = AttentionKernel::Fused;
  RotaryKernel rotary = RotaryKernel::Fused;
  bool fused_gate = true;       ///< a gated activation is one kernel, which saves its input only
  bool grouped_experts = true;  ///< experts' linears of one kind are registered together, not one expert after another
  SoftmaxPrecision softmax_precision = SoftmaxPrecision::Compute;  ///< where scores are stored
  bool operator==(const ModelOptions&) const = default;
};

struct BuiltModel {
  Model model;
  ModelOptions options;
  std::vector<Parameter> parameters;  ///< as Megatron's modules register them where one rank holds the whole model

  [[nodiscard]] const Parameter& operator[](ParameterId id) const { return parameters[id.index()]; }
};

/// `options.attention` is settled, never Auto.
[[nodiscard]] BuiltModel build_model(const Model& model, const ModelOptions& options);

/// Elements of all parameters, tied ones once, nothing padded: what a model card publishes.
[[nodiscard]] std::int64_t parameter_count(const BuiltModel& built);
/// Of those, what one token goes through: without the experts that are not chosen for it.
[[nodiscard]] std::int64_t active_parameter_count(const BuiltModel& built);

}  // namespace tidemark::parallel
