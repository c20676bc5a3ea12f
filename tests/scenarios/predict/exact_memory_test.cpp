#include "scenarios/plan/bounds/exact_memory.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cost/cost_time.hpp"
#include "parallel/lowering/lower.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/plan/same_job.hpp"
#include "scenarios/predict/allocator_events.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "sim/clock/class_timeline.hpp"
#include "sim/clock/engine.hpp"
#include "sim/program/calls.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/scenarios/random_layout.hpp"
#include "tests/seeds.hpp"
#include "topology/route/cost.hpp"
#include "topology/route/traffic.hpp"

// What the planner shares between candidates, and leaves out of what it runs, held against the whole.

namespace tidemark::tests::exact_memory_test {
namespace {

std::vector<Scenario> random_scenarios(int count) {
  std::vector<Scenario> found;
  for (std::uint32_t seed = 1; static_cast<int>(found.size()) < seeds(count); ++seed)
    if (auto scenario = random_scenario(seed)) found.push_back(std::move(*scenario));
  return found;
}

// Of experts, sequences in parts and what predicts further tokens.
std::vector<Scenario> random_scenarios_of_parts(int count) {
  std::vector<Scenario> found;
  for (std::uint32_t seed = 1; static_cast<int>(found.size()) < seeds(count); ++seed)
    if (auto scenario = random_parts(seed)) found.push_back(std::move(*scenario));
  return found;
}

struct Lowered {
  explicit Lowered(const Scenario& s)
      : scenario(s), runtime(runtime_of(s)), built(build_model(s.model, model_options_of(s))) {}
  [[nodiscard]] LoweringInput input() const { return {built, scenario.layout, scenario.train, runtime}; }
  Scenario scenario;
  Runtime runtime;
  BuiltModel built;
};

Scenario llama(const std::string& layout, const std::string& recompute) {
  return scenario_of_text(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 6
[layout]
pipeline = 4
)" + layout + R"([train]
sequence_length = 1024
micro_batch = 1
global_batch = 16
)" + recompute);
}

TEST(SameJob, HasTheSamePrograms) {
  for (const std::vector<Scenario>& scenarios : {random_scenarios(20), random_scenarios_of_parts(20)})
    for (const Scenario& scenario : scenarios) {
      const Lowered as_it_is(scenario), same(same_job(scenario));
      EXPECT_EQ(lower(as_it_is.input()).programs, lower(same.input()).programs);
      EXPECT_EQ(same_job(same.scenario), same.scenario);
    }
}

// A module that predicts further tokens runs again with every layer, and in no block of layers.
TEST(SameJob, BlocksOfAllLayersAreNotAllThatRunsAgain) {
  const auto deepseek = [](const std::string& mtp_layers, const std::string& recompute) {
    return scenario_of_text(R"(model = "models/deepseek-v3.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 4
[model_override]
num_hidden_layers = 5
num_nextn_predict_layers = )" +
                            mtp_layers + R"(
[layout]
tensor = 2
sequence_parallel = true
pipeline = 2
stage_layers = [3, 2]
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 4
recompute = "full"
)" + recompute);
  };
  const std::string block = "recompute_method = \"block\"\nrecompute_layers = 4\n";
  EXPECT_NE(same_job(deepseek("1", block)), same_job(deepseek("1", "")));
  EXPECT_EQ(same_job(deepseek("0", block)), same_job(deepseek("0", "")));
}

TEST(SameJob, IsOneWhateverItsWords) {
  const std::string counted = "count_embedding = true\ncount_loss = true\n";
  const std::string named = "stage_layers = [1, 2, 2, 1]\n";
  const std::string block = "recompute = \"full\"\nrecompute_method = \"block\"\nrecompute_layers = ";
  const std::string uniform = "recompute = \"full\"\nrecompute_method = \"uniform\"\nrecompute_layers = 1\n";
  const Scenario one = llama(counted, block + "2\n");
  for (const Scenario& other : {llama(named, block + "2\n"), llama(counted, block + "4\n"), llama(named, uniform)}) {
    EXPECT_EQ(same_job(one), same_job(other));
    const Lowered a(one), b(other);
    EXPECT_EQ(lower(a.input()).programs, lower(b.input()).programs);
  }
  EXPECT_NE(same_job(one), same_job(llama(counted, block + "1\n")));
  EXPECT_NE(same_job(one), same_job(llama(counted, "")));
}

TEST(ExactMemory, RanksDoTheSameWhereverTheyStand) {
  for (const Scenario& scenario : random_scenarios(20)) {
    Scenario other = scenario;
    std::swap(other.layout.order[3], other.layout.order[4]);
    const Lowered a(scenario), b(other);
    EXPECT_EQ(lower(a.input()).programs, lower(b.input()).programs);
  }
}

TEST(ExactMemory, DoesNotDependOnWhatWasAskedBefore) {
  for (const Scenario& scenario : random_scenarios(12)) {
    SharedModels models;
    const Bytes exact = exact_memory(scenario, models).device_upper;
    Scenario other = scenario;
    std::swap(other.layout.order[3], other.layout.order[4]);
    const auto ask = [](ExactMemory& memory, const Scenario& s, Bytes bar) {
      return memory.of(s, [=](Bytes upper) { return upper >= bar; });
    };
    ExactMemory used(models);
    for (const Bytes bar : {exact - Bytes{exact.count() / 2}, exact, exact + Bytes{1}, exact - Bytes{1}}) {
      ExactMemory fresh(models);
      const ExactMemory::Answer first = ask(fresh, scenario, bar);
      (void)ask(used, other, bar);
      const ExactMemory::Answer again = ask(used, scenario, bar);
      EXPECT_EQ(first.dominated, again.dominated);
      if (first.dominated) continue;
      EXPECT_EQ(first.figures, again.figures);
      EXPECT_TRUE(!fits(scenario, first.figures) || bar > exact);
    }
  }
}

TEST(ExactTime, TheLastStepTakesAsLongAsAfterWholeSteps) {
  for (const Scenario& scenario : random_scenarios(15)) {
    Figures found;
    add_exact_time(scenario, found);
    const Job job(scenario);
    EXPECT_EQ(found.step, last_step(simulate_time(job)));
  }
}

// Where programs are not unrolled, collectives that are alone on their links count as kernels.
TEST(ExactTime, IsThatOfProgramsOpByOp) {
  for (const Scenario& scenario : random_scenarios(30)) {
    const Job job(scenario);
    const Workload workload = unrolled(job.outline);
    const Trace each = simulate(workload, job.folding, job.times), quick = simulate_time(job);
    EXPECT_EQ(quick.end, each.end);
    EXPECT_EQ(quick.events, each.events);
    for (std::size_t c = 0; c < each.classes.size(); ++c)
      EXPECT_EQ(quick.classes[c].step_ends, each.classes[c].step_ends);
    EXPECT_EQ(timelines(workload, job.folding, job.times, quick), timelines(workload, job.folding, job.times, each));
  }
}

TEST(ExactMemory, InFullItIsWhatPredictSays) {
  for (const Scenario& scenario : random_scenarios(15))
    EXPECT_EQ(whole_figures(scenario), figures_of(predict(scenario)));
}

// Where operations run one by one, gradients are made in passes and freed between them.
TEST(ExactMemory, WhereStateAndPassesAreNotApartTheWholeProgramRuns) {
  const Scenario scenario = scenario_of_text(R"(model = "models/qwen2.5-7b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 2
[model_override]
num_hidden_layers = 2
[train]
sequence_length = 256
micro_batch = 1
global_batch = 4
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "pytorch"
)");
  SharedModels models;
  const Lowered job(scenario);
  EXPECT_FALSE(events_of(lower_repeating(job.input(), roles(job.input()).front())).has_value());
  const Figures expected = figures_of(predict(scenario));
  EXPECT_EQ(exact_memory(scenario, models), expected);
  EXPECT_EQ(whole_figures(scenario), expected);
}

TEST(Calls, SayAllThatCostsAndClassesDependOn) {
  for (const Scenario& scenario : random_scenarios(15)) {
    const Lowered lowered(scenario);
    const Workload whole = lower(lowered.input()), calls = calls_of(whole);
    const auto costs_of = [&](const Workload& w) { return cost(w, scenario.cluster, nccl_settings(scenario.runtime)); };
    const Costs costs = costs_of(whole);
    EXPECT_EQ(costs_of(calls).entries, costs.entries);
    EXPECT_EQ(costs_of(calls).entry_of_rank, costs.entry_of_rank);

    Router by_calls(calls, scenario.cluster, costs.entry_of_rank), router(whole, scenario.cluster, costs.entry_of_rank);
    const Folding folding = fold(whole, costs.entry_of_rank, router.traffic());
    EXPECT_EQ(fold(calls, costs.entry_of_rank, by_calls.traffic()).class_of_rank, folding.class_of_rank);
    const TimeCosts times = cost_time(whole, folding, scenario.cluster, router);
    const TimeCosts again = cost_time(calls, folding, scenario.cluster, by_calls);
    EXPECT_EQ(again.links, times.links);
    EXPECT_EQ(again.collectives, times.collectives);
    for (std::size_t c = 0; c < times.classes.size(); ++c) {
      EXPECT_EQ(again.classes[c].kernels, times.classes[c].kernels);
      EXPECT_EQ(again.classes[c].messages, times.classes[c].messages);
    }
    for (std::size_t p = 0; p < calls.programs.size(); ++p)
      EXPECT_LT(calls.programs[p].ops.size(), 100 + whole.programs[p].ops.size() / 20);
  }
}

}  // namespace
}  // namespace tidemark::tests::exact_memory_test
