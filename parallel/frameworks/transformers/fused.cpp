#include "parallel/frameworks/transformers/fused.hpp"

#include <bit>

#include "parallel/torch/operation.hpp"

// What the kernels of several libraries have in common.

namespace tidemark::parallel::transformers::fused {

std::int64_t rows_of_chunk(std::int64_t rows, std::int64_t width, std::int64_t classes) {
  const auto parts = [](std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; };
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(parts(rows, parts(classes, width)))));
}

Tensor sum_of(Session& s, const Tensor& losses) {
  Tensor loss = sum_to(s, losses, {1});
  loss.sizes = {}, loss.strides = {};
  return loss;
}

Tensor zeros(Session& s, const Shape& sizes, DType dtype, std::string_view what) {
  Tensor made = s.empty(sizes, dtype, what);
  s.launch({Operation::Fill, {0}}, {}, {made});
  return made;
}

void losses_and_gradients(Session& s, const Tensor& logits, const Tensor& labels, const Tensor& gradients,
                          const Tensor& losses) {
  const std::int64_t rows = logits.size(0);
  const Tensor statistics = s.in_registers({1, rows, 3}, {3 * rows, 3, 1}, DType::FP32, "statistics");
  s.launch({Operation::CrossEntropyStatistics, {0}}, {logits, labels}, {sized(statistics, {rows, 3})});
  s.launch({Operation::CrossEntropyFromStatistics, {0}}, {logits, labels, statistics}, {gradients, losses});
}

Tensor with_gradients(Session& s, Tensor loss, Ref<Node> node, const Tensor& of_hidden, const Tensor& of_weight) {
  if (node) {
    Saved hidden = s.save(of_hidden), weight;
    if (of_weight.defined()) weight = s.save(of_weight);
    node->apply = [&s, hidden, weight, trains = of_weight.defined()](const Gradients& g) {
      Gradients made(2);
      made[0] = s.unpack(hidden);
      if (trains) made[1] = s.unpack(weight);
      // By a kernel that is not run where the loss is what backward begins with.
      for (const Tensor& x : made)
        if (x.defined()) s.launch(Operation::Multiply, {x, g.front()}, {x});
      return made;
    };
  }
  return with(std::move(loss), std::move(node));
}

void turn(Session& s, const Tensor& x, const Tensor& cosine, const Tensor& sine, Direction direction) {
  const Shape strides = contiguous_strides(x.sizes);
  const auto held = [&](std::string_view what) { return s.in_registers(x.sizes, strides, x.dtype, what); };
  const std::int64_t half = x.size(-1) / 2;
  const auto first = [&](const Tensor& t) { return narrowed(t, -1, 0, half); };
  const auto second = [&](const Tensor& t) { return narrowed(t, -1, half, half); };
  const Tensor straight = held("straight"), crossed = held("crossed");
  s.launch(Operation::Multiply, {x, cosine}, {straight});
  if (direction == Direction::Forward) {
    s.launch({Operation::Scale, {-1}}, {second(x)}, {first(crossed)});
    s.launch(Operation::Copy, {first(x)}, {second(crossed)});
    s.launch(Operation::Multiply, {crossed, sine}, {crossed});
  } else {
    const Tensor weighted = held("weighted");
    s.launch(Operation::Multiply, {x, sine}, {weighted});
    s.launch(Operation::Copy, {second(weighted)}, {first(crossed)});
    s.launch({Operation::Scale, {-1}}, {first(weighted)}, {second(crossed)});
  }
  s.launch(Operation::Add, {straight, crossed}, {x});
}

}  // namespace tidemark::parallel::transformers::fused
