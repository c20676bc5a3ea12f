#include "parallel/job/host_code.hpp"

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// What host threads spend in framework code is what was measured of it, and a step that waits for its host takes it.

namespace tidemark::tests::host_code_test {
namespace {

using namespace literals;

// A layer's, by job and phase of tests/ground_truth/host_code.toml.
struct Measured {
  double least = std::numeric_limits<double>::max();  ///< microseconds
  double ops = 0;
};
using Table = std::map<std::pair<std::string, std::string>, Measured>;

double number(const TomlValue& value) {
  const auto* whole = std::get_if<std::int64_t>(&value.value);
  return whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value.value);
}

Table measured() {
  const std::string file = std::string(TIDEMARK_SOURCE_DIR) + "/tests/ground_truth/host_code.toml";
  std::ifstream in(file);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const TomlTable document = parse_toml(text, file);
  Table table;
  for (const TomlValue& row : std::get<std::vector<TomlValue>>(document.keys.at(0).value.value)) {
    std::string job, phase;
    Measured its;
    for (const TomlKey& key : std::get<TomlTable>(row.value).keys) {
      if (key.name == "job") job = std::get<std::string>(key.value.value);
      if (key.name == "phase") phase = std::get<std::string>(key.value.value);
      if (key.name == "kernels" || key.name == "products" || key.name == "copies") its.ops += number(key.value);
      constexpr double of_an_addition = 1.85;  // microseconds
      if (key.name == "us" || key.name == "additions")
        for (const TomlValue& run : std::get<std::vector<TomlValue>>(key.value.value))
          its.least = std::min(its.least, number(run) * (key.name == "us" ? 1 : of_an_addition));
    }
    table[{job, phase}] = its;
  }
  return table;
}

Scenario llama(const std::string& runtime, const std::string& more) {
  return resolved_scenario(
      parse_scenario(fmt::format(R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/a100-sxm-80g.toml"
gpus = 8
[layout]
{}
[train]
sequence_length = 256
micro_batch = 1
global_batch = 8
{}
[runtime]
name = "{}"
)",
                                 runtime == "deepspeed" ? more.substr(0, more.find('\n')) : "",
                                 runtime == "deepspeed" ? more.substr(more.find('\n') + 1) : more, runtime),
                     "llama.toml", folders));
}

double microseconds(Duration its) { return static_cast<double>(its.count()) / 1e6; }

// A layer of the job: its ops at their cost, and its unit's collectives.
double a_layer(const HostCosts& costs, Phase phase, double ops, double collectives) {
  const auto p = static_cast<std::size_t>(phase);
  return ops * microseconds(costs.code[p]) + collectives * microseconds(costs.hooks[p]);
}

TEST(HostCode, IsWhatWasMeasured) {
  const Table table = measured();
  struct Case {
    std::string job, runtime, more;
    double forward_collectives = 0, backward_collectives = 0;
  };
  const std::string narrow = "precision = \"bf16\"\nmaster_dtype = \"bf16\"\n";
  const std::string lora = "[adapter]\nrank = 8\ntarget_modules = \"all-linear\"\n";
  const std::vector<Case> all{
      {"plain_fused", "pytorch", narrow},
      {"autocast", "pytorch", "precision = \"bf16\"\nmaster_dtype = \"fp32\"\n"},
      {"lora", "pytorch", narrow + lora},
      {"checkpoint_nonreentrant", "pytorch", narrow + "recompute = \"full\"\n"},
      {"fsdp2", "fsdp2", "precision = \"bf16\"\n", 1, 2},
      {"fsdp1", "fsdp", "precision = \"bf16\"\n", 1, 2},
      {"zero1", "deepspeed", "sharding = \"zero1\"\nprecision = \"bf16\"\n"},
      {"zero2", "deepspeed", "sharding = \"zero2\"\nprecision = \"bf16\"\n"},
      {"zero3", "deepspeed", "sharding = \"zero3\"\nprecision = \"bf16\"\n"},
  };
  for (const Case& its : all) {
    const PricedJob job(llama(its.runtime, its.more));
    const HostCosts costs = host_code(job.lowering());
    const Measured forward = table.at({its.job, "forward"}), backward = table.at({its.job, "backward"});
    EXPECT_NEAR(a_layer(costs, Phase::Forward, forward.ops, its.forward_collectives) / forward.least, 1, 0.01)
        << its.job;
    EXPECT_NEAR(a_layer(costs, Phase::Backward, backward.ops, its.backward_collectives) / backward.least, 1, 0.01)
        << its.job;
  }
}

TEST(HostCode, OfMegatronIsThatOfItsLocalModules) {
  const Table table = measured();
  const HostCosts costs = megatron_host_code();
  const auto expect = [&](const char* phase_name, Phase phase) {
    const Measured its = table.at({"megatron_local", phase_name});
    EXPECT_NEAR(a_layer(costs, phase, its.ops, 0) / its.least, 1, 0.01) << phase_name;
  };
  expect("forward", Phase::Forward);
  expect("backward", Phase::Backward);
  expect("optimizer", Phase::OptimizerStep);
}

// A LoRA job of 256 tokens on an A100 whose host is half as quick as the one that was measured, or a quarter: its
// kernels are shorter than what they cost the host. The count beside it is of the program that is lowered.
TEST(HostCode, AStepThatWaitsForItsHostTakesWhatItsOpsCost) {
  Scenario scenario = llama("pytorch",
                            "precision = \"bf16\"\nmaster_dtype = \"bf16\"\n[adapter]\nrank = 8\n"
                            "target_modules = \"all-linear\"\n");
  for (const double factor : {2.0, 4.0}) {
    scenario.cluster.host.code_factor = Ratio{static_cast<std::int64_t>(factor * 1'000'000)};
    const Job job(scenario);
    const HostCosts costs = job.times.classes.front().host;
    const Workload workload = lower(job.lowering());
    const Program& program = workload.programs.front();
    Duration counted;
    Phase phase = Phase::Construction;
    bool last = false;
    for (const Op& op : program.ops) {
      if (const auto* mark = std::get_if<Mark>(&op)) {
        phase = mark->phase;
        last = mark->step == scenario.train.steps;
      }
      if (last && is_handed_over(program, op)) counted += costs.of(phase);
    }
    const double step = seconds(predict(scenario).step.step);
    EXPECT_NEAR(step / seconds(counted), 1, 0.05) << "factor " << factor << ", " << seconds(counted) << " s";
  }
}

}  // namespace
}  // namespace tidemark::tests::host_code_test
