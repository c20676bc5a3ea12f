// Whole parameters that ranks share out: dealt, or laid into buffers whose shares cut none.
#include "parallel/frameworks/megatron/optimizer/layer_wise.hpp"

#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::layer_wise_test {
namespace {

Sizes sizes(const TestJob& job) {
  return sizes_of(job.model, job.layout, job.train, megatron_runtime(job.versions, job.settings, job.target));
}

// A rank's parameters of a model whose width is no multiple of 64.
struct Crooked {
  TestJob job = [] {
    TestJob made;
    made.model.hidden = 772;
    return made;
  }();
  Lowered lowered{job};
  Stage stage = split_into_stages(static_cast<std::int32_t>(job.model.layers.size()), {}).front();

  [[nodiscard]] std::vector<ParameterId> matrices() const {
    return of_group(lowered.built, stage_parameters(lowered.built, stage, job.layout), ParameterGroup::DenseMatrices,
                    true);
  }
  [[nodiscard]] std::int64_t elements(ParameterId id) const { return sizes(job).elements(lowered.built[id]); }
  [[nodiscard]] BufferLayout layout(std::int32_t shards) const {
    return layer_wise_layout(lowered.built, matrices(), sizes(job), lowered.runtime, stage,
                             {.data = shards, .sharding = Sharding::Zero1}, shards);
  }
};

TEST(LayerWise, NoShareCutsAMatrix) {
  const Crooked crooked;
  for (const std::int32_t shards : {1, 2, 3, 7, 8, 48}) {
    const BufferLayout layout = crooked.layout(shards);
    std::map<ParameterId, int> held;
    for (std::int32_t s = 0; s < shards; ++s)
      for (const ShardPiece& piece : layout.pieces(s, shards)) {
        EXPECT_EQ(piece.elements, crooked.elements(piece.parameter));
        ++held[piece.parameter];
      }
    EXPECT_EQ(held.size(), crooked.matrices().size());
    for (const auto& [id, times] : held) EXPECT_EQ(times, 1) << crooked.lowered.built[id].name;
    for (const BufferLayout::Place& place : layout.places) EXPECT_EQ(place.begin % 64, 0);
    for (const BufferLayout::Bucket& bucket : layout.buckets) {
      EXPECT_EQ((bucket.end - bucket.begin) % shards, 0);
      EXPECT_EQ((bucket.end - bucket.begin) % 128, 0);
    }
  }
}

TEST(LayerWise, NoRoomIsWastedOnOneRank) {
  const Crooked crooked;
  std::int64_t least = 0;
  for (const ParameterId id : crooked.matrices()) least += (crooked.elements(id) + 63) / 64 * 64;
  EXPECT_EQ(crooked.layout(1).elements, (least + 127) / 128 * 128);
}

// The example in _shard_params_ping_pong: ten parameters on four ranks.
TEST(LayerWise, ParametersAreDealtForthAndBack) {
  const Crooked crooked;
  std::vector<ParameterId> ten;
  for (const ParameterId id : stage_parameters(crooked.lowered.built, crooked.stage, crooked.job.layout))
    if (ten.size() < 10) ten.push_back(id);
  std::set<ParameterId> all;
  std::vector<std::size_t> counts;
  for (std::int32_t place = 0; place < 4; ++place) {
    const std::vector<ParameterId> its = ping_pong_rank(crooked.lowered.built, ten, sizes(crooked.job), {place, 4});
    counts.push_back(its.size());
    for (std::size_t i = 1; i < its.size(); ++i) EXPECT_LE(crooked.elements(its[i - 1]), crooked.elements(its[i]));
    all.insert(its.begin(), its.end());
  }
  EXPECT_EQ(all.size(), 10U);
  EXPECT_EQ(counts, (std::vector<std::size_t>{3, 3, 2, 2}));
}

}  // namespace
}  // namespace tidemark::tests::layer_wise_test
