#include "parallel/flops.hpp"

#include "parallel/built_model.hpp"
#include "parallel/frameworks/megatron/training.hpp"

namespace tidemark::parallel {
namespace {

void add(const Program& program, const Kernel& kernel, ForwardOperations& operations) {
  const auto size = [&](std::size_t input, std::size_t dimension) {
    return program[kernel.inputs[input]].sizes[dimension];
  };
  if (kernel.operation == Operation::Matmul)
    operations.linears += 2 * static_cast<double>(size(0, 0)) * static_cast<double>(size(1, 0) * size(1, 1));
  if (kernel.operation != Operation::Attention) return;
  // Products of queries and keys, and of what they weigh with values, half of each masked.
  const double tokens = static_cast<double>(size(0, 1));
  operations.attention += tokens * tokens * static_cast<double>(size(0, 2) * (size(0, 3) + size(2, 3)));
}

}  // namespace

ForwardOperations forward_operations(const Model& model, std::int64_t sequence) {
  // Of every way to compute it alike: here attention is one kernel, and no row of the vocabulary is padding.
  const Train train{.sequence_length = sequence, .global_batch = 1, .attention = AttentionKernel::Fused};
  Model unpadded = model;
  unpadded.vocabulary_extra = 0;
  unpadded.vocabulary_multiple = 1;
  const BuiltModel built = build_model(unpadded, {.attention = train.attention});
  RuntimeSettings settings;
  settings.bias_activation_fusion = false;  // which not all activations have
  const Runtime runtime = megatron_runtime({}, settings, {});
  const Program program = megatron::lower_forward({built, {}, train, runtime});
  ForwardOperations operations;
  for (const Op& op : program.ops)
    if (const auto* launch = std::get_if<Launch>(&op)) add(program, program[launch->kernel], operations);
  return operations;
}

}  // namespace tidemark::parallel
