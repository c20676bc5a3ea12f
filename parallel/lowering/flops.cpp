#include "parallel/lowering/flops.hpp"

#include <algorithm>
#include <vector>

#include "parallel/frameworks/megatron/training.hpp"
#include "parallel/job/built_model.hpp"

namespace tidemark::parallel {
namespace {

// A scan by chunks, as its kernels do it: C B^T and what it weighs within a chunk, half of each masked; what a chunk
// adds to states, and what these add to tokens.
double operations_of_scan(const View& x, const View& b, const Attributes& attributes) {
  const double tokens = static_cast<double>(x.sizes[0] * x.sizes[1]), inner = static_cast<double>(x.sizes[2]);
  const double shared = static_cast<double>(b.sizes[2]), state = shared / attributes[0];
  return tokens * (attributes[1] * (shared + inner) + 4 * inner * state);
}

void add(const Program& program, const Kernel& kernel, ForwardOperations& operations) {
  const auto size = [&](std::size_t input, std::size_t dimension) {
    return program[kernel.inputs[input]].sizes[dimension];
  };
  if (kernel.operation == Operation::Matmul)
    operations.linears += 2 * static_cast<double>(size(0, 0)) * static_cast<double>(size(1, 0) * size(1, 1));
  if (kernel.operation == Operation::SsdScan)
    operations.attention += operations_of_scan(program[kernel.inputs[0]], program[kernel.inputs[3]], kernel.attributes);
  if (kernel.operation != Operation::Attention) return;
  // Products of queries and keys, and of what they weigh with values, half of each masked.
  const double tokens = static_cast<double>(size(0, 1));
  operations.attention += tokens * tokens * static_cast<double>(size(0, 2) * (size(0, 3) + size(2, 3)));
}

/// Of one launch.
double operations_of(const Program& program, const Kernel& kernel) {
  const auto view = [&](std::size_t input) -> const View& { return program[kernel.inputs[input]]; };
  if (kernel.processor == Processor::Host) return 0;
  if (kernel.operation == Operation::Matmul)
    return 2 * static_cast<double>(elements_of(view(0).sizes)) * static_cast<double>(view(1).sizes.back());
  if (kernel.operation == Operation::SsdScan) return operations_of_scan(view(0), view(3), kernel.attributes);
  if (kernel.operation == Operation::SsdScanBackward)
    return 2 * operations_of_scan(view(1), view(4), kernel.attributes);
  const bool backward = kernel.operation == Operation::AttentionBackward;
  if (kernel.operation != Operation::Attention && !backward) return 0;
  const std::size_t first = backward ? 1 : 0;
  const View &q = view(first), &k = view(first + 1), &v = view(first + 2);
  const double queries = static_cast<double>(q.sizes[1]), keys = static_cast<double>(k.sizes[1]);
  const double scores = queries * (keys - (kernel.attributes[1] != 0 ? queries / 2 : 0));
  const double forward = 2 * static_cast<double>(q.sizes[0] * q.sizes[2] * (q.sizes[3] + v.sizes[3])) * scores;
  return backward ? 2 * forward : forward;
}

// Of a model with these layers in place of its own.
ForwardOperations lowered_operations(Model model, const LayerList& layers, std::int64_t sequence) {
  // Of every way to compute it alike: here attention is one kernel, and no row of the vocabulary is padding.
  const Train train{.sequence_length = sequence, .global_batch = 1, .attention = AttentionKernel::Fused};
  model.architecture.clear();  // layers that transformers alone builds have linears of the same sizes in Megatron's
  model.vocabulary_extra = 0;
  model.vocabulary_multiple = 1;
  model.layers = layers;
  const BuiltModel built = build_model(model, {.attention = train.attention});
  RuntimeSettings settings;
  settings.bias_activation_fusion = false;  // which not all activations have
  const Runtime runtime = megatron_runtime({}, settings, {});
  const Program program = megatron::lower_forward({built, {}, train, runtime});
  ForwardOperations operations;
  for (const Op& op : program.ops)
    if (const auto* launch = std::get_if<Launch>(&op)) add(program, program[launch->kernel], operations);
  return operations;
}

}  // namespace

double operations_of_step(const RepeatingProgram& outline, std::int32_t step) {
  const Program& program = outline.rolled;
  std::vector<double> by_kernel;  // the same ones are launched again and again
  by_kernel.reserve(program.kernels.size());
  for (const Kernel& kernel : program.kernels) by_kernel.push_back(operations_of(program, kernel));
  double sum = 0;
  std::int32_t at = 0;
  for (const Op& op : program.ops) {
    if (const auto* mark = std::get_if<Mark>(&op)) at = mark->step;
    const auto* launch = std::get_if<Launch>(&op);
    if (launch != nullptr && at == step) sum += by_kernel[launch->kernel.index()];
  }
  for (const Repeat& repeat : outline.repeats) {
    if (repeat.step != step) continue;
    double body = 0;
    for (std::size_t i = repeat.first; i < repeat.last; ++i)
      if (const auto* launch = std::get_if<Launch>(&program.ops[i])) body += by_kernel[launch->kernel.index()];
    sum += static_cast<double>(repeat.more) * body;
  }
  return sum;
}

// Layers of a kind do as much each: what one more of them adds, the others do.
ForwardOperations forward_operations(const Model& model, std::int64_t sequence) {
  const LayerList one_of_each = model.layers.one_of_each_kind();
  const ForwardOperations few = lowered_operations(model, one_of_each, sequence);
  ForwardOperations all = few;
  for (LayerKind kind = 0; kind < one_of_each.size(); ++kind) {
    const auto others = std::ranges::count(model.layers.order(), kind) - 1;
    if (others == 0) continue;
    LayerList one_more;
    for (LayerKind its = 0; its < one_of_each.size(); ++its) one_more.append(its == kind ? 2 : 1, one_of_each[its]);
    const ForwardOperations more = lowered_operations(model, one_more, sequence);
    all.linears += static_cast<double>(others) * (more.linears - few.linears);
    all.attention += static_cast<double>(others) * (more.attention - few.attention);
  }
  return all;
}

}  // namespace tidemark::parallel
