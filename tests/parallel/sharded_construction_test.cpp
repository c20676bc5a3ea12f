#include <algorithm>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "tests/parallel/test_job.hpp"

// What frameworks make on the device on the way to a model that ranks share out.

namespace tidemark::tests::sharded_construction_test {
namespace {

TestJob sharded_job(std::string framework, std::int32_t ranks) {
  TestJob job;
  job.framework = std::move(framework);
  job.model.layers.resize(1);
  job.layout.data = ranks;
  job.layout.sharding = Sharding::Zero3;
  job.train.global_batch = ranks;
  job.train.precision = DType::BF16;
  return job;
}

// What the last rank makes of a module before its first step, in order: "what bytes", and of what goes again "- place".
// Not what it gathers and cuts once it is there.
std::vector<std::string> made(const TestJob& job, std::string_view module) {
  const Lowered lowered(job);
  const Program program = lower_role(lowered.input, lowered.roles.back());
  std::vector<std::string> all;
  std::vector<BufferId> its;
  for (const Op& op : program.ops) {
    if (const auto* mark = std::get_if<Mark>(&op); mark != nullptr && mark->step > 0) break;
    if (const auto* alloc = std::get_if<Alloc>(&op)) {
      const std::string& label = program[alloc->label];
      if (!label.starts_with(module) || alloc->space != MemorySpace::Device) continue;
      if (label.ends_with("gathered") || label.ends_with("part")) continue;
      its.push_back(alloc->buffer);
      all.push_back(label.substr(module.size() + 1) + " " + std::to_string(alloc->size.count()));
    } else if (const auto* free = std::get_if<Free>(&op)) {
      const auto found = std::ranges::find(its, free->buffer);
      if (found != its.end()) all.push_back("- " + std::to_string(found - its.begin()));
    }
  }
  return all;
}

using Made = std::vector<std::string>;

// FSDPParam.reset_sharded_param: to_empty makes the rank's own rows, which are copied to where there is room for as
// many as others have.
TEST(ShardedConstruction, MakesUnevenShardsTwice) {
  // 1000 rows of 768 in fp32: 143 for six ranks, 142 for the seventh.
  EXPECT_EQ(made(sharded_job("fsdp2", 7), "embed_tokens"),
            (Made{"weight.local 436224", "weight.parameter 439296", "- 0"}));
  EXPECT_EQ(made(sharded_job("fsdp2", 8), "embed_tokens"), (Made{"weight.parameter 384000"}));
}

// partition_parameters.py zero_wrapper_for_fp_tensor_constructor: in PyTorch's usual type, then cast. A module's
// parameters are partitioned once all of them are there.
TEST(ShardedConstruction, MakesModulesWholeUnderZeroInit) {
  TestJob job = sharded_job("deepspeed", 2);
  job.model.qkv_bias = true;
  EXPECT_EQ(made(job, "layers.0.self_attn.q_proj"), Made{}) << "goes back to the driver before the first step";
  job.settings.eager.zero.offload_optimizer = job.settings.eager.zero.offload_parameters = MemorySpace::Pinned;
  // 768 x 512 and 512.
  EXPECT_EQ(made(job, "layers.0.self_attn.q_proj"), (Made{"weight.made 1572864", "weight.made 786432", "- 0",
                                                          "bias.made 2048", "bias.made 1024", "- 2", "- 1", "- 3"}));
}

}  // namespace
}  // namespace tidemark::tests::sharded_construction_test
