#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "parallel/generation/engine.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "scenarios/plan/changes/accepted_changes.hpp"
#include "scenarios/plan/changes/advise.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/report/remedies.hpp"
#include "scenarios/report/text/prediction_text.hpp"
#include "tests/scenarios/folders.hpp"

// [rollout]: what generation takes of the devices that train, and when.

namespace tidemark::tests::rollout_test {
namespace {

constexpr const char* policy = R"(model = "models/qwen2.5-7b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 4
[model_override]
num_hidden_layers = 2
[layout]
tensor = 2
sequence_parallel = true
sharding = "zero1"
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 8
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "megatron"
)";
constexpr const char* script = R"(model = "models/qwen2.5-7b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 2
[model_override]
num_hidden_layers = 2
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 4
[runtime]
)";
// Of blocks, which are not cut where little would be left.
constexpr double rounding = 4 << 20;
constexpr const char* rollout = "[rollout]\nbatch = 8\nsamples = 4\nprompt_length = 100\nresponse_length = 412\n";

Prediction predicted(const std::string& text) { return predict(scenario_of_text(text)); }
const Composition& in(const Prediction& p, Phase phase) {
  return p.highest().memory.allocated_by_phase[static_cast<std::size_t>(phase)].composition;
}
Bytes engine_weights(const Scenario& s) {
  Bytes sum;
  for (const std::int64_t elements : generation::weight_parts(build_model(s.model, {}), *s.train.rollout))
    sum += elements * size_of(s.train.precision);
  return sum;
}

TEST(Rollout, CacheIsThereWhileItGeneratesAndNotAfter) {
  const Prediction p = predicted(std::string(policy) + rollout), without = predicted(policy);
  // 32 answers of 512 tokens, two heads of 128 on a rank, in two layers.
  EXPECT_EQ(in(p, Phase::Rollout)[Category::KvCache], Bytes{std::int64_t{32} * 512 * 2 * 2 * 2 * 128 * 2});
  for (const Phase phase : {Phase::Forward, Phase::Backward, Phase::OptimizerStep})
    EXPECT_EQ(in(p, phase)[Category::KvCache], Bytes{}) << name(phase);
  EXPECT_EQ(in(without, Phase::Rollout).total(), Bytes{});
}

TEST(Rollout, WeightsStayUnlessTheEngineSleeps) {
  const Prediction none = predicted(policy), awake = predicted(std::string(policy) + rollout),
                   asleep = predicted(std::string(policy) + rollout + "sleep = 2\n"),
                   on_host = predicted(std::string(policy) + rollout + "sleep = 1\n"),
                   shared = predicted(std::string(policy) + rollout + "weights = \"shared\"\n");
  const Bytes weights = engine_weights(awake.scenario);
  const auto held = [&](const Prediction& p, Phase phase) {
    return in(p, phase)[Category::Parameters] - in(none, phase)[Category::Parameters];
  };
  EXPECT_GE(held(awake, Phase::Backward), weights);
  EXPECT_LE(held(awake, Phase::Backward), weights + Bytes{4 << 20});
  for (const Prediction* p : {&asleep, &on_host}) {
    EXPECT_EQ(held(*p, Phase::Backward), Bytes{});
    EXPECT_GE(in(*p, Phase::Rollout)[Category::Parameters], in(none, Phase::Backward)[Category::Parameters] + weights);
  }
  EXPECT_EQ(held(shared, Phase::Backward), Bytes{});
  EXPECT_GE(on_host.highest().memory.pinned.peak, weights);
  EXPECT_EQ(asleep.highest().memory.pinned.peak, Bytes{});
}

TEST(Rollout, AnEngineThatReservesTakesItsPartWhateverIsAsked) {
  const std::string reserves = std::string(policy) + rollout + "memory_fraction = 0.25\n";
  const Prediction p = predicted(reserves);
  const Scenario& s = p.scenario;
  const Bytes block = generation::cache_of_token(s.model, *s.train.rollout) * 16;
  const Bytes pool = Bytes{s.cluster.device.capacity.count() / 4} - engine_weights(s);
  EXPECT_LE(in(p, Phase::Backward)[Category::KvCache], pool);
  EXPECT_GT(in(p, Phase::Backward)[Category::KvCache] + block, pool);
  const Prediction asleep = predicted(reserves + "sleep = 2\n");
  EXPECT_EQ(in(asleep, Phase::Backward)[Category::KvCache], Bytes{});
  EXPECT_EQ(in(asleep, Phase::Rollout)[Category::KvCache], in(p, Phase::Backward)[Category::KvCache]);
}

TEST(Rollout, AnEngineThatSleepsHasAPoolOfItsOwn) {
  // Rows long enough that training's cache is most of what it reserves; the engine reserves what training leaves.
  std::string longer = policy;
  longer.replace(longer.find("sequence_length = 1024"), 22, "sequence_length = 8192");
  const Prediction training = predicted(longer), p = predicted(longer + rollout + "memory_fraction = 0.9\nsleep = 2\n");
  const Bytes engine{static_cast<std::int64_t>(0.9 * static_cast<double>(p.scenario.cluster.device.capacity.count()))};
  const MemoryRecord &alone = training.highest().memory, &both = p.highest().memory;
  const Bytes cached = alone.peak_reserved - alone.final_allocated;
  EXPECT_FALSE(both.failure);
  EXPECT_EQ(both.retries_of_last_step, 0);
  // The cache goes back before the engine wakes, but for what shares segments with what stays: more than half here.
  EXPECT_GT(both.peak_reserved, engine);
  EXPECT_LT(both.peak_reserved, engine + alone.final_allocated + Bytes{cached.count() / 2})
      << both.peak_reserved.count() - engine.count() - alone.final_allocated.count() << " of " << cached.count();
}

TEST(Rollout, FrozenModelsStandBesideTheTrainedOne) {
  const Prediction one = predicted(std::string(policy) + rollout),
                   two = predicted(std::string(policy) + rollout + "reference_model = true\n"),
                   three = predicted(std::string(policy) + rollout + "reference_model = true\nreward_model = true\n");
  const auto held = [](const Prediction& p) { return in(p, Phase::Backward)[Category::Parameters]; };
  const Bytes policys = in(predicted(policy), Phase::Backward)[Category::Parameters];
  EXPECT_NEAR(static_cast<double>((held(two) - held(one)).count()), static_cast<double>(policys.count()), rounding);
  // A vector in place of the head: 76,032 rows of 3,584 less.
  EXPECT_NEAR(static_cast<double>((held(three) - held(two)).count()),
              static_cast<double>(policys.count()) - 76032.0 * 3584 * 2, rounding);
}

TEST(Rollout, RunsWithPlainPyTorchAlone) {
  const std::string longer = "[rollout]\nbatch = 64\nsamples = 8\nprompt_length = 100\nresponse_length = 8092\n";
  for (const char* runtime : {"name = \"pytorch\"\n", "name = \"fsdp2\"\n", "name = \"fsdp\"\n",
                              "name = \"pytorch\"\nversions = {torch = \"2.4\"}\n"}) {
    const std::string requested = std::string(script) + runtime;
    const Prediction p = predicted(requested + longer + "reference_model = true\nreward_model = true\n");
    EXPECT_NEAR(static_cast<double>(in(p, Phase::Rollout)[Category::KvCache].count()),
                512.0 * 8192 * 2 * 2 * 4 * 128 * 2, rounding)
        << runtime;
    // The last batch, and nothing of a layer.
    EXPECT_LT(in(p, Phase::Rollout)[Category::SavedActivations], Bytes{64 << 10}) << runtime;
    EXPECT_GT(p.highest().memory.allocated.bytes, predicted(requested).highest().memory.allocated.bytes) << runtime;
  }
}

TEST(Rollout, PipelinesGenerateToo) {
  std::string text = std::string(policy) + rollout;
  text.replace(text.find("tensor = 2"), 10, "tensor = 2\npipeline = 2");
  const Prediction p = predicted(text);
  EXPECT_EQ(in(p, Phase::Rollout)[Category::KvCache], Bytes{std::int64_t{32} * 512 * 2 * 2 * 2 * 128 * 2});
}

std::string with_more_micro_batches(std::string text) {
  text.replace(text.find("global_batch = "), 16, "global_batch = 64");
  return text;
}

TEST(Rollout, WhatMicroBatchesSayAgainIsStillFound) {
  for (const std::string& text : {with_more_micro_batches(policy) + rollout + "sleep = 1\n",
                                  with_more_micro_batches(script) + "name = \"fsdp2\"\n" + rollout}) {
    const Job job(scenario_of_text(text));
    for (const Role& role : job.roles) {
      const RepeatingProgram said_once = lower_repeating(job.lowering(), role);
      const Program all = lower_every_pass(job.lowering(), role);
      EXPECT_LT(2 * said_once.rolled.ops.size(), all.ops.size());
      EXPECT_TRUE(unrolled(said_once) == all);
    }
  }
}

TEST(Rollout, RolesThatShareTheirPassesHaveTheirOwnMemory) {
  const Scenario s = scenario_of_text(std::string(policy) + rollout + "sleep = 2\n");
  const Job job(s);
  const Prediction p = predict(s);
  for (const RankGroup& group : p.groups) {
    const Program own = lower_role(job.lowering(), job.role_of(group.ranks.front()));
    EXPECT_EQ(group.memory.allocated_by_phase,
              replay(own, group.costs, {.allocator = without_limit(allocator_options_of(s))}).allocated_by_phase);
  }
}

TEST(Rollout, IsWrittenAsItWasRead) {
  const Scenario s = scenario_of_text(std::string(policy) + rollout + "kv_dtype = \"fp8\"\nmemory_fraction = 0.5\n");
  const auto json = nlohmann::json::parse(scenario_json(s, -1))["rollout"];
  EXPECT_EQ(json["batch"], 8);
  EXPECT_EQ(json["samples"], 4);
  EXPECT_EQ(json["tensor"], 2);
  EXPECT_EQ(json["kv_dtype"], "fp8");
  EXPECT_EQ(json["memory_fraction"], 0.5);
  EXPECT_EQ(json["block_size"], 16);
}

TEST(Rollout, AnswersSayWhichPhaseIsHighest) {
  std::string long_answers = std::string(policy) + rollout;
  long_answers.replace(long_answers.find("response_length = 412"), 21, "response_length = 60000");
  const std::string text = prediction_text(predicted(long_answers));
  EXPECT_NE(text.find("by phase, on rank 0"), std::string::npos) << text;
  EXPECT_NE(text.find("rollout"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  without its rollout: "), std::string::npos) << text;
  const auto line = text.find("  rollout ");
  ASSERT_NE(line, std::string::npos) << text;
  EXPECT_NE(text.substr(line, text.find('\n', line) - line).find("the highest"), std::string::npos) << text;
}

TEST(Rollout, WhereItRunsOutWhatHelpsIsToldByPhase) {
  std::string too_long = std::string(policy) + rollout;
  too_long.replace(too_long.find("response_length = 412"), 21, "response_length = 900000");
  too_long.replace(too_long.find("samples = 4"), 11, "block_size = 8192\nsamples = 16");
  const Prediction p = predicted(too_long);
  ASSERT_TRUE(p.highest().failure.has_value());
  EXPECT_EQ(p.highest().failure->at.mark.phase, Phase::Rollout);
  const std::string text = prediction_text(p);
  EXPECT_NE(text.find("what helps in that phase (rollout)"), std::string::npos) << text;
  EXPECT_NE(text.find("a shorter response_length in [rollout]"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(prediction_json(p));
  EXPECT_EQ(json["failure"]["phase"], "rollout");
  EXPECT_FALSE(json["remedies"].empty());
  const std::ptrdiff_t highest = &p.highest() - p.groups.data();
  EXPECT_EQ(json["groups"][static_cast<std::size_t>(highest)]["peak_allocated_by_phase"]["rollout"],
            p.highest().memory.allocated.bytes.count());
}

TEST(Rollout, AdviceTriesLessOfIt) {
  std::string too_long = std::string(policy) + rollout;
  too_long.replace(too_long.find("response_length = 412"), 21, "response_length = 900000");
  too_long.replace(too_long.find("samples = 4"), 11, "block_size = 8192\nsamples = 16");
  const Advice advice =
      advise(parse_toml(too_long, "rollout"), "rollout.toml", folders, {.most_changes = 1, .free = {}});
  ASSERT_FALSE(advice.fits);
  const auto enough = [&](const std::string& change) {
    return std::ranges::any_of(advice.remedies, [&](const Remedy& r) {
      return r.changes == std::vector{change} && r.found.figures.device_upper < advice.now.device_upper;
    });
  };
  EXPECT_TRUE(enough("rollout.batch: 8 -> 2"));
  EXPECT_TRUE(enough("rollout.samples: 16 -> 4"));
  EXPECT_TRUE(enough("rollout.response_length: 900000 -> 225000"));
}

TEST(Remedies, AreThoseThatTheScenarioDoesNotHaveYet) {
  const auto has = [](const std::vector<std::string>& all, std::string_view part) {
    return std::ranges::any_of(all, [&](const std::string& r) { return r.find(part) != std::string::npos; });
  };
  const Scenario s = scenario_of_text(policy);
  EXPECT_TRUE(has(remedies_of(Phase::Backward, s), "recompute"));
  EXPECT_FALSE(has(remedies_of(Phase::Backward, s), "micro_batch"));  // it is 1
  EXPECT_FALSE(has(remedies_of(Phase::Forward, s), "attention"));     // stores no scores
  EXPECT_TRUE(has(remedies_of(Phase::OptimizerStep, s), "[offload] optimizer"));
  EXPECT_FALSE(has(remedies_of(Phase::OptimizerStep, s), "sharding of the optimizer"));
  EXPECT_FALSE(has(remedies_of(Phase::Forward, s), "sleep"));
}

// What one runtime has on hosts, another refuses: hints are of changes that give a scenario.
TEST(Remedies, AreThoseThatTheScenarioTakes) {
  struct Case {
    std::string_view runtime, adapter;
    bool offload, small_optimizer;
  };
  for (const Case& c : {Case{"fsdp", "", true, true}, Case{"fsdp", "[adapter]\nrank = 8\n", false, true},
                        Case{"fsdp2", "", true, false}, Case{"pytorch", "", false, true}}) {
    const std::string text = fmt::format(
        "model = \"models/llama-2-7b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = 2\n{}[model_override]\n"
        "num_hidden_layers = 2\n[train]\nsequence_length = 512\nmicro_batch = 2\nglobal_batch = 4\n"
        "master_dtype = \"bf16\"\n[runtime]\nname = \"{}\"\n",
        c.adapter, c.runtime);
    const Scenario s = scenario_of_text(text);
    const AcceptedChanges accepted(parse_toml(text, "job.toml"), "job.toml", folders, s);
    const std::vector<std::string> found = remedies_of(Phase::OptimizerStep, s, &accepted);
    const auto has = [&](std::string_view part) {
      return std::ranges::any_of(found, [&](const std::string& r) { return r.find(part) != std::string::npos; });
    };
    EXPECT_EQ(has("[offload]"), c.offload) << text;
    EXPECT_EQ(has("adamw_8bit"), c.small_optimizer) << text;
    EXPECT_EQ(has("[adapter]"), c.adapter.empty()) << text;
  }
}

}  // namespace
}  // namespace tidemark::tests::rollout_test
