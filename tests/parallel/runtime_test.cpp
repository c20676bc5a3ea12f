#include <algorithm>

#include <gtest/gtest.h>

#include "parallel/runtime/runtimes.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::runtime_test {
namespace {

using namespace literals;

constexpr Target ampere{.compute_capability = 80, .devices_per_node = 8, .capacity = {}};
constexpr Target ada{.compute_capability = 89, .devices_per_node = 8, .capacity = {}};
constexpr Target hopper{.compute_capability = 90, .devices_per_node = 8, .capacity = {}};
constexpr Target blackwell{.compute_capability = 100, .devices_per_node = 8, .capacity = {}};

TEST(Runtime, CublasWorkspaceIsWhatItsVariableSays) {
  for (const Target& target : {ampere, hopper, blackwell}) {
    EXPECT_EQ(cublas_workspace(":4096:8", target), 33'554'432_B);
    EXPECT_EQ(cublas_workspace(":4096:2:16:8", target), 8'519'680_B);
    EXPECT_EQ(cublas_workspace(":16:8", target), 128_KiB);
    EXPECT_EQ(cublas_workspace(":0:0", target), 0_B);
  }
}

TEST(Runtime, CublasWorkspaceUnsetDependsOnTheDevice) {
  EXPECT_EQ(cublas_workspace("", ampere), 8'519'680_B);
  EXPECT_EQ(cublas_workspace("", ada), 8'519'680_B);
  EXPECT_EQ(cublas_workspace("", hopper), 33'554'432_B);
  EXPECT_EQ(cublas_workspace("", blackwell), 8'519'680_B);
}

TEST(Runtime, CublasWorkspaceUnsetDependsOnTheReleaseOfPyTorch) {
  const Target integrated{.compute_capability = 110, .devices_per_node = 1, .capacity = {}};
  EXPECT_EQ(default_blas_workspace(blackwell, {2, 11}), 8'519'680_B);
  EXPECT_EQ(default_blas_workspace(blackwell, {2, 12}), 32_MiB);
  EXPECT_EQ(default_blas_workspace(integrated, {2, 13}), 8'519'680_B);
  EXPECT_EQ(default_blas_workspace(integrated, {2, 14}), 32_MiB);
  EXPECT_EQ(default_blas_workspace(ampere, {2, 15}), 8'519'680_B);
  EXPECT_EQ(megatron_runtime({.torch = {2, 12}}, {}, blackwell).blas_workspace, 32_MiB);
}

TEST(Runtime, MegatronsGemmWorkspaceHoldsScalesFromTransformerEngine2_8On) {
  EXPECT_EQ(megatron_runtime({.transformer_engine = {2, 7}}, {}, hopper).gemm_workspace, 32_MiB);
  EXPECT_EQ(megatron_runtime({.transformer_engine = {2, 8}}, {}, hopper).gemm_workspace, 32_MiB + 1_KiB);
  EXPECT_EQ(megatron_runtime({.transformer_engine = {2, 7}}, {}, ampere).gemm_workspace, 4_MiB);
}

TEST(Runtime, EachKnowsTheReleasesThatAreItsDefaults) {
  for (const char* name : {"megatron", "pytorch"})
    for (const KnownReleases& known : known_releases(name)) {
      const auto component =
          std::find_if(components.begin(), components.end(), [&](const Component& c) { return c.key == known.key; });
      ASSERT_NE(component, components.end()) << known.key;
      EXPECT_LE(known.first, Versions{}.*component->version) << name << ", " << known.key;
      EXPECT_GE(known.last, Versions{}.*component->version) << name << ", " << known.key;
    }
}

TEST(Runtime, MegatronsGemmWorkspaceDependsOnTheDevice) {
  EXPECT_EQ(megatron_runtime({}, {}, ampere).gemm_workspace, 4_MiB);
  EXPECT_EQ(megatron_runtime({}, {}, ada).gemm_workspace, 4_MiB);
  EXPECT_EQ(megatron_runtime({}, {}, hopper).gemm_workspace, 32_MiB + 1_KiB);
  EXPECT_EQ(megatron_runtime({}, {}, blackwell).gemm_workspace, 32_MiB + 1_KiB);
}

TEST(Runtime, MegatronTakesTheEnvironmentsWorkspace) {
  EXPECT_EQ(megatron_runtime({}, {.cublas_workspace_config = ":4096:8"}, blackwell).blas_workspace, 32_MiB);
  EXPECT_EQ(megatron_runtime({}, {}, blackwell).blas_workspace, 8'519'680_B);
}

TEST(Runtime, DummyGradientsAreCachedFromTransformerEngine2_3On) {
  const auto mode = [](Version te) { return megatron_runtime({.transformer_engine = te}, {}, hopper).dummy_gradient; };
  EXPECT_EQ(mode({1, 13}), DummyGradient::Temporary);
  EXPECT_EQ(mode({2, 2}), DummyGradient::Temporary);
  EXPECT_EQ(mode({2, 3}), DummyGradient::Cached);
  EXPECT_EQ(mode({2, 11}), DummyGradient::Cached);
  EXPECT_EQ(mode({3, 0}), DummyGradient::Cached);
}

TEST(Runtime, MegatronKeepsAFewScalars) {
  Bytes sum;
  for (const Bytes b : megatron_runtime({}, {}, hopper).scalars) sum += b;
  EXPECT_EQ(sum, 2 * 4_B);
}

TEST(Runtime, MegatronsPaddingRules) {
  const Runtime runtime = runtime_named("megatron", {}, {}, hopper);
  EXPECT_EQ(runtime.vocabulary_multiple, 128);
  EXPECT_EQ(runtime.parameter_alignment, 64);
  EXPECT_EQ(runtime.bucket_alignment, 128);
}

TEST(Runtime, VersionsCompareAsReleasesDo) {
  EXPECT_LT((Version{2, 3}), (Version{2, 11}));
  EXPECT_LT((Version{1, 99}), (Version{2, 0}));
}

TEST(RuntimeDeathTest, UnknownNamesNeverGetHere) {
  EXPECT_DEATH((void)runtime_named("nobody", {}, {}, hopper), "modelled runtimes");
}

}  // namespace
}  // namespace tidemark::tests::runtime_test
