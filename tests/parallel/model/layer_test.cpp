#include "parallel/model/layer.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "parallel/model/model.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::layer_test {
namespace {

const Layer dense{}, windowed{.mixer = Attention{.window = 8}}, sparse{.mlp = Experts{.count = 4, .chosen = 1}};

std::vector<LayerKind> order_of(const LayerList& list) { return {list.order().begin(), list.order().end()}; }

TEST(LayerList, EqualLayersAreOfOneKindWhereverTheyStand) {
  LayerList list(2, sparse);
  list.append(1, dense);
  list.append(1, windowed);
  list.append(2, sparse);
  EXPECT_EQ(order_of(list), (std::vector<LayerKind>{0, 0, 1, 2, 0, 0}));
  EXPECT_EQ(list.kinds().size(), 3U);
  EXPECT_EQ(list[3], windowed);
  EXPECT_EQ(order_of(list.one_of_each_kind()), (std::vector<LayerKind>{0, 1, 2}));
}

TEST(LayerList, ListsOfEqualLayersAreEqualHoweverTheyWereMade) {
  LayerList made(3, dense);
  made.replace(0, sparse);
  made.replace(2, windowed);
  LayerList other(1, sparse);
  other.append(1, dense);
  other.append(1, windowed);
  EXPECT_EQ(made, other);
  made.resize(1);
  EXPECT_EQ(made, LayerList(1, sparse));
  made.resize(3);
  EXPECT_EQ(made, LayerList(3, sparse));
  other.change_each([](Layer& layer) { layer = sparse; });
  EXPECT_EQ(other, made);
  EXPECT_NE(LayerList(1, dense), LayerList(1, windowed));
}

TEST(Model, FurtherTokensLayersFollowTheOthers) {
  Model model;
  model.layers = LayerList(2, dense);
  model.layers.append(1, sparse);
  model.further = LayerList(1, sparse);
  EXPECT_EQ(model.all_layers(), 4);
  EXPECT_EQ(model.layer(3), sparse);
  EXPECT_EQ(model.with_experts_before(3), 1);
  EXPECT_EQ(model.experts()->count, 4);
  EXPECT_EQ(model.latent(), nullptr);
  EXPECT_EQ(model.window(), 0);
}

}  // namespace
}  // namespace tidemark::tests::layer_test
