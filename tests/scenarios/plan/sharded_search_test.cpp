// What `plan` makes of the ways in which runtimes of sharded parameters gather them.
#include <algorithm>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/plan/plan.hpp"
#include "tests/scenarios/small_space.hpp"

namespace tidemark::tests::sharded_search_test {
namespace {

struct Searched {
  const char* runtime;
  const char* axis;
  std::int64_t values;
};

void PrintTo(const Searched& searched, std::ostream* out) { *out << searched.runtime << ' ' << searched.axis; }

// Eight layers of Llama-3.1 8B on two nodes, and few tokens: what is gathered late is waited for.
SmallSpace small_space(const std::string& runtime, const std::string& sharding) {
  SmallSpace space;
  space.top = fmt::format(
      "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 16\n"
      "model_override.num_hidden_layers = 8\nruntime.name = \"{}\"\nlayout.sharding = \"{}\"\n",
      runtime, sharding);
  space.train =
      "sequence_length = 512\nglobal_batch = 16\nhidden_dropout = 0.0\nattention_dropout = 0.0\nmicro_batch = 1\n";
  return space;
}

class GatheredParameters : public testing::TestWithParam<Searched> {};

// Each value is a candidate, is what `predict` says of it, and makes a difference.
TEST_P(GatheredParameters, AreSearchedByTheirAxes) {
  const auto& [runtime, axis, values] = GetParam();
  SmallSpace small = small_space(runtime, "zero3");
  small.axes = {{"train.recompute", {"\"none\""}}};
  if (std::string_view(axis) == "reshard" && std::string_view(runtime) == "torchtitan")
    small.top.erase(small.top.find("layout.sharding"));  // which says it, too
  const Space space = space_of(small, {axis});
  ASSERT_EQ(space.size(), values);
  const Plan found = plan(space, {.top = 10});
  ASSERT_EQ(std::ssize(found.best), values);
  std::set<std::pair<std::int64_t, double>> figures;
  for (const Found& f : found.best) {
    const Prediction alone = predict(std::get<Scenario>(candidate(space, f.candidate)));
    EXPECT_EQ(f.figures.device_upper, alone.highest().memory.peak_device_upper);
    EXPECT_EQ(f.figures.throughput, alone.step.tokens_per_s_per_device);
    figures.insert({f.figures.device_upper.count(), f.figures.throughput});
  }
  EXPECT_EQ(std::ssize(figures), values);
}

INSTANTIATE_TEST_SUITE_P(Runtimes, GatheredParameters,
                         testing::Values(Searched{"fsdp2", "reshard", 2}, Searched{"fsdp2", "prefetch", 2},
                                         Searched{"fsdp", "prefetch", 3}, Searched{"deepspeed", "prefetch", 2},
                                         Searched{"torchtitan", "reshard", 3}),
                         [](const testing::TestParamInfo<Searched>& param) {
                           return fmt::format("{}_{}", param.param.runtime, param.param.axis);
                         });

// Of torchtitan, layouts that are cut as well: tensor parallelism within its shards.
TEST(AllRuntimes, HaveCandidatesInOneSearch) {
  SmallSpace small = small_space("megatron", "zero1");
  small.top.erase(small.top.find("layout.sharding"));
  small.axes = {{"layout.sharding", {"\"zero1\"", "\"zero2\"", "\"zero3\""}}, {"layout.tensor", {"1", "2"}}};
  const Space space = space_of(small, {"runtime", "reshard", "prefetch"});
  std::set<std::string> names, cut;
  for (std::int64_t i = 0; i < space.size(); ++i) {
    const auto made = candidate(space, i);
    const auto* const scenario = std::get_if<Scenario>(&made);
    if (scenario == nullptr) continue;
    names.insert(scenario->runtime.name);
    if (scenario->layout.tensor > 1) cut.insert(scenario->runtime.name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"megatron", "fsdp2", "fsdp", "deepspeed", "torchtitan"}));
  EXPECT_EQ(cut, (std::set<std::string>{"megatron", "torchtitan"}));
}

}  // namespace
}  // namespace tidemark::tests::sharded_search_test
