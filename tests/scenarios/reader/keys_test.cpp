#include "scenarios/plan/space/keys.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "scenarios/plan/bounds/bounds.hpp"
#include "scenarios/plan/bounds/exact_memory.hpp"
#include "scenarios/plan/space/space.hpp"
#include "scenarios/predict/prediction.hpp"
#include "tests/scenarios/fields.hpp"
#include "tests/scenarios/folders.hpp"

// What candidates share depends on its key alone.

namespace tidemark::tests::keys_test {
namespace {

constexpr const char* base = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 8
[layout]
tensor = 2
pipeline = 4
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 8
cross_entropy = "te"
)";

constexpr const char* base_with_experts = R"(model = "models/deepseek-v2-lite.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 16
[model_override]
num_hidden_layers = 4
[layout]
pipeline = 2
expert = 4
expert_tensor = 1
[train]
sequence_length = 512
micro_batch = 1
global_batch = 32
cross_entropy = "te"
)";

constexpr const char* base_in_parts = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 16
[model_override]
num_hidden_layers = 4
[layout]
tensor = 2
pipeline = 2
context = 2
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 8
cross_entropy = "te"
)";

/// A base, and it with other settings.
struct Pair {
  Scenario base, other;
};

Pair with(const char* of, const std::string& settings) {
  const auto scenario = [](const std::string& text) {
    const Space space = space_of(parse_toml(text, "keys.toml"), "keys.toml", folders);
    const auto made = candidate(space, 0);
    if (const auto* dropped = std::get_if<NoCandidate>(&made)) ADD_FAILURE() << dropped->reason;
    return std::get<Scenario>(made);
  };
  const std::string text = std::string(of) + "[space]\nalternative = [{";
  return {scenario(text + "}]\n"), scenario(text + settings + "}]\n")};
}

template <class Key>
void expect_every_field_tells_apart(Key key, int at_least) {
  const Key as_it_is = key;
  int flips = 0;
  each_flip(key, [&] {
    ++flips;
    EXPECT_FALSE(key == as_it_is) << "flip " << flips;
  });
  EXPECT_TRUE(key == as_it_is);
  EXPECT_GE(flips, at_least);
}

// With something in each list and option, so that what is in them is flipped too.
Scenario full_scenario() {
  Scenario scenario = with(base, "runtime.environment.NCCL_ALGO = \"Ring\"").other;
  scenario.layout.stage_layers = {2, 2, 2, 2};
  scenario.cluster.nccl.one_node = NcclChannels{};
  scenario.cluster.nccl.kernels = Estimate{};
  scenario.cluster.nccl.communicators = {{}};
  scenario.runtime.nccl.channels.max_ctas = 1;
  scenario.runtime.eager.reentrant_checkpoint = true;
  return scenario;
}

TEST(Keys, EveryFieldTellsApart) {
  const Scenario scenario = full_scenario();
  expect_every_field_tells_apart(scenario, 200);
  expect_every_field_tells_apart(ModelKey{scenario.model, model_options_of(scenario)}, 34);
  expect_every_field_tells_apart(SampleKey{scenario, ChunkKind::First, {{{0}, 3}, {{1}, 1}}}, 206);
  expect_every_field_tells_apart(FabricKey{scenario.cluster, 8, {}}, 63);
  const auto fabric = std::make_shared<const Fabric>(build_fabric(scenario.cluster, 8));
  const GroupPlaces places{fabric, {{0, 1}}, 2};
  expect_every_field_tells_apart(places, 5);
  PassCosts costs;
  costs.fill(std::make_shared<const GroupCosts>(places));
  expect_every_field_tells_apart(ClockKey{std::make_shared<const ChunkSample>(), costs, Duration{1}}, 10);
  expect_every_field_tells_apart(InFlightKey{{scenario.layout, 8}, 1}, 20);
  const StateEvents::Step step{{AllocatorEvent{}}, {AllocatorEvent{}}};
  expect_every_field_tells_apart(StateEvents{{AllocatorEvent{}}, {step}}, 19);
}

TEST(Keys, EveryOptionMakesAModelOfItsOwn) {
  const Scenario scenario = with(base, "").base;
  ModelOptions options = model_options_of(scenario);
  SharedModels models;
  const auto built = models.model_of(scenario.model, options);
  int flips = 0;
  each_flip(options, [&] {
    ++flips;
    EXPECT_NE(models.model_of(scenario.model, options), built) << "flip " << flips;
  });
  EXPECT_EQ(flips, 5);
  EXPECT_EQ(models.model_of(scenario.model, options), built);
}

/// All that the planner says of one candidate.
struct Answers {
  Bytes allocated_low, device_upper_low;
  Duration step_low, step_high;
  Figures figures;
  bool operator==(const Answers&) const = default;
};

class Requested {
 public:
  Answers of(const Scenario& scenario) {
    const MemoryBounds memory = bounder_.memory(scenario);
    const DurationBounds step = bounder_.step(scenario);
    Figures figures = memory_.of(scenario).figures;
    figures.step = time_.step(scenario).value();
    return {memory.allocated, memory.device_upper, step.low, step.high, figures};
  }

 private:
  SharedModels models_;
  Bounder bounder_{models_};
  ExactMemory memory_{models_};
  ExactTime time_;
};

void expect_the_same_whichever_comes_first(const Pair& pair) {
  ASSERT_NE(pair.base, pair.other);
  Requested base_first, other_first;
  const Answers of_base = base_first.of(pair.base), of_other = other_first.of(pair.other);
  EXPECT_EQ(base_first.of(pair.other), of_other);
  EXPECT_EQ(other_first.of(pair.base), of_base);
}

class Sharing : public testing::TestWithParam<const char*> {};
TEST_P(Sharing, SaysTheSameWhicheverCandidateComesFirst) {
  expect_the_same_whichever_comes_first(with(base, GetParam()));
}

class SharingOfExperts : public testing::TestWithParam<const char*> {};
TEST_P(SharingOfExperts, SaysTheSameWhicheverCandidateComesFirst) {
  expect_the_same_whichever_comes_first(with(base_with_experts, GetParam()));
}
INSTANTIATE_TEST_SUITE_P(
    Settings, SharingOfExperts,
    testing::Values("layout.expert = 2", "layout.expert = 8", "layout.expert = 1",
                    "layout.tensor = 2, layout.sequence_parallel = true",
                    "layout.tensor = 2, layout.sequence_parallel = true, layout.expert_tensor = 1",
                    "layout.sharding = \"zero1\"", "layout.pipeline = 1", "layout.stage_layers = [2, 2]",
                    "moe.imbalance = 1.5", "moe.capacity_factor = 1.0",
                    "moe.capacity_factor = 1.0, moe.pad_to_capacity = true", "model_override.first_k_dense_replace = 2",
                    "train.micro_batch = 2", "runtime.switches.moe-permute-fusion = true",
                    "runtime.switches.moe-router-dtype = \"fp32\"", "runtime.switches.moe-aux-loss-coeff = 0.01"));

class SharingOfSequences : public testing::TestWithParam<const char*> {};
TEST_P(SharingOfSequences, SaysTheSameWhicheverCandidateComesFirst) {
  expect_the_same_whichever_comes_first(with(base_in_parts, GetParam()));
}
INSTANTIATE_TEST_SUITE_P(
    Settings, SharingOfSequences,
    testing::Values("layout.context = 1", "layout.context = 4", "layout.context_kind = \"all_gather\"",
                    "layout.context_kind = \"a2a\"",
                    "layout.context = 4, layout.context_kind = \"a2a+p2p\", layout.context_inner = 2",
                    "layout.order = \"cp-tp-ep-dp-pp\"", "layout.tensor = 1", "layout.sharding = \"zero1\""));

INSTANTIATE_TEST_SUITE_P(
    Settings, Sharing,
    testing::Values("layout.tensor = 1", "layout.tensor = 1, layout.pipeline = 8", "layout.pipeline = 2",
                    "layout.sequence_parallel = true", "layout.schedule = \"interleaved\", layout.chunks = 2",
                    "layout.schedule = \"gpipe\"", "layout.stage_layers = [1, 3, 3, 1]",
                    "layout.pipeline = 2, layout.order = \"tp-cp-ep-pp-dp\"", "layout.sharding = \"zero1\"",
                    "layout.pipeline = 2, layout.sharding = \"zero1\"", "gpus = 16", "train.micro_batch = 2",
                    "train.sequence_length = 2048", "train.global_batch = 16", "train.steps = 3",
                    "train.gradient_dtype = \"bf16\"", "train.precision = \"fp16\"", "train.optimizer = \"sgd\"",
                    "train.attention = \"unfused\"", "train.cross_entropy = \"unfused\"", "train.hidden_dropout = 0.0",
                    "train.attention_dropout = 0.0", "train.recompute = \"selective\"",
                    "train.recompute = \"selective\", train.recompute_modules = [\"mlp\"]",
                    "train.recompute = \"full\", train.recompute_method = \"block\", train.recompute_layers = 1",
                    "train.recompute = \"full\", train.recompute_method = \"uniform\", train.recompute_layers = 1",
                    "runtime.switches.no-bias-swiglu-fusion = true", "runtime.switches.no-rope-fusion = true",
                    "runtime.switches.no-bias-dropout-fusion = true",
                    "runtime.switches.no-gradient-accumulation-fusion = true",
                    "runtime.switches.no-create-attention-mask-in-dataloader = true",
                    "runtime.switches.overlap-grad-reduce = true", "runtime.allocator = \"expandable_segments:True\"",
                    "runtime.environment.NCCL_ALGO = \"Ring\"", "runtime.headroom = \"2 GiB\"",
                    "model = \"models/qwen2.5-7b.json\"", "model_override.tie_word_embeddings = true",
                    "model_override.vocabulary_multiple = 256", "cluster = \"clusters/a100-sxm-40g.toml\""));

}  // namespace
}  // namespace tidemark::tests::keys_test
