#include "scenarios/validate/arithmetic/draws.hpp"

#include <functional>

#include "sim/base/ensure.hpp"
#include "sim/base/hash.hpp"

namespace tidemark::scenarios {
namespace {

// "layers.3.attention" of "layers.3.attention.context": what a module's passes make has its name in common.
std::string_view module_of(std::string_view tensor) { return tensor.substr(0, tensor.rfind('.')); }

}  // namespace

Draws::Draws(const Layout& layout, const Train& train, Replicas replicas, const Coordinates& place)
    : place_(place),
      replicas_(layout.data),
      tensor_ranks_(layout.tensor),
      micro_batches_(micro_batches_of(train, layout)),
      how_(replicas),
      cut_sequence_(layout.sequence_parallel) {}

BatchPart Draws::batch(std::int32_t micro_batch) const {
  if (how_ == Replicas::Together) return {micro_batch, place_.data, replicas_};
  return {place_.data * micro_batches_ + micro_batch, 0, 1};
}

void Draws::describe(const Program& program, const Kernel& kernel, const Mark& at, std::string_view made,
                     math::Setting& setting) const {
  const BatchPart part = batch(at.micro_batch);
  // Of queries and keys [batch, sequence, heads, width]: weights [batch, heads, queries, keys].
  const auto weights = [&](ViewId queries, ViewId keys) -> Shape {
    const Shape &q = program[queries].sizes, &k = program[keys].sizes;
    return {q[0], q[2], q[1], k[1]};
  };
  switch (kernel.operation) {
    case Operation::Dropout:
    case Operation::BiasDropoutAdd:
      setting.drawn = drawn(program[kernel.outputs[0]].sizes, part);
      break;
    case Operation::Attention:
      setting.drawn = drawn(weights(kernel.inputs[0], kernel.inputs[1]), part);
      break;
    case Operation::AttentionBackward:
      setting.drawn = drawn(weights(kernel.inputs[1], kernel.inputs[2]), part);
      break;
    default:
      return;
  }
  const std::hash<std::string_view> of_text;
  setting.key = hash_of(of_text(module_of(made)), at.step, part.micro_batch);
}

// Weights of attention [batch, heads, queries, keys]; the residual stream [batch, sequence, width] or [tokens, width],
// whose tokens are sequence first.
math::PartOfWhole Draws::drawn(const Shape& sizes, const BatchPart& batch) const {
  const auto of_batch = [&](std::size_t dimension) { return math::Cut{dimension, batch.part, batch.parts}; };
  const auto of_tensor_ranks = [&](std::size_t dimension) {
    return math::Cut{dimension, place_.tensor, tensor_ranks_};
  };
  const auto of_sequence = [&](std::size_t dimension) {
    return cut_sequence_ ? of_tensor_ranks(dimension) : math::Cut{dimension};
  };
  constexpr std::size_t weights = 4, tokens_by_batch = 3;
  if (sizes.size() == weights) return math::part_of_whole(sizes, {of_batch(0), of_tensor_ranks(1)});
  if (sizes.size() == tokens_by_batch) return math::part_of_whole(sizes, {of_batch(0), of_sequence(1)});
  ensure(batch.parts == 1, "tokens of several sequences are not cut by sequences");
  return math::part_of_whole(sizes, {of_sequence(0)});
}

}  // namespace tidemark::scenarios
