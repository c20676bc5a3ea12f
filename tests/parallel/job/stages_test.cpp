#include "parallel/job/stages.hpp"

#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::stages_test {
namespace {

std::vector<std::int32_t> layers_of(std::int32_t layers, const Layout& layout) {
  std::vector<std::int32_t> found;
  for (const Stage& stage : split_into_stages(layers, layout)) found.push_back(stage.layers());
  return found;
}

using Layers = std::vector<std::int32_t>;

TEST(Stages, EqualShares) {
  EXPECT_EQ(layers_of(8, {.pipeline = 4}), (Layers{2, 2, 2, 2}));
  EXPECT_EQ(layers_of(6, {.pipeline = 4, .count_embedding = true, .count_loss = true}), (Layers{1, 2, 2, 1}));
  EXPECT_EQ(layers_of(8, {.pipeline = 2, .chunks = 4}), (Layers{1, 1, 1, 1, 1, 1, 1, 1}));
}

TEST(Stages, TheEmbeddingAndTheLossTakePlacesInTheEndChunksOnly) {
  EXPECT_EQ(layers_of(14, {.pipeline = 2, .count_embedding = true, .count_loss = true, .chunks = 2}),
            (Layers{3, 4, 4, 3}));
}

TEST(Stages, EndsOfTheirOwn) {
  EXPECT_EQ(layers_of(10, {.pipeline = 4, .first_layers = 1}), (Layers{1, 3, 3, 3}));
  EXPECT_EQ(layers_of(10, {.pipeline = 4, .last_layers = 4}), (Layers{2, 2, 2, 4}));
  EXPECT_EQ(layers_of(10, {.pipeline = 4, .first_layers = 3, .last_layers = 1}), (Layers{3, 3, 3, 1}));
  EXPECT_EQ(layers_of(12, {.pipeline = 3, .chunks = 2, .first_layers = 2, .last_layers = 4}),
            (Layers{1, 3, 2, 1, 3, 2}));
  EXPECT_EQ(layers_of(10, {.pipeline = 2, .first_layers = 3, .last_layers = 7}), (Layers{3, 7}));
}

TEST(Stages, AListOfTheirOwn) {
  EXPECT_EQ(layers_of(10, {.pipeline = 4, .stage_layers = {0, 4, 4, 2}}), (Layers{0, 4, 4, 2}));
  const std::vector<Stage> stages = split_into_stages(10, {.pipeline = 2, .chunks = 2, .stage_layers = {1, 2, 3, 4}});
  EXPECT_TRUE(stages.front().embedding);
  EXPECT_TRUE(stages.back().head);
  EXPECT_EQ(stages[2].first, 3);
  const std::vector<Stage> held = chunks_of_rank(10, {.pipeline = 2, .chunks = 2, .stage_layers = {1, 2, 3, 4}}, 1);
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0], stages[1]);
  EXPECT_EQ(held[1], stages[3]);
}

TEST(Stages, WhatIsWrongIsSaid) {
  EXPECT_EQ(wrong_with_stages(8, {.pipeline = 4}), "");
  EXPECT_EQ(wrong_with_stages(7, {.pipeline = 4}), "7 layers do not divide into 4 stages");
  EXPECT_EQ(wrong_with_stages(8, {.pipeline = 4, .chunks = 3}),
            "2 layers of pipeline rank 0 do not divide into 3 chunks");
  EXPECT_EQ(wrong_with_stages(9, {.pipeline = 4, .first_layers = 1, .last_layers = 1}),
            "7 layers are left for 2 stages");
  EXPECT_EQ(wrong_with_stages(9, {.pipeline = 2, .first_layers = 6, .last_layers = 6}),
            "-3 layers are left for 0 stages");
  EXPECT_EQ(wrong_with_stages(9, {.pipeline = 2, .stage_layers = {4, 4}}),
            "stage_layers sums to 8 layers, and the model has 9");
  EXPECT_EQ(wrong_with_stages(9, {.pipeline = 2, .stage_layers = {9}}), "stage_layers names 1 stages, and there are 2");
  EXPECT_NE(wrong_with_stages(9, {.pipeline = 3, .stage_layers = {4, 0, 5}}), "");
  EXPECT_NE(wrong_with_stages(9, {.pipeline = 2, .count_loss = true, .stage_layers = {4, 5}}), "");
  EXPECT_NE(wrong_with_stages(9, {.pipeline = 2, .count_loss = true, .first_layers = 4}), "");
  EXPECT_NE(wrong_with_stages(9, {.pipeline = 1, .first_layers = 4}), "");
}

}  // namespace
}  // namespace tidemark::tests::stages_test
