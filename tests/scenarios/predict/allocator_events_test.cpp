#include "scenarios/predict/allocator_events.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/plan/bounds/exact_memory.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/predict/events_replay.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/scenarios/random_layout.hpp"
#include "tests/seeds.hpp"

namespace tidemark::tests::allocator_events_test {
namespace {

using namespace literals;

TEST(AllocatorEvents, SaysWhatPredictSaysOfEveryRandomLayout) {
  SharedModels models;
  int checked = 0, apart = 0;
  for (std::uint32_t seed = 1; checked < seeds(25); ++seed) {
    std::optional<Scenario> scenario = random_scenario(seed);
    if (!scenario) continue;
    SCOPED_TRACE(seed);
    scenario->runtime.allocator = random_allocator(seed);
    Figures expected = figures_of(predict(*scenario));
    apart += ExactMemory(models).as_stated(*scenario).has_value() ? 1 : 0;
    auto [found, dominated, asks_the_clock] = ExactMemory(models).of(*scenario);
    EXPECT_EQ(found.allocated, expected.allocated);
    EXPECT_EQ(found.device, expected.device);
    EXPECT_LE(found.device_upper, expected.device_upper);
    if (asks_the_clock) found.device_upper = expected.device_upper;
    EXPECT_EQ(found.device_upper, expected.device_upper);
    EXPECT_EQ(found.completed, expected.completed);
    if (checked % 10 == 0) {
      add_exact_time(*scenario, found);
      EXPECT_EQ(found, expected);
    }
    ++checked;
  }
  EXPECT_GT(apart, checked / 2) << "others run whole";
}

// The norm of gradients opens the group of tensors in a state without passes; in a whole program passes have.
TEST(AllocatorEvents, StateAndPassesAreApartUnderEachKindOfParallelism) {
  SharedModels models;
  for (const char* layout :
       {"tensor = 2\n", "tensor = 2\nsequence_parallel = true\nsharding = \"zero1\"\n", "context = 2\n",
        "pipeline = 2\n", "tensor = 2\npipeline = 2\nchunks = 2\nschedule = \"interleaved\"\n"}) {
    SCOPED_TRACE(layout);
    const Scenario scenario = scenario_of_text(
        "model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\n"
        "gpus = 8\n[model_override]\nnum_hidden_layers = 8\n[train]\n"
        "sequence_length = 1024\nmicro_batch = 1\nglobal_batch = 32\n[layout]\n" +
        std::string(layout));
    EXPECT_TRUE(ExactMemory(models).as_stated(resolved_scenario(scenario)));
  }
}

TEST(AllocatorEvents, MicroBatchesInTheMiddleAreKnownWithoutRunningThem) {
  SharedModels models;
  const Scenario scenario = scenario_of_text(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 2
[model_override]
num_hidden_layers = 4
[layout]
tensor = 2
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 256
)");
  const Runtime runtime = runtime_of(scenario);
  const auto built = models.model_of(scenario.model, model_options_of(scenario));
  const LoweringInput input{*built, scenario.layout, scenario.train, runtime};
  const Role role = roles(input).front();
  const auto events = events_of(lower_repeating(input, role));
  ASSERT_TRUE(events.has_value());
  const EventsRecord record = replay_events(events->state, events->passes);
  EXPECT_GT(record.skipped, 400);  // of two steps of 256
  EXPECT_LT(record.bodies, 80);
}

// A step of two micro-batches, with one more line where it says so.
std::optional<RankEvents> events(const std::string& in_pass, const std::string& in_update = "",
                                 const std::string& after_update = "") {
  return events_of({parse_program("mark construction 0 -1 setup\n"
                                  "alloc b0 512 parameters s0 weight\n"
                                  "mark forward 1 -1 zero_gradients\n"
                                  "mark forward 1 0 layers.0.linear\n"
                                  "alloc b1 1024 saved_activations s0 layers.0.linear.out\n"
                                  "mark forward 1 1 layers.0.linear\n" +
                                  in_pass +
                                  "alloc b2 1024 saved_activations s0 layers.0.linear.out\n"
                                  "free b2\n"
                                  "mark optimizer_step 1 -1 update\n"
                                  "alloc b3 2048 temporaries s0 step\n" +
                                  in_update + after_update),
                    {}});
}

TEST(AllocatorEvents, AreThoseOfTheStateAndThoseOfPasses) {
  const auto found = events("free b1\n", "free b3\n");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->state.construction.size(), 1U);
  EXPECT_EQ(found->state.steps.front().after.size(), 2U);
  EXPECT_EQ(found->passes.steps.front().before.size(), 6U);  // two begin, two allocations, two frees
}

TEST(AllocatorEvents, SayNothingOfWhatIsOnTheHost) {
  const auto without = events("free b1\n", "free b3\n"),
             with = events(
                 "alloc b4 1024 saved_activations s0 kept pinned\nmemcpy s0 1024 b1 -> b4\nfree b1\n"
                 "alloc b5 64 optimizer_master s0 kept pageable\nfree b4\n",
                 "free b5\nfree b3\n");
  ASSERT_TRUE(with.has_value() && without.has_value());
  EXPECT_EQ(with->passes, without->passes);
  EXPECT_EQ(with->state, without->state);
}

TEST(AllocatorEvents, CountWhatIsRegisteredPastTheAllocator) {
  const Program program = parse_program(
      "mark construction 0 -1 setup\nalloc b0 3000000 comm_tp s0 buffer registered\n"
      "alloc b1 512 parameters s0 weight\nmark forward 1 -1 zero_gradients\nmark forward 1 0 layers.0.linear\n");
  const auto found = events_of({program, {}});
  ASSERT_TRUE(found.has_value());
  const DriverCosts costs = {};
  const MemoryRecord whole = replay(program, costs, ReplayOptions{});
  EXPECT_EQ(whole.device.bytes, 4_MiB + 2_MiB);  // two units, and a segment
  EXPECT_EQ(replay_events(found->state, found->passes).device(costs), whole.device.bytes);
  for (const Bytes capacity : {5_MiB, 6_MiB})
    EXPECT_EQ(replay_events(found->state, found->passes, {}, costs, capacity).out_of_memory, capacity < 6_MiB);
}

TEST(AllocatorEvents, AreNotApartWherePassesFreeState) { EXPECT_FALSE(events("free b1\nfree b0\n").has_value()); }

TEST(AllocatorEvents, AreNotApartWhereTheStateFreesWhatPassesMade) {
  EXPECT_FALSE(events("", "free b1\n").has_value());
}

TEST(AllocatorEvents, AreNotApartWherePassesComeAgainAfterTheState) {
  EXPECT_FALSE(events("free b1\n", "", "mark forward 1 2 layers.0.linear\n").has_value());
}

TEST(AllocatorEvents, AreNotApartWhereAStepBeginsWithAPass) {
  EXPECT_FALSE(events("free b1\n", "", "mark forward 2 0 layers.0.linear\n").has_value());
}

TEST(AllocatorEvents, AStateIsTheSameUpToCommunicatorsThatPassesCreate) {
  const auto whole = events("free b1\ncreate communicator g0\n"), alone = events("free b1\n"),
             early = events("free b1\n", "create communicator g0\n"), other = events("free b1\n", "free b3\n");
  EXPECT_TRUE(same_state(whole->state, whole->passes, alone->state));
  EXPECT_TRUE(same_state(whole->state, whole->passes, early->state));
  EXPECT_FALSE(same_state(alone->state, alone->passes, early->state));
  EXPECT_FALSE(same_state(whole->state, whole->passes, other->state));
}

}  // namespace
}  // namespace tidemark::tests::allocator_events_test
