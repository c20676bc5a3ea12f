#include "parallel/job/sizes.hpp"

#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::sizes_test {
namespace {

using namespace literals;

Sizes sizes(const TestJob& job) {
  return sizes_of(job.model, job.layout, job.train, megatron_runtime(job.versions, job.settings, job.target));
}

TestJob tensor_parallel(std::int32_t tensor, bool sequence_parallel) {
  TestJob job;
  job.layout.tensor = tensor;
  job.layout.sequence_parallel = sequence_parallel;
  return job;
}

const Parameter& parameter_named(const BuiltModel& built, const std::string& name) {
  for (const Parameter& p : built.parameters)
    if (p.name == name) return p;
  throw std::runtime_error("no parameter " + name);
}

TEST(Sizes, TheVocabularyIsPaddedByTheTensorDegree) {
  const auto padded = [](std::int64_t vocabulary, std::int64_t extra, std::int32_t tensor) {
    TestJob job = tensor_parallel(tensor, true);
    job.model.vocabulary = vocabulary;
    job.model.vocabulary_extra = extra;
    return sizes(job).vocabulary;
  };
  EXPECT_EQ(padded(128256, 1, 1), 128384);
  EXPECT_EQ(padded(128256, 1, 2), 128512);
  EXPECT_EQ(padded(128256, 1, 4), 128512);
  EXPECT_EQ(padded(128256, 1, 8), 129024);
  EXPECT_EQ(padded(128256, 0, 2), 128256);
  EXPECT_EQ(padded(32000, 0, 8), 32768);
}

TEST(Sizes, AModelMayNameItsOwnPadding) {
  TestJob job = tensor_parallel(2, true);
  job.model.vocabulary = 1000;
  job.model.vocabulary_multiple = 1;
  EXPECT_EQ(sizes(job).vocabulary, 1000);
  job.model.vocabulary_multiple = 300;
  EXPECT_EQ(sizes(job).vocabulary, 1200);
}

TEST(Sizes, WeightsAreCutWhereTheySay) {
  const Lowered lowered(tensor_parallel(4, true));
  const Sizes s = sizes(lowered.job);
  const auto shape = [&](const std::string& name) {
    const Parameter& p = parameter_named(lowered.built, name);
    return std::pair{s.rows(p), s.columns(p)};
  };
  using Shape = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(shape("layers.0.attention.qkv.weight"), Shape(32 * 32 / 4, 768));
  EXPECT_EQ(shape("layers.0.attention.proj.weight"), Shape(768, 512 / 4));
  EXPECT_EQ(shape("layers.0.mlp.fc1.weight"), Shape(2048 / 4, 768));
  EXPECT_EQ(shape("layers.0.mlp.fc2.weight"), Shape(768, 1024 / 4));
  EXPECT_EQ(shape("layers.0.mlp.norm.weight"), Shape(768, 1));
  EXPECT_EQ(shape("embedding.weight"), Shape(1024 / 4, 768));
}

TEST(StageParameters, ComeInTheOrderOfRegistration) {
  TestJob job;
  job.model.layers.resize(2);
  job.model.qkv_bias = true;
  job.layout.pipeline = 2;
  const Lowered lowered(job);
  const std::vector<Stage> stages = split_into_stages(2, job.layout);
  const auto names = [&](const Stage& stage) {
    std::vector<std::string> found;
    for (const ParameterId p : stage_parameters(lowered.built, stage, lowered.job.layout))
      found.push_back(lowered.built[p].name);
    return found;
  };
  EXPECT_EQ(
      names(stages[0]),
      (std::vector<std::string>{"embedding.weight", "layers.0.attention.proj.weight", "layers.0.attention.norm.weight",
                                "layers.0.attention.qkv.weight", "layers.0.attention.qkv.bias",
                                "layers.0.mlp.norm.weight", "layers.0.mlp.fc1.weight", "layers.0.mlp.fc2.weight"}));
  EXPECT_EQ(names(stages[1]).back(), "head.weight");
  EXPECT_EQ(names(stages[1]).size(), 7u + 2u);
}

TEST(StageParameters, ANormOfALinearsOutputFollowsItsWeight) {
  TestJob job;
  job.model.layers.resize(1);
  job.model.norms = NormPlacement::Around;
  const Lowered lowered(job);
  std::vector<std::string> found;
  for (const ParameterId p : stage_parameters(lowered.built, {.first = 0, .last = 1}, lowered.job.layout))
    found.push_back(lowered.built[p].name.substr(std::string("layers.0.").size()));
  EXPECT_EQ(found, (std::vector<std::string>{"attention.proj.weight", "attention.post_norm.weight",
                                             "attention.norm.weight", "attention.qkv.weight", "mlp.norm.weight",
                                             "mlp.fc1.weight", "mlp.fc2.weight", "mlp.post_norm.weight"}));
}

TEST(StageParameters, ATiedHeadIsACopyOnTheLastStageAndOneWeightOnASingleOne) {
  TestJob job;
  job.model.tied_embeddings = true;
  job.layout.pipeline = 2;
  const Lowered lowered(job);
  const auto embeddings = [&](const Stage& stage) {
    int count = 0;
    for (const ParameterId p : stage_parameters(lowered.built, stage, lowered.job.layout))
      count += lowered.built[p].name == "embedding.weight" ? 1 : 0;
    return count;
  };
  const std::vector<Stage> two = split_into_stages(4, job.layout);
  EXPECT_EQ(embeddings(two[0]), 1);
  EXPECT_EQ(embeddings(two[1]), 1);
  EXPECT_EQ(embeddings(split_into_stages(4, {}).front()), 1);
}

// hidden 772 is no multiple of 64: norms and the whole buffer need padding.
BufferLayout layout_of(const Lowered& lowered, Sharding sharding, std::int32_t shards) {
  const Stage stage = split_into_stages(static_cast<std::int32_t>(lowered.job.model.layers.size()), {}).front();
  return buffer_layout(lowered.built, stage_parameters(lowered.built, stage, lowered.job.layout), sizes(lowered.job),
                       lowered.runtime, stage, {.data = shards, .sharding = sharding}, shards);
}
TestJob crooked() {
  TestJob job;
  job.model.hidden = 772;
  return job;
}

TEST(BufferLayout, LastRegisteredComesFirst) {
  const Lowered lowered{crooked()};
  const BufferLayout layout = layout_of(lowered, Sharding::Zero1, 4);
  EXPECT_EQ(lowered.built[layout.places.front().parameter].name, "head.weight");
  EXPECT_EQ(lowered.built[layout.places.back().parameter].name, "embedding.weight");
}

TEST(BufferLayout, WithoutShardingNothingIsPadded) {
  const Lowered lowered{crooked()};
  const BufferLayout layout = layout_of(lowered, Sharding::None, 4);
  std::int64_t next = 0;
  for (const BufferLayout::Place& place : layout.places) {
    EXPECT_EQ(place.begin, next);
    next = place.end;
  }
  EXPECT_EQ(layout.elements, next);
}

TEST(BufferLayout, ShardedBuffersStartParametersAndEndAligned) {
  for (const std::int32_t shards : {1, 2, 3, 7, 8, 48}) {
    const Lowered lowered{crooked()};
    const BufferLayout layout = layout_of(lowered, Sharding::Zero1, shards);
    std::int64_t end = 0;
    for (const BufferLayout::Place& place : layout.places) {
      EXPECT_EQ(place.begin % 64, 0);
      EXPECT_GE(place.begin, end);
      EXPECT_LT(place.begin - end, 64);
      end = place.end;
      EXPECT_EQ(place.end - place.begin, sizes(lowered.job).elements(lowered.built[place.parameter]));
    }
    EXPECT_EQ(layout.elements % 128, 0);
    EXPECT_EQ(layout.elements % shards, 0);  // equal shares
    EXPECT_GE(layout.elements, end);
    EXPECT_LT(layout.elements - end, std::lcm(128, shards));
  }
}

TEST(BufferLayout, PiecesAreEveryParameterExactlyOnce) {
  for (const std::int32_t shards : {1, 2, 3, 8, 48}) {
    const Lowered lowered{crooked()};
    const BufferLayout layout = layout_of(lowered, Sharding::Zero1, shards);
    std::map<ParameterId, std::int64_t> held;
    for (std::int32_t s = 0; s < shards; ++s) {
      std::int64_t sum = 0;
      for (const ShardPiece& piece : layout.pieces(s, shards)) {
        EXPECT_GT(piece.elements, 0);
        held[piece.parameter] += piece.elements;
        sum += piece.elements;
      }
      EXPECT_LE(sum, layout.elements / shards);
    }
    for (const BufferLayout::Place& place : layout.places) EXPECT_EQ(held[place.parameter], place.end - place.begin);
    EXPECT_EQ(held.size(), layout.places.size());
  }
}

TEST(BufferLayout, SharesCutParametersAnywhere) {
  BufferLayout layout;
  layout.places = {{ParameterId{5}, 0, 100}, {ParameterId{3}, 128, 300}};
  layout.buckets = {{0, 384}};
  layout.elements = 384;
  EXPECT_EQ(layout.pieces(0, 3), (std::vector<ShardPiece>{{ParameterId{5}, 100}}));
  EXPECT_EQ(layout.pieces(1, 3), (std::vector<ShardPiece>{{ParameterId{3}, 128}}));
  EXPECT_EQ(layout.pieces(2, 3), (std::vector<ShardPiece>{{ParameterId{3}, 44}}));
  EXPECT_EQ(layout.pieces(0, 2), (std::vector<ShardPiece>{{ParameterId{5}, 100}, {ParameterId{3}, 64}}));
  layout.buckets = {{0, 128}, {128, 384}};  // a share of each
  EXPECT_EQ(layout.pieces(0, 2), (std::vector<ShardPiece>{{ParameterId{5}, 64}, {ParameterId{3}, 128}}));
  EXPECT_EQ(layout.pieces(1, 2), (std::vector<ShardPiece>{{ParameterId{5}, 36}, {ParameterId{3}, 44}}));
}

TEST(BufferLayout, BucketsOfOverlappedReductionCloseWhenFullOnTheFirstStageOnly) {
  TestJob job = crooked();
  Lowered lowered(job);
  Runtime runtime = lowered.runtime;
  runtime.bucket_elements = 1'000'000;
  const auto layout = [&](const Stage& stage) {
    return buffer_layout(lowered.built, stage_parameters(lowered.built, stage, lowered.job.layout), sizes(job), runtime,
                         stage, {.data = 3, .sharding = Sharding::Zero1}, 3);
  };
  const BufferLayout first = layout({.first = 0, .last = 2, .embedding = true, .head = false});
  ASSERT_GT(first.buckets.size(), 2U);
  for (std::size_t b = 0; b < first.buckets.size(); ++b) {
    EXPECT_EQ(first.buckets[b].begin, b == 0 ? 0 : first.buckets[b - 1].end);
    EXPECT_EQ(first.buckets[b].end % 384, 0);  // lcm(128, 3)
    EXPECT_TRUE(b + 1 == first.buckets.size() || first.buckets[b].end - first.buckets[b].begin >= 1'000'000);
  }
  EXPECT_EQ(first.buckets.back().end, first.elements);
  EXPECT_EQ(layout({.first = 2, .last = 4, .embedding = false, .head = true}).buckets.size(), 1U);
}

TEST(BufferLayout, TheCopyOfATiedEmbeddingHasABucketOfItsOwn) {
  TestJob job;
  job.model.tied_embeddings = true;
  Lowered lowered(job);
  const auto buckets = [&](const Stage& stage, Sharding sharding) {
    return buffer_layout(lowered.built, stage_parameters(lowered.built, stage, lowered.job.layout), sizes(job),
                         lowered.runtime, stage, {.data = 2, .sharding = sharding}, 2)
        .buckets.size();
  };
  const Stage first{.first = 0, .last = 2, .embedding = true, .head = false};
  EXPECT_EQ(buckets(first, Sharding::Zero1), 2U);
  EXPECT_EQ(buckets(first, Sharding::None), 1U);
  EXPECT_EQ(buckets({.first = 0, .last = 4, .embedding = true, .head = true}, Sharding::Zero1), 1U);
}

}  // namespace
}  // namespace tidemark::tests::sizes_test
