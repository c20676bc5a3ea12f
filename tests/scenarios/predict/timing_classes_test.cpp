#include "scenarios/predict/time/timing_classes.hpp"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/predict/prediction.hpp"
#include "scenarios/predict/role_program.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "sim/program/structure/timing.hpp"
#include "tests/scenarios/folders.hpp"
#include "tests/scenarios/one_job.hpp"

namespace tidemark::tests::timing_classes_test {
namespace {

// Two stages of four data-parallel ranks, whose optimizers hold other pieces of parameters.
const Job& job() {
  static const Job job(parse_scenario(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 4
[layout]
pipeline = 2
sharding = "zero1"
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 32
)",
                                      "small.toml", folders));
  return job;
}

// The same program with one more kernel in its first micro-batch.
Program slower(Program program) {
  const auto pass = std::find_if(program.ops.begin(), program.ops.end(), [](const Op& op) {
    const auto* mark = std::get_if<Mark>(&op);
    return mark != nullptr && mark->micro_batch >= 0;
  });
  program.ops.insert(pass + 1, Launch{{0}, KernelId{0}, {}, {}, {}});
  return program;
}

TEST(TimingClasses, PiecesOfTheOptimizerTellNobodyApart) {
  EXPECT_GT(job().roles.size(), 2u);
  EXPECT_EQ(job().outline.programs.size(), 2u);
  for (const Role& role : job().roles) {
    EXPECT_TRUE(timed_like(job().program(job().program_of(role)), lower_role(job().lowering(), role)));
    EXPECT_EQ(job().roles[job().role_of_program[job().program_of(role)]].first.pipeline, role.first.pipeline);
  }
}

TEST(TimingClasses, RolesWhosePassesDifferHaveProgramsOfTheirOwn) {
  const std::vector<Role>& roles = job().roles;
  const LoweringInput input = job().lowering();
  // The last role of the first stage, which is neither the first of it nor of all.
  const auto last = std::find_if(roles.begin(), roles.end(), [](const Role& r) { return r.first.pipeline == 1; }) - 1;
  const auto is_slow = [&](const Role& role) { return &role == &*last; };
  std::atomic<int> lowered_whole = 0;
  std::size_t announced = 0;
  std::vector<std::pair<std::size_t, std::size_t>> reported;
  const LowerRole lower{
      [&](const Role& role) {
        ++lowered_whole;
        return is_slow(role) ? RepeatingProgram{slower(lower_role(input, role)), {}} : lower_repeating(input, role);
      },
      [&](const Role& role) {
        Program its = lower_shortest(input, role);
        return is_slow(role) ? slower(std::move(its)) : its;
      },
      [&](const Role& role) { return lower_state(input, role); },
      [&](std::size_t programs, const RepeatingProgram& first, const OtherSizes* sizes) {
        EXPECT_EQ(lowered_whole, 1) << "who says that they are too many has waited for one";
        EXPECT_FALSE(first.rolled.ops.empty());
        EXPECT_NE(sizes, nullptr) << "the stage has another program";
        announced = programs;
      },
      [&](std::size_t done, std::size_t all) {
        reported.push_back({done, all});
      }};
  const TimingClasses found = timing_classes(input, roles, lower);
  ASSERT_EQ(found.workload.programs.size(), 3u);
  EXPECT_EQ(announced, 3u);
  EXPECT_EQ(lowered_whole, 3);
  EXPECT_EQ(reported, (std::vector<std::pair<std::size_t, std::size_t>>{{1, 3}, {2, 3}, {3, 3}}));
  for (std::size_t r = 0; r < roles.size(); ++r) {
    const auto program = static_cast<std::size_t>(found.workload.program_of_rank[roles[r].ranks.front().index()]);
    const std::size_t first = found.role_of_program[program];
    EXPECT_EQ(is_slow(roles[r]), first == r && r != 0 && roles[r].first.pipeline == 0) << r;
    EXPECT_EQ(roles[first].first.pipeline, roles[r].first.pipeline);
  }
}

// Four layers with experts on four ranks, which all get other numbers of tokens, two replicas of each.
TEST(TimingClasses, RolesWithOtherNumbersOfTokensAreToldApartUnseen) {
  const Job drawn(parse_scenario(R"(model = "models/qwen3-30b-a3b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 16
[model_override]
num_hidden_layers = 4
[layout]
pipeline = 2
expert = 4
sharding = "zero1"
[train]
sequence_length = 1024
micro_batch = 1
global_batch = 32
[moe]
imbalance = { dirichlet = 20, seed = 1 }
)",
                                 "small.toml", folders));
  const LoweringInput input = drawn.lowering();
  std::atomic<int> shortest = 0;
  const LowerRole lower{[&](const Role& role) { return lower_repeating(input, role); },
                        [&](const Role& role) {
                          ++shortest;
                          return lower_shortest(input, role);
                        },
                        [&](const Role& role) { return lower_state(input, role); }};
  const TimingClasses found = timing_classes(input, drawn.roles, lower);
  EXPECT_EQ(found.workload.programs.size(), 8u);
  // Of each stage, the first and the last replica of one expert rank; and the first, which others might be made of if
  // it were longer.
  EXPECT_EQ(shortest, 6);
  for (const Role& role : drawn.roles)
    EXPECT_TRUE(timed_like(drawn.program(drawn.program_of(role)), lower_role(input, role)));
}

// Expert ranks with as many tokens share a program, and look for experts of their own in what DeepEP brings.
TEST(TimingClasses, RanksOfOtherExpertsAreTimedAsEachOther) {
  const Job flex(parse_scenario(R"(model = "models/qwen3-30b-a3b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 16
[model_override]
num_hidden_layers = 4
[layout]
tensor = 2
sequence_parallel = true
pipeline = 2
expert = 4
sharding = "zero1"
[moe]
dispatcher = "flex"
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 16
)",
                                "small.toml", folders));
  std::size_t others = 0;
  for (const Role& role : flex.roles) {
    if (&role != &flex.roles[flex.role_of_program[flex.program_of(role)]]) ++others;
    const RoleProgram its(flex, role);
    EXPECT_EQ(its.program().ops.size(), lower_role(flex.lowering(), role).ops.size());
  }
  EXPECT_GT(others, 0u);
  std::size_t ranks = 0;
  for (const RankGroup& group : predict(flex, simulate_time(flex)).groups) ranks += group.ranks.size();
  EXPECT_EQ(ranks, 16u);
}

TEST(TimingClasses, ARolesOpsComeWhenThoseOfItsClassDo) {
  const Trace trace = simulate_time(job());
  for (const Role& role : job().roles) {
    const RoleProgram its(job(), role);
    const ProgramTimes times = its.times(trace, role.ranks.front());
    ASSERT_EQ(times.host.size(), its.program().ops.size());
    EXPECT_TRUE(std::is_sorted(times.host.begin(), times.host.end()));
    const ClassTimeline timeline = its.timeline(trace, role.ranks.front());
    for (const std::size_t op : {std::size_t{0}, times.host.size() / 2, times.host.size() - 1})
      EXPECT_EQ(its.host_time(timeline, op), times.host[op]);
    for (const std::vector<ProgramTimes::Work>& stream : times.streams)
      EXPECT_TRUE(std::is_sorted(stream.begin(), stream.end(), [](const auto& a, const auto& b) {
        return a.before != b.before ? a.before < b.before : a.end < b.end;
      }));
  }
}

// Of each rank of an expert group in each of 16 stages: more than any memory has room for.
TEST(TimingClasses, AreRefusedWhereProgramsWouldTakeAllMemory) {
  std::ifstream file(source / "scenarios/examples/deepseek-v3-2048xh800.toml");
  std::string text(std::istreambuf_iterator<char>(file), {});
  const std::string batch = "global_batch = 3072";
  text.replace(text.find(batch), batch.size(), "global_batch = 307200");
  text += "[moe]\nimbalance = { dirichlet = 20, seed = 1 }\n";
  const Scenario scenario = parse_scenario(text, "job.toml", folders);
  const std::string problem = one_job::problem_of([&] { return Job(scenario); });
  EXPECT_NE(problem.find("job: error: 1024 programs of "), std::string::npos) << problem;
  EXPECT_NE(problem.find("GB are free here"), std::string::npos) << problem;
}

}  // namespace
}  // namespace tidemark::tests::timing_classes_test
