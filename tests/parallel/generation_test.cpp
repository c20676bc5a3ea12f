#include <numeric>

#include <gtest/gtest.h>

#include "parallel/generation/engine.hpp"
#include "tests/namespace.hpp"
#include "tests/parallel/layers.hpp"

namespace tidemark::tests::generation_test {
namespace {

Model grouped() {
  Model m;
  m.hidden = 512;
  m.layers.resize(4);
  m.heads = 8;
  m.kv_heads = 2;
  m.head_dim = 64;
  m.ffn = 1024;
  m.vocabulary = 1000;
  m.max_positions = 2048;
  return m;
}

Rollout by(std::int32_t ranks) {
  Rollout r;
  r.batch = 1;
  r.tensor = ranks;
  return r;
}

TEST(Generation, ACacheIsAsWideAsTheHeadsOfKeysOnARank) {
  const Model m = grouped();
  Rollout r = by(1);
  EXPECT_EQ(generation::cache_of_token(m, r), Bytes{2 * 4 * 2 * 64 * 2});
  r.tensor = 2;
  EXPECT_EQ(generation::cache_of_token(m, r), Bytes{2 * 4 * 1 * 64 * 2});
  r.tensor = 4;  // fewer heads than ranks: one each
  EXPECT_EQ(generation::cache_of_token(m, r), Bytes{2 * 4 * 1 * 64 * 2});
  r.kv_dtype = DType::E4M3;
  EXPECT_EQ(generation::cache_of_token(m, r), Bytes{2 * 4 * 1 * 64});
}

TEST(Generation, ALatentIsCachedWholeOnEveryRank) {
  Model m = grouped();
  set_mixer(m,
            MultiLatentAttention{.kv_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .value_head = 128});
  for (const std::int32_t ranks : {1, 8})
    EXPECT_EQ(generation::cache_of_token(m, by(ranks)), Bytes{4 * (512 + 64) * 2});
}

TEST(Generation, BlocksAreWhole) {
  const Rollout r = by(1);
  EXPECT_EQ(generation::blocks_of(r, 0), 0);
  EXPECT_EQ(generation::blocks_of(r, 1), 1);
  EXPECT_EQ(generation::blocks_of(r, 16), 1);
  EXPECT_EQ(generation::blocks_of(r, 17), 2);
}

TEST(Generation, AnEngineOfOneRankHasTheModelWithAPaddedVocabulary) {
  const BuiltModel built = build_model(grouped(), {});
  const std::vector<std::int64_t> whole = generation::weight_parts(built, by(1));
  std::int64_t padding = 0;
  for (const Parameter& p : built.parameters)
    if (p.vocabulary) padding += (1024 - 1000) * p.columns;
  EXPECT_EQ(std::accumulate(whole.begin(), whole.end(), std::int64_t{0}), parameter_count(built) + padding);
}

TEST(Generation, RanksOfAnEngineKeepOneHeadOfKeysAtLeast) {
  const BuiltModel built = build_model(grouped(), {});
  const auto joint = [&](std::int32_t ranks) {
    const std::vector<std::int64_t> parts = generation::weight_parts(built, by(ranks));
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (built.parameters[i].name.ends_with("attention.qkv.weight")) return parts[i] / 512 / 64;
    return std::int64_t{0};
  };
  EXPECT_EQ(joint(1), 8 + 2 * 2);
  EXPECT_EQ(joint(2), 4 + 2 * 1);
  EXPECT_EQ(joint(4), 2 + 2 * 1);
}

}  // namespace
}  // namespace tidemark::tests::generation_test
