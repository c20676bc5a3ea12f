#include "parallel/compile/minimum_cut.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "parallel/compile/partitioner.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::minimum_cut_test {
namespace {

using compile::GraphNode;
using compile::JointGraph;
using compile::Policy;
using compile::saved_values;
using compile::sink_side;

TEST(MinimumCut, CutsWhereItIsCheapest) {
  // source -> 0 -5-> 1 -3-> 2 -4-> 3 -> sink
  EXPECT_EQ(sink_side(6, {{4, 0}, {0, 1, 5}, {1, 2, 3}, {2, 3, 4}, {3, 5}}, 4, 5),
            (std::vector{false, false, true, true, false, true}));
}

TEST(MinimumCut, OfEqualCutsIsTheOneNearestToTheSink) {
  EXPECT_EQ(sink_side(6, {{4, 0}, {0, 1, 3}, {1, 2, 3}, {2, 3, 3}, {3, 5}}, 4, 5),
            (std::vector{false, false, false, true, false, true}));
}

TEST(MinimumCut, AddsUpWhatLiesBesideEachOther) {
  // Two ways of 2 each behind one of 3.
  EXPECT_EQ(sink_side(6, {{4, 0}, {0, 1, 3}, {1, 2, 2}, {1, 3, 2}, {2, 5}, {3, 5}}, 4, 5),
            (std::vector{false, true, true, true, false, true}));
}

// y = f(w x), element by element: x and w are given, a product between them, and a gradient that needs what f is given.
JointGraph product_and_activation(Policy product) {
  JointGraph graph;
  const auto node = [&](std::vector<std::size_t> inputs, std::int64_t bytes) -> GraphNode& {
    graph.nodes.push_back({.inputs = std::move(inputs), .bytes = Bytes{bytes}});
    return graph.nodes.back();
  };
  node({}, 100).input = true;         // 0: x
  GraphNode& weight = node({}, 400);  // 1: w
  weight.input = weight.fixed = true;
  node({0, 1}, 300).policy = product;  // 2: w x
  GraphNode& out = node({2}, 300);     // 3: y
  out.fusible = out.recomputable = true;
  node({}, 300).tangent = true;          // 4: dy
  GraphNode& slope = node({4, 2}, 300);  // 5: dy f'(w x)
  slope.fusible = slope.recomputable = true;
  node({5, 0}, 400);  // 6: dw
  node({5, 1}, 100);  // 7: dx
  graph.outputs = {3};
  graph.gradients = {7, 6};
  return graph;
}

TEST(Partitioner, KeepsWhatIsDearToRunTwice) {
  EXPECT_EQ(saved_values(product_and_activation(Policy::None)), (std::vector<std::size_t>{0, 1, 2}));
}

TEST(Partitioner, RunsAgainWhatCheckpointingSays) {
  EXPECT_EQ(saved_values(product_and_activation(Policy::Recompute)), (std::vector<std::size_t>{0, 1}));
}

}  // namespace
}  // namespace tidemark::tests::minimum_cut_test
