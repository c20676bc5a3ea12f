#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/predict/time/step_causes.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/scenarios/folders.hpp"

// tp-comm-overlap: TransformerEngine's Userbuffers. That ranks compute what one does is in tests/validate.

namespace tidemark::tests::user_buffers_test {
namespace {

using namespace literals;

constexpr std::string_view on = "tp-comm-overlap = true\n", ranks = "tensor = 4\nsequence_parallel = true\n";

// Four layers of Llama-3.1 8B over four ranks of a node: a rank's part of 8,192 tokens is 16 MiB of 64.
Scenario scenario(std::string_view switches, std::string_view more = "", std::string_view layout = ranks) {
  return parse_scenario(fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 4
[layout]
{}sharding = "zero1"
[train]
sequence_length = 8192
micro_batch = 1
global_batch = 8
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
{}[runtime.switches]
{})",
                                    layout, more, switches),
                        "job.toml", folders);
}
std::string problem(std::string_view switches, std::string_view more = "", std::string_view layout = ranks) {
  try {
    (void)scenario(switches, more, layout);
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}

Duration exposed(const Job& job) {
  return cause_times(job.communicators(), job.folding,
                     account_of(job, simulate_time(job)).classes)[static_cast<std::size_t>(StepCause::Tensor)];
}

TEST(UserBuffers, HideMostOfWhatTensorParallelRanksSay) {
  const Job without(scenario("")), with(scenario(on));
  EXPECT_LT(2 * exposed(with), exposed(without));
  EXPECT_EQ(with.folding.classes.size(), without.folding.classes.size());
  EXPECT_LT(last_step(simulate_time(with)), last_step(simulate_time(without)));
  // Each way that is turned off leaves more to wait for.
  for (const char* off : {"disable-tp-comm-overlap-ag = true\n", "disable-tp-comm-overlap-rs = true\n"}) {
    SCOPED_TRACE(off);
    EXPECT_GT(exposed(Job(scenario(std::string(on) + off))), exposed(with));
  }
}

TEST(UserBuffers, LieBesideTheAllocator) {
  const Prediction without = predict(scenario("")), with = predict(scenario(on));
  const MemoryRecord &plain = without.highest().memory, &registered = with.highest().memory;
  EXPECT_EQ(registered.device.composition[Category::CommTp], plain.device.composition[Category::CommTp] + 12 * 64_MiB)
      << "one for each product that may overlap";
  // 2.11 has a workspace of three streams besides; gathered tensors are not in the allocator's memory.
  EXPECT_LT(registered.allocated.bytes, plain.allocated.bytes + 97_MiB);
}

TEST(UserBuffers, AsManyAsTheReleaseHas) {
  const auto registered = [](const char* release) {
    const Job job(scenario(on, fmt::format("[runtime.versions]\ntransformer_engine = \"{}\"\n", release)));
    Bytes sum;
    for (const Op& op : job.program(0).ops)
      if (const auto* alloc = std::get_if<Alloc>(&op); alloc != nullptr && alloc->space == MemorySpace::Registered)
        sum += alloc->size;
    return sum;
  };
  EXPECT_EQ(registered("2.11"), 12 * 64_MiB);
  EXPECT_EQ(registered("2.6"), 10 * 64_MiB);
  // Before 2.10 all of the library's GEMMs work in one place, made with the buffers.
  const auto workspaces = [](const char* release) {
    const Program program =
        Job(scenario(on, fmt::format("[runtime.versions]\ntransformer_engine = \"{}\"\n", release))).program(0);
    std::vector<std::string> names;
    for (const Op& op : program.ops)
      if (const auto* alloc = std::get_if<Alloc>(&op);
          alloc != nullptr &&
          (program[alloc->label] == "workspace.gemm" || program[alloc->label] == "workspace.user_buffers"))
        names.push_back(program[alloc->label]);
    return names;
  };
  EXPECT_EQ(workspaces("2.8"), (std::vector<std::string>{"workspace.user_buffers"}));
  EXPECT_EQ(workspaces("2.11"), (std::vector<std::string>{"workspace.user_buffers", "workspace.gemm"}));
}

// Three hand-overs for each product that goes in a ring: two forward and two backward of each layer.
TEST(UserBuffers, EveryPartGoesRound) {
  const Job job(scenario(on));
  const Program program = job.program(0);
  std::int64_t messages = 0;
  for (const Op& op : program.ops)
    if (const auto* exchange = std::get_if<Exchange>(&op)) messages += exchange->transfers.count;
  const std::int64_t micro_batches = 4, steps = 2, layers = 4;
  EXPECT_EQ(messages, 2 * 3 * 4 * layers * micro_batches * steps);
}

// Ranks whose parts come in another order take as long, and hold as much.
TEST(UserBuffers, TheFirstRanksProgramStandsForAll) {
  for (const char* layout : {"", "pipeline = 2\nchunks = 2\n"}) {
    SCOPED_TRACE(layout);
    const Scenario s = scenario(on, "", fmt::format("{}{}", ranks, layout));
    const Job one(s), each(executed(s));
    EXPECT_EQ(4 * one.outline.programs.size(), each.outline.programs.size());
    EXPECT_EQ(last_step(simulate_time(one)), last_step(simulate_time(each)));
    const Prediction of_one = predict(s), of_each = predict(executed(s));
    EXPECT_EQ(of_one.highest().memory.device.bytes, of_each.highest().memory.device.bytes);
    EXPECT_EQ(of_one.highest().memory.allocated.bytes, of_each.highest().memory.allocated.bytes);
  }
}

TEST(UserBuffers, WhereTheFrameworkStopsIsRefused) {
  EXPECT_EQ(problem(on), "no problem");
  EXPECT_NE(problem(on, "", "tensor = 4\n").find("sequence parallelism only"), std::string::npos);
  EXPECT_NE(problem(on, "", "").find("sequence parallelism only"), std::string::npos);
  EXPECT_NE(problem(on, "[runtime.versions]\ntransformer_engine = \"2.2\"\n").find("before TransformerEngine 2.4"),
            std::string::npos);
}

TEST(UserBuffers, ComeBackFromJson) {
  const auto switches = nlohmann::json::parse(
      scenario_json(scenario(std::string(on) + "disable-tp-comm-bulk-wgrad = true\n"), 2))["runtime"]["switches"];
  EXPECT_EQ(switches["tp-comm-overlap"], true);
  EXPECT_EQ(switches["disable-tp-comm-bulk-wgrad"], true);
  EXPECT_FALSE(switches.contains("disable-tp-comm-overlap-ag"));
}

}  // namespace
}  // namespace tidemark::tests::user_buffers_test
