#include "tests/kernels/math_cases.hpp"

namespace tidemark::tests::math_backward_test {

// Whatever the operands hold: finite differences see to what comes out, these to how it is read, computed and written.
std::vector<MathCase> backward_cases() {
  Draw draw;
  using enum Operation;
  const Shape shape{3, 4}, halves{3, 8}, tokens{3, 2, 2, 6}, q{2, 4, 4, 3}, k{2, 4, 2, 3};
  std::vector<MathCase> all;
  const auto add = [&](Operation operation, Attributes attributes, Tensors in, Tensors out) {
    all.push_back({operation, attributes, std::move(in), std::move(out)});
  };
  for (const Operation operation : {TanhBackward, SigmoidBackward, SiluBackward, ReluBackward, LogSoftmaxBackward})
    add(operation, {}, {draw(shape), draw(shape)}, {zeros(shape)});
  add(SoftmaxBackward, {0.7}, {draw(shape), draw(shape)}, {zeros(shape)});
  for (const Numbers& bias : {draw({4}), absent}) {
    for (const double tanh : {0.0, 1.0}) add(GeluBackward, {tanh}, {draw(shape), draw(shape), bias}, {zeros(shape)});
    add(SquaredReluBackward, {}, {draw(shape), draw(shape), bias}, {zeros(shape)});
  }
  for (const Operation operation : {SwiGluBackward, GeGluBackward})
    for (const Numbers& bias : {draw({8}), absent})
      add(operation, {}, {draw(shape), draw(halves), bias}, {zeros(halves)});
  add(DropoutBackward, {0.4}, {draw(shape), draw.truths(shape)}, {zeros(shape)});
  add(RotaryBackward, {}, {draw(tokens), draw({3, 1, 1, 4})}, {zeros(tokens)});
  const Numbers cosines = draw({3, 1, 1, 4}), sines = draw({3, 1, 1, 4});
  add(RotaryPairsBackward, {}, {draw({3, 2, 2, 4}), cosines, sines}, {zeros({3, 2, 2, 4})});
  add(LatentKeysBackward, {}, {draw({3, 2, 2, 9}), draw({3, 2, 2, 3}), cosines, sines},
      {zeros({3, 2, 2, 8}), zeros({3, 2, 1, 4})});
  const Tensors statistics{draw({3}), draw({3}, 0.5, 1)};
  const Numbers weight = draw({4});
  add(LayerNormBackward, {1}, {draw(shape), draw(shape), statistics[0], statistics[1], weight},
      {zeros(shape), zeros({4}), zeros({4})});
  add(LayerNormBackward, {0}, {draw(shape), draw(shape), statistics[0], statistics[1], weight},
      {zeros(shape), absent, absent});
  for (const Numbers& products : {draw({3}), absent})
    add(RmsNormBackward, {0}, {draw(shape), draw(shape), statistics[1], weight, products}, {zeros(shape), zeros({4})});
  add(EmbeddingBackward, {}, {draw({2, 4, 3}), draw.ids({2, 4}, 6)}, {zeros({6, 3})});
  add(NllLossBackward, {}, {draw({}), draw.ids({3}, 4), draw({}, 1, 3)}, {zeros(shape)});
  add(VocabularyLossBackward, {0.2}, {draw(shape, 0, 1), draw.ids({3}, 4), draw.truths({3})}, {zeros(shape)});
  add(AttentionBackward, {0.6, 1, 0},
      {draw(q), draw(q), draw(k), draw(k), draw(q), draw({2, 4, 4}, 2, 3), absent, absent, absent},
      {zeros(q), zeros(k), zeros(k)});
  add(AttentionBackward, {0.6, 0, 0.25},
      {draw(q), draw(q), draw(k), draw(k), draw(q), draw({2, 4, 4}, 2, 3), draw.ids({1}, 99), draw.ids({1}, 99),
       draw({2, 1, 4, 4})},
      {zeros(q), zeros(k), zeros(k)});
  return all;
}

}  // namespace tidemark::tests::math_backward_test
