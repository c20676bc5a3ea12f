// The kernels that compute, on a GPU and on the host with the same numbers.

#include <algorithm>
#include <memory>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "kernels/math/engine/device_calculator.hpp"
#include "tests/kernels/math_cases.hpp"

namespace tidemark::tests::math_device_test {
namespace {

using math::Storage;

class MathDevice : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    if (code != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU here: " << cudaGetErrorString(code);
    device_ = math::device_calculator(0);
  }

  // The largest difference of an output from the host's, and that nothing else was written.
  double apart(const MathCase& one, const Tensors& in, const Tensors& out, Storage storage, MatrixLayout layout) {
    std::int64_t strays = 0;
    const Tensors expected = run(one.operation, one.attributes, in, out, {storage, layout});
    const Tensors made = run(one.operation, one.attributes, in, out,
                             {.storage = storage, .layout = layout, .calculator = device_.get()}, &strays);
    EXPECT_EQ(strays, 0) << name(one.operation);
    double most = 0;
    for (std::size_t o = 0; o < made.size(); ++o) most = std::max(most, difference(made[o], expected[o]));
    return most;
  }

  std::unique_ptr<math::Calculator> device_;
};

TEST_F(MathDevice, InFloat64EachOperationIsTheHosts) {
  for (const MathCase& one : all_math_cases())
    for (const MatrixLayout layout : layouts)
      EXPECT_LT(apart(one, one.inputs, one.outputs, Storage::Wide, layout), 1e-13) << name(one.operation);
}

// Either may round to the other side: twice what a type loses.
TEST_F(MathDevice, InTheirTypesTheyAreAsCloseAsThoseCanBe) {
  constexpr double fp32_roundings = 32;
  for (const DType dtype : {DType::FP32, DType::BF16, DType::FP16})
    for (const MathCase& one : all_math_cases())
      for (const MatrixLayout layout : layouts)
        EXPECT_LE(apart(one, as(dtype, one.inputs), as(dtype, one.outputs), Storage::Native, layout),
                  2 * bound(dtype) + fp32_roundings * bound(DType::FP32))
            << name(one.operation) << ' ' << name(dtype);
}

TEST_F(MathDevice, AnOutputMayLieOnAnInput) {
  for (const MathCase& one : all_math_cases())
    for (std::size_t o = 0; o < one.outputs.size(); ++o)
      for (std::size_t i = 0; i < one.inputs.size(); ++i) {
        const Numbers &in = one.inputs[i], &out = one.outputs[o];
        if (!in.there || !out.there || in.sizes != out.sizes || in.dtype != out.dtype) continue;
        const Tensors expected = run(one.operation, one.attributes, one.inputs, one.outputs);
        const Tensors made = run(one.operation, one.attributes, one.inputs, one.outputs,
                                 {.in_place = InPlace{i, o}, .calculator = device_.get()});
        for (std::size_t e = 0; e < made.size(); ++e)
          EXPECT_LT(difference(made[e], expected[e]), 1e-13) << name(one.operation) << ' ' << i << ' ' << o;
      }
}

TEST_F(MathDevice, MoreElementsThanThreads) {
  Draw draw;
  const Shape large{3, 500, 701};
  const MathCase sum{Operation::Sum, {}, {draw(large)}, {zeros({3, 1, 701})}};
  const MathCase scale{Operation::Scale, {0.5}, {draw(large)}, {zeros(large)}};
  const MathCase product{
      Operation::Matmul, {1}, {draw({300, 500}), draw({500, 200}), absent, absent}, {zeros({300, 200})}};
  const MathCase norm{Operation::Norm, {}, {draw(large), draw({70'000})}, {zeros({})}};
  for (const MathCase* one : {&sum, &scale, &product, &norm})
    for (const MatrixLayout layout : {MatrixLayout::SideBySide, MatrixLayout::FirstInnermostApart}) {
      EXPECT_LT(apart(*one, one->inputs, one->outputs, Storage::Wide, layout), 1e-12) << name(one->operation);
      EXPECT_LT(apart(*one, one->inputs, one->outputs, Storage::Native, layout), 1e-5) << name(one->operation);
    }
}

// Ten bits of TF32 would show.
TEST_F(MathDevice, ProductsKeepTheirDigits) {
  Draw draw;
  const MathCase one{Operation::Matmul, {1}, {draw({64, 512}), draw({512, 64}), absent, absent}, {zeros({64, 64})}};
  EXPECT_LT(apart(one, one.inputs, one.outputs, Storage::Native, MatrixLayout::SideBySide), 1e-5);
}

TEST_F(MathDevice, AnIndexOutsideIsReported) {
  Draw draw;
  Numbers ids = draw.ids({4}, 6);
  ids.values[2] = 6;
  EXPECT_THROW(run(Operation::Embedding, {}, {ids, draw({6, 3})}, {zeros({4, 3})}, {.calculator = device_.get()}),
               math::WrongIndex);
}

}  // namespace
}  // namespace tidemark::tests::math_device_test
