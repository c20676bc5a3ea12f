#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "scenarios/predict/job.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// DeepSpeed stage 3 lets its host thread be ahead of two gathers and of two reductions, so that what is borrowed of
// modules does not pile up.

namespace tidemark::tests::zero3_waits_test {
namespace {

std::int64_t waits_of_host(const std::string& layout) {
  const Job job(
      parse_scenario("model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\n"
                     "gpus = 8\n[model_override]\nnum_hidden_layers = 4\n[layout]\n" +
                         layout +
                         "[train]\nsequence_length = 1024\nmicro_batch = 1\nglobal_batch = 8\n[runtime]\nname = "
                         "\"deepspeed\"\n",
                     "zero.toml", folders));
  const Program program = job.program(0);
  return std::ranges::count_if(program.ops, [](const Op& op) { return std::holds_alternative<Sync>(op); });
}

// Each of four layers gathers seven parameters, forward and backward, in each of two steps; those of norms stay.
TEST(Zero3Waits, TheHostWaitsForGathersAndReductions) {
  EXPECT_GT(waits_of_host("sharding = \"zero3\"\n"), 2 * 2 * 4 * 6);
  EXPECT_LT(waits_of_host("sharding = \"zero2\"\n"), 2 * 2 * 8);
}

}  // namespace
}  // namespace tidemark::tests::zero3_waits_test
